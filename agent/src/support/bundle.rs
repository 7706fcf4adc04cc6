//! The support bundle: a tar.gz with what somebody far away needs to understand this box. What goes in is
//! named here, one by one; every text passes the [`Redactor`] on its way.

use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent_api::events::Event;
use agent_api::rest::{BoxStatus, Timeline};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::redact::{Redactor, Values};
use crate::host::runner::Runner;

/// What is made of the processes: see [`processes`].
const PROCESSES: &str = "processes.txt";
/// Columns before the control group.
const OF_PROCESS: usize = 7;
/// How long one program may run.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes at the end of a file that go in.
const FILE_TAIL: u64 = 1024 * 1024;
/// Bytes at the end of a container's log that go in, and how many logs.
const POD_LOG: (u64, usize) = (256 * 1024, 64);

/// Single files, by path below the root. None of them holds a key; what is written into them by others is redacted.
const FILES: &[&str] = &[
    "run/foothold/boot.json",
    "run/foothold/release.json",
    "run/foothold/medium-check.json",
    "run/foothold/medium-failures.jsonl",
    "var/lib/foothold/ledger.json",
    "var/lib/kubelet/config.yaml",
    "etc/os-release",
    "etc/resolv.conf",
    "proc/cmdline",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/mounts",
    "proc/modules",
    "proc/interrupts",
    "proc/partitions",
    "proc/diskstats",
    "proc/loadavg",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/net/dev",
];

/// Folders whose files with that ending go in.
const FOLDERS: &[(&str, &str)] = &[("etc/kubernetes/manifests", "yaml"), ("var/lib/foothold/events", "jsonl")];

/// Programs whose output goes in, and the file it becomes.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("journal.txt", &["journalctl", "-b", "--no-pager", "-n", "8000", "-o", "short-monotonic"]),
    ("journal-previous-boot.txt", &["journalctl", "-b", "-1", "--no-pager", "-n", "2000", "-o", "short-monotonic"]),
    (PROCESSES, &["ps", "-eo", "pid,ppid,stat,ni,times,etimes,rss,cgroup:400,args", "--sort=-times", "-ww"]),
    ("units.txt", &["systemctl", "list-units", "--all", "--no-pager", "--plain"]),
    ("network/addresses.txt", &["ip", "-details", "address"]),
    ("network/routes.txt", &["ip", "route", "show", "table", "all"]),
    ("network/routes-ipv6.txt", &["ip", "-6", "route", "show", "table", "all"]),
    ("network/neighbours.txt", &["ip", "neighbour"]),
    ("network/sockets.txt", &["ss", "-tulpn"]),
    ("network/nftables.txt", &["nft", "list", "ruleset"]),
    (
        "disks/lsblk.txt",
        &["lsblk", "-o", "NAME,SIZE,LOG-SEC,TYPE,RO,FSTYPE,LABEL,PARTLABEL,MODEL,SERIAL,TRAN,MOUNTPOINTS"],
    ),
    ("disks/df.txt", &["df", "-h"]),
    ("time.txt", &["chronyc", "-n", "tracking"]),
    ("containers.txt", &["ctr", "-n", "k8s.io", "tasks", "list"]),
];

const README: &str = "Support bundle of a Foothold box.

status.json, events.jsonl, timeline.json   what the agent knows
files/                                     files of the box, the end of each
journal*.txt, kernel.txt                   logs
network/, disks/, units.txt, ...           what programs printed
pods/                                      end of each container's log

Private keys, tokens and passwords are left out or replaced by [redacted]: the values of all Secrets and key files of
this box wherever they stand, and whatever looks like a secret. Of processes in pods only the program is told.
";

/// Where the bundle's content comes from.
pub(crate) struct BundleSources {
    pub status: BoxStatus,
    pub timeline: Timeline,
    pub events: Vec<Event>,
    pub root: PathBuf,
    pub runner: Arc<dyn Runner>,
}

/// Writes the bundle. A source that fails leaves a line that says why; only the writer's own errors end it.
pub(crate) fn write(sources: &BundleSources, into: impl Write) -> io::Result<()> {
    let gzip = GzEncoder::new(BufWriter::with_capacity(32 * 1024, into), Compression::fast());
    let values = Values::of_box(&sources.root, sources.runner.as_ref());
    let redactor = Redactor::new(&values);
    let mut bundle = Bundle { tar: tar::Builder::new(gzip), redactor, left_out: Vec::new() };
    bundle.add("README.txt", README)?;
    bundle.add("status.json", &json(&sources.status))?;
    let lines = sources.events.iter().filter_map(|event| serde_json::to_string(event).ok());
    bundle.add("events.jsonl", &lines.map(|line| line + "\n").collect::<String>())?;
    bundle.add("timeline.json", &json(&sources.timeline))?;
    for file in FILES {
        bundle.add_file(&format!("files/{file}"), &sources.root.join(file), FILE_TAIL)?;
    }
    for (folder, ending) in FOLDERS {
        for path in files_in(&sources.root.join(folder), ending) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            bundle.add_file(&format!("files/{folder}/{name}"), &path, FILE_TAIL)?;
        }
    }
    bundle.add_kernel_log(&sources.root.join("dev/kmsg"))?;
    for (name, argv) in PROGRAMS {
        match sources.runner.run(argv, b"", DEADLINE) {
            Ok(output) if *name == PROCESSES => bundle.add(name, &processes(&output.text()))?,
            Ok(output) => bundle.add(name, &output.text())?,
            Err(error) => bundle.leave_out(name, &error),
        }
    }
    let pods = sources.root.join("var/log/pods");
    // Whose values are not known cannot be taken out of what other pods said.
    let known = |path: &&PathBuf| values.secrets || is_of_system(path, &pods);
    if !values.secrets {
        bundle
            .left_out
            .push("pods/: only those of kube-system, for the API server does not tell its Secrets\n".to_owned());
    }
    for path in pod_logs(&pods).iter().filter(known).take(POD_LOG.1) {
        let name = path.strip_prefix(&pods).unwrap_or(path).to_string_lossy().into_owned();
        bundle.add_file(&format!("pods/{name}"), path, POD_LOG.0)?;
    }
    bundle.finish()
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

struct Bundle<W: Write> {
    tar: tar::Builder<GzEncoder<BufWriter<W>>>,
    redactor: Redactor,
    left_out: Vec<String>,
}

impl<W: Write> Bundle<W> {
    fn add(&mut self, name: &str, text: &str) -> io::Result<()> {
        let text = self.redactor.text(text);
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        self.tar.append_data(&mut header, Path::new("foothold-support").join(name), text.as_bytes())
    }

    fn add_file(&mut self, name: &str, path: &Path, most: u64) -> io::Result<()> {
        match tail_of(path, most) {
            Ok(bytes) => self.add(name, &String::from_utf8_lossy(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                self.leave_out(name, &error);
                Ok(())
            }
        }
    }

    fn add_kernel_log(&mut self, kmsg: &Path) -> io::Result<()> {
        match kernel_log(kmsg) {
            Ok(text) => self.add("kernel.txt", &text),
            Err(error) => {
                self.leave_out("kernel.txt", &error);
                Ok(())
            }
        }
    }

    fn leave_out(&mut self, name: &str, error: &dyn std::error::Error) {
        self.left_out.push(format!("{name}: {error}\n"));
    }

    fn finish(mut self) -> io::Result<()> {
        let left_out = self.left_out.concat();
        self.add("left-out.txt", &left_out)?;
        self.tar.into_inner()?.finish()?.flush()
    }
}

/// What `ps` printed, without control groups, and of processes in pods the program alone.
fn processes(printed: &str) -> String {
    let mut told = String::with_capacity(printed.len());
    for line in printed.lines() {
        let mut rest = line;
        for _ in 0..OF_PROCESS {
            rest = rest.trim_start();
            rest = rest.find(char::is_whitespace).map_or("", |end| &rest[end..]);
        }
        let (before, rest) = (&line[..line.len() - rest.len()], rest.trim_start());
        let (group, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let arguments = arguments.trim_start();
        let program = arguments.split_whitespace().next().unwrap_or_default();
        let in_pod = group.contains("kubepods");
        told.push_str(before);
        told.push(' ');
        told.push_str(if in_pod { program } else { arguments });
        told.push_str(if in_pod { " (in a pod)\n" } else { "\n" });
    }
    told
}

/// Whether a log is of a pod of the cluster's own.
fn is_of_system(path: &Path, pods: &Path) -> bool {
    path.strip_prefix(pods).is_ok_and(|path| path.to_string_lossy().starts_with("kube-system_"))
}

/// The end of a file. Files of /proc tell no size, so they are read from their start.
fn tail_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = fs_err::File::open(path)?;
    let size = file.metadata()?.len();
    if size > most {
        file.seek(SeekFrom::Start(size - most))?;
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn files_in(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs_err::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    found.sort();
    found
}

/// `/var/log/pods/<namespace>_<pod>_<uid>/<container>/<n>.log`, the newest of each container first.
fn pod_logs(pods: &Path) -> Vec<PathBuf> {
    let folders = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs_err::read_dir(dir).into_iter().flatten().flatten();
        entries.filter(|e| e.file_type().is_ok_and(|k| k.is_dir())).map(|e| e.path()).collect()
    };
    let containers = folders(pods).into_iter().flat_map(|pod| folders(&pod));
    let mut logs: Vec<(usize, PathBuf)> = containers
        .flat_map(|container| files_in(&container, "log").into_iter().rev().enumerate().collect::<Vec<_>>())
        .collect();
    logs.sort();
    logs.into_iter().map(|(_, path)| path).collect()
}

/// Reads the kernel's ring buffer: one record a read, until there is no more (`Documentation/ABI/testing/dev-kmsg`).
fn kernel_log(kmsg: &Path) -> io::Result<String> {
    use rustix::fs::{Mode, OFlags};
    let device = rustix::fs::open(kmsg, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    let mut record = [0; 8192];
    while text.len() < 4 * 1024 * 1024 {
        match rustix::io::read(&device, &mut record) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
            Ok(n) => text.push_str(&kernel_line(&String::from_utf8_lossy(&record[..n]))),
            // PIPE: records were overwritten meanwhile; the next read goes on with the oldest one left.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(text)
}

/// `6,339,5140900,-;text` becomes `<6>[    5.140900] text`; the continuation lines (` KEY=value`) are left out.
fn kernel_line(record: &str) -> String {
    let line = record.lines().next().unwrap_or_default();
    let Some((head, text)) = line.split_once(';') else { return format!("{line}\n") };
    let mut fields = head.split(',');
    let level = fields.next().and_then(|level| level.parse::<u32>().ok()).unwrap_or(0) & 7;
    let micros = fields.nth(1).and_then(|micros| micros.parse::<u64>().ok()).unwrap_or(0);
    format!("<{level}>[{:5}.{:06}] {text}\n", micros / 1_000_000, micros % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::{kernel_line, processes};

    #[test]
    fn of_processes_in_pods_only_the_program_is_told() {
        let printed = "  PID  PPID STAT  NI     TIME ELAPSED   RSS CGROUP                 COMMAND\n\
                       \x20 900     1 Ssl    0       12    3000 90000 0::/system.slice/k     /usr/bin/kubelet --config=/x\n\
                       \x20 950   900 Ssl    0        2    3000  9000 0::/kubepods.slice/a/b /app/tool --licence ABC\n";
        let told = processes(printed);
        assert!(told.contains("90000 /usr/bin/kubelet --config=/x\n"), "{told}");
        assert!(told.contains("9000 /app/tool (in a pod)\n") && !told.contains("ABC"), "{told}");
    }

    #[test]
    fn a_kernel_record_becomes_a_line_as_dmesg_prints_it() {
        let record = "12,339,5140900,-;e1000: up\n SUBSYSTEM=pci\n DEVICE=+pci:0000:00:02.0\n";
        assert_eq!(kernel_line(record), "<4>[    5.140900] e1000: up\n");
    }
}
