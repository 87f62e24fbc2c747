//! Text tables: columns as wide as their longest cell, the last one ragged.

use crate::printable;

/// Longest cell that widens its column. A longer cell is shown whole and shifts only its own row.
const WIDTH_MAX: usize = 60;

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnAlignment {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// A table without a header, or with one as its first row.
#[derive(Debug, Clone, Default)]
pub struct TextTable {
    sides: Vec<ColumnAlignment>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these columns.
    pub fn new(sides: &[ColumnAlignment]) -> Self {
        Self {
            sides: sides.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with a cell for each column; each cell is put on one line.
    pub fn add_row<T: AsRef<str>>(&mut self, cells: &[T]) {
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
                    ColumnAlignment::Left => format!("{cell:<width$}"),
                    ColumnAlignment::Right => format!("{cell:>width$}"),
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
        let mut table = TextTable::new(&[
            ColumnAlignment::Left,
            ColumnAlignment::Right,
            ColumnAlignment::Left,
        ]);
        table.add_row(&["THREAD", "COST", "TITLE"]);
        table.add_row(&["a", "0.10 USD", ""]);
        table.add_row(&["longer", "1.00 USD", "two\nlines \x1b[2J"]);
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
        let mut table = TextTable::new(&[ColumnAlignment::Left, ColumnAlignment::Left]);
        let long = "x".repeat(WIDTH_MAX + 1);
        table.add_row(&["a", "b"]);
        table.add_row(&[long.as_str(), "c"]);
        assert_eq!(table.lines(), ["a  b".to_owned(), format!("{long}  c")]);
    }
}
