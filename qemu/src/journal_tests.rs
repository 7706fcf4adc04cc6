//! Tests of the journal.

use std::io::{Cursor, Write};

use rstest::rstest;
use serde_json::json;

use super::*;

fn journal(events: &'static str, serial: &'static str) -> Journal {
    let journal = Journal::new();
    journal.follow_events(Cursor::new(events));
    journal.follow_serial(Cursor::new(serial), None);
    journal.follow_stderr(Cursor::new("qemu-system-x86_64: terminating\n"));
    assert!(journal.wait_ended(Instant::now() + Duration::from_secs(5)));
    journal
}

const EVENTS: &str =
    "{\"phase\":\"medium\",\"state\":\"done\"}\nnot json\n\n{\"phase\":\"ready\",\"state\":\"done\"}\n{\"cut";

#[test]
fn malformed_lines_are_kept_and_partial_ones_are_not_lines() {
    let events = journal(EVENTS, "").events();
    let texts: Vec<_> = events.iter().map(|event| (event.text.as_str(), event.value.is_some())).collect();
    assert_eq!(
        texts,
        [
            ("{\"phase\":\"medium\",\"state\":\"done\"}", true),
            ("not json", false),
            ("{\"phase\":\"ready\",\"state\":\"done\"}", true)
        ]
    );
}

#[test]
fn events_said_before_the_end_are_found_after_it() {
    let journal = journal(EVENTS, "");
    let patience = Patience::stall(Duration::from_secs(5));
    let mut position = 0;
    let found = journal.wait_event(&mut position, patience, "ready", |event| event["phase"] == "ready");
    assert_eq!(found.expect("there"), json!({"phase": "ready", "state": "done"}));
    assert_eq!(position, 3);
}

#[test]
fn a_machine_that_ended_fails_the_wait_with_what_it_said_last() {
    let journal = journal(EVENTS, "\u{1b}[1;31mkernel panic\u{1b}[0m\r\n");
    let error = journal
        .wait_event(&mut 0, Patience::stall(Duration::from_secs(60)), "the API", |_| false)
        .expect_err("never comes");
    let text = error.to_string();
    assert!(text.starts_with("waiting for the API: the machine ended\nlast events:\n"), "{text}");
    for said in ["not json", "  kernel panic\n", "QEMU says:\n  qemu-system-x86_64: terminating"] {
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn the_same_event_again_is_no_progress() {
    let (source, mut machine) = std::os::unix::net::UnixStream::pair().expect("socket pair");
    let journal = Journal::new();
    journal.follow_events(source);
    // Keeps QEMU "running".
    let (stderr, _running) = std::os::unix::net::UnixStream::pair().expect("socket pair");
    journal.follow_stderr(stderr);
    let writer = std::thread::spawn(move || {
        for n in 0..1000 {
            let line = format!("{{\"t\":{n},\"phase\":\"network\",\"state\":\"waiting\"}}\n");
            if machine.write_all(line.as_bytes()).is_err() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(5));
        }
    });
    let patience = Patience { stall: Duration::from_millis(200), total: Duration::from_secs(4) };
    let error = journal.wait_event(&mut 0, patience, "ready", |_| false).expect_err("stalls");
    assert_eq!(error.why, Why::Stalled(patience.stall));
    drop(journal);
    writer.thread().unpark();
}

#[rstest]
#[case("plain", "plain")]
#[case("\u{1b}[0;32m  OK  \u{1b}[0m", "  OK  ")]
#[case("\u{1b}[2J\u{1b}[1;1Htop\u{7}", "top")]
#[case("cut \u{1b}[3", "cut ")]
fn escape_sequences_are_taken_out(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(printable(line), expected);
}
