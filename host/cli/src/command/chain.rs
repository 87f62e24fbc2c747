//! `chain`: the links of a thread's chain; and the tip that other commands go on with.

use super::{fault, thread_names};
use crate::answer::ChainAnswer;
use crate::args;
use crate::contract::{CallError, RefusalKind};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads, find_other_tip};
use serde_json::Value;

/// Shows the links of a thread's chain, all pages of them.
pub async fn chain(
    host: &impl CommandHost,
    mut named: args::ThreadArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut named.thread).await?;
    Ok(screen.print_answer(&load_chain(&opened, &named.thread).await?))
}

/// Loads the links of a thread's chain, all pages of them.
pub(super) async fn load_chain(
    opened: &impl ProjectThreads,
    thread: &str,
) -> Result<ChainAnswer, CommandFault> {
    let mut answer = ChainAnswer {
        success: true,
        chain_length: 0,
        chain: Vec::new(),
        tip: Value::Null,
        totals: Value::Null,
        account: Value::Null,
        exit: CommandExit::Done,
        named: thread.to_owned(),
    };
    let mut next = Some(None);
    while let Some(cursor) = next {
        let page = opened.chain(thread, cursor).await;
        let page = page.map_err(|error| fault::from_thread_call(opened, thread, &error))?;
        next = add_page(&mut answer, &page)?.map(Some);
    }
    Ok(answer)
}

/// Adds a page of links to the answer; returns the cursor of the next one.
fn add_page(answer: &mut ChainAnswer, page: &str) -> Result<Option<String>, CommandFault> {
    let unreadable = |_| CommandFault::new("bad-answer", "the chain's page is no JSON");
    let mut page: Value = serde_json::from_str(page).map_err(unreadable)?;
    if let Some(Value::Array(links)) = page.get_mut("chain").map(Value::take) {
        answer.chain.extend(links);
    }
    answer.chain_length = page["chain_length"].as_u64().unwrap_or_default();
    answer.tip = page["tip"].take();
    answer.totals = page["totals"].take();
    answer.account = page["account"].take();
    Ok(page["cursor"].as_str().map(str::to_owned))
}

/// The thread that a command is meant for.
pub struct MeantThread {
    /// Its id: the tip of the chain of the thread that was named.
    pub id: String,
    /// The tip that was found.
    found: String,
    /// The tip, if another link was named.
    pub continued_in: Option<String>,
}

impl MeantThread {
    /// Says so if the thread was continued since it was found; `id` names the new tip by now.
    pub fn note_moved(&mut self, done: &str, screen: &mut OutputScreen) {
        if self.id == self.found {
            return;
        }
        let (found, tip) = (&self.found, &self.id);
        screen.note(&format!(
            "{found} was continued in {tip} meanwhile: {done} there"
        ));
        self.continued_in = Some(self.id.clone());
    }
}

/// Finds the thread that a command is meant for, and says so if it is not the one that was named.
/// `done` says what happens there. A thread that cannot be read is the one that is meant: the
/// command then says what is wrong with it.
pub async fn find_meant_thread(
    opened: &impl ProjectThreads,
    thread: &str,
    done: &str,
    screen: &mut OutputScreen,
) -> MeantThread {
    let continued_in = find_tip(opened, thread).await;
    if let Some(tip) = &continued_in {
        screen.note(&format!("{thread} was continued in {tip}: {done} there"));
    }
    let id = continued_in.clone().unwrap_or_else(|| thread.to_owned());
    MeantThread {
        found: id.clone(),
        id,
        continued_in,
    }
}

/// Returns the tip of a thread's chain, if that is another thread, and says where to look for it.
pub async fn name_tip(
    opened: &impl ProjectThreads,
    thread: &str,
    command: &str,
    screen: &mut OutputScreen,
) -> Option<String> {
    let tip = find_tip(opened, thread).await?;
    screen.note(&format!(
        "{thread} was continued in {tip}: `threadkeep {command} {tip}`, or `threadkeep chain \
         {thread}` for all links"
    ));
    Some(tip)
}

/// Converts the error of a call that takes no other thread than the one that is named: where that
/// was continued, the tip of its chain is named, whose command would be the same.
pub async fn explain_refusal(
    opened: &impl ProjectThreads,
    thread: &str,
    command: &str,
    error: &CallError,
) -> CommandFault {
    let fault = fault::from_thread_call(opened, thread, error);
    if !error.is_refused_as(RefusalKind::Continued) {
        return fault;
    }
    match find_tip(opened, thread).await {
        Some(tip) => fault.with_hint(format!(
            "the tip of its chain is {tip}: `threadkeep {command} {tip}`"
        )),
        None => fault,
    }
}

/// Returns the tip of the chain of a thread, if that is another thread.
async fn find_tip(opened: &impl ProjectThreads, thread: &str) -> Option<String> {
    let found = opened.get(thread).await.ok()?;
    find_other_tip(&found)
}
