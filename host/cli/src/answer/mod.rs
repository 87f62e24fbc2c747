//! The answers of commands: one type each, printed as JSON with stable names or as text for a user.

mod audit;
mod budget;
mod chain;
mod checkpoints;
mod copy_store;
mod decision;
mod doctor;
mod export;
mod external_loop;
mod init;
mod list;
mod probe;
mod rows;
mod run;
mod signal;
mod state;
mod state_files;
mod thread;
mod tree;
mod upkeep;
mod usage;

pub use audit::{AuditAnswer, FindingRow};
pub use budget::{AccountFigures, AccountView, BudgetAnswer, HoldAnswer, SettledAnswer};
pub use chain::ChainAnswer;
pub use checkpoints::{CheckpointRow, CheckpointsAnswer, ForkAnswer, TranscriptAnswer};
pub use copy_store::CopyAnswer;
pub use decision::{DecisionAnswer, ThreadNeeds, decision_advice, describe_decision};
pub use doctor::{
    DoctorAnswer, DoctorItem, DoctorProblem, DoctorSection, ItemState, RunnableKinds,
};
pub use export::ExportAnswer;
pub use external_loop::{CommitAnswer, OpenAnswer};
pub use init::{InitAnswer, InitFileRow, InitFileState};
pub use list::{ListAnswer, ThreadRow, order_as_tree};
pub use probe::{ProbeAnswer, ProbeUsage};
pub use rows::{ChargedRow, HeldRow, LeftAloneRow};
pub use run::{
    CapKind, CapSource, ResumeAnswer, RunAnswer, StatusCause, SuspendedRow, ThreadCost,
    TreeTotalsView, advised_code, ceiling_advice, repeats_in_vain, suspended_advice,
};
pub use signal::SignalAnswer;
pub use state::StateAnswer;
pub use state_files::{ImportAnswer, PruneAnswer, PrunedBlobRow, PrunedRow};
pub use thread::{
    EventView, ForkView, LimitsView, RunView, ShowAnswer, StateView, ThreadAnswer, ThreadView,
    UnreadableRow, event_gist, thread_or_unnamed,
};
pub use threadkeep_units::status::has_ended;
pub use tree::{BranchRow, TreeAnswer};
pub use upkeep::{
    CompletionsAnswer, DemoAnswer, ManAnswer, NamesAnswer, RecoverAnswer, RepairAnswer,
};
pub use usage::{UsageAnswer, UsageRow};

use crate::exit::CommandExit;
use crate::money;
use crate::screen::OutputScreen;
use serde::{Serialize, Serializer};

/// The answer of a command.
pub trait CommandAnswer: Serialize {
    /// The exit code of the process.
    fn exit(&self) -> CommandExit;
    /// Prints the answer as text for a user. The screen has no `--json`.
    fn print(&self, screen: &mut OutputScreen);
}

/// Formats a count: `1 turn`, `2 turns`.
pub fn count_noun(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Most threads that are named because a sum lacks what they have spent; the others are counted.
const LACKING_NAMED_MAX: usize = 5;

/// Names the threads that a sum over a tree lacks, to stand behind it; empty if all could be read.
fn lacking(unreadable: &[String]) -> String {
    let named = &unreadable[..unreadable.len().min(LACKING_NAMED_MAX)];
    let more = match unreadable.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match named {
        [] => String::new(),
        named => format!(", without {}{more}, which cannot be read", named.join(", ")),
    }
}

/// Serializes nano-USD as exact decimal text.
fn spend<S: Serializer>(nanos: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&money::format_decimal(*nanos))
}

fn optional_spend<S: Serializer>(nanos: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match nanos {
        Some(nanos) => serializer.serialize_some(&money::format_decimal(*nanos)),
        None => serializer.serialize_none(),
    }
}
