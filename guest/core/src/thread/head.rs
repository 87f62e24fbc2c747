//! The head of a thread: the small guard record that every commit of it or to it replaces.
//!
//! A pending step keeps its own version and stays valid when mail moves the head.

use super::{Cause, Status};
use crate::json::record::{record, words};
use crate::ledger::{ChargeBasis, TokenPrices, Usage};
use crate::limits::Limits;
use crate::money::NanoUsd;
use crate::time::Instant;

/// Stored under the key of the thread's id; under 4 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// [`super::FORMAT`].
    pub format: u32,
    /// Where it stands.
    pub status: Status,
    /// Why.
    pub cause: Option<Cause>,
    /// Number of the run, from 1; 0 before the first.
    pub run: u64,
    /// Fence: grows with each start, claim and kill.
    pub token: u64,
    /// Who holds it.
    pub holder: Option<String>,
    /// Until when.
    pub expiry: Option<Instant>,
    /// Name of the request that began the run, as long as its first step is pending.
    pub request: Option<String>,
    /// Time of its due entry in milliseconds, if it has one.
    pub due: Option<u64>,
    /// When its status changed last, in milliseconds: the time of its status and recency entries.
    pub recency: u64,
    /// What the driver has been told to do.
    pub step: Option<Pending>,
    /// Calls that have no result yet.
    pub round: Option<Round>,
    /// Money set aside for the pending attempt.
    pub hold: Option<Hold>,
    /// Money set aside for calls of a host's own loop, at most [`HOLDS_MAX`].
    pub holds: Vec<OwnHold>,
    /// The newest attempts that were charged though nobody knew what they used, at most [`CHARGED_MAX`]: what they did
    /// use may still be told.
    pub charged: Vec<Charged>,
    /// What it has used.
    pub counters: Counters,
    /// Rounds in a row in which no call could be run.
    pub bad_rounds: u32,
    /// Steps in a row that were lost to dead holders.
    pub lost: u32,
    /// Estimated tokens of what would be sent next.
    pub context: u64,
    /// Rolling SHA-256 of the messages that a provider sees.
    pub prefix: String,
    /// True if what a provider would be sent ends with something to answer: a user's message, or results.
    pub asked: bool,
    /// Length of the history.
    pub version: u64,
    /// SHA-256 of the newest entry.
    pub hash: String,
    /// A cancel or kill that has not taken effect yet.
    pub intent: Option<Intent>,
    /// What its children have still to be told: it was ended, or is to be.
    pub sweep: Option<Intent>,
    /// The children that it waits for, while it is waiting or suspended with them.
    pub wait: Option<WaitFor>,
    /// Number of the first message in the inbox that was not taken yet.
    pub mail_from: u64,
    /// Number after the last message in the inbox.
    pub mail_to: u64,
    /// Caps in force.
    pub limits: Limits,
    /// The provider's session.
    pub session: Option<String>,
    /// When it was last committed to.
    pub updated: Instant,
}

record!(Head {
    format, status, cause, run, token, holder, expiry, request, due, recency, step, round, hold, holds or nothing, charged or nothing, counters, bad_rounds, lost,
    context, prefix, asked or nothing, version, hash, intent, sweep or nothing, wait or nothing, mail_from, mail_to, limits, session, updated
});

impl Head {
    /// Mail that was not taken yet.
    pub fn mail(&self) -> u64 {
        self.mail_to.saturating_sub(self.mail_from)
    }

    /// What the calls that a host's own loop still holds may come to: each is a turn.
    pub fn held(&self) -> Held {
        let none = Held::default();
        self.holds.iter().fold(none, |sum, own| Held {
            turns: sum.turns + 1,
            tokens: sum.tokens.saturating_add(own.tokens),
            amount: sum.amount.saturating_add(own.amount),
        })
    }

    /// Does a host hold it for a loop of its own?
    pub fn is_own_loop(&self) -> bool {
        self.step
            .as_ref()
            .is_some_and(|step| step.kind == StepKind::OwnLoop)
    }
}

/// What a driver has been told to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The version that hands it out: its name.
    pub version: u64,
    /// What.
    pub kind: StepKind,
    /// When it was handed out.
    pub started: Instant,
    /// Until when it must be done.
    pub deadline: Instant,
    /// Attempts of the same request before this one.
    pub tries: u32,
    /// SHA-256 of the request, for a model call.
    pub hash: String,
    /// Most output tokens, for a model call.
    pub output: u64,
    /// For a wait: until when.
    pub until: Option<Instant>,
    /// Code of the failure of the attempt before this one, if that may have cost something.
    pub failed: Option<String>,
    /// For a wait: since when money is short because other calls hold it, if it waits for that.
    pub short_since: Option<Instant>,
}

record!(Pending {
    version,
    kind,
    started,
    deadline,
    tries,
    hash,
    output,
    until,
    failed or nothing,
    short_since or nothing
});

/// Kinds of steps that can be pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// One model call.
    CallLlm,
    /// One round of tool calls.
    CallTools,
    /// Wait before the next attempt.
    Wait,
    /// No driver does anything: a host holds the thread for a loop of its own.
    OwnLoop,
}

words!(StepKind { CallLlm = "call-llm", CallTools = "call-tools", Wait = "wait", OwnLoop = "own-loop" });

/// A tool round that has calls without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Round {
    /// Version of the entry that holds the calls.
    pub version: u64,
    /// The calls without a result, in order.
    pub calls: Vec<RoundCall>,
}

record!(Round { version, calls });

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundCall {
    /// Index of its `tool_use` event.
    pub index: u32,
    /// May it be run again?
    pub idempotent: bool,
    /// Does it wait for children? Then no driver runs it.
    pub waits: bool,
}

record!(RoundCall { index, idempotent, waits or nothing });

/// Most children that a thread waits for at once, so that the head stays small.
pub const WAIT_MAX: usize = 32;

/// What a waiting thread waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFor {
    /// Spawn numbers of the children that have not ended, at most [`WAIT_MAX`].
    pub numbers: Vec<u64>,
    /// Is the first end enough?
    pub any: bool,
    /// Until when.
    pub until: Instant,
    /// Has one of them no money to go on with? Then each end of another is a reason to look: there may be nobody left
    /// who goes on.
    pub short: bool,
    /// True if one of them was interrupted since: while nobody ran it the time of the wait did not count, so it begins
    /// again when the wait is looked at.
    pub renewed: bool,
}

record!(WaitFor { numbers, any or nothing, until, short or nothing, renewed or nothing });

/// Money set aside for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// How much.
    pub amount: NanoUsd,
    /// At these prices.
    pub prices: TokenPrices,
    /// What it is charged by if nobody learns what it used; `None` for all of it.
    pub basis: Option<ChargeBasis>,
}

record!(Hold { amount, prices, basis or nothing });

/// Calls of a host's own loop that may be held at once: a few in parallel, so that the head stays small.
pub const HOLDS_MAX: usize = 8;

/// Money set aside for a call of a host's own loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnHold {
    /// The version that admitted it: its name from then on.
    pub version: u64,
    /// The host's name of it.
    pub key: String,
    /// The model; empty if it was held as money.
    pub model: String,
    /// How much.
    pub amount: NanoUsd,
    /// At these prices; `None` if it was held as money.
    pub prices: Option<TokenPrices>,
    /// Tokens that it may come to.
    pub tokens: u64,
    /// What it is charged by if nobody tells what it used; `None` for all of it.
    pub basis: Option<ChargeBasis>,
}

record!(OwnHold { version, key, model, amount, prices or nothing, tokens, basis or nothing });

/// What calls that are held may come to, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// How many there are.
    pub turns: u64,
    /// Tokens.
    pub tokens: u64,
    /// Money.
    pub amount: NanoUsd,
}

/// Charged attempts that can still be corrected: later ones take the place of earlier ones, so that the head stays small.
pub const CHARGED_MAX: usize = 8;

/// An attempt that was charged without a reported usage: by the text of its reply, by its time, or all that was held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charged {
    /// The version that admitted it.
    pub version: u64,
    /// What it was charged.
    pub hold: Hold,
    /// The run that it was counted to.
    pub run: u64,
    /// Tokens that it was counted as.
    pub tokens: u64,
    /// The usage that it was estimated to have; `None` if it was charged all that was held.
    pub estimated: Option<Usage>,
    /// True if it was held as money, without prices.
    pub unpriced: bool,
    /// What it really used, once somebody has told: recorded with the next entry of the thread.
    pub late: Option<Late>,
}

record!(Charged { version, hold, run, tokens, estimated or nothing, unpriced or nothing, late or nothing });

/// What a charged attempt really used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Late {
    /// What it cost.
    pub spend: NanoUsd,
    /// The tokens.
    pub usage: Usage,
    /// True if it was told as money: it stays the tokens that it was counted as.
    pub money: bool,
    /// Is it in the history?
    pub recorded: bool,
}

record!(Late { spend, usage, money or nothing, recorded or nothing });

/// What a thread has used; the `run_` ones begin anew with each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Completed model calls.
    pub turns: u64,
    /// Tokens.
    pub usage: Usage,
    /// Settled and charged.
    pub spend: NanoUsd,
    /// Milliseconds inside steps.
    pub duration: u64,
    /// Completed model calls of this run.
    pub run_turns: u64,
    /// Tokens of this run.
    pub run_tokens: u64,
    /// Milliseconds inside steps of this run.
    pub run_duration: u64,
    /// Children that were spawned.
    pub spawns: u64,
}

record!(Counters { turns, usage, spend, duration, run_turns, run_tokens, run_duration, spawns or nothing });

/// Something that will happen at the next commit of the thread; the later one is the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intent {
    /// End the run when its step is done.
    Cancel,
    /// End the run now.
    Kill,
}

words!(Intent { Cancel = "cancel", Kill = "kill" });
