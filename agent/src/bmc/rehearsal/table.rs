//! The matrix for people: a table, then what is not good, each with its cause and what to do.

use std::fmt::Write;

use agent_api::rehearsal::{Cell, CellState, Check, HostRehearsal, Rehearsal};

/// A host by its name.
fn title(host: &HostRehearsal) -> String {
    if host.namespace.is_empty() { host.name.clone() } else { format!("{}/{}", host.namespace, host.name) }
}

const fn word(state: CellState) -> &'static str {
    match state {
        CellState::Good => "good",
        CellState::Warn => "look",
        CellState::Bad => "BAD",
        CellState::Skipped => "-",
    }
}

fn state(host: &HostRehearsal, check: Check) -> CellState {
    host.cells.get(&check).map_or(CellState::Skipped, |cell| cell.state)
}

/// A line of the table, without spaces at its end.
fn line(first: &str, wide: usize, cell: impl Fn(Check) -> &'static str) -> String {
    let mut line = format!("{first:wide$}");
    for check in Check::ALL {
        let _ = write!(line, "  {:width$}", cell(check), width = check.name().len());
    }
    line.truncate(line.trim_end().len());
    line + "\n"
}

/// The whole text.
pub fn text(rehearsal: &Rehearsal) -> String {
    let wide = rehearsal.hosts.iter().map(|host| title(host).chars().count()).max().unwrap_or(0).max("host".len());
    let mut text = line("host", wide, Check::name);
    for host in &rehearsal.hosts {
        text.push_str(&line(&title(host), wide, |check| word(state(host, check))));
    }
    for host in &rehearsal.hosts {
        let cells = host.cells.iter().filter(|(_, cell)| matches!(cell.state, CellState::Warn | CellState::Bad));
        cells.for_each(|(check, cell)| remark(&mut text, host, *check, cell));
    }
    let bad = rehearsal.hosts.iter().filter(|host| !host.good).count();
    let all = rehearsal.hosts.len();
    let _ = match bad {
        0 => writeln!(text, "\nall {all} BMCs are good"),
        bad => writeln!(text, "\n{bad} of {all} BMCs would fail"),
    };
    text
}

fn remark(text: &mut String, host: &HostRehearsal, check: Check, cell: &Cell) {
    let _ = write!(text, "\n{} {} ({}): {}\n", title(host), check.name(), host.address, cell.says);
    if let Some(hint) = &cell.hint {
        let _ = writeln!(text, "  hint: {hint}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_table_tells_every_cell_and_the_remarks_what_is_wrong() {
        let host = |name: &str, cell: Cell| HostRehearsal {
            namespace: "metal".into(),
            name: name.into(),
            address: "ipmi://192.0.2.1".into(),
            vendor: None,
            product: None,
            good: cell.state != CellState::Bad,
            secs: 0.1,
            cells: BTreeMap::from([(Check::Reach, Cell::good("it answers")), (Check::Credentials, cell)]),
        };
        let hosts = vec![host("one", Cell::good("let in")), host("two", Cell::bad("wrong", "look"))];
        let told = text(&Rehearsal { good: false, at: String::new(), hosts });
        let expected = "\
host       reach  credentials  power  boot  media  clock  firmware
metal/one  good   good         -      -     -      -      -
metal/two  good   BAD          -      -     -      -      -

metal/two credentials (ipmi://192.0.2.1): wrong
  hint: look

1 of 2 BMCs would fail
";
        assert_eq!(told, expected);
    }
}
