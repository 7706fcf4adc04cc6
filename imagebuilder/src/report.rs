//! Progress: what happens, as events on stdout (`--json`) and for people on stderr.
//!
//! ```text
//! builders -> Step --+
//!                    +-> Event -> one JSON line on stdout      (with --json)
//! box events --------+         -> bar or plain line on stderr  (unless -q)
//! ```
//! A [`Report`] is cheap to clone and may be used from any thread. Everything shown follows from events alone.

mod failure;
mod figures;
mod human;
mod outcome;
mod shell;
mod step;
#[cfg(test)]
pub mod text;

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use agent_api::events::{Event, Source, State};
use serde_json::{Map, Value, json};

pub use self::failure::CommandError;
pub use self::figures::{BenchHost, BenchImage, Figures, Idle, spread};
pub use self::outcome::{BuiltOutput, Outcome, ProofStep, Pull, SimulatedCondition, SimulatedStage, Timings};
pub use self::shell::shell_word;
pub use self::step::Step;

use self::human::Human;
use crate::error::{Cancel, Exit};

/// What the user wants to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Show {
    /// Events as JSON Lines on stdout.
    pub json: bool,
    /// No progress on stderr.
    pub quiet: bool,
    /// More on stderr.
    pub verbose: bool,
}

/// Where progress goes.
#[derive(Clone)]
pub struct Report(Arc<Inner>);

struct Inner {
    start: Instant,
    show: Show,
    data: Mutex<Box<dyn Write + Send>>,
    /// Why something of the data is lost, if it is.
    lost: Mutex<Option<io::Error>>,
    human: Human,
    cancel: Cancel,
}

impl Report {
    /// On stdout and stderr. Bars are drawn when stderr is a terminal and JSON does not share it.
    pub fn new(show: Show, cancel: Cancel) -> Self {
        let shared = show.json && io::stdout().is_terminal();
        let human = match (show.quiet || shared, io::stderr().is_terminal()) {
            (true, _) => Human::silent(),
            (false, true) => Human::bars(),
            (false, false) => Human::lines(Box::new(io::stderr())),
        };
        Self::with(show, cancel, Box::new(io::stdout()), human)
    }

    /// Shows nothing: for tests and library use.
    pub fn silent() -> Self {
        Self::with(Show { quiet: true, ..Show::default() }, Cancel::default(), Box::new(io::sink()), Human::silent())
    }

    /// Events as JSON Lines to `data`, plain lines to `lines`.
    pub fn to_writers(data: Box<dyn Write + Send>, lines: Box<dyn Write + Send>) -> Self {
        let show = Show { json: true, ..Show::default() };
        Self::with(show, Cancel::default(), data, Human::lines(lines))
    }

    fn with(show: Show, cancel: Cancel, data: Box<dyn Write + Send>, human: Human) -> Self {
        let (data, lost) = (Mutex::new(data), Mutex::default());
        Self(Arc::new(Inner { start: Instant::now(), show, data, lost, human, cancel }))
    }

    /// Begins a step of the build: `report.step("kubernetes", "go-build")`.
    pub fn step(&self, phase: &str, step: &str) -> Step {
        Step::start(self.clone(), phase, step)
    }

    /// Says that a step need not be done, and why (`cached`).
    pub fn skipped(&self, phase: &str, step: &str, why: &str) {
        self.build_event(phase, step, State::Skipped, details([("why", why.into())]));
    }

    /// Reports something that happened and that no step waited for: `report.happened("server-1", "on")`.
    pub fn happened(&self, phase: &str, step: &str) {
        self.build_event(phase, step, State::Done, Map::new());
    }

    /// Passes an event of the box on.
    pub fn event(&self, event: &Event) {
        if self.0.show.json {
            self.line(&json!(event));
        }
        self.0.human.event(event);
    }

    /// Shows what the modules log from now on: warnings always, more with `-v`.
    pub fn take_log(&self) {
        let level = if self.0.show.verbose { log::LevelFilter::Debug } else { log::LevelFilter::Warn };
        if log::set_boxed_logger(Box::new(Log(self.clone()))).is_ok() {
            log::set_max_level(level);
        }
    }

    /// The flag that says whether to stop.
    pub fn cancel(&self) -> &Cancel {
        &self.0.cancel
    }

    /// What the user wants to see.
    pub fn show(&self) -> Show {
        self.0.show
    }

    /// Whether stderr takes colours.
    pub fn colours(&self) -> bool {
        io::stderr().is_terminal()
    }

    /// Seconds since the start.
    pub fn secs(&self) -> f64 {
        round(self.0.start.elapsed().as_secs_f64())
    }

    /// A line for people, also with bars on the screen.
    pub fn info(&self, text: &str) {
        self.0.human.line(text);
    }

    /// A line for people who asked for more (`-v`).
    pub fn detail(&self, text: &str) {
        if self.0.show.verbose {
            self.0.human.line(text);
        }
    }

    /// A warning: shown even with `-q`.
    pub fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    /// Text on stderr that is shown even with `-q`.
    pub fn say(&self, text: &str) {
        if !self.0.human.line(text) {
            // Nothing sensible is left to do when stderr is gone.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Data on stdout; with `--json` the caller puts it into its [`Outcome`] instead.
    pub fn data(&self, text: &str) {
        if !self.0.show.json {
            self.0.human.suspend(|| self.write(text.trim_end_matches('\n')));
        }
    }

    /// Prints the end of the command, once: the result as the last line, or the error with its hint.
    pub fn finish(&self, result: &Result<Outcome, CommandError>) -> Exit {
        self.0.human.clear();
        let exit = self.show_end(result);
        let lost = lock(&self.0.lost).take();
        let Some(error) = lost.filter(|_| exit == Exit::Done) else { return exit };
        self.say(&format!("error: not all of the output could be written: {error}"));
        Exit::Failed
    }

    fn show_end(&self, result: &Result<Outcome, CommandError>) -> Exit {
        match result {
            Ok(outcome) => {
                if self.0.show.json {
                    self.line(&outcome.json());
                } else {
                    let text = outcome.to_string();
                    if !text.is_empty() {
                        self.info(&text);
                    }
                }
                outcome.exit()
            }
            Err(error) => {
                let (message, hint) = (error.message(), error.hint());
                if self.0.show.json {
                    self.line(&error_line(error, &message, hint.as_deref()));
                }
                self.say(&outcome::error_text(error, &message, hint.as_deref(), io::stderr().is_terminal()));
                error.exit()
            }
        }
    }

    fn build_event(&self, phase: &str, step: &str, state: State, detail: Map<String, Value>) {
        let (phase, step) = (phase.to_owned(), step.to_owned());
        self.event(&Event { t: self.secs(), source: Source::Build, phase, step, state, detail });
    }

    fn line(&self, value: &Value) {
        self.write(&value.to_string());
    }

    /// One write a line, so that lines of several threads never mix.
    fn write(&self, text: &str) {
        let mut data = lock(&self.0.data);
        let written = data.write_all(format!("{text}\n").as_bytes()).and_then(|()| data.flush());
        match written {
            // A closed pipe (`| head`) must not end a build; the exit code still tells.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                lock(&self.0.lost).get_or_insert(error);
            }
            _ => {}
        }
    }
}

/// The log of this project's own crates, on the report.
struct Log(Report);

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn || metadata.target().starts_with("foothold")
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        match record.level() {
            log::Level::Error | log::Level::Warn => self.0.warn(&record.args().to_string()),
            log::Level::Info | log::Level::Debug | log::Level::Trace => self.0.detail(&record.args().to_string()),
        }
    }

    fn flush(&self) {}
}

/// `{"result":"error",...}`, with the problems of a definition one by one.
fn error_line(error: &CommandError, message: &str, hint: Option<&str>) -> Value {
    let code = error.exit().code();
    if let Some(damaged) = error.damaged() {
        return json!({
            "result": "error",
            "message": message,
            "hint": hint,
            "code": code,
            "problems": damaged.problems,
        });
    }
    let Some(problems) = error.problems() else {
        return json!({ "result": "error", "message": message, "hint": hint, "code": code });
    };
    let list: Vec<Value> = problems.list.iter().map(|problem| crate::problems::to_json(problems, problem)).collect();
    json!({
        "result": "error",
        "message": crate::problems::summary(problems),
        "hint": "correct the definition",
        "code": code,
        "problems": list,
    })
}

/// Details of an event.
pub(crate) fn details<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// To milliseconds.
fn round(secs: f64) -> f64 {
    (secs * 1000.0).round() / 1000.0
}

/// A panic of another thread while it reported does not matter to this one.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
