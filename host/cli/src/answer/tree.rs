//! The answer of `tree`: a thread and those below it, with their accounts.

use super::budget::AccountView;
use super::thread::quote_for_shell;
use super::{CommandAnswer, UnreadableRow, spend};
use crate::exit::CommandExit;
use crate::money;
use crate::screen::OutputScreen;
use crate::style::StyledLine;
use crate::table::{ColumnAlignment, TextTable};
use serde::Serialize;
use std::ops::Range;

/// One thread of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BranchRow {
    /// The thread.
    pub thread_id: String,
    /// Levels below the thread that was asked for.
    pub depth: u32,
    /// Its status.
    pub status: String,
    /// A title for users.
    pub title: Option<String>,
    /// None for a chat.
    pub directive: Option<String>,
    /// Its own cost: nano-USD, decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub spend: u64,
    /// The spend of it and all threads below it; likewise.
    #[serde(serialize_with = "spend")]
    pub tree_spend: u64,
    /// The chain whose account it draws on.
    pub draws_on: String,
    /// Its own account, if it has one.
    pub account: Option<AccountView>,
}

/// The answer of `tree`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeAnswer {
    /// The threads, each after the thread that spawned it.
    pub threads: Vec<BranchRow>,
    /// Threads of the tree whose records cannot be read.
    pub unreadable: Vec<UnreadableRow>,
    /// The newest forks of the chain of its first thread: trees of their own.
    pub forks: Vec<String>,
    /// Passed back as `--cursor`, continues the list.
    pub cursor: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for TreeAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        for row in &self.unreadable {
            row.warn(screen);
        }
        let mut table = self.make_table();
        let columns = screen.out_columns();
        if columns.is_some_and(|columns| table.exceeds(columns)) && self.has_nothing_aside() {
            table.remove_columns(ASIDE_COLUMNS);
        }
        for line in table.lines() {
            // A title comes last, so it is what is cut.
            let cut = columns.map(|columns| StyledLine::plain(&line).cut_to(columns));
            screen.print_line(&cut.map_or(line, |cut| cut.render(false)));
        }
        if !self.unreadable.is_empty() {
            screen.note("what those have spent that cannot be read is in no SPENT above them");
        }
        if !self.forks.is_empty() {
            screen.print_line(&format!("forks: {}", self.forks.join(", ")));
        }
        if let Some(cursor) = &self.cursor {
            screen.note(&format!("more: --cursor {}", quote_for_shell(cursor)));
        }
    }
}

/// The columns of a tree that say what is set aside.
const ASIDE_COLUMNS: Range<usize> = 5..7;

impl TreeAnswer {
    /// Returns true if no account has anything set aside.
    fn has_nothing_aside(&self) -> bool {
        let accounts = self.threads.iter().filter_map(|row| row.account.as_ref());
        let is_zero = |account: &AccountView| account.held == 0 && account.still_reserved() == 0;
        accounts.into_iter().all(is_zero)
    }

    fn make_table(&self) -> TextTable {
        let (left, right) = (ColumnAlignment::Left, ColumnAlignment::Right);
        let mut table = TextTable::new(&[
            left, left, right, right, right, right, right, right, left, left,
        ]);
        let has_titles = self.threads.iter().any(|row| row.title.is_some());
        table.add_row(&[
            "THREAD",
            "STATUS",
            "OWN COST",
            "SPENT",
            "LIMIT",
            "HELD",
            "RESERVED",
            "REMAINING",
            "USD",
            if has_titles { "TITLE" } else { "" },
        ]);
        for row in &self.threads {
            let indent = "  ".repeat(usize::try_from(row.depth).unwrap_or(0).min(INDENT_MAX));
            let mut cells = vec![
                format!("{indent}{}", row.thread_id),
                row.status.clone(),
                money::format_decimal(row.spend),
                money::format_decimal(row.tree_spend),
            ];
            match &row.account {
                Some(account) => {
                    let [limit, left] = account.describe_limit();
                    let taken = [account.held, account.still_reserved()];
                    cells.push(limit);
                    cells.extend(taken.map(money::format_decimal));
                    cells.push(left);
                    let frozen = if account.frozen { " frozen" } else { "" };
                    cells.push(format!("{}{frozen}", account.bar()));
                }
                None => {
                    cells.extend([const { String::new() }; 4]);
                    cells.push(format!("draws on {}", row.draws_on));
                }
            }
            cells.push(row.title.clone().unwrap_or_default());
            table.add_row(&cells);
        }
        table
    }
}

/// Deepest level that is indented.
const INDENT_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::budget::tests::account;
    use crate::screen::tests::screen;
    use crate::style::text_width;

    fn branch(id: &str, depth: u32, spend: u64, account: Option<AccountView>) -> BranchRow {
        BranchRow {
            thread_id: id.to_owned(),
            depth,
            status: "running".to_owned(),
            title: None,
            directive: None,
            spend,
            tree_spend: spend,
            draws_on: "root".to_owned(),
            account,
        }
    }

    #[test]
    fn a_tree_is_indented_and_says_on_whose_account_each_draws() {
        let (mut person, out, err) = screen(false, false);
        let root = account(Some(1_000_000_000), 200_000_001, 0, 300_000_000);
        person.print_answer(&TreeAnswer {
            threads: vec![
                branch("root", 0, 100_000_001, Some(root)),
                branch("poor", 1, 100_000_000, None),
                branch("owing", 1, 7, Some(account(Some(5), 7, 0, 0))),
                branch("free", 2, 0, Some(account(None, 0, 0, 0))),
            ],
            unreadable: Vec::new(),
            forks: Vec::new(),
            cursor: Some("a\nb".to_owned()),
            exit: CommandExit::Done,
        });
        let expected = "\
THREAD    STATUS      OWN COST        SPENT        LIMIT  HELD  RESERVED         REMAINING  USD
root      running  0.100000001  0.100000001         1.00  0.00      0.30       0.499999999  \
[###+++----]
  poor    running         0.10         0.10                                                 draws \
  on root
  owing   running  0.000000007  0.000000007  0.000000005  0.00      0.00  owes 0.000000002  \
  [##########]
    free  running         0.00         0.00    unlimited  0.00      0.00         unlimited
";
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&out.text()), words(expected), "{}", out.text());
        assert!(out.text().contains("\n    free  running"), "{}", out.text());
        assert_eq!(err.text(), "more: --cursor $'a\\x0ab'\n");
    }

    /// Symptom: the lines of a tree wrapped in a terminal of 80 columns. Fix: what says nothing is
    /// left out there, and titles are cut.
    #[test]
    fn a_tree_fits_its_terminal() {
        let mut root = branch(
            "root",
            0,
            77_850,
            Some(account(Some(100_000_000), 77_850, 0, 0)),
        );
        root.title = Some("A title of so many words that no terminal shows it \x1b[2J".to_owned());
        let mut answer = TreeAnswer {
            threads: vec![root],
            unreadable: Vec::new(),
            forks: Vec::new(),
            cursor: None,
            exit: CommandExit::Done,
        };
        let print = |answer: &TreeAnswer, terminal| {
            let (mut person, out, _) = screen(false, terminal);
            person.print_answer(answer);
            out.text()
        };
        let whole = print(&answer, false);
        assert!(
            whole.contains("RESERVED") && whole.contains("terminal shows it"),
            "{whole}"
        );
        let shown = print(&answer, true);
        assert!(
            !shown.contains("RESERVED") && shown.contains("A tit…"),
            "{shown}"
        );
        assert!(shown.lines().all(|line| text_width(line) <= 80), "{shown}");
        let held = account(Some(100_000_000), 77_850, 1_000, 0);
        answer.threads[0].account = Some(held);
        let shown = print(&answer, true);
        assert!(
            shown.contains("HELD") && shown.contains("0.000001"),
            "{shown}"
        );
        assert!(shown.lines().all(|line| text_width(line) <= 80), "{shown}");
    }
}
