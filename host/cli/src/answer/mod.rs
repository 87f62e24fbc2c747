//! What commands answer: one shape each, as JSON with stable names, and as a person reads it.

mod audit;
mod budget;
mod doctor;
mod held;
mod probe;
mod run;
mod thread;
mod upkeep;

pub use audit::{AuditAnswer, FindingRow};
pub use budget::{
    AccountView, Books, BranchRow, BudgetAnswer, HoldAnswer, SettledAnswer, TreeAnswer,
};
pub use doctor::{Diagnosis, Item, Missing, Runnable, Section, State};
pub use held::{HeldAnswer, WrittenAnswer};
pub use probe::{ProbeAnswer, ProbeUsage};
pub use run::{
    Bound, Cap, Cause, Cost, FamilyView, RunAnswer, SuspendedRow, advised_code, lift,
    suspended_advice,
};
pub use thread::{
    EventView, LimitsView, ListAnswer, RunView, ShowAnswer, SignalAnswer, ThreadAnswer, ThreadRow,
    ThreadView, TranscriptAnswer, UnreadableRow, thread_or_unnamed,
};
pub use upkeep::{CompletionsAnswer, DemoAnswer, RecoverAnswer, RepairAnswer};

use crate::exit::Exit;
use crate::money;
use crate::screen::Screen;
use serde::{Serialize, Serializer};

/// The answer of a command.
pub trait Answer: Serialize {
    /// How the process ends.
    fn exit(&self) -> Exit;
    /// As a person reads it. The screen has no `--json`.
    fn print(&self, screen: &mut Screen);
}

/// `1 turn`, `2 turns`.
fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// Nano-USD as exact decimal text.
fn spend<S: Serializer>(nanos: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&money::decimal(*nanos))
}

fn optional_spend<S: Serializer>(nanos: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    match nanos {
        Some(nanos) => serializer.serialize_some(&money::decimal(*nanos)),
        None => serializer.serialize_none(),
    }
}
