//! Rows about single threads, in answers about several: what was charged, who holds one, what was
//! left alone.

use super::spend;
use crate::money;
use crate::screen::OutputScreen;
use serde::Serialize;

/// Charges of a thread for calls whose usage was never reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChargedRow {
    /// The thread; empty for a row that adds up threads which are not named.
    pub thread_id: String,
    /// The number of those calls.
    pub calls: u64,
    /// Nano-USD that are charged; decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub spend: u64,
    /// The most nano-USD that the calls can have cost; decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub most: u64,
}

impl ChargedRow {
    /// Describes the charges in a sentence. `top` is the thread that the command is about, which
    /// is not named.
    pub fn describe(&self, top: &str) -> String {
        let whose = match self.thread_id.as_str() {
            "" => " of other threads".to_owned(),
            thread if thread == top => String::new(),
            thread => format!(" of {thread}"),
        };
        let what = match self.calls {
            1 => "one call".to_owned(),
            calls => format!("{calls} calls"),
        };
        format!(
            "no usage was reported for {what}{whose}: {}",
            describe_charge(self.spend, self.most)
        )
    }
}

/// Describes an amount that is charged for a call of unknown cost.
pub(super) fn describe_charge(spend: u64, most: u64) -> String {
    format!(
        "{} is charged by estimate; at most it was {}",
        money::format_usd(spend),
        money::format_usd(most)
    )
}

/// A thread with a lease whose process is not known to be dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldRow {
    /// The thread.
    pub thread_id: String,
    /// The name of the holder.
    pub holder: String,
    /// The state of the holder, as far as it is known, and what to do.
    pub next: String,
}

impl HeldRow {
    /// Tells the user of it.
    pub fn note(&self, screen: &mut OutputScreen) {
        let Self {
            thread_id,
            holder,
            next,
        } = self;
        screen.note(&format!("{thread_id} is held by {holder}; {next}"));
    }
}

/// A thread that could not be begun so often that the run of its tree does not try again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftAloneRow {
    /// The thread.
    pub thread_id: String,
    /// The reason, and what would allow it.
    pub message: String,
}
