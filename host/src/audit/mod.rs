//! The audit of a store: every record is recomputed from histories, heads and chain records, and
//! compared.
//!
//! It shares no code with the core that writes the records: it reads them as JSON, by the
//! documented names, and computes its own sums. It runs over any [`StorageBackend`], also while
//! others write. A finding counts only if one `get` of all records that it depends on shows it
//! again, each record at the same version as before. Records that change too often for that are
//! counted as unsettled. Memory is bounded by a page, by the records of one chain and its children,
//! by the members of one account, and by the findings that are named.
//!
//! The invariants are those of DESIGN.md, section 15, with its numbers. Documents are compared by
//! [`OpenProject::audit`](crate::project::OpenProject::audit), because only the component knows
//! their content. The check that nothing is left of a deleted thread will follow once threads can
//! be deleted.
//!
//! It belongs to the host and is no export of the component: an auditor inside the component would
//! share its faults, and a replaced component could audit itself. It is the only auditor; tests use
//! it too, after every step where histories are random.

mod account;
mod base;
mod blobs;
mod chain;
mod documents;
mod fork;
mod head;
mod history;
mod index;
mod json_patch;
mod record_reader;
mod state;
mod thread;
mod wait;

use crate::documents::DocumentError;
use crate::error::CallError;
use crate::storage::{StorageBackend, StorageError};
use record_reader::CollectionNames;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most findings that a report names; the others are counted. One faulty rule of a writer breaks
/// every thread.
pub const FINDINGS_MAX: usize = 1_000;
/// Number of times that records are read again if they change during the check.
const TRIES_MAX: u32 = 10;
/// Longest text of a record that a finding repeats, in bytes.
const SHOWN_BYTES_MAX: usize = 200;
/// Longest `expected` or `found` text of a finding, in bytes: it may list the open calls of a
/// history.
const FINDING_TEXT_BYTES_MAX: usize = 1_000;

/// An invariant of a store, in the order of DESIGN.md, section 15.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreInvariant {
    /// 1: histories have no gaps, hashes chain, heads match; records that a thread names can be
    /// read.
    Histories,
    /// 2: a call has at most one result, and exactly one before the next model call.
    Calls,
    /// 3: chains are acyclic, pointers agree both ways, one successor each, the tip is right.
    Chains,
    /// 4: a running thread has a holder, and every hold is in a head that runs, or is settled or
    /// charged.
    Holders,
    /// 5: accounts agree with the holds and spending of the threads that draw on them, and with the
    /// reserves below.
    Ledger,
    /// 6: counters equal what the entries say.
    Counters,
    /// 7: index, due and inbox entries match the threads, both ways.
    Indexes,
    /// 8: a document is current or older than the head, never other.
    Documents,
}

impl StoreInvariant {
    /// Returns its number in DESIGN.md, section 15.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Histories => "histories",
            Self::Calls => "calls",
            Self::Chains => "chains",
            Self::Holders => "holders",
            Self::Ledger => "ledger",
            Self::Counters => "counters",
            Self::Indexes => "indexes",
            Self::Documents => "documents",
        }
    }

    /// Returns advice for a person about a broken invariant.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Histories => {
                "keep a copy of .ai/threads and put the thread back from an older one: a history \
                 is never mended"
            }
            Self::Calls | Self::Chains => {
                "do not go on with the thread: keep a copy of .ai/threads and report it"
            }
            Self::Holders => {
                "run `threadkeep recover`; if it stays, keep a copy of .ai/threads and report it"
            }
            Self::Ledger | Self::Counters => {
                "the history tells what was really spent: keep a copy of .ai/threads and report it"
            }
            Self::Indexes => {
                "lists and drivers may miss the thread: keep a copy of .ai/threads and report it"
            }
            Self::Documents => {
                "run `threadkeep repair` for the thread: its documents are made anew"
            }
        }
    }
}

/// One violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFinding {
    /// The thread, or the root of the chain that owns the account: its id if that can be read, else
    /// its key.
    pub thread: String,
    /// The broken invariant.
    pub invariant: StoreInvariant,
    /// The expected state.
    pub expected: String,
    /// The state that was found.
    pub found: String,
}

impl std::fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            thread,
            invariant,
            expected,
            found,
        } = self;
        let (number, name) = (invariant.number(), invariant.name());
        write!(
            f,
            "{thread}: {name} ({number}): expected {expected}; found {found}"
        )
    }
}

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditReport {
    /// Number of threads that were audited.
    pub threads: u64,
    /// Number of history entries that were read.
    pub entries: u64,
    /// The first [`FINDINGS_MAX`] findings.
    pub findings: Vec<AuditFinding>,
    /// Number of further findings.
    pub left_out: u64,
    /// Number of threads and accounts that seemed wrong and changed during each repeated check. The
    /// report makes no statement about them.
    pub unsettled: u64,
    /// Number of threads whose documents this user may not read. The report makes no statement
    /// about those documents.
    pub documents_unread: u64,
}

impl AuditReport {
    /// Returns true if nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.left_out == 0
    }

    pub(crate) fn add(&mut self, finding: AuditFinding) {
        match self.findings.len() < FINDINGS_MAX {
            true => self.findings.push(finding),
            false => self.left_out += 1,
        }
    }
}

/// The progress of an audit, for an observer on another thread.
#[derive(Debug, Default)]
pub struct AuditProgress {
    threads: AtomicU64,
    documents: AtomicU64,
}

impl AuditProgress {
    /// Returns the number of threads that were audited.
    pub fn threads(&self) -> u64 {
        self.threads.load(Ordering::Relaxed)
    }

    /// Returns the number of threads whose documents were compared, which comes last.
    pub fn documents(&self) -> u64 {
        self.documents.load(Ordering::Relaxed)
    }
}

/// An error that ends an audit early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The store cannot be read at all.
    #[error(transparent)]
    Store(#[from] StorageError),
    /// The component did not answer about documents.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A document could not be compared, for a reason outside the document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The runtime is shutting down, or this crate's code panicked.
    #[error("the audit was abandoned")]
    Abandoned,
}

/// Audits everything in a store. Blocks while it reads; writes nothing.
///
/// # Errors
/// The store's error if it cannot be read at all. A single unreadable record is a finding.
pub fn audit(storage: &dyn StorageBackend) -> Result<AuditReport, StorageError> {
    audit_with_progress(storage, &AuditProgress::default())
}

/// Audits a store and reports the progress.
///
/// # Errors
/// As [`audit`].
pub fn audit_with_progress(
    storage: &dyn StorageBackend,
    progress: &AuditProgress,
) -> Result<AuditReport, StorageError> {
    let mut audit = StoreAudit {
        storage,
        report: AuditReport::default(),
        spent: BTreeMap::new(),
    };
    let mut heads = CollectionNames::new(storage, "head");
    while let Some(key) = heads.next_name(&mut audit.report)? {
        audit.report.threads += 1;
        progress.threads.fetch_add(1, Ordering::Relaxed);
        audit.audit_thread(&key)?;
    }
    audit.threads_without_heads()?;
    let mut chains = CollectionNames::new(storage, "chain");
    while let Some(root) = chains.next_name(&mut audit.report)? {
        audit.audit_chain(&root)?;
        audit.audit_wait(&root)?;
        audit.audit_account(&root)?;
    }
    audit.audit_index_entries()?;
    audit.audit_blobs()?;
    Ok(audit.report)
}

/// An audit in progress.
struct StoreAudit<'a> {
    storage: &'a dyn StorageBackend,
    report: AuditReport,
    /// The real spending of threads whose counter is wrong, by their key. Every other counter
    /// agreed with its history. At most as many as there are findings.
    spent: BTreeMap<String, u64>,
}

/// The findings about one thread, account or entry, until a second read confirms them.
struct UnconfirmedFindings {
    thread: String,
    findings: Vec<AuditFinding>,
}

impl UnconfirmedFindings {
    fn for_thread(thread: &str) -> Self {
        Self {
            thread: printable_text(thread),
            findings: Vec::new(),
        }
    }

    fn add(
        &mut self,
        invariant: StoreInvariant,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        // The findings of one history are bounded like those of the report.
        if self.findings.len() <= FINDINGS_MAX {
            self.findings.push(AuditFinding {
                thread: self.thread.clone(),
                invariant,
                expected: truncate_text(expected.into(), FINDING_TEXT_BYTES_MAX),
                found: truncate_text(found.into(), FINDING_TEXT_BYTES_MAX),
            });
        }
    }

    /// Adds a finding if the two numbers differ.
    fn expect_equal(&mut self, invariant: StoreInvariant, what: &str, expected: u64, found: u64) {
        if expected != found {
            self.add(
                invariant,
                format!("{what} {expected}"),
                format!("{what} {found}"),
            );
        }
    }

    /// Adds a finding if `wrong` is true.
    fn add_if(&mut self, invariant: StoreInvariant, wrong: bool, expected: &str, found: &str) {
        if wrong {
            self.add(invariant, expected, found);
        }
    }

    fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    fn report_to(self, report: &mut AuditReport) {
        for finding in self.findings {
            report.add(finding);
        }
    }
}

/// Makes a text of a record fit for a finding: bounded, on one line.
fn printable_text(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(SHOWN_BYTES_MAX + 1)];
    // Characters that control a terminal or the direction of writing become spaces; other text is
    // unchanged.
    let plain = |c: char| match c {
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            ' '
        }
        c if c.is_control() => ' ',
        c => c,
    };
    truncate_text(kept.chars().map(plain).collect(), SHOWN_BYTES_MAX)
}

fn truncate_text(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariants_have_the_numbers_of_the_design() {
        let all = [
            StoreInvariant::Histories,
            StoreInvariant::Calls,
            StoreInvariant::Chains,
            StoreInvariant::Holders,
            StoreInvariant::Ledger,
            StoreInvariant::Counters,
            StoreInvariant::Indexes,
            StoreInvariant::Documents,
        ];
        assert_eq!(all.map(StoreInvariant::number), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_report_names_so_many_findings_and_counts_the_rest() {
        let mut report = AuditReport::default();
        let mut suspicion = UnconfirmedFindings::for_thread(&"漢\n".repeat(1_000));
        assert!(suspicion.thread.len() < SHOWN_BYTES_MAX + 4);
        assert!(!suspicion.thread.contains('\n'));
        for n in 0..FINDINGS_MAX as u64 + 10 {
            suspicion.expect_equal(StoreInvariant::Counters, "turns", n, n + 1);
        }
        let long = "漢".repeat(FINDING_TEXT_BYTES_MAX);
        let mut other = UnconfirmedFindings::for_thread("t");
        other.add(StoreInvariant::Calls, long.clone(), long);
        for said in [&other.findings[0].expected, &other.findings[0].found] {
            assert!(
                said.len() < FINDING_TEXT_BYTES_MAX + 4 && said.ends_with("漢…"),
                "{said}"
            );
        }
        suspicion.report_to(&mut report);
        assert_eq!(report.findings.len(), FINDINGS_MAX);
        assert!(report.left_out > 0 && !report.is_clean());
    }
}
