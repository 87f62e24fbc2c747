//! Text tables: columns as wide as their longest cell, the last one ragged.

use crate::printable;

/// Longest cell that widens its column. A longer cell is shown whole and shifts only its own row.
const WIDTH_MAX: usize = 60;

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// A table without a header, or with one as its first row.
#[derive(Debug, Clone, Default)]
pub struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(sides: &[Side]) -> Self {
        Self {
            sides: sides.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with a cell for each column; each cell is put on one line.
    pub fn row<T: AsRef<str>>(&mut self, cells: &[T]) {
        let cells = cells
            .iter()
            .map(|cell| printable::line(cell.as_ref()).into_owned());
        self.rows.push(cells.collect());
    }

    /// Returns the lines, without spaces at their ends.
    pub fn lines(&self) -> Vec<String> {
        let widths: Vec<usize> = (0..self.sides.len())
            .map(|column| self.width(column))
            .collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.sides).zip(&widths);
            let padded: Vec<String> = cells
                .map(|((cell, side), &width)| match side {
                    Side::Left => format!("{cell:<width$}"),
                    Side::Right => format!("{cell:>width$}"),
                })
                .collect();
            padded.join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widths = cells
            .map(|cell| cell.chars().count())
            .filter(|width| *width <= WIDTH_MAX);
        widths.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&[Side::Left, Side::Right, Side::Left]);
        table.row(&["THREAD", "COST", "TITLE"]);
        table.row(&["a", "0.10 USD", ""]);
        table.row(&["longer", "1.00 USD", "two\nlines \x1b[2J"]);
        assert_eq!(
            table.lines(),
            [
                "THREAD      COST  TITLE",
                "a       0.10 USD",
                "longer  1.00 USD  two lines \\u{1b}[2J",
            ]
        );
    }

    #[test]
    fn one_long_cell_does_not_push_the_others() {
        let mut table = Table::new(&[Side::Left, Side::Left]);
        let long = "x".repeat(WIDTH_MAX + 1);
        table.row(&["a", "b"]);
        table.row(&[long.as_str(), "c"]);
        assert_eq!(table.lines(), ["a  b".to_owned(), format!("{long}  c")]);
    }
}
