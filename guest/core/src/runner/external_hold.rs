//! The money of an external loop: it holds before a call, and settles or releases once the cost is
//! known.
//!
//! A hold is named by a key of the host's, so that a repeated call is known for ever, and from then
//! on by the version that admitted it. Settling needs no token: the real cost is accepted from any
//! caller, once. A call that is still held when the loop ends is charged by estimate, and may be
//! settled later like any charged attempt.

use super::CommitDecision;
use super::admission::{
    hold_money as admit_money, money_held_cause, money_refused_cause, set_lease,
};
use super::checks::{check_deadline, check_loop_token, refused_error};
use super::settlement::believable_usage;
use super::usage_correction::plan_correction;
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{AdmittedAttempt, CommitReason, CostSource, Event, ResultEvent, SettledHold};
use crate::json::{self, record};
use crate::ledger::{ChargeBasis, TokenPrices, Usage};
use crate::limits::check_tokens;
use crate::money::{NanoUsd, check_bill};
use crate::plan::{
    DecisionContext, LoadedThread, StoreWrite, StoredRecord, ThreadChange, WriteCondition,
};
use crate::settings::Model;
use crate::thread::{ExternalHold, HOLDS_MAX, RecordFormat, ReportedUsage, find_reached_cap};
use crate::time::UnixTime;
use crate::{id, key};

/// The most that a call may come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldEstimate {
    /// A call of a model of the library.
    Tokens {
        /// The model.
        model: Box<Model>,
        /// Tokens of its input.
        input: u64,
        /// Most tokens that it may write.
        output: u64,
    },
    /// An amount of money.
    Amount(NanoUsd),
}

impl HoldEstimate {
    fn digest(&self) -> String {
        match self {
            Self::Tokens {
                model,
                input,
                output,
            } => sha256(&[
                "tokens",
                &model.name,
                &input.to_string(),
                &output.to_string(),
            ]),
            Self::Amount(amount) => sha256(&["amount", &amount.get().to_string()]),
        }
    }
}

/// The outcome of a call, as money.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallBill {
    /// Tokens used, charged at the prices of the hold.
    Usage(Usage),
    /// The real cost.
    Amount(NanoUsd),
    /// Nothing was sent.
    Nothing,
}

impl CallBill {
    fn digest(&self) -> String {
        match self {
            Self::Usage(usage) => sha256(&["usage", &json::to_text(usage)]),
            Self::Amount(amount) => sha256(&["amount", &amount.get().to_string()]),
            Self::Nothing => sha256(&["nothing"]),
        }
    }
}

/// Record of a hold, kept for ever beside the signals that were seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Format of the record.
    pub format: RecordFormat,
    /// The version that admitted it.
    pub version: u64,
    /// Amount that was set aside.
    pub amount: NanoUsd,
    /// Most output tokens that were admitted.
    pub output: u64,
    /// SHA-256 of the estimate that was requested.
    pub estimate: String,
    /// SHA-256 of the bill, once it was reported.
    pub bill: Option<String>,
}

record!(Attempt { format, version, amount, output, estimate, bill or nothing });

impl Attempt {
    fn refuse_newer(&self, loaded: &LoadedThread) -> Result<(), Error> {
        self.format.refuse_newer(&loaded.thread.value.id, "hold")
    }

    /// Decides on a hold of a name that was used: the same is a repetition.
    fn repeat_hold(&self, loaded: &LoadedThread, digest: String) -> Result<CommitDecision, Error> {
        self.refuse_newer(loaded)?;
        if self.estimate == digest {
            return Ok(CommitDecision::Repeat);
        }
        Err(Error::conflict("estimate", digest, self.estimate.clone()))
    }
}

/// Returns the key of an attempt's record: no signal can have such a name. Where the ids of the
/// thread and its chain and the name are long, everything after the chain is replaced by a digest.
pub fn attempt_key(loaded: &LoadedThread, name: &str) -> String {
    let (root, thread) = (loaded.chain_key(), loaded.key());
    let whole = key::join(&[&root, "\0hold", &thread, name]);
    match whole.len() <= key::KEY_BYTES_MAX {
        true => whole,
        false => key::join(&[&root, "\0hold", &sha256(&[&thread, name])]),
    }
}

/// A host's request to set money aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldRequest<'a> {
    /// Token of the host's lease.
    pub token: u64,
    /// The host's name for the call.
    pub key: &'a str,
    /// The most that the call may come to.
    pub estimate: &'a HoldEstimate,
    /// Time by which it should be settled: the lease of the thread lasts at least as long.
    pub deadline: UnixTime,
}

/// Sets money aside for a call of an external loop. `known` is the record of a call of that name,
/// if there was one.
pub fn hold(
    loaded: &LoadedThread,
    known: Option<&Attempt>,
    request: &HoldRequest<'_>,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    id::check_request_name("key", request.key)?;
    match request.estimate {
        HoldEstimate::Amount(amount) => {
            check_bill("estimate.amount", amount.get())?;
        }
        HoldEstimate::Tokens { input, output, .. } => {
            check_tokens("estimate.input", *input)?;
            check_tokens("estimate.output", *output)?;
        }
    }
    let digest = request.estimate.digest();
    if let Some(known) = known {
        return known.repeat_hold(loaded, digest);
    }
    check_loop_token(loaded, request.token)?;
    check_deadline(request.deadline, moment)?;
    let head = &loaded.head.value;
    if head.intent.is_some() {
        return Err(refused_error(loaded, "a cancel waits: close it"));
    }
    if head.holds.len() >= HOLDS_MAX {
        let advice = "too many of its calls are held at once: settle or release one";
        return Err(refused_error(loaded, advice));
    }
    if let Some(cause) = find_reached_cap(head, moment.ceiling) {
        return Err(Error::exceeded_by(cause));
    }
    let mut change = ThreadChange::new(loaded, moment);
    change.apply_reported_usage();
    let (own, output) = admit_external_hold(&mut change, request)?;
    let (amount, version) = (own.amount, own.version);
    change.head.holds.push(own);
    change.admitted = Some(AdmittedAttempt {
        hold: amount,
        output,
        request: digest.clone(),
        key: Some(request.key.to_owned()),
    });
    let attempt = Attempt {
        format: RecordFormat::CURRENT,
        version,
        amount,
        output,
        estimate: digest,
        bill: None,
    };
    change.extra.push(StoreWrite::Put {
        collection: key::SEEN,
        key: attempt_key(loaded, request.key),
        expect: WriteCondition::Absent,
        value: json::to_text(&attempt),
    });
    extend_step(&mut change, request.deadline);
    Ok(CommitDecision::Commit(
        change.into_plan(CommitReason::Attempt)?,
    ))
}

/// Returns the hold, if the money is there, and the most output tokens that it allows: lowered
/// where money is short.
fn admit_external_hold(
    change: &mut ThreadChange<'_>,
    request: &HoldRequest<'_>,
) -> Result<(ExternalHold, u64), Error> {
    let (model, prices, rate, input, output) = match request.estimate {
        HoldEstimate::Amount(_) => (String::new(), None, None, 0, 0),
        HoldEstimate::Tokens {
            model,
            input,
            output,
        } => {
            let prices = model.prices.unwrap_or_default();
            let affordable = prices.affordable_output(change.attempt_share(), *input);
            let floor = (*output).min(super::OUTPUT_TOKENS_FLOOR);
            let output = (*output).min(affordable).max(floor);
            (model.name.clone(), Some(prices), model.rate, *input, output)
        }
    };
    let amount = match request.estimate {
        HoldEstimate::Amount(amount) => *amount,
        HoldEstimate::Tokens { .. } => prices.unwrap_or_default().max_cost(input, output),
    };
    if let Err(refusal) = admit_money(change, amount) {
        let cause = money_held_cause(change, amount, refusal);
        let cause = cause.unwrap_or_else(|| money_refused_cause(change, refusal));
        return Err(Error::exceeded_by(cause));
    }
    let basis = prices.and_then(|_| change.charge_basis(input, output, rate));
    let own = ExternalHold {
        version: change.version(),
        key: request.key.to_owned(),
        model,
        amount,
        prices,
        tokens: input.saturating_add(output),
        basis,
    };
    Ok((own, output))
}

/// Renames the pending step, as every commit of an external loop does, and extends it to the
/// deadline.
fn extend_step(change: &mut ThreadChange<'_>, deadline: UnixTime) {
    let version = change.version();
    let Some(step) = &mut change.head.step else {
        return;
    };
    step.version = version;
    step.deadline = step.deadline.max(deadline);
    let deadline = step.deadline;
    set_lease(change, deadline);
}

/// Records the bill of a held call, or of an attempt that was charged. `known` is the record of the
/// call that `version` admitted, if it was an external loop's; `tip` the tip of the chain, for a
/// thread that was continued.
pub fn settle(
    (loaded, tip): (&LoadedThread, Option<&LoadedThread>),
    known: Option<(&str, &StoredRecord<Attempt>)>,
    version: u64,
    bill: CallBill,
    moment: DecisionContext<'_>,
) -> Result<CommitDecision, Error> {
    if let CallBill::Usage(usage) = &bill {
        for (field, tokens) in [
            ("bill.usage.input", usage.input),
            ("bill.usage.output", usage.output),
            ("bill.usage.read", usage.read),
            ("bill.usage.write", usage.write),
            ("bill.usage.reasoning", usage.reasoning),
        ] {
            check_tokens(field, tokens)?;
        }
    }
    let digest = bill.digest();
    if let Some((_, known)) = known {
        known.value.refuse_newer(loaded)?;
    }
    if let Some(told) = known.and_then(|(_, known)| known.value.bill.as_ref()) {
        return repeat_or_conflict(told == &digest, &digest, told);
    }
    let mut change = ThreadChange::new(loaded, moment);
    if let Some((name, known)) = known {
        let attempt = Attempt {
            bill: Some(digest.clone()),
            ..Attempt::clone(&known.value)
        };
        change.extra.push(StoreWrite::Put {
            collection: key::SEEN,
            key: name.to_owned(),
            expect: WriteCondition::Version(known.version),
            value: json::to_text(&attempt),
        });
    }
    change.closing = true;
    let holds = &mut change.head.holds;
    if let Some(at) = holds.iter().position(|own| own.version == version) {
        let own = holds.remove(at);
        let bill = believable_bill(bill, own.basis, own.tokens);
        close_external_hold(&mut change, &own, bill)?;
        if let Some(step) = &mut change.head.step {
            step.version = loaded.head.value.version + 1;
        }
        return Ok(CommitDecision::Commit(
            change.into_plan(CommitReason::Settled)?,
        ));
    }
    correct_charged_attempt(change, tip, version, bill)
}

fn repeat_or_conflict(same: bool, digest: &str, told: &str) -> Result<CommitDecision, Error> {
    match same {
        true => Ok(CommitDecision::Repeat),
        false => Err(Error::conflict("bill", digest.to_owned(), told.to_owned())),
    }
}

/// Returns the cost of a bill.
fn bill_cost(bill: CallBill, prices: Option<TokenPrices>) -> Result<NanoUsd, Error> {
    match (bill, prices) {
        (CallBill::Nothing, _) => Ok(NanoUsd::ZERO),
        (CallBill::Amount(amount), _) => check_bill("bill.amount", amount.get()),
        (CallBill::Usage(usage), Some(prices)) => Ok(prices.cost(usage)),
        (CallBill::Usage(_), None) => {
            let problem = "is tokens, and the call was held without prices: tell the amount";
            Err(Error::invalid("bill", "usage", problem))
        }
    }
}

/// Cuts a bill of tokens to what its call can have used.
fn believable_bill(bill: CallBill, basis: Option<ChargeBasis>, tokens: u64) -> CallBill {
    match bill {
        CallBill::Usage(usage) => CallBill::Usage(believable_usage(usage, basis, (tokens, tokens))),
        CallBill::Amount(_) | CallBill::Nothing => bill,
    }
}

fn bill_usage(bill: CallBill) -> Usage {
    match bill {
        CallBill::Usage(usage) => usage,
        CallBill::Amount(_) | CallBill::Nothing => Usage::default(),
    }
}

/// Settles or releases a hold that is open.
fn close_external_hold(
    change: &mut ThreadChange<'_>,
    own: &ExternalHold,
    bill: CallBill,
) -> Result<(), Error> {
    let (spend, usage) = (bill_cost(bill, own.prices)?, bill_usage(bill));
    let how = match bill {
        CallBill::Nothing => CostSource::Released,
        CallBill::Usage(_) | CallBill::Amount(_) => CostSource::Settled,
    };
    change.apply_settled(&mut |path| match how {
        CostSource::Released => path.release(own.amount),
        CostSource::Settled | CostSource::Estimated | CostSource::Charged => {
            path.settle(own.amount, spend)
        }
    });
    change.settled = Some(SettledHold {
        version: own.version,
        hold: own.amount,
        spend,
        how,
        usage: matches!(bill, CallBill::Usage(_)).then_some(usage),
    });
    if how == CostSource::Released {
        return Ok(());
    }
    let used = &mut change.head.counters;
    used.turns += 1;
    used.run_turns += 1;
    used.spend = used.spend.saturating_add(spend);
    used.usage = used.usage.plus(usage);
    // A bill of money counts as the tokens that the call was admitted with, as a charged attempt
    // does.
    let tokens = match bill {
        CallBill::Amount(_) => own.tokens,
        CallBill::Usage(_) | CallBill::Nothing => usage.total(),
    };
    used.run_tokens = used.run_tokens.saturating_add(tokens);
    change.push_event(Event::Result(ResultEvent {
        model: own.model.clone(),
        finish: String::new(),
        usage,
        spend,
        duration: 0,
        estimated: false,
        response_id: None,
        response_model: None,
        summary: false,
    }));
    Ok(())
}

/// Records the real usage of an attempt that was charged: now, or with the next entry of the
/// holder.
fn correct_charged_attempt(
    mut change: ThreadChange<'_>,
    tip: Option<&LoadedThread>,
    version: u64,
    bill: CallBill,
) -> Result<CommitDecision, Error> {
    let charged = &mut change.head.charged;
    let Some(told) = charged.iter_mut().find(|told| told.version == version) else {
        let problem =
            "names no call that is held or was charged: it was settled already, or too long ago";
        return Err(Error::invalid("version", &version.to_string(), problem));
    };
    let bill = believable_bill(bill, told.hold.basis, told.tokens);
    let prices = (!told.unpriced).then_some(told.hold.prices);
    let late = ReportedUsage {
        spend: bill_cost(bill, prices)?,
        usage: bill_usage(bill),
        money: matches!(bill, CallBill::Amount(_)),
        recorded: false,
    };
    if let Some(before) = &told.late {
        let now = (late.spend, late.usage, late.money);
        return repeat_or_conflict(
            now == (before.spend, before.usage, before.money),
            &late.spend.to_string(),
            &before.spend.to_string(),
        );
    }
    told.late = Some(late);
    let plan = plan_correction(change, tip)?;
    Ok(CommitDecision::Commit(plan))
}
