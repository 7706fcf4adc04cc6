use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::text::Text;
use super::{BuiltOutput, CommandError, Outcome, Report, Timings};
use crate::error::{Exit, WrongUsage};
use crate::fixtures::proof_of;

fn report() -> (Report, Text, Text) {
    let (data, lines) = (Text::default(), Text::default());
    (Report::to_writers(Box::new(data.clone()), Box::new(lines.clone())), data, lines)
}

#[test]
fn events_have_the_documented_shape() {
    let (report, data, _) = report();
    let step = report.step("kubernetes", "go-build");
    step.bytes(50, Some(100));
    step.waiting("the lock", "another build runs");
    step.done();
    report.skipped("layers", "os", "cached");
    let events = data.json();
    let states: Vec<&str> = events.iter().filter_map(|event| event["state"].as_str()).collect();
    assert_eq!(states, ["started", "progress", "waiting", "done", "skipped"]);
    for event in &events {
        assert!(event["t"].is_f64(), "{event}");
        assert_eq!(event["source"], "build");
    }
    assert_eq!(events[1]["detail"]["bytes"], 50);
    assert_eq!(events[1]["detail"]["totalBytes"], 100);
    assert_eq!(events[2]["detail"]["for"], "the lock");
    assert!(events[3]["detail"]["secs"].is_f64());
    assert_eq!(events[4]["detail"]["why"], "cached");
}

/// Writes nothing, for this reason.
struct Full(std::io::ErrorKind);

impl std::io::Write for Full {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn output_that_is_lost_is_a_failure_but_for_a_reader_that_has_enough() {
    for (kind, expected) in [(ErrorKind::StorageFull, Exit::Failed), (ErrorKind::BrokenPipe, Exit::Done)] {
        let lines = Text::default();
        let report = Report::to_writers(Box::new(Full(kind)), Box::new(lines.clone()));
        assert_eq!(report.finish(&Ok(Outcome::Done)), expected, "{kind}");
        assert_eq!(lines.text().contains("not all of the output could be written"), expected == Exit::Failed);
    }
}

#[test]
fn a_path_that_is_no_text_is_told_all_the_same() {
    let (report, data, _) = report();
    let file = PathBuf::from(OsStr::from_bytes(b"caf\xe9/appliance.yaml"));
    assert_eq!(report.finish(&Ok(Outcome::Initialised { file })), Exit::Done);
    assert_eq!(data.json()[0]["file"], "caf\u{fffd}/appliance.yaml");
}

#[test]
fn a_step_that_is_dropped_has_failed() {
    let (report, data, lines) = report();
    drop(report.step("toolbox", "mmdebstrap"));
    assert_eq!(data.json()[1]["state"], "failed");
    assert!(lines.lines()[1].contains("failed: stopped before it was done"), "{:?}", lines.lines());
}

#[test]
fn a_step_that_is_dropped_after_a_signal_was_interrupted() {
    let (report, data, _) = report();
    let step = report.step("toolbox", "mmdebstrap");
    report.cancel().cancel();
    drop(step);
    assert_eq!(data.json()[1]["detail"]["cause"], "interrupted");
}

#[test]
fn many_progress_calls_make_few_events_but_the_last_one_counts() {
    let (report, data, _) = report();
    let step = report.step("outputs", "qcow2");
    (1..=10_000).for_each(|done| step.bytes(done, Some(10_000)));
    step.done();
    let events = data.json();
    assert!(events.len() < 20, "{} events", events.len());
    assert_eq!(events[events.len() - 2]["detail"]["bytes"], 10_000);
}

#[test]
fn parallel_steps_never_mix_their_lines() {
    let (report, data, lines) = report();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let report = report.clone();
            scope.spawn(move || (0..50).for_each(|i| report.step(name, &format!("step-{i}")).done()));
        }
    });
    assert_eq!(data.json().len(), 400);
    assert_eq!(lines.lines().len(), 400);
}

#[test]
fn the_last_line_is_the_result() {
    let (report, data, _) = report();
    let output = BuiltOutput { format: "raw".into(), file: "out/a.raw".into(), bytes: 7, sha256: "00".into() };
    let built = |development_agent| Outcome::Built { outputs: vec![output.clone()], development_agent, secs: 1.5 };
    let exit = report.finish(&Ok(built(false)));
    assert_eq!(exit, Exit::Done);
    assert_eq!(
        data.lines()[0],
        r#"{"result":"built","outputs":[{"format":"raw","file":"out/a.raw","bytes":7,"sha256":"00"}],"secs":1.5}"#
    );
    report.finish(&Ok(built(true)));
    assert!(data.lines()[1].contains(r#","developmentAgent":true,"#), "{:?}", data.lines());
}

#[test]
fn the_shapes_of_ready_and_proof_are_those_that_scripts_know() {
    let ready = Outcome::Ready {
        web: "https://127.0.0.1:8443".into(),
        kubeconfig: "k".into(),
        secs: 9.0,
        timings: Timings { node_ready: 4.0, ready: 5.0 },
    };
    assert_eq!(
        serde_json::to_string(&ready).expect("it serializes"),
        r#"{"result":"ready","web":"https://127.0.0.1:8443","kubeconfig":"k","secs":9.0,"timings":{"nodeReady":4.0,"ready":5.0}}"#
    );
    let proof = Outcome::Proof {
        node_ready_secs: 1.0,
        ready_secs: 2.0,
        reboot_ready_secs: 3.0,
        memory_used_mib: 4,
        image_bytes: 5,
        pulls: Vec::new(),
        steps: Vec::new(),
        proof: Box::new(proof_of("ab")),
        signed: true,
    };
    let text = serde_json::to_string(&proof).expect("it serializes");
    let known = r#"{"result":"proof","nodeReadySecs":1.0,"readySecs":2.0,"rebootReadySecs":3.0,"memoryUsedMiB":4,"imageBytes":5,"pulls":[],"steps":[],"proof":{"#;
    assert!(text.starts_with(known), "{text}");
    assert!(text.ends_with(r#"},"signed":true}"#), "{text}");
}

#[test]
fn an_error_has_message_hint_and_code() {
    let (report, data, lines) = report();
    let wrong = WrongUsage { message: "`x` is not an image".into(), hint: "give a raw image".into() };
    let exit = report.finish(&Err(CommandError::from(wrong)));
    assert_eq!(exit, Exit::Wrong);
    assert_eq!(
        data.lines()[0],
        r#"{"result":"error","message":"`x` is not an image","hint":"give a raw image","code":64}"#
    );
    assert_eq!(lines.lines(), ["error: `x` is not an image", "hint: give a raw image"]);
}
