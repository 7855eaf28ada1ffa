//! Rows in columns; the first row is the head.

use crate::cli::ui::{Paper, Tone};

/// A table as wide as its cells, two spaces apart.
pub(crate) fn render(rows: &[Vec<String>], paper: Paper) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let line = line.trim_end().to_owned();
        text += &if index == 0 { paper.paint(Tone::Dim, line) } else { line };
        text.push('\n');
    }
    text
}
