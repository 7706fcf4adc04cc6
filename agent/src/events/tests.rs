use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use agent_api::events::{Event, Phase, State};

use super::{Bus, LossyWriter, Paths, find_port, line};

fn paths(dir: &Path) -> Paths {
    Paths {
        events: dir.join("run/events.jsonl"),
        boot_number: dir.join("run/boot-number"),
        durable: dir.join("data/events"),
        port: None,
    }
}

fn event(t: f64, step: &str, state: State) -> Event {
    Event::of_box(t, Phase::Runtime, step, state)
}

fn lines(path: &Path) -> usize {
    fs_err::read_to_string(path).expect("the file is there").lines().count()
}

#[test]
fn events_of_the_initrd_are_in_the_status_and_in_the_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let paths = paths(dir.path());
    fs_err::create_dir_all(dir.path().join("run")).expect("a folder");
    let told = Event::of_box(1.5, Phase::Medium, "find", State::Done);
    fs_err::write(&paths.events, line(&told)).expect("a file");
    let bus = Bus::open(&paths).expect("a bus");
    assert_eq!(bus.now().steps[0].step, "find");
    assert_eq!(bus.since(0), (0, vec![told]));
    drop(bus);
    assert_eq!(lines(&paths.durable.join("boot-1.jsonl")), 1);
}

#[test]
fn a_restarted_agent_continues_without_repeating() {
    let dir = tempfile::tempdir().expect("a folder");
    let paths = paths(dir.path());
    for round in 0..3 {
        let bus = Bus::open(&paths).expect("a bus");
        assert_eq!(bus.since(0).1.len(), round);
        bus.emit(event(1.0, "containerd", State::Started));
    }
    assert_eq!(lines(&paths.events), 3);
    assert_eq!(lines(&paths.durable.join("boot-1.jsonl")), 3);
    assert!(!paths.durable.join("boot-2.jsonl").exists());
}

#[test]
fn what_a_crash_cut_off_is_made_whole_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let paths = paths(dir.path());
    let bus = Bus::open(&paths).expect("a bus");
    bus.emit(event(1.0, "a", State::Done));
    bus.emit(event(2.0, "b", State::Done));
    drop(bus);
    let durable = paths.durable.join("boot-1.jsonl");
    for file in [&paths.events, &durable] {
        let text = fs_err::read(file).expect("the file");
        fs_err::write(file, &text[..text.len() - 5]).expect("cutting it");
    }
    let bus = Bus::open(&paths).expect("a bus");
    bus.emit(event(3.0, "c", State::Done));
    drop(bus);
    let steps = |path: &Path| -> Vec<String> {
        let text = fs_err::read_to_string(path).expect("the file");
        text.lines().map(|line| serde_json::from_str::<Event>(line).expect("an event").step).collect()
    };
    assert_eq!(steps(&paths.events), ["a", "c"]);
    assert_eq!(steps(&durable), ["a", "c"]);
}

#[test]
fn each_boot_has_its_file_and_only_the_last_eight_stay() {
    let dir = tempfile::tempdir().expect("a folder");
    let paths = paths(dir.path());
    for _ in 0..11 {
        let bus = Bus::open(&paths).expect("a bus");
        bus.emit(event(1.0, "a", State::Done));
        drop(bus);
        // A power cycle empties /run.
        fs_err::remove_dir_all(dir.path().join("run")).expect("removing /run");
    }
    assert!(!paths.durable.join("boot-3.jsonl").exists());
    for kept in 4..=11 {
        assert!(paths.durable.join(format!("boot-{kept}.jsonl")).exists(), "boot {kept}");
    }
}

#[test]
fn done_tells_how_long_the_step_took() {
    let bus = Bus::in_memory();
    bus.emit(event(super::uptime() - 2.0, "containerd", State::Started));
    bus.done(Phase::Runtime, "containerd");
    let secs = bus.now().steps[0].detail["secs"].as_f64().expect("a number");
    assert!((2.0..3.0).contains(&secs), "{secs}");
}

#[test]
fn since_tells_where_the_history_begins_when_older_events_are_forgotten() {
    let bus = Bus::in_memory();
    for n in 0..3000 {
        bus.emit(event(f64::from(n), "a", State::Progress));
    }
    let (first, events) = bus.since(5);
    assert_eq!((first, events.len()), (952, 2048));
    assert_eq!(bus.since(3000), (3000, Vec::new()));
    assert_eq!(bus.since(u64::MAX), (3000, Vec::new()));
    assert_eq!(bus.beginning().len(), 1024);
}

#[test]
fn the_way_to_ready_is_kept_for_ever_and_the_files_stay_bounded() {
    let dir = tempfile::tempdir().expect("a folder");
    let paths = paths(dir.path());
    let bus = Bus::open(&paths).expect("a bus");
    bus.emit(event(1.0, "containerd", State::Done));
    bus.emit(Event::of_box(48.2, Phase::Ready, "ready", State::Done));
    let long = "x".repeat(2000);
    for n in 0..5000 {
        bus.emit(event(f64::from(n), "watch", State::Progress).with("filling", long.as_str()));
    }
    bus.emit(Event::of_box(9000.0, Phase::Ready, "ready", State::Done));
    assert_eq!((bus.beginning().len(), bus.ready_at()), (2, Some(48.2)));
    drop(bus);
    let size = |path: &Path| fs_err::metadata(path).expect("a file").len();
    assert!(size(&paths.events) <= 9 << 20);
    assert!(size(&paths.durable.join("boot-1.jsonl")) <= 2 << 20);
    assert!(size(&paths.durable.join("boot-1.old")) <= 2 << 20);
    let bus = Bus::open(&paths).expect("a bus");
    assert_eq!((bus.beginning().len(), bus.ready_at()), (2, Some(48.2)));
    assert!(bus.now().steps.iter().any(|step| step.step == "containerd"));
}

fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    rustix::io::ioctl_fionbio(&reader, true).expect("non-blocking");
    rustix::io::ioctl_fionbio(&writer, true).expect("non-blocking");
    while rustix::io::write(&writer, &[b'.'; 4096]).is_ok() {}
    (reader, writer)
}

#[test]
fn a_device_that_takes_nothing_blocks_nothing_and_loses_whole_messages_only() {
    let (reader, writer) = full_pipe();
    let mut lossy = LossyWriter::over(writer, 10);
    assert!(lossy.write(b"first\n"));
    assert!(!lossy.write(b"second\n"));
    assert!(lossy.write(b"3rd\n"));
    assert_eq!(lossy.dropped(), 1);
    let mut reader = fs_err::File::from_parts(reader.into(), "pipe");
    let mut got = vec![0; 1 << 20];
    let n = reader.read(&mut got).expect("the filling");
    assert!(got[..n].iter().all(|byte| *byte == b'.'));
    assert!(lossy.flush());
    let n = reader.read(&mut got).expect("the messages");
    assert_eq!(&got[..n], b"first\n3rd\n");
}

#[test]
fn emit_returns_at_once_when_the_port_is_blocked() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut paths = paths(dir.path());
    let fifo = dir.path().join("port");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a fifo");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
    let _reader = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).expect("the reader's end");
    paths.port = Some(fifo);
    let bus = Bus::open(&paths).expect("a bus");
    let long = "x".repeat(1024);
    for _ in 0..400 {
        bus.emit(event(1.0, "a", State::Progress).with("filling", long.as_str()));
    }
    assert_eq!(bus.since(0).1.len(), 400);
    let inner = bus.clone();
    drop(bus);
    // 64 KiB fit into the pipe and 128 KiB may wait: the rest of 400 KiB is lost, and counted.
    let told = std::time::Instant::now();
    while inner.dropped().port < 100 && told.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    assert!(inner.dropped().port >= 100, "{:?}", inner.dropped());
}

#[test]
fn the_port_is_found_by_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    for (port, name) in [("vport1p1", "org.qemu.guest_agent.0\n"), ("vport2p1", "org.foothold.events\n")] {
        fs_err::create_dir_all(dir.path().join(port)).expect("a folder");
        fs_err::write(dir.path().join(port).join("name"), name).expect("a file");
    }
    let found = find_port(dir.path(), "org.foothold.events");
    assert_eq!(found.as_deref(), Some(Path::new("/dev/vport2p1")));
    assert_eq!(find_port(dir.path(), "org.example"), None);
    assert_eq!(find_port(&dir.path().join("absent"), "org.example"), None);
}
