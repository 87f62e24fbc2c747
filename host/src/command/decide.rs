//! `approve`, `deny`, `answer`: decisions about calls that wait for them, after which the thread
//! goes on in this process.

use super::chain::{self, MeantThread};
use super::session::{CommandProject, CommandSession};
use super::signal::fresh_id;
use super::{drive, fault, run, view};
use serde_json::{Value, json};
use threadkeep::wit;
use threadkeep::wit::runner::SignalKind;
use threadkeep_cli::answer::{DecisionAnswer, ThreadNeeds};
use threadkeep_cli::args;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

/// Allows calls.
pub async fn approve(
    session: &CommandSession,
    approve: args::ApproveArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let (thread, decision) = PersonDecision::from_args("approve", approve.decided);
    decide(session, &thread, decision, screen).await
}

/// Refuses calls.
pub async fn deny(
    session: &CommandSession,
    deny: args::DenyArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let (thread, decision) = PersonDecision::from_args("deny", deny.decided);
    decide(session, &thread, decision, screen).await
}

/// Gives a call its result.
pub async fn answer(
    session: &CommandSession,
    answer: args::AnswerArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let (thread, goes_on) = (answer.thread.clone(), !answer.no_run);
    let (calls, text) = answer.into_parts();
    let decision = PersonDecision {
        word: "answer",
        fields: json!({"answer": text}),
        calls,
        all: false,
        goes_on,
    };
    decide(session, &thread, decision, screen).await
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

    /// Returns the calls that are meant: those that are named, all, or the only one that waits.
    fn choose_calls(
        &self,
        thread: &wit::Thread,
        needs: &ThreadNeeds,
    ) -> Result<Vec<String>, CommandFault> {
        if !self.calls.is_empty() {
            return Ok(self.calls.clone());
        }
        let waiting = needs.calls();
        match waiting.len() {
            0 => {
                let message = format!("no call of {} waits for a decision", thread.id);
                let next = format!("threadkeep show {}", thread.id);
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
    session: &CommandSession,
    thread: &str,
    decision: PersonDecision,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = session.open()?;
    let done = "the decision goes";
    let mut meant = chain::find_meant_thread(&opened, thread, done, screen).await;
    let found = opened.tenant().get(&meant.id).await;
    let found = found.map_err(|error| fault::from_thread_call(&opened, &meant.id, &error))?;
    let calls = decision.choose_calls(&found, &view::thread_needs(&found))?;
    for call in &calls {
        send_decision(&opened, &mut meant.id, call, &decision.fields).await?;
        meant.note_moved(done, screen);
    }
    go_on_or_report(&opened, meant, decision, calls, screen).await
}

/// Sends a decision about a call to the tip of a chain, which `thread` names afterwards.
pub async fn send_decision(
    opened: &CommandProject,
    thread: &mut String,
    call: &str,
    fields: &Value,
) -> Result<(), CommandFault> {
    let mut fields = fields.clone();
    fields["call"] = call.into();
    let what = SignalKind::Decision(fields.to_string());
    let key = fresh_id();
    let sent = opened.tenant().signal_tip(thread, &key, what).await;
    sent.map_err(|error| fault::from_thread_call(opened, thread, &error))?;
    Ok(())
}

/// Goes on with the thread, if the decision lets it and nobody else does; else says how it stands.
async fn go_on_or_report(
    opened: &CommandProject,
    meant: MeantThread,
    decision: PersonDecision,
    calls: Vec<String>,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let now = opened.tenant().get(&meant.id).await;
    let now = now.map_err(|error| fault::from_thread_call(opened, &meant.id, &error))?;
    let needs = view::thread_needs(&now);
    let can_go_on = now.status == "suspended"
        && (needs.calls().is_empty() || decision.word == "approve")
        && now
            .cause
            .as_ref()
            .is_some_and(|cause| cause.raise_above.is_none());
    if decision.goes_on && can_go_on {
        run::check_resumable(opened, &now)?;
        let input = (None, now.status.clone());
        let done = drive::resume(opened, &now.id, input, screen).await?;
        return Ok(screen.print_answer(&done.answer));
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
