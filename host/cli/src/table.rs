//! Text tables: columns as wide as their longest cell, the last one ragged.

use crate::printable;
use crate::style::{StyledLine, text_width};
use std::ops::Range;

/// Longest cell that widens its column. A longer cell is shown whole and shifts only its own row.
const WIDTH_MAX: usize = 60;

/// Least columns that free text gets on a terminal: fewer say nothing.
const FREE_TEXT_MIN: usize = 12;

/// The space between two columns.
const GAP: &str = "  ";

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

    /// Leaves these columns out.
    pub fn remove_columns(&mut self, columns: Range<usize>) {
        self.sides.drain(columns.clone());
        for row in &mut self.rows {
            row.drain(columns.clone());
        }
    }

    /// Returns true if a line may be wider than a terminal of so many columns.
    pub fn exceeds(&self, columns: usize) -> bool {
        self.widths().iter().sum::<usize>() + self.gaps() > columns
    }

    /// Returns the lines, without spaces at their ends.
    pub fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&self.sides).zip(&widths);
            let padded = cells.map(|((cell, side), width)| {
                let space = " ".repeat(width.saturating_sub(text_width(cell)));
                match side {
                    ColumnAlignment::Left => format!("{cell}{space}"),
                    ColumnAlignment::Right => format!("{space}{cell}"),
                }
            });
            let padded: Vec<String> = padded.collect();
            padded.join(GAP).trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }

    /// Returns the lines for a terminal of so many columns; none for what is no terminal. The cells
    /// of the column with free text are cut to the room that the others leave, but not to nothing.
    pub fn lines_within(&self, columns: Option<usize>, free_text: usize) -> Vec<String> {
        let Some(columns) = columns else {
            return self.lines();
        };
        let mut widths = self.widths();
        widths[free_text] = 0;
        let taken = widths.iter().sum::<usize>() + self.gaps();
        let room = columns.saturating_sub(taken).max(FREE_TEXT_MIN);
        let mut fitted = self.clone();
        for row in &mut fitted.rows {
            let cell = StyledLine::plain(&row[free_text]);
            row[free_text] = cell.cut_to(room).render(false);
        }
        fitted.lines()
    }

    fn gaps(&self) -> usize {
        GAP.len() * self.sides.len().saturating_sub(1)
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.sides.len())
            .map(|column| self.width(column))
            .collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widths = cells
            .map(|cell| text_width(cell))
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
    fn a_terminal_cuts_free_text() {
        let (left, right) = (ColumnAlignment::Left, ColumnAlignment::Right);
        let mut table = TextTable::new(&[left, right, left, left]);
        table.add_row(&["THREAD", "USD", "TITLE", "NEEDS"]);
        table.add_row(&["a", "0.10", "漢字 and more words than fit", "x"]);
        table.add_row(&["longer", "1.00", "short", ""]);
        assert!(table.exceeds(40) && !table.exceeds(60));
        assert_eq!(table.lines_within(None, 2), table.lines());
        assert_eq!(table.lines_within(Some(60), 2), table.lines());
        assert_eq!(
            table.lines_within(Some(40), 2),
            [
                "THREAD   USD  TITLE                NEEDS",
                "a       0.10  漢字 and more word…  x",
                "longer  1.00  short",
            ]
        );
        let narrow = table.lines_within(Some(10), 2);
        assert_eq!(narrow[1], "a       0.10  漢字 and mo…  x");
        table.remove_columns(1..3);
        assert_eq!(table.lines(), ["THREAD  NEEDS", "a       x", "longer"]);
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
