//! What is to be said about a definition: as data, as the compiler-like text people read, and as JSON.

use std::borrow::Cow;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};

use super::{Problem, Problems, Severity};

/// The problems as text: `error: found`, `--> file:line:column`, the line with carets, key and hint.
pub fn render(problems: &Problems, colours: bool) -> String {
    let renderer = if colours { Renderer::styled() } else { Renderer::plain() };
    let parts: Vec<String> = problems.list.iter().map(|problem| render_one(&renderer, problems, problem)).collect();
    parts.join("\n\n")
}

fn render_one(renderer: &Renderer, problems: &Problems, problem: &Problem) -> String {
    let level = match problem.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let file = problems.file.display().to_string();
    let annotation =
        AnnotationKind::Primary.span(visible(problem, &problems.text)).label(format!("expected {}", problem.expected));
    let snippet = Snippet::source(shown(problem, &problems.text)).path(file).annotation(annotation);
    let mut group = Group::with_title(level.primary_title(problem.found.as_str())).element(snippet);
    if !problem.key.is_empty() {
        group = group.element(Level::NOTE.with_name("key").message(problem.key.as_str()));
    }
    group = group.element(Level::HELP.with_name("hint").message(problem.hint.as_str()));
    renderer.render(&[group])
}

/// The text; what must not be shown is starred out.
fn shown<'t>(problem: &Problem, text: &'t str) -> Cow<'t, str> {
    let Problem { span, secret: true, .. } = problem else { return Cow::Borrowed(text) };
    let Some(hidden) = text.get(span.clone()) else { return Cow::Borrowed(text) };
    let stars: String = hidden.chars().flat_map(|c| std::iter::repeat_n('*', c.len_utf8())).collect();
    Cow::Owned(format!("{}{stars}{}", &text[..span.start], &text[span.end..]))
}

/// The part of a span that is on its first line: a caret under ten lines says less than one under one.
fn visible(problem: &Problem, text: &str) -> std::ops::Range<usize> {
    let start = problem.span.start.min(text.len());
    let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
    start..problem.span.end.clamp(start, line_end)
}

/// One problem as a JSON object: `severity`, `file`, `line`, `column`, `key`, `found`, `expected`, `hint`.
pub fn to_json(problems: &Problems, problem: &Problem) -> Value {
    json!({
        "severity": problem.severity,
        "file": problems.file.display().to_string(),
        "line": problem.line,
        "column": problem.column,
        "key": problem.key,
        "found": problem.found,
        "expected": problem.expected,
        "hint": problem.hint,
    })
}

/// One line: the file and how many errors and warnings it has.
pub fn summary(problems: &Problems) -> String {
    let count = |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    let errors = count(problems.errors(), "error");
    let warnings = match problems.warnings() {
        0 => String::new(),
        number => format!(" and {}", count(number, "warning")),
    };
    format!("`{}` has {errors}{warnings}", problems.file.display())
}
