//! The head of a thread: the small guard record that every commit of it or to it replaces.
//!
//! A pending step keeps its own version and stays valid when mail moves the head.

use super::{
    APPROVAL_NEEDED, HandOffPhase, RoundCall, StateSummary, StatusCause, ThreadStatus, ToolRound,
};
use crate::json::{record, words};
use crate::ledger::{ChargeBasis, TokenPrices, Usage};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::time::UnixTime;

/// Most bytes of a head as JSON text, with every list and name at its bound and every character of
/// a provider's text escaped. Each commit of the thread rewrites it.
pub const HEAD_BYTES_MAX: usize = 31 << 10;

/// Due time of a new thread: at once. Its own number, before every real time and after 0, makes the
/// entries of new threads a range of their own, which is read last: so a driver that has no room to
/// begin more threads need not read past the first.
pub const DUE_NEW: u64 = 1;

/// Stored under the key of the thread's id: about 1 KB as a rule, at most [`HEAD_BYTES_MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// [`super::FORMAT`].
    pub format: u32,
    /// Status of the thread.
    pub status: ThreadStatus,
    /// True while the history that the thread was made for is not whole: no run begins then.
    pub incomplete: bool,
    /// Reason for that status, if there is one.
    pub cause: Option<StatusCause>,
    /// Number of the run, from 1; 0 before the first.
    pub run: u64,
    /// Fence: grows with each start, claim and kill.
    pub token: u64,
    /// The holder: `<process nonce>/<n>` for a driver, or the name that an external loop gave.
    pub holder: Option<String>,
    /// Time at which the lease expires.
    pub expiry: Option<UnixTime>,
    /// Name of the request that began the run, as long as its first step is pending.
    pub request: Option<String>,
    /// Time of its due entry in milliseconds, if it has one.
    pub due: Option<u64>,
    /// Time of the last change of status in milliseconds: the time of its status and recency
    /// entries.
    pub recency: u64,
    /// The step that was handed to the driver.
    pub step: Option<PendingStep>,
    /// The hand-off that the thread is in, until its successor is made.
    pub phase: Option<HandOffPhase>,
    /// Hand-offs of its chain in a row: since the last message that came from outside, be it a
    /// person's, a scheduler's or another agent's, or since the chain was resumed.
    pub hand_offs: u32,
    /// True from a hand-off because of an overflow until the next reply: an overflow then is no
    /// reason for another one.
    pub shortened: bool,
    /// Calls that have no result yet.
    pub round: Option<ToolRound>,
    /// Money set aside for the pending attempt.
    pub hold: Option<Hold>,
    /// Money set aside for calls of an external loop, at most [`HOLDS_MAX`].
    pub holds: Vec<ExternalHold>,
    /// The newest attempts that were charged although their usage was unknown, at most
    /// [`CHARGED_MAX`]: their real usage may still be reported.
    pub charged: Vec<ChargedAttempt>,
    /// Usage of the thread so far.
    pub counters: UsageCounters,
    /// Money that the earlier links of its chain have spent, at the tip of a chain of several: the
    /// cap on spend bounds the chain. A link that was continued carries nothing, so the amount
    /// stands in one head: a correction of an earlier link changes it there, in the same commit.
    pub carried_spend: Option<NanoUsd>,
    /// Model replies of its base, which are sent again.
    pub carried_turns: u64,
    /// Replies of the thread that were no turn: they are counted, and never sent again.
    pub unusable: u64,
    /// Rounds in a row in which no call could be run.
    pub bad_rounds: u32,
    /// Steps in a row that were lost to dead holders.
    pub lost: u32,
    /// Tokens of the next request: as the provider reported them last, and a scaled estimate of
    /// what came after.
    pub context: u64,
    /// Estimated tokens of the same, none of them reported; 0 in heads of earlier programs.
    pub estimated: u64,
    /// Bytes of the same: prompt, schemas and messages; 0 in heads of earlier programs.
    pub window_bytes: u64,
    /// Tokens that its model takes, from its first start on; `None` in heads of earlier programs.
    pub window: Option<u64>,
    /// Rolling SHA-256 of the messages that a provider sees.
    pub prefix: String,
    /// True if the conversation that a provider would be sent ends with something to answer: a
    /// user's message, or tool results.
    pub asked: bool,
    /// The version of the entry with the last message of a user on the thread's path; `None` where
    /// it is not known, as in a head of an earlier program.
    pub asked_version: Option<u64>,
    /// The newest version of the thread; that of its base while it has no entry of its own.
    pub version: u64,
    /// SHA-256 of the newest own entry; without one, [`super::genesis_hash`].
    pub hash: String,
    /// A cancel or kill that has not taken effect yet.
    pub intent: Option<EndIntent>,
    /// An intent of which its children have still to be told: the thread was ended, or is to be.
    pub sweep: Option<EndIntent>,
    /// Spawn number of the last child that `sweep` is meant for; `None` for all that there are. A
    /// child that the chain spawns later, once it was resumed, is not meant.
    pub sweep_to: Option<u64>,
    /// The children that it waits for, while it is waiting or is suspended with them.
    pub wait: Option<ChildWait>,
    /// Number of the first message in the inbox that is not yet in the history.
    pub mail_from: u64,
    /// Number after the last message in the inbox.
    pub mail_to: u64,
    /// Caps in force.
    pub limits: ThreadCaps,
    /// Size and place of its state document, if it has one.
    pub state: Option<StateSummary>,
    /// Session id of the provider.
    pub session: Option<String>,
    /// Time of the last commit to the head.
    pub updated: UnixTime,
}

record!(Head {
    format, status, incomplete or nothing, cause, run, token, holder, expiry, request, due, recency,
    step,
    phase or nothing, hand_offs or nothing, shortened or nothing, round, hold,
    holds or nothing, charged or nothing, counters, carried_spend or nothing,
    carried_turns or nothing, unusable or nothing, bad_rounds, lost, context, estimated or nothing,
    window_bytes or nothing, window or nothing, prefix, asked or nothing, asked_version or nothing,
    version, hash, intent, sweep or nothing, sweep_to or nothing, wait or nothing, mail_from,
    mail_to, limits, state or nothing, session, updated
});

impl Head {
    /// Makes a thread that no caller holds due: at once, and a new one as new ones are.
    /// A thread that waits for decisions alone, or whose history is not whole, stays as it is: a
    /// start of it is refused.
    pub fn mark_due(&mut self) {
        if self.incomplete || self.awaits_decision() {
            return;
        }
        self.due = Some(match self.status {
            ThreadStatus::Created => DUE_NEW,
            _ => 0,
        });
    }

    /// Number of inbox messages that are not yet in the history.
    pub fn mail_count(&self) -> u64 {
        self.mail_to.saturating_sub(self.mail_from)
    }

    /// Sums the calls that an external loop still holds, as the most that they may come to: each
    /// is a turn.
    pub fn held_totals(&self) -> HeldTotals {
        let none = HeldTotals::default();
        self.holds.iter().fold(none, |sum, own| HeldTotals {
            turns: sum.turns + 1,
            tokens: sum.tokens.saturating_add(own.tokens),
            amount: sum.amount.saturating_add(own.amount),
        })
    }

    /// Money that the chain's cap on spend is compared with: what this link has spent, and those
    /// before it.
    pub fn spend_under_cap(&self) -> NanoUsd {
        let carried = self.carried_spend.unwrap_or_default();
        carried.saturating_add(self.counters.spend)
    }

    /// Calls that nobody has decided about, in order.
    pub fn undecided_calls(&self) -> impl Iterator<Item = &RoundCall> {
        let open = self.round.iter().flat_map(|round| &round.calls);
        open.filter(|call| call.is_undecided())
    }

    /// Returns true if the thread is suspended for decisions and nothing can be done before one: a
    /// call that was decided, or that needs no decision, would be handed out by a start.
    pub fn awaits_decision(&self) -> bool {
        let cause = self.cause.as_ref();
        let mut open = self.round.iter().flat_map(|round| &round.calls);
        self.status == ThreadStatus::Suspended
            && cause.is_some_and(|cause| cause.code == APPROVAL_NEEDED)
            && self.undecided_calls().next().is_some()
            && open.all(|call| call.is_undecided() || call.waits)
    }

    /// Returns true if its pending step is parked: handed out, and not begun.
    pub fn is_parked(&self) -> bool {
        self.step.as_ref().is_some_and(|step| step.parked)
    }

    /// Returns true if an external loop holds the thread.
    pub fn is_external_loop(&self) -> bool {
        self.step
            .as_ref()
            .is_some_and(|step| step.kind == StepKind::ExternalLoop)
    }
}

/// A step that was handed to a driver and is not answered yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingStep {
    /// Version that handed the step out, and the name of the step.
    pub version: u64,
    /// Kind of the step.
    pub kind: StepKind,
    /// Time at which it was handed out.
    pub started: UnixTime,
    /// Time by which it must be done.
    pub deadline: UnixTime,
    /// Attempts of the same request before this one.
    pub tries: u32,
    /// SHA-256 of the request, for a model call.
    pub hash: String,
    /// Most output tokens, for a model call.
    pub output: u64,
    /// For a wait: the time at which it ends.
    pub until: Option<UnixTime>,
    /// Code of the failure of the attempt before this one, if that may have cost something.
    pub failed: Option<String>,
    /// For a wait for money that other calls hold: the time since when money is short.
    pub short_since: Option<UnixTime>,
    /// True from the end of a `runner.run` that has handed the step out and not begun it until the
    /// next one begins it: nothing of it was sent or run.
    pub parked: bool,
}

record!(PendingStep {
    version,
    kind,
    started,
    deadline,
    tries,
    hash,
    output,
    until,
    failed or nothing,
    short_since or nothing,
    parked or nothing
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
    /// No driver performs it: an external loop holds the thread.
    ExternalLoop,
}

words!(StepKind {
    CallLlm = "call-llm",
    CallTools = "call-tools",
    Wait = "wait",
    ExternalLoop = "own-loop",
});

/// Most children that a thread waits for at once, so that the head stays small.
pub const WAIT_MAX: usize = 32;

/// The open wait of a thread for its children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildWait {
    /// Spawn numbers of the children that have not ended, at most [`WAIT_MAX`].
    pub numbers: Vec<u64>,
    /// True if the first child that stops is enough.
    pub any: bool,
    /// Time at which the wait times out.
    pub until: UnixTime,
    /// True if one of the children has no money to go on with. Then each end of another child is a
    /// reason to check the wait: no child may be left that goes on.
    pub short: bool,
    /// True if one of the children was interrupted since: its time without a driver does not count
    /// as time of the wait, so the wait begins again when it is checked.
    pub renewed: bool,
}

record!(ChildWait { numbers, any or nothing, until, short or nothing, renewed or nothing });

/// Money set aside for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Amount set aside.
    pub amount: NanoUsd,
    /// Prices at which the amount was computed.
    pub prices: TokenPrices,
    /// Basis of the charge if the usage is never reported; `None` to charge all of the hold.
    pub basis: Option<ChargeBasis>,
}

record!(Hold { amount, prices, basis or nothing });

/// Most calls of an external loop that may be held at once: a few in parallel, so that the head
/// stays small.
pub const HOLDS_MAX: usize = 8;

/// Money set aside for a call of an external loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalHold {
    /// Version that admitted the call, and the name of the hold from then on.
    pub version: u64,
    /// The host's name for the call.
    pub key: String,
    /// The model; empty if the hold was requested as an amount of money.
    pub model: String,
    /// Amount set aside.
    pub amount: NanoUsd,
    /// Prices at which the amount was computed; `None` if it was requested as an amount of money.
    pub prices: Option<TokenPrices>,
    /// Most tokens that the call may come to.
    pub tokens: u64,
    /// Basis of the charge if the usage is never reported; `None` to charge all of the hold.
    pub basis: Option<ChargeBasis>,
}

record!(ExternalHold { version, key, model, amount, prices or nothing, tokens, basis or nothing });

/// Sums over the calls that are held: the most that they may come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldTotals {
    /// Number of held calls.
    pub turns: u64,
    /// Tokens of them.
    pub tokens: u64,
    /// Money of them.
    pub amount: NanoUsd,
}

/// Most charged attempts that can still be corrected: later ones replace earlier ones, so that the
/// head stays small.
pub const CHARGED_MAX: usize = 8;

/// An attempt that was charged without a reported usage: by the text of its reply, by its time, or
/// all of its hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargedAttempt {
    /// The version that admitted it.
    pub version: u64,
    /// Amount that was charged, with the prices of the attempt and the tokens that it was admitted
    /// with, to which its real usage is cut.
    pub hold: Hold,
    /// Run to which the attempt was counted.
    pub run: u64,
    /// Tokens that it was counted as.
    pub tokens: u64,
    /// The usage that it was estimated to have; `None` if all of its hold was charged.
    pub estimated: Option<Usage>,
    /// True if the hold was requested as an amount of money, without prices.
    pub unpriced: bool,
    /// The real usage, once it was reported; the next entry of the thread records it.
    pub late: Option<ReportedUsage>,
}

record!(ChargedAttempt {
    version, hold, run, tokens, estimated or nothing, unpriced or nothing, late or nothing
});

/// The real usage of a charged attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedUsage {
    /// Real cost.
    pub spend: NanoUsd,
    /// Tokens; zero where only money was reported.
    pub usage: Usage,
    /// True if an amount of money was reported: the attempt keeps the tokens that it was counted
    /// as.
    pub money: bool,
    /// True if the history records it.
    pub recorded: bool,
}

record!(ReportedUsage { spend, usage, money or nothing, recorded or nothing });

/// Usage of a thread; the `run_` counters begin anew with each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageCounters {
    /// Completed model calls.
    pub turns: u64,
    /// Tokens by kind.
    pub usage: Usage,
    /// Money settled and charged.
    pub spend: NanoUsd,
    /// Milliseconds inside steps.
    pub duration: u64,
    /// Completed model calls of this run.
    pub run_turns: u64,
    /// Tokens of this run.
    pub run_tokens: u64,
    /// Milliseconds inside steps of this run.
    pub run_duration: u64,
    /// Number of children that the thread has spawned.
    pub spawns: u64,
}

record!(UsageCounters {
    turns, usage, spend, duration, run_turns, run_tokens, run_duration, spawns or nothing
});

/// An end that takes effect at the next commit of the thread; the later variant is the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndIntent {
    /// Ends the run when its step is done.
    Cancel,
    /// Ends the run now.
    Kill,
}

words!(EndIntent { Cancel = "cancel", Kill = "kill" });

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
