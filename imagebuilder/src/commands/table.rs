//! Aligned columns for people.

use std::fmt::Write as _;

/// Spaces between columns.
const GAP: &str = "  ";

/// Rows of cells; columns named in `right` are aligned to the right. Lines end without blanks.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let gap = if column == 0 { "" } else { GAP };
            let _ = if right.contains(&column) {
                write!(line, "{gap}{cell:>width$}")
            } else {
                write!(line, "{gap}{cell:<width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Cells of a row.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::{row, table};

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [row(["what", "bytes", "state"]), row(["os", "123", "cached"]), row(["initrd", "9", ""])];
        assert_eq!(table(&rows, &[1]), "what    bytes  state\nos        123  cached\ninitrd      9\n");
    }
}
