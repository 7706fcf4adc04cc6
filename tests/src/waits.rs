//! Waits of a machine that ended by their time limit: what systemd writes to console and journal when something did not
//! come in time.

/// What systemd and udev write when a wait has ended by its limit.
const ENDED: [&str; 8] = [
    "Timed out waiting for",
    "timed out. Terminating",
    "timed out. Killing",
    "timed out. Aborting",
    "timed out. Skipping",
    "timed out. Ignoring",
    "Dependency failed for",
    "Job timed out",
];
/// What systemd writes about a job that takes more than five seconds. Under emulation, real work may take as long, so only
/// jobs count that do nothing but wait.
const GOES_ON: [&str; 2] = ["A start job is running for", "A stop job is running for"];
/// Names of jobs that do nothing but wait: for devices, and for a network.
const ONLY_WAITS: [&str; 3] = ["/dev/", ".device", "Wait for "];

/// The lines about such waits.
pub fn sat_out(said: &str) -> Vec<&str> {
    let has = |line: &str, signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
    let told = said.lines().filter(|line| has(line, &ENDED) || has(line, &GOES_ON) && has(line, &ONLY_WAITS));
    told.map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::sat_out;

    #[test]
    fn waits_are_found_and_work_that_takes_long_is_none() {
        let said = "[  OK  ] Reached target network-pre.target\r\n\
            [ TIME ] Timed out waiting for device dev-disk-by\\x2dlabel-X.device\r\n\
            [DEPEND] Dependency failed for X.\r\n\
            [*     ] A start job is running for /dev/disk/by-label/X (5s / 1min 30s)\r\n\
            [*     ] A start job is running for Wait for Network to be Configured (5s / no limit)\r\n\
            [*     ] A start job is running for Cloud-init: Local Stage (7s / no limit)\r\n\
            server login: \r\n";
        assert_eq!(sat_out(said).len(), 4, "{:?}", sat_out(said));
        assert!(sat_out("[  OK  ] Started a job\nCloud-init finished").is_empty());
        assert_eq!(
            sat_out("a.service: start operation timed out. Terminating.\nState 'stop-sigterm' timed out. Killing.")
                .len(),
            2
        );
        // One question of many to a program that starts: the step asks again.
        assert!(sat_out("control-plane/roles: waits for the roles (GET /readyz: operation timed out)").is_empty());
    }
}
