//! The records that the component takes and answers, as far as commands use them: plain types,
//! which each host fills from its own bindings of `wit/`. The documentation of every field is
//! there.
//!
//! A host converts by [`convert_records!`](crate::convert_records), which knows all fields.

mod convert;
mod records;
mod refusal;

pub use records::{
    AccountRecord, BasePart, CallBill, ChangeSet, ChargePage, CommittedChange, CostEstimate, Entry,
    EntryPage, ExpectedVersion, HeldMoney, ListPage, ListedThread, ModelCall, OpenedThread,
    RaisedCaps, RecordDamage, RunLease, RunRecord, SignalContent, StopCause, Thread, ThreadBase,
    ThreadDraft, ThreadFilter, ThreadLimits, ThreadSnapshot, ThreadUsage, TokenUsage,
    TranscriptPiece, TreeBranch, TreePage, UnixTime, UnreadableThread,
};
pub use refusal::{CallError, CallRefusal, RefusalKind};
