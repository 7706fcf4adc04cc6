//! The screen as lines of styled text: a pure function of the view and the size.
//!
//! Only letters that every Linux console font has (code page 437) are used.

use std::fmt::Write as _;

use agent_api::boot::Mode;
use agent_api::events::{DHCP_STEP, Event, Phase, State, StepStatus};
use agent_api::rest::{SiteObject, done_about};
use serde_json::Value;

use super::View;
use super::serial::{ascii, state_of};
use super::view::{duration, estimate, short_duration, words};

/// Width of the list of phases, its bar included.
const PHASES_WIDTH: usize = 27;
/// Rows above the middle part: title, blank, state, rule.
const HEAD: usize = 4;
/// Unhealthy objects that are named.
const MOST_OBJECTS: usize = 3;
/// Objects of the site that are named.
const MOST_OF_SITE: usize = 5;
/// Events that are shown even when the middle part wants more.
const LEAST_EVENTS: usize = 4;

/// How text looks; the screen turns it into colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Style {
    /// As the console has it.
    #[default]
    Plain,
    /// Less important.
    Dim,
    /// Rules between the parts.
    Frame,
    /// More important.
    Bold,
    /// Title bar while coming up, when ready, and in trouble.
    Title,
    /// Title bar of a box that is ready.
    TitleGood,
    /// Title bar of a box that needs a person.
    TitleBad,
    /// Ended well.
    Good,
    /// Going on.
    Busy,
    /// Waits.
    Warn,
    /// Failed.
    Bad,
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// How it looks.
    pub style: Style,
    /// What it says.
    pub text: String,
}

/// One row of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Pieces from left to right.
    pub spans: Vec<Span>,
}

impl Line {
    fn of(style: Style, text: impl Into<String>) -> Self {
        Self::default().and(style, text)
    }

    fn and(mut self, style: Style, text: impl Into<String>) -> Self {
        self.spans.push(Span { style, text: text.into() });
        self
    }

    fn then(mut self, other: Self) -> Self {
        self.spans.extend(other.spans);
        self
    }

    fn width(&self) -> usize {
        self.spans.iter().map(|span| span.text.chars().count()).sum()
    }

    /// Exactly `width` letters: cut off, or filled with blanks of the given style.
    fn fit(mut self, width: usize, fill: Style) -> Self {
        let mut left = width;
        for span in &mut self.spans {
            let long = span.text.chars().count();
            if long > left {
                span.text = span.text.chars().take(left).collect();
            }
            left -= long.min(left);
        }
        if left > 0 {
            self = self.and(fill, " ".repeat(left));
        }
        self.spans.retain(|span| !span.text.is_empty());
        self
    }

    /// The line without its looks.
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }
}

/// What is shown in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Page {
    /// Phases, access, what goes on, last events.
    #[default]
    Overview,
    /// As many events as fit.
    Events,
    /// All steps and how long they took.
    Steps,
}

/// Draws one page. Exactly `height` lines of `width` letters each.
pub fn render(view: &View, page: Page, width: usize, height: usize) -> Vec<Line> {
    let mut lines = vec![title(view, width), Line::default(), state_line(view, width), rule(width, None)];
    let body = height.saturating_sub(HEAD + 1);
    match page {
        Page::Overview => overview(view, width, body, &mut lines),
        Page::Events => lines.extend(events(&view.recent, body)),
        Page::Steps => lines.extend(steps(view, body)),
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize(height.saturating_sub(1), Line::default());
    if height > 0 {
        lines.push(footer(page));
    }
    lines.into_iter().map(|line| line.fit(width, Style::Plain)).collect()
}

fn title(view: &View, width: usize) -> Line {
    let style = match (view.in_trouble(), view.ready) {
        (true, _) => Style::TitleBad,
        (false, true) => Style::TitleGood,
        (false, false) => Style::Title,
    };
    let mut left = format!(" {}", ascii(&view.title));
    if !view.release.is_empty() {
        let _ = write!(left, "   release {}", view.release);
    }
    let mut right = String::new();
    match view.mode {
        Mode::Run => {}
        Mode::Safe => right += "SAFE MODE   ",
        Mode::Check => right += "MEDIUM CHECK   ",
    }
    if view.development_key {
        right += "DEVELOPMENT KEY   ";
    }
    // On a narrow screen the time of day matters more than the date.
    let clock = if width < 100 { view.clock.get(11..).unwrap_or_default() } else { &view.clock };
    right += clock;
    right += " ";
    let gap = width.saturating_sub(left.chars().count() + right.chars().count()).max(1);
    Line::of(style, left + &" ".repeat(gap) + &right).fit(width, style)
}

fn state_line(view: &View, width: usize) -> Line {
    let (style, word) = match (view.in_trouble(), view.ready) {
        (true, _) => (Style::Bad, "Needs attention"),
        (false, true) => (Style::Good, "Ready"),
        (false, false) => (Style::Busy, "Coming up"),
    };
    let long = if view.ready || view.in_trouble() { String::new() } else { bar(view, width) };
    let state = if view.ready { state_of(view).replace("ready ", "") } else { step_of(view) };
    let left = Line::of(Style::Plain, "  ").and(style, word).and(style, long).and(Style::Plain, format!("  {state}"));
    let memory = view.memory;
    // The estimate says how long it is up, and takes its room.
    let right = match view.eta {
        Some(_) if width < 100 => format!("{} MiB  ", memory.used_mib),
        Some(_) => format!("{} of {} MiB  ", memory.used_mib, memory.total_mib),
        None => format!("up {}   {} of {} MiB  ", duration(view.uptime), memory.used_mib, memory.total_mib),
    };
    let gap = width.saturating_sub(left.width() + right.chars().count()).max(2);
    left.and(Style::Dim, " ".repeat(gap) + &right)
}

fn step_of(view: &View) -> String {
    let total = view.progress.total.max(1);
    let step = format!("step {} of {total}", (view.progress.done + 1).min(total));
    match &view.eta {
        Some(eta) => format!("{step}, {}", estimate(eta, view.uptime)),
        None => step,
    }
}

fn bar(view: &View, width: usize) -> String {
    let long = (if view.eta.is_some() { width / 8 } else { width / 4 }).min(40);
    let done = long * view.progress.done / view.progress.total.max(1);
    format!("  {}{}", "█".repeat(done.min(long)), "░".repeat(long - done.min(long)))
}

fn rule(width: usize, cross: Option<(usize, char)>) -> Line {
    let letters = (0..width).map(|at| match cross {
        Some((place, letter)) if place == at => letter,
        _ => '─',
    });
    Line::of(Style::Frame, letters.collect::<String>())
}

fn overview(view: &View, width: usize, body: usize, lines: &mut Vec<Line>) {
    lines.pop();
    lines.push(rule(width, Some((PHASES_WIDTH, '┬'))));
    let pane = width.saturating_sub(PHASES_WIDTH + 4);
    let right = details(view, pane);
    let most = body.saturating_sub(1 + LEAST_EVENTS).max(Phase::ALL.len());
    let middle = right.len().clamp(Phase::ALL.len(), most);
    for row in 0..middle {
        let left = Phase::ALL.get(row).map_or_else(Line::default, |phase| phase_line(view, *phase));
        let left = left.fit(PHASES_WIDTH, Style::Plain).and(Style::Frame, "│ ");
        lines.push(left.then(right.get(row).cloned().unwrap_or_default()));
    }
    lines.push(rule(width, Some((PHASES_WIDTH, '┴'))));
    let left = body.saturating_sub(middle + 1);
    lines.extend(events(&view.recent, left));
}

fn phase_line(view: &View, phase: Phase) -> Line {
    let steps: Vec<&StepStatus> = view.steps.iter().filter(|step| step.phase == phase.name()).collect();
    let since = steps.iter().map(|step| step.since).fold(f64::INFINITY, f64::min);
    let until = steps.iter().map(|step| step.since + step.secs.unwrap_or(0.0)).fold(0.0, f64::max);
    let any = |wanted: State| steps.iter().any(|step| step.state == wanted);
    let (mark, style, long) = if steps.is_empty() {
        ("·", Style::Dim, None)
    } else if any(State::Failed) {
        ("x", Style::Bad, Some(view.uptime - since))
    } else if any(State::Waiting) {
        ("►", Style::Warn, Some(view.uptime - since))
    } else if any(State::Started) || any(State::Progress) {
        ("►", Style::Busy, Some(view.uptime - since))
    } else {
        ("√", Style::Good, Some(until - since))
    };
    let name = if style == Style::Dim { Style::Dim } else { Style::Plain };
    let long = long.map_or_else(String::new, short_duration);
    Line::of(Style::Plain, "  ")
        .and(style, mark)
        .and(name, format!(" {:<13}", phase.name()))
        .and(Style::Dim, format!("{long:>9}"))
}

/// The right side: trouble first, then how to come in, then what goes on.
fn details(view: &View, width: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for step in view.failed() {
        failure(step, view.uptime, width, &mut lines);
    }
    let shown = |message: &str| view.failed().any(|step| words(step.state, &step.detail) == message);
    for damage in view.medium.failures.iter().filter(|damage| !shown(&damage.message)).take(3) {
        lines.push(Line::of(Style::Bad, "medium damaged"));
        indent(&damage.message, Style::Plain, width, &mut lines);
    }
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    going_on(view, width, &mut lines);
    objects(view, width, &mut lines);
    site(view, width, &mut lines);
    other_dhcp(view, width, &mut lines);
    access(view, width, &mut lines);
    lines
}

fn failure(step: &StepStatus, now: f64, width: usize, lines: &mut Vec<Line>) {
    let ago = format!("  {} ago", duration(now - step.since));
    lines.push(Line::of(Style::Bad, format!("{}/{} failed", step.phase, step.step)).and(Style::Dim, ago));
    indent(&words(step.state, &step.detail), Style::Plain, width, lines);
    for (word, style) in [("next", Style::Bold), ("log", Style::Dim)] {
        if let Some(value) = step.detail.get(word).and_then(Value::as_str).filter(|text| !text.is_empty()) {
            indent(&format!("{word}: {value}"), style, width, lines);
        }
    }
}

fn going_on(view: &View, width: usize, lines: &mut Vec<Line>) {
    for step in view.running() {
        let long = duration(view.uptime - step.since);
        let style = if step.state == State::Waiting { Style::Warn } else { Style::Busy };
        let head = format!("{}/{}", step.phase, step.step);
        let gap = width.saturating_sub(head.chars().count() + long.chars().count() + 1).max(2);
        lines.push(Line::of(style, head).and(Style::Dim, " ".repeat(gap) + &long));
        let said = words(step.state, &step.detail);
        if !said.is_empty() {
            indent(&said, Style::Plain, width, lines);
        }
        if let Some(proved) = view.slow(step).filter(|_| !step.detail.contains_key("slow")) {
            indent(&format!("slow: {} at the proof", duration(proved)), Style::Warn, width, lines);
        }
    }
    if view.running().next().is_some() {
        lines.push(Line::default());
    }
}

/// How many of the declared objects are healthy, and what is wrong with the first of the others.
fn objects(view: &View, width: usize, lines: &mut Vec<Line>) {
    let unhealthy = || view.objects.iter().filter(|object| !object.healthy);
    let (total, bad) = (view.objects.len(), unhealthy().count());
    if total == 0 {
        return;
    }
    let style = if bad == 0 { Style::Good } else { Style::Warn };
    lines.push(
        Line::of(Style::Dim, format!("{:<12}", "Objects")).and(style, format!("{} of {total} healthy", total - bad)),
    );
    for object in unhealthy().take(MOST_OBJECTS) {
        indent(&format!("{}: {}", object.title(), object.message), Style::Plain, width, lines);
    }
    if bad > MOST_OBJECTS {
        indent(&format!("and {} more", bad - MOST_OBJECTS), Style::Dim, width, lines);
    }
}

/// How many servers are in which state; clusters, packages and releases, those first that are not Ready.
fn site(view: &View, width: usize, lines: &mut Vec<Line>) {
    let head = |name: &str| Line::of(Style::Dim, format!("{name:<12}"));
    if !view.site.servers.is_empty() {
        lines.push(head("Servers").and(Style::Plain, view.site.counts()));
    }
    let mut all: Vec<&SiteObject> = view.site.objects.iter().collect();
    // A stable sort: those of one kind stay together.
    all.sort_by_key(|object| object.ready);
    for object in all.iter().take(MOST_OF_SITE) {
        let style = if object.ready { Style::Good } else { Style::Warn };
        let SiteObject { kind, namespace, name, state, .. } = object;
        lines.push(head(of_site(kind)).and(Style::Plain, format!("{namespace}/{name} ")).and(style, state));
        if !object.ready {
            let eta = done_about(object.eta.as_deref());
            indent(&format!("{}{eta}", object.message), Style::Plain, width, lines);
        }
        for node in object.nodes.iter().filter(|_| !object.ready) {
            let style = if node.message.is_empty() { Style::Dim } else { Style::Warn };
            let eta = done_about(node.eta.as_deref());
            indent(&format!("{:<16} {}{eta}", node.name, node.state), style, width, lines);
        }
    }
    if all.len() > MOST_OF_SITE {
        indent(&format!("and {} more", all.len() - MOST_OF_SITE), Style::Dim, width, lines);
    }
}

/// A kind as its users call it.
fn of_site(kind: &str) -> &str {
    match kind {
        "BareMetalHost" => "Server",
        "Provisioning" => "Cluster",
        other => other,
    }
}

/// Other DHCP servers on the servers' network, as the guard saw them last. Nothing has failed, but people must know.
fn other_dhcp(view: &View, width: usize, lines: &mut Vec<Line>) {
    let step = view.steps.iter().find(|step| step.step == DHCP_STEP && step.phase == Phase::Services.name());
    let Some(step) = step.filter(|step| step.state == State::Done) else { return };
    let has_others = step.detail.get("others").and_then(Value::as_array).is_some_and(|others| !others.is_empty());
    if let Some(message) = step.detail.get("message").and_then(Value::as_str).filter(|_| has_others) {
        lines.push(Line::of(Style::Warn, "another DHCP server"));
        indent(message, Style::Plain, width, lines);
    }
}

fn access(view: &View, width: usize, lines: &mut Vec<Line>) {
    let mut row = |name: &str, style: Style, value: &str| {
        for (at, piece) in wrap(&ascii(value), width.saturating_sub(12)).into_iter().enumerate() {
            let name = if at == 0 { name } else { "" };
            lines.push(Line::of(Style::Dim, format!("{name:<12}")).and(style, piece));
        }
    };
    for (at, web) in view.web.iter().take(4).enumerate() {
        row(if at == 0 { "Web" } else { "" }, Style::Bold, web);
    }
    if view.web.is_empty() {
        row("Web", Style::Warn, "no address yet: no cable, or no DHCP answer");
    }
    if let Some(code) = &view.claim {
        row("Claim code", Style::Bold, code);
        row("", Style::Plain, "enter it on the web page to get access");
    } else if !view.web.is_empty() {
        row("Kubeconfig", Style::Plain, "on the web page, with the token");
    }
    row("Host", Style::Plain, &view.hostname);
    if !view.data.is_empty() {
        row("Data", Style::Plain, &view.data);
    }
    if let Some(percent) = view.medium.checked_percent {
        let (style, more) =
            if view.medium.failures.is_empty() { (Style::Plain, "") } else { (Style::Bad, ", DAMAGED") };
        row("Medium", style, &format!("{percent} % verified{more}"));
    }
    row("Authority", Style::Dim, &view.fingerprint);
}

fn indent(text: &str, style: Style, width: usize, lines: &mut Vec<Line>) {
    for piece in wrap(&ascii(text), width.saturating_sub(2)) {
        lines.push(Line::of(style, format!("  {piece}")));
    }
}

/// Breaks text at blanks; what is longer than a line breaks after a colon, or anywhere.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = Vec::new();
    let mut rest = text.trim_end();
    while rest.len() > width {
        let head = &rest[..=width.min(rest.len() - 1)];
        let at = head.rfind(' ').or_else(|| head[..width].rfind(':').map(|at| at + 1)).filter(|at| *at > 0);
        let (line, next) = rest.split_at(at.unwrap_or(width));
        lines.push(line.to_owned());
        rest = next.trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

fn events(recent: &[Event], rows: usize) -> Vec<Line> {
    let shown = recent.len().saturating_sub(rows);
    recent[shown..].iter().map(event_line).collect()
}

fn event_line(event: &Event) -> Line {
    let style = style_of(event.state);
    let secs = event.detail.get("secs").and_then(serde_json::Value::as_f64);
    let what = match event.state {
        State::Started => "started".to_owned(),
        State::Skipped => "still done".to_owned(),
        State::Done => secs.map_or_else(|| "done".to_owned(), |secs| format!("done in {}", duration(secs))),
        State::Progress | State::Waiting | State::Failed => String::new(),
    };
    let said = ascii(&words(event.state, &event.detail));
    let gap = if what.is_empty() || said.is_empty() { "" } else { "  " };
    Line::of(Style::Dim, format!("{:>9.1}  ", event.t))
        .and(Style::Plain, format!("{:<30} ", format!("{}/{}", event.phase, event.step)))
        .and(style, what)
        .and(if event.state == State::Failed { Style::Bad } else { Style::Dim }, format!("{gap}{said}"))
}

const fn style_of(state: State) -> Style {
    match state {
        State::Done | State::Skipped => Style::Good,
        State::Started | State::Progress => Style::Busy,
        State::Waiting => Style::Warn,
        State::Failed => Style::Bad,
    }
}

fn steps(view: &View, rows: usize) -> Vec<Line> {
    let shown = view.steps.len().saturating_sub(rows);
    let line = |step: &StepStatus| {
        let (long, style) = (step.secs.unwrap_or(view.uptime - step.since), style_of(step.state));
        let state = match step.state {
            State::Done => "done",
            State::Skipped => "still done",
            State::Started | State::Progress | State::Waiting if view.slow(step).is_some() => "slow",
            State::Started | State::Progress => "running",
            State::Waiting => "waiting",
            State::Failed => "failed",
        };
        Line::of(Style::Dim, format!("{:>9.1}  ", step.since))
            .and(Style::Plain, format!("{:<36} ", format!("{}/{}", step.phase, step.step)))
            .and(style, format!("{state:<10}"))
            .and(Style::Dim, format!("{:>12}", duration(long)))
    };
    view.steps[shown..].iter().map(line).collect()
}

fn footer(page: Page) -> Line {
    let key = |name: &str, text: &str, this: Page| {
        let style = if this == page { Style::Bold } else { Style::Dim };
        Line::of(Style::Dim, format!("  {name} ")).and(style, text)
    };
    key("F1", "overview", Page::Overview).then(key("F2", "events", Page::Events)).then(key("F3", "steps", Page::Steps))
}
