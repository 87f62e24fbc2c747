//! `audit`: contradictions in a store, and what to do about them.

use super::{CommandAnswer, count_noun, thread_or_unnamed};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;

/// One contradiction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FindingRow {
    /// The thread, or the first thread of the chain that owns the account.
    pub thread_id: String,
    /// The number of the broken invariant, from 1.
    pub invariant: u8,
    /// The name of the invariant.
    pub name: String,
    /// The expected value.
    pub expected: String,
    /// The value that was found.
    pub found: String,
    /// The advice for the operator.
    pub advice: String,
}

/// The answer of `audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditAnswer {
    /// Threads that were checked.
    pub threads: u64,
    /// Entries of their histories.
    pub entries: u64,
    /// The contradictions.
    pub findings: Vec<FindingRow>,
    /// Number of findings that are not listed.
    pub left_out: u64,
    /// Threads and accounts that changed each time they were checked.
    pub unsettled: u64,
    /// Threads whose documents this user may not read.
    pub documents_unread: u64,
    /// The exit code: 1 if there is a finding.
    pub exit: CommandExit,
}

impl AuditAnswer {
    /// Such as `2 threads, 1 entry`.
    fn describe_extent(&self) -> String {
        let entries = match self.entries {
            1 => "1 entry".to_owned(),
            entries => format!("{entries} entries"),
        };
        format!("{}, {entries}", count_noun(self.threads, "thread"))
    }
}

impl CommandAnswer for AuditAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let mut advice = "";
        for finding in &self.findings {
            let FindingRow {
                thread_id,
                invariant,
                name,
                expected,
                found,
                ..
            } = finding;
            let thread = thread_or_unnamed(thread_id);
            screen.print_line(&format!("{thread}: {name} ({invariant})"));
            screen.print_line(&format!("  expected  {expected}"));
            screen.print_line(&format!("  found     {found}"));
            // Repeating the same advice would hide the differences.
            if advice != finding.advice {
                screen.print_line(&format!("  to do     {}", finding.advice));
            }
            advice = &finding.advice;
        }
        if self.left_out > 0 {
            screen.print_line(&format!(
                "not listed: {}",
                count_noun(self.left_out, "finding")
            ));
        }
        if self.unsettled > 0 {
            let who = count_noun(self.unsettled, "thread or account");
            screen.warn(&format!(
                "{who} moved each time it was looked at: audit again when its runs are over"
            ));
        }
        if self.documents_unread > 0 {
            let whose = count_noun(self.documents_unread, "thread");
            screen.warn(&format!(
                "the documents of {whose} were left out: you may not read them"
            ));
        }
        let findings = match self.findings.len() as u64 + self.left_out {
            0 => "no findings".to_owned(),
            n => count_noun(n, "finding"),
        };
        screen.print_line(&format!("{}, {findings}", self.describe_extent()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    fn finding(thread: &str) -> FindingRow {
        FindingRow {
            thread_id: thread.to_owned(),
            invariant: 5,
            name: "ledger".to_owned(),
            expected: "spent 7".to_owned(),
            found: "spent 8".to_owned(),
            advice: "keep a copy".to_owned(),
        }
    }

    #[test]
    fn findings_come_with_what_to_do_and_the_count_comes_last() {
        let answer = AuditAnswer {
            threads: 2,
            entries: 1,
            findings: vec![finding("a"), finding("b")],
            left_out: 1,
            unsettled: 0,
            documents_unread: 0,
            exit: CommandExit::Error,
        };
        let (mut person, out, _) = screen(false, false);
        assert_eq!(person.print_answer(&answer), CommandExit::Error);
        assert_eq!(
            out.text().lines().collect::<Vec<_>>(),
            [
                "a: ledger (5)",
                "  expected  spent 7",
                "  found     spent 8",
                "  to do     keep a copy",
                "b: ledger (5)",
                "  expected  spent 7",
                "  found     spent 8",
                "not listed: 1 finding",
                "2 threads, 1 entry, 3 findings",
            ]
        );
    }

    #[test]
    fn a_clean_store_is_one_line() {
        let answer = AuditAnswer {
            threads: 1,
            entries: 12,
            findings: Vec::new(),
            left_out: 0,
            unsettled: 0,
            documents_unread: 0,
            exit: CommandExit::Done,
        };
        let (mut person, out, _) = screen(false, false);
        assert_eq!(person.print_answer(&answer), CommandExit::Done);
        assert_eq!(out.text(), "1 thread, 12 entries, no findings\n");
    }
}
