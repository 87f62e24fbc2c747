//! `approve`, `deny`, `answer`: decisions about calls that wait for them, after which the thread
//! goes on in this process.

use super::chain::{self, MeantThread};
use super::{fault, fresh_id, run, thread_names, view};
use crate::answer::{ChargedRow, DecisionAnswer, ThreadNeeds, describe_decision};
use crate::args;
use crate::contract::{SignalContent, Thread};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads, RunOrder, ThreadRuns};
use serde_json::{Value, json};

/// Allows calls.
pub async fn approve(
    host: &impl CommandHost,
    approve: args::ApproveArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let (thread, decision) = PersonDecision::from_args("approve", approve.decided);
    decide(host, thread, decision, screen).await
}

/// Refuses calls.
pub async fn deny(
    host: &impl CommandHost,
    deny: args::DenyArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let (thread, decision) = PersonDecision::from_args("deny", deny.decided);
    decide(host, thread, decision, screen).await
}

/// Gives a call its result.
pub async fn answer(
    host: &impl CommandHost,
    answer: args::AnswerArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let (thread, goes_on) = (answer.thread.clone(), !answer.no_run);
    let (calls, text) = answer.into_parts()?;
    let decision = PersonDecision {
        word: "answer",
        fields: json!({"answer": text}),
        calls,
        all: false,
        goes_on,
    };
    decide(host, thread, decision, screen).await
}

/// A decision as the user has named it.
struct PersonDecision {
    /// `approve`, `deny` or `answer`.
    word: &'static str,
    /// The fields of the signal beside the call.
    fields: Value,
    /// The named calls.
    calls: Vec<String>,
    /// True for all that wait.
    all: bool,
    /// True if the thread is to go on in this process.
    goes_on: bool,
}

impl PersonDecision {
    fn from_args(word: &'static str, given: args::DecidedArgs) -> (String, Self) {
        let mut fields = json!({"approve": word == "approve"});
        if let Some(note) = given.note {
            fields["note"] = note.into();
        }
        let decision = Self {
            word,
            fields,
            calls: given.calls,
            all: given.all,
            goes_on: !given.no_run,
        };
        (given.thread, decision)
    }

    /// Adds to a fault what was decided before it: a caller must not take it for undone.
    fn with_decided(
        &self,
        mut fault: CommandFault,
        thread: &str,
        calls: &[String],
    ) -> CommandFault {
        if !calls.is_empty() {
            let decided = describe_decision(thread, self.word, calls);
            fault.message = format!("{} ({decided}, which is recorded)", fault.message);
        }
        fault
    }

    /// Returns the calls that are meant: those that are named, all, or the only one that waits.
    fn choose_calls(
        &self,
        thread: &Thread,
        needs: &ThreadNeeds,
    ) -> Result<Vec<String>, CommandFault> {
        let waiting = needs.calls();
        if !self.calls.is_empty() {
            let mut calls = Vec::new();
            for call in &self.calls {
                if !calls.contains(call) {
                    calls.push(call.clone());
                }
            }
            // A call that does not wait is refused, or was decided about so before. It comes first,
            // so that nothing is decided where one of the named calls is wrong.
            calls.sort_by_key(|call| waiting.contains(call));
            return Ok(calls);
        }
        match waiting.len() {
            0 => {
                let message = format!("no call of {} waits for a decision", thread.id);
                let command = match needs.needs_start() {
                    true => "resume",
                    false => "show",
                };
                let next = format!("threadkeep {command} {}", thread.id);
                Err(CommandFault::new("invalid", message).with_hint(next))
            }
            1 => Ok(waiting),
            _ if self.all => Ok(waiting),
            _ => {
                let message = format!(
                    "several calls of {} wait for a decision: {}",
                    thread.id,
                    needs.describe_calls().join(", ")
                );
                let hint = match self.word {
                    "answer" => "name the call before the text",
                    _ => "name one or more of them, or --all",
                };
                Err(CommandFault::usage(message).with_hint(hint))
            }
        }
    }
}

async fn decide(
    host: &impl CommandHost,
    mut thread: String,
    decision: PersonDecision,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut thread).await?;
    let done = "the decision goes";
    let mut meant = chain::find_meant_thread(&opened, &thread, done, screen).await;
    let found = opened.get(&meant.id).await;
    let found = found.map_err(|error| fault::from_thread_call(&opened, &meant.id, &error))?;
    let (found, charged) = run::recover_from_dead_holder(&opened, found, screen).await?;
    let calls = decision.choose_calls(&found, &view::thread_needs(&found))?;
    for (at, call) in calls.iter().enumerate() {
        let sent = send_decision(&opened, &mut meant.id, call, &decision.fields).await;
        sent.map_err(|fault| decision.with_decided(fault, &meant.id, &calls[..at]))?;
        meant.note_moved(done, screen);
    }
    let made = MadeDecision {
        decision,
        calls,
        charged,
    };
    go_on_or_report(&opened, meant, made, screen).await
}

/// A decision that the component has recorded.
struct MadeDecision {
    decision: PersonDecision,
    /// The calls that were decided about.
    calls: Vec<String>,
    /// Charges for calls of a process that had held the thread and died.
    charged: Vec<ChargedRow>,
}

/// Sends a decision about a call to the tip of a chain, which `thread` names afterwards.
pub async fn send_decision(
    opened: &impl ProjectThreads,
    thread: &mut String,
    call: &str,
    fields: &Value,
) -> Result<(), CommandFault> {
    let mut fields = fields.clone();
    fields["call"] = call.into();
    let what = SignalContent::Decision(fields.to_string());
    let key = fresh_id(opened);
    let sent = opened.signal_tip(thread, &key, what).await;
    sent.map_err(|error| fault::from_thread_call(opened, thread, &error))?;
    Ok(())
}

/// Goes on with the thread, if the decision lets it and nobody else does; else says how it stands.
async fn go_on_or_report(
    opened: &impl ThreadRuns,
    meant: MeantThread,
    made: MadeDecision,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let MadeDecision {
        decision,
        calls,
        charged,
    } = made;
    let now = opened.get(&meant.id).await;
    let now = now.map_err(|error| fault::from_thread_call(opened, &meant.id, &error))?;
    let needs = view::thread_needs(&now);
    let can_go_on = now.status == "suspended"
        && (needs.calls().is_empty() || decision.word == "approve")
        && now
            .cause
            .as_ref()
            .is_some_and(|cause| cause.raise_above.is_none());
    if decision.goes_on && can_go_on {
        screen.note(&describe_decision(&now.id, decision.word, &calls));
        let recorded = |fault| decision.with_decided(fault, &now.id, &calls);
        run::check_resumable(opened, &now).map_err(recorded)?;
        let order = RunOrder {
            thread: now.id.clone(),
            input: None,
            resumes: Some(now.status.clone()),
            ..RunOrder::default()
        };
        let done = opened.perform(order, screen).await;
        let mut answer = done.map_err(recorded)?.answer;
        answer.charged.splice(0..0, charged);
        return Ok(screen.print_answer(&answer));
    }
    opened.refresh_documents(&now.id, screen).await;
    Ok(screen.print_answer(&DecisionAnswer {
        thread_id: now.id,
        continued_in: meant.continued_in,
        decision: decision.word.to_owned(),
        calls,
        status: now.status,
        waits_for: needs,
        version: now.version,
        exit: CommandExit::Done,
    }))
}
