//! The attempts at the summary of a thread that is handed off: admitted and settled as any attempt,
//! on the account of the chain, and counted in no cap on turns.
//!
//! A summary that fails, is empty or refused is no reason to keep a thread from being handed off:
//! it is handed off without one, and the event says why.

use super::admission::{estimate_input_tokens, hand_out_step, hold_money, model_call_time};
use super::failure::{known_kind, push_failure, settle_failed_attempt, transient_retry_millis};
use super::hand_off_terms::{CarryTerms, PreparedHandOff, SummaryProblem};
use super::reply::provider_word;
use super::reply_blocks::{LlmCompletion, ReplyBlock};
use super::settlement::{count_time, settle_attempt, settle_estimated};
use super::submission::LlmFailure;
use super::transition::{RetryWait, RunTransition};
use super::{OUTPUT_TOKENS_FLOOR, RETRIES_MAX};
use crate::continuation::{LiveWindow, SummaryRequest, SummaryTerms, WindowEntry, summary_request};
use crate::error::cut;
use crate::estimate;
use crate::hash::sha256;
use crate::history::{AdmittedAttempt, Event, ResultEvent};
use crate::ledger::{LedgerRefusal, Usage};
use crate::money::NanoUsd;
use crate::plan::ThreadChange;
use crate::settings::{PinnedSettings, PinnedSummary};
use crate::thread::{Head, Hold, StepKind};

/// The answer to the request for an attempt at a summary.
#[derive(Debug)]
pub(super) enum SummaryAdmission {
    /// Its step is handed out.
    Granted,
    /// No attempt can be made, whatever money there is: for this reason.
    Forbidden(String),
    /// The account refuses the amount that it may cost.
    NoMoney(NanoUsd, LedgerRefusal),
}

/// Returns the reason why no more attempts at the summary are made, if that is so.
pub(super) fn tries_problem(change: &ThreadChange<'_>, summary: &PinnedSummary) -> Option<String> {
    let tries = change.head.phase.as_ref().map_or(0, |phase| phase.tries);
    let most = tries_max(summary);
    (tries >= most).then(|| format!("{tries} attempts at a summary failed"))
}

/// Returns the most attempts at a summary.
fn tries_max(summary: &PinnedSummary) -> u32 {
    u32::try_from(summary.turns)
        .unwrap_or(u32::MAX)
        .min(RETRIES_MAX + 1)
}

/// Returns the conditions of the request for the summary of a thread that is handed off: no more
/// is asked for than the next link takes.
pub fn summary_terms<'a>(
    summary: &'a PinnedSummary,
    head: &Head,
    pin: &PinnedSettings,
) -> SummaryTerms<'a> {
    terms_within(summary, CarryTerms::new(head, pin).summary_tokens)
}

/// Returns the conditions of the request for a summary of which so many tokens are carried. At most
/// half of what may be spent is for its output, so that some of the conversation is summarized
/// wherever it is dear. The output may be longer than what is asked for: some models think in it.
pub(crate) fn terms_within(summary: &PinnedSummary, carried: u64) -> SummaryTerms<'_> {
    let prices = summary.model.prices.unwrap_or_default();
    let half = NanoUsd::new(summary.spend.get() / 2);
    let output = summary.tokens.min(summary.model.output);
    SummaryTerms {
        summary,
        tokens: summary.tokens.min(carried).max(1),
        output: output.min(prices.affordable_output(half, 0)),
    }
}

/// Returns the SHA-256 of the request for a summary.
fn summary_hash(request: &SummaryRequest, summary: &PinnedSummary, output: u64) -> String {
    let output = output.to_string();
    let (system, message) = (&request.system, &request.message);
    sha256(&["summary", system, message, &summary.model.name, &output])
}

/// Admits an attempt at the summary of what is in the live window and hands its step out.
pub(super) fn admit_summary(
    change: &mut ThreadChange<'_>,
    terms: SummaryTerms<'_>,
    (window, pending): (&LiveWindow, &WindowEntry),
) -> SummaryAdmission {
    let (summary, model) = (terms.summary, &terms.summary.model);
    let Some(request) = summary_request(window, Some(pending), terms) else {
        let (name, window, spend) = (&model.name, model.window, summary.spend);
        let room = model.window.saturating_sub(terms.output);
        let prices = model.prices.unwrap_or_default();
        let problem = match prices.affordable_input(spend, terms.output) < room {
            true => format!("the {spend} USD that a summary may cost buy no request of {name}"),
            false => format!(
                "the window of {name}, {window} tokens, is too small for the request of a summary"
            ),
        };
        return SummaryAdmission::Forbidden(problem);
    };
    let prices = model.prices.unwrap_or_default();
    let input = estimate_input_tokens(request.size.tokens);
    let floor = OUTPUT_TOKENS_FLOOR.min(terms.output);
    let spent = change.head.phase.as_ref().map(|phase| phase.spent);
    let most = summary.spend.saturating_sub(spent.unwrap_or_default());
    let room = change.attempt_share().min(most);
    let output = terms
        .output
        .min(prices.affordable_output(room, input))
        .max(floor);
    let amount = prices.max_cost(input, output);
    if amount > most {
        return SummaryAdmission::Forbidden(format!(
            "a summary may cost {amount} USD and its limit leaves {most} USD"
        ));
    }
    if let Err(refusal) = hold_money(change, amount) {
        return SummaryAdmission::NoMoney(amount, refusal);
    }
    let hash = summary_hash(&request, summary, output);
    change.head.hold = Some(Hold {
        amount,
        prices,
        basis: change.charge_basis(input, output, model.rate),
    });
    change.admitted = Some(AdmittedAttempt {
        hold: amount,
        output,
        request: hash.clone(),
        key: None,
    });
    let millis = model_call_time(change, model);
    hand_out_step(change, StepKind::CallLlm, change.now().plus_millis(millis));
    change.head.cause = None;
    let tries = change.head.phase.as_mut().map_or(0, |phase| {
        phase.tries += 1;
        phase.tries - 1
    });
    if let Some(step) = &mut change.head.step {
        (step.tries, step.output, step.hash) = (tries, output, hash);
    }
    SummaryAdmission::Granted
}

/// Settles the reply with a summary. Calls in it are passed over.
pub(super) fn apply_summary_reply(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    completion: LlmCompletion,
) -> RunTransition {
    let settings = pin.continuation();
    let summary = settings.summary.as_ref();
    let text = join_texts(&completion.blocks);
    let duration = count_time(change);
    let reported = completion.usage.filter(|usage| *usage != Usage::default());
    let usage = reported.unwrap_or_else(|| estimate_summary_usage(change, &text));
    let spend = match reported {
        Some(usage) => settle_attempt(change, Some(usage), true, ""),
        None => settle_estimated(change, usage),
    };
    change.push_event(Event::Result(ResultEvent {
        model: summary.map_or_else(String::new, |summary| summary.model.name.clone()),
        finish: cut(&completion.finish, 64).to_owned(),
        usage,
        spend,
        duration,
        estimated: reported.is_none(),
        response_id: provider_word(completion.id),
        response_model: provider_word(completion.model),
        summary: true,
    }));
    let unreadable = completion.unreadable.map(|unreadable| unreadable.problem);
    RunTransition::HandOff(match unreadable {
        Some(problem) => PreparedHandOff::without(SummaryProblem {
            why: "the summary cannot be read".to_owned(),
            said: problem,
        }),
        None if text.trim().is_empty() => PreparedHandOff::without("the summary is empty"),
        None => PreparedHandOff {
            summary: Some(text),
            problem: None,
        },
    })
}

/// Joins the texts of a reply.
fn join_texts(blocks: &[ReplyBlock]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        ReplyBlock::Text { text } => Some(text.as_str()),
        ReplyBlock::Thinking { .. } | ReplyBlock::ToolUse { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Estimates the tokens of a reply whose provider reported none: the input as it was admitted.
fn estimate_summary_usage(change: &ThreadChange<'_>, text: &str) -> Usage {
    let basis = change.head.hold.and_then(|hold| hold.basis);
    Usage {
        input: basis.map_or(0, |basis| basis.input),
        output: estimate::estimate_tokens(text),
        ..Usage::default()
    }
}

/// Settles a failed attempt at a summary: it is tried again where that may help, or the thread is
/// handed off without one.
pub(super) fn apply_summary_failure(
    change: &mut ThreadChange<'_>,
    pin: &PinnedSettings,
    failure: &LlmFailure,
) -> RunTransition {
    settle_failed_attempt(change, failure);
    let tries = change.head.phase.as_ref().map_or(1, |phase| phase.tries);
    let settings = pin.continuation();
    let again = settings
        .summary
        .as_ref()
        .is_some_and(|summary| tries < tries_max(summary));
    let retry = transient_retry_millis(tries.saturating_sub(1), failure)
        .filter(|_| again && change.store_full_cause().is_none());
    push_failure(change, failure, tries, retry);
    match retry {
        Some(millis) => RunTransition::Retry(RetryWait {
            millis,
            tries: tries.saturating_sub(1),
            output: change.head.step.as_ref().map_or(0, |step| step.output),
            failed: None,
        }),
        None => {
            let (message, code) = (cut(&failure.message, 500), cut(&failure.code, 100));
            RunTransition::HandOff(PreparedHandOff::without(SummaryProblem {
                why: format!("the call for it failed ({})", known_kind(&failure.kind)),
                said: format!("{message} ({code})"),
            }))
        }
    }
}
