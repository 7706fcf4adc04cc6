//! The screens and the serial text of a box in several states.

use agent_api::boot::{DataFound, MediumFailure, Mode};
use agent_api::events::{Event, Phase, State, Status};
use agent_api::rest::{
    BoxStatus, Eta, Medium, Memory, ObjectStatus, Progress, SiteNode, SiteObject, SiteStatus, SlowStep, Space,
};
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use rstest::rstest;
use serde_json::json;

use super::{Narrator, Page, Style, View, render, serials_of};

const FINGERPRINT: &str = "5A:1C:09:7E:44:B2:D0:91:3F:6A:C8:77:12:EE:05:9B:\
                           81:F3:2D:60:AA:4C:BE:19:D7:08:53:E1:96:2B:C4:7F";

fn event(t: f64, phase: Phase, step: &str, state: State) -> Event {
    Event::of_box(t, phase, step, state)
}

/// The first events of every boot.
fn beginning() -> Vec<Event> {
    let mut events = Vec::new();
    for (start, end, phase, step) in [
        (0.9, 2.4, Phase::Medium, "find"),
        (2.4, 3.0, Phase::Medium, "layers"),
        (3.0, 3.8, Phase::Disk, "data"),
        (6.1, 6.2, Phase::Identity, "site"),
        (6.2, 6.7, Phase::Network, "interfaces"),
        (6.7, 6.8, Phase::Time, "clock"),
        (6.8, 6.9, Phase::Content, "store"),
        (6.9, 7.2, Phase::Runtime, "containerd-state"),
        (7.2, 9.9, Phase::Runtime, "containerd"),
    ] {
        events.push(event(start, phase, step, State::Started));
        let secs = ((end - start) * 10.0_f64).round() / 10.0;
        events.push(event(end, phase, step, State::Done).with("secs", secs));
    }
    events
}

fn view(now: f64, events: &[Event]) -> View {
    let mut status = Status::default();
    for event in events {
        status.apply(event);
    }
    let done = status.steps.iter().filter(|step| step.secs.is_some()).count();
    let status = BoxStatus {
        name: "edge".to_owned(),
        version: "1.4.0".to_owned(),
        release: "0f3ac1d29be45077".repeat(4),
        development_key: true,
        hostname: "edge-3fa9c1".to_owned(),
        mode: Mode::Run,
        data: Some(DataFound::Partition { device: "vda4".to_owned(), created: true }),
        uptime_secs: now,
        ready_at: events.iter().find(|event| event.is_ready()).map(|event| event.t),
        clock: "2026-03-01T12:00:05Z".to_owned(),
        memory: Memory { used_mib: 512, total_mib: 3936 },
        progress: Progress { done, total: 19 },
        eta: None,
        objects: Vec::new(),
        site: SiteStatus::default(),
        medium: Medium::default(),
        space: Space::default(),
        web_fingerprint: FINGERPRINT.to_owned(),
        releases: Vec::new(),
        status,
    };
    View::of(&status, &["192.0.2.10".parse().expect("an address")], None)
}

fn booting() -> View {
    let mut view = view(1.5, &beginning()[..1]);
    view.web.clear();
    view.data.clear();
    view.progress = Progress { done: 0, total: 1 };
    view
}

fn waiting_events() -> Vec<Event> {
    let mut events = beginning();
    events.push(event(10.0, Phase::ControlPlane, "kubelet", State::Started));
    events.push(event(10.2, Phase::ControlPlane, "api-server", State::Started));
    let waits = event(10.4, Phase::ControlPlane, "api-server", State::Waiting);
    events.push(waits.with("for", "https://198.18.0.1:6443/readyz").with("why", "etcd is starting"));
    events
}

pub(super) fn waiting() -> View {
    let mut view = view(34.2, &waiting_events());
    view.medium.checked_percent = Some(42);
    view
}

/// As `waiting`, of a release that was proved: what it waits for is slow.
fn proved() -> View {
    let slow =
        SlowStep { phase: "control-plane".to_owned(), step: "api-server".to_owned(), secs: 24.0, proved_secs: 7.5 };
    let mut view = view(72.4, &waiting_events());
    view.eta = Some(Eta { elapsed_secs: 72.4, total_secs: 99.6, pace: 1.4, slow: vec![slow] });
    view
}

pub(super) fn failed() -> View {
    let mut events = beginning();
    events.push(event(10.0, Phase::Time, "chrony", State::Started));
    events.push(event(10.0, Phase::ControlPlane, "kubelet", State::Started));
    let cause = "`systemctl start kubelet.service` ended with 1: Job for kubelet.service failed because the control \
                 process exited with error code";
    let failed = event(12.4, Phase::ControlPlane, "kubelet", State::Failed).with("cause", cause);
    events.push(failed.with("next", "tried again in 8 s").with("log", "journalctl -u kubelet"));
    let mut view = view(71.0, &events);
    view.medium.checked_percent = Some(58);
    view.medium.failures.push(MediumFailure {
        what: "containers".to_owned(),
        device: "sda3".to_owned(),
        block: 81_213,
        message: "layer `containers` is damaged at block 81213 of sda3: write the image to another stick".to_owned(),
    });
    view
}

pub(super) fn ready() -> View {
    let mut events = beginning();
    for (start, phase, step) in [
        (10.0, Phase::ControlPlane, "kubelet"),
        (12.0, Phase::ControlPlane, "api-server"),
        (31.5, Phase::Addons, "coredns"),
        (40.2, Phase::Services, "web"),
    ] {
        events.push(event(start, phase, step, State::Started));
        events.push(event(start + 1.3, phase, step, State::Done).with("secs", 1.3));
    }
    events.push(event(41.0, Phase::Ready, "ready", State::Started));
    let timings = json!({"nodeReady": 38.2, "ready": 48.2});
    let ready = event(48.2, Phase::Ready, "ready", State::Done).with("timings", timings);
    events.push(ready.with("addresses", vec!["192.0.2.10"]).with("memoryUsedMib", 1012));
    let mut view = view(3725.0, &events);
    view.development_key = false;
    view.medium.checked_percent = Some(100);
    view.progress = Progress { done: 14, total: 14 };
    view
}

fn deploying() -> View {
    let mut events = beginning();
    events.push(event(50.0, Phase::Services, "site-health", State::Started));
    let object = |kind: &str, name: &str, healthy, message: &str| ObjectStatus {
        kind: kind.to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        set: "shop".to_owned(),
        healthy,
        message: message.to_owned(),
    };
    let why = "0 of 2 pods available, pod `web-6d4`: ImagePullBackOff (image docker.io/org/web:2)";
    View {
        objects: vec![
            object("ConfigMap", "settings", true, "there"),
            object("Deployment", "web", false, why),
            object("Job", "migrate", false, "0 of 1 completions"),
        ],
        ..view(61.0, &events)
    }
}

/// Ready, and a cluster is being made of the site's servers.
fn forming() -> View {
    let own = str::to_owned;
    let node = |name: &str, state: &str, message: &str| SiteNode {
        name: own(name),
        state: own(state),
        message: own(message),
        ..SiteNode::default()
    };
    let object = |kind: &str, name: &str, ready, state: &str, message: &str| SiteObject {
        kind: own(kind),
        namespace: own("default"),
        name: own(name),
        ready,
        state: own(state),
        message: own(message),
        ..SiteObject::default()
    };
    let nodes = vec![node("master-0", "Installed", ""), node("worker-0", "kubernetes/join (7 of 9)", "")];
    let cluster = object("Provisioning", "one", false, "Installing", "2 workers join");
    let site = SiteStatus {
        servers: [(own("provisioned"), 3), (own("error"), 1)].into(),
        objects: vec![
            object("BareMetalHost", "server-4", false, "error", "the BMC refuses the password"),
            SiteObject { nodes, eta: Some(own("2027-01-15T08:04:20Z")), ..cluster },
            object("Release", "names", true, "Installed", "1 object"),
        ],
    };
    View { site, ..ready() }
}

/// Ready, beside a stranger.
fn guarded() -> View {
    let message = "DHCP answers the 3 known machines only on enp2s0: another server answers; DHCP server 192.0.2.1 \
                   (02:00:00:00:00:07) offered 192.0.2.7 at 2027-01-15T08:00:00Z";
    let mut view = ready();
    let mut told = event(60.0, Phase::Services, "dhcp", State::Done).with("message", message);
    told.detail.insert("others".to_owned(), json!([{"server": "192.0.2.1"}]));
    let mut status = Status::default();
    status.apply(&event(55.0, Phase::Services, "dhcp", State::Started));
    status.apply(&told);
    view.steps.extend(status.steps);
    view
}

fn unclaimed() -> View {
    View { claim: Some("7KQ2M-XV9RD".to_owned()), data: "in memory only: no disk has 8 GiB free".to_owned(), ..ready() }
}

fn text(view: &View, page: Page, width: usize, height: usize) -> String {
    let lines = render(view, page, width, height);
    lines.iter().map(|line| line.text().trim_end().to_owned() + "\n").collect()
}

#[rstest]
#[case::booting("booting", booting())]
#[case::waiting("waiting", waiting())]
#[case::proved("proved", proved())]
#[case::deploying("deploying", deploying())]
#[case::failed("failed", failed())]
#[case::forming("forming", forming())]
#[case::ready("ready", ready())]
#[case::guarded("guarded", guarded())]
#[case::unclaimed("unclaimed", unclaimed())]
fn screens(#[case] name: &str, #[case] view: View) {
    for (width, height) in [(80, 25), (132, 43)] {
        insta::assert_snapshot!(format!("{name}_{width}x{height}"), text(&view, Page::Overview, width, height));
    }
}

#[test]
fn other_pages() {
    insta::assert_snapshot!("events_80x25", text(&failed(), Page::Events, 80, 25));
    insta::assert_snapshot!("steps_proved_80x25", text(&proved(), Page::Steps, 80, 25));
    insta::assert_snapshot!("steps_80x25", text(&failed(), Page::Steps, 80, 25));
}

#[test]
fn the_title_says_by_its_colour_how_the_box_is() {
    let style = |view: &View| render(view, Page::Overview, 80, 25)[0].spans[0].style;
    assert_eq!(style(&waiting()), Style::Title);
    assert_eq!(style(&failed()), Style::TitleBad);
    assert_eq!(style(&ready()), Style::TitleGood);
}

#[test]
fn safe_mode_is_in_the_title() {
    let view = View { mode: Mode::Safe, ..waiting() };
    assert!(text(&view, Page::Overview, 80, 25).lines().next().is_some_and(|line| line.contains("SAFE MODE")));
}

proptest! {
    #[test]
    fn every_size_is_filled_exactly(width in 0_usize..200, height in 0_usize..70) {
        for view in [booting(), waiting(), proved(), failed(), ready(), forming(), unclaimed()] {
            for page in [Page::Overview, Page::Events, Page::Steps] {
                let lines = render(&view, page, width, height);
                prop_assert_eq!(lines.len(), height);
                for line in lines {
                    prop_assert_eq!(line.text().chars().count(), width);
                    let code_page_437 = |c: char| (' '..='~').contains(&c) || "─│┬┴█░·►√".contains(c);
                    prop_assert!(line.text().chars().all(code_page_437), "{}", line.text());
                }
            }
        }
    }
}

#[test]
fn text_of_others_cannot_break_the_picture() {
    let mut events = beginning();
    let failed = event(11.0, Phase::Network, "interfaces", State::Failed);
    events.push(failed.with("cause", "bad\x1b[2J\nname “ü” \u{202e}x").with("next", "").with("log", ""));
    let shown = text(&view(12.0, &events), Page::Overview, 80, 25);
    assert!(!shown.contains('\x1b'));
    assert!(shown.contains("bad [2J name ??? ?x"), "{shown}");
}

#[test]
fn serial_consoles_tell_lines_and_sum_up_when_something_matters() {
    let mut narrator = Narrator::new();
    let mut told = String::new();
    for view in [booting(), waiting(), failed(), ready(), unclaimed()] {
        told.extend(["== ", &super::serial::state_of(&view), "\n"]);
        for event in view.recent.iter().rev().take(3).rev() {
            told += &narrator.event(event).unwrap_or_default();
        }
        told += &narrator.look(&view).unwrap_or_default();
        assert_eq!(narrator.look(&view), None);
    }
    insta::assert_snapshot!(told.replace('\r', ""));
}

#[test]
fn what_waits_long_is_told_again_with_growing_pauses() {
    let mut narrator = Narrator::new();
    let mut view = waiting();
    let mut told = Vec::new();
    for second in 34..400 {
        view.uptime = f64::from(second);
        if narrator.look(&view).is_some_and(|text| text.contains("still waits for")) {
            told.push(second);
        }
    }
    assert_eq!(told, [64, 124, 244]);
}

#[test]
fn a_serial_console_tells_the_estimate_every_ten_seconds_and_only_with_a_proof() {
    let mut narrator = Narrator::new();
    let mut view = proved();
    let mut told = Vec::new();
    for second in 60..95 {
        view.uptime = f64::from(second);
        let text = narrator.look(&view).unwrap_or_default();
        told.extend(text.lines().filter(|line| line.contains("about")).map(str::to_owned));
    }
    assert_eq!(told.len(), 4);
    assert_eq!(told[2], "[    80.000] step 10 of 19, 1 m 20 s of about 1 m 40 s");
    view.eta = None;
    view.uptime = 200.0;
    assert!(!narrator.look(&view).unwrap_or_default().contains("about"));
}

#[test]
fn an_event_of_a_slow_step_says_so() {
    let waits = event(51.0, Phase::ControlPlane, "api-server", State::Waiting).with("for", "etcd").with("why", "");
    let told = Narrator::new().event(&waits.with("slow", true).with("provedSecs", 7.5)).expect("a line");
    assert_eq!(told, "[    51.000] control-plane/api-server: waits for etcd; slow: 7.5 s at the proof\r\n");
}

#[test]
fn only_serial_lines_that_the_kernel_uses_are_written_to() {
    assert_eq!(serials_of("tty0 ttyS0\n").collect::<Vec<_>>(), ["ttyS0"]);
    assert_eq!(serials_of("tty1 hvc0 ttyAMA0").collect::<Vec<_>>(), ["hvc0", "ttyAMA0"]);
    assert_eq!(serials_of("").count(), 0);
}
