//! `run`, `resume` and `create`.

use super::message_images::MessageImages;
use super::{charges, fault, thread_names, tree_totals, view};
use crate::answer::{ChargedRow, HeldRow, ResumeAnswer, ThreadAnswer, has_ended};
use crate::args;
use crate::contract::{RunLease, Thread, ThreadDraft};
use crate::exit::{CommandExit, CommandFault};
use crate::inputs;
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads, RunOrder, ThreadRuns};

/// Creates a thread and runs it to its end. A refusal comes before anything is written.
pub async fn run(
    host: &impl CommandHost,
    run: args::RunArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let given = inputs::merge_inputs(run.inputs.as_deref(), &run.input)?;
    let text = run.message.as_deref();
    text.map(inputs::user_message).transpose()?;
    let images = MessageImages::read(host, &run.image)?;
    let draft = new_draft(Some(run.directive), given, Vec::new(), run.thread);
    rehearse(host, &draft, Some(&images)).await?;
    let opened = host.open_or_create()?;
    let thread = create_thread(&opened, draft).await?;
    let message = images.into_message(&opened, &thread, text).await;
    let message = message.map_err(|fault| with_created_hint(&opened, fault, &thread))?;
    let order = RunOrder {
        thread: thread.clone(),
        input: message,
        resumes: None,
        shows_thinking: run.display.show_thinking,
    };
    let done = opened.perform(order, screen).await;
    let done = done.map_err(|fault| with_created_hint(&opened, fault, &thread))?;
    Ok(screen.print_answer(&done.answer))
}

/// Creates a thread without running it.
pub async fn create(
    host: &impl CommandHost,
    create: args::CreateArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let given = inputs::merge_inputs(create.inputs.as_deref(), &create.input)?;
    let draft = new_draft(create.directive, given, create.capability, create.thread);
    rehearse(host, &draft, None).await?;
    let opened = host.open_or_create()?;
    let thread = create_thread(&opened, draft).await?;
    opened.refresh_documents(&thread, screen).await;
    let thread = opened.get(&thread).await;
    let thread = thread.map_err(|error| fault::from_call(&error))?;
    Ok(screen.print_answer(&ThreadAnswer::for_created(view::thread(&thread))))
}

/// Builds the draft of a new thread from the options of the command line.
pub fn new_draft(
    directive: Option<String>,
    inputs: String,
    capabilities: Vec<String>,
    new: args::NewThreadArgs,
) -> ThreadDraft {
    ThreadDraft {
        id: new.id,
        directive,
        agent: new.agent,
        task: new.task,
        title: new.title,
        model: new.model,
        limits: view::caps(&new.caps),
        capabilities,
        approvals: Vec::new(),
        incomplete: false,
        inputs: Some(inputs).filter(|text| !text.is_empty()),
    }
}

/// Refuses, before anything is created, a thread that could not be created, or (with `first`, the
/// images of its first message) not run to its end: settings that would not take effect, a policy
/// without room for a run, a model that takes no images, and one whose provider cannot be created.
/// The component names that model, from a thread in memory. A host that keeps none refuses later.
pub async fn rehearse(
    host: &impl CommandHost,
    draft: &ThreadDraft,
    first: Option<&MessageImages>,
) -> Result<(), CommandFault> {
    let Some(opened) = host.open_rehearsal()? else {
        return Ok(());
    };
    opened.check_settings()?;
    let tried = opened.create(draft.clone()).await;
    let tried = tried.map_err(|error| fault::from_named_call(&opened, &error))?;
    let Some(images) = first else {
        return Ok(());
    };
    images.check_model(&opened, &tried.model)?;
    opened.check_room()?;
    opened.check_model(&tried.model)
}

/// Makes the same checks for an existing thread that may run again. A suspended thread names the
/// model that is pinned for it; an idle chat takes the model of its files at its next start, so its
/// last model tells nothing.
pub fn check_resumable(opened: &impl ThreadRuns, thread: &Thread) -> Result<(), CommandFault> {
    if matches!(thread.status.as_str(), "running" | "waiting") {
        return Ok(());
    }
    opened.check_settings()?;
    let has_ended = has_ended(&thread.status);
    if thread.status == "idle" || has_ended && thread.directive.is_none() {
        return Ok(());
    }
    opened.check_model(&thread.model)
}

/// Creates a thread and returns its id.
pub async fn create_thread(
    opened: &impl ProjectThreads,
    draft: ThreadDraft,
) -> Result<String, CommandFault> {
    match opened.create(draft).await {
        Ok(thread) => Ok(thread.id),
        Err(error) => Err(fault::from_named_call(opened, &error)),
    }
}

/// Adds a hint to a fault that occurred after the thread was created.
pub fn with_created_hint(
    opened: &impl ProjectThreads,
    mut fault: CommandFault,
    thread: &str,
) -> CommandFault {
    match fault.hint {
        _ if opened.is_memory_only() => {
            fault.hint = Some("nothing is kept of it: --store memory".to_owned());
            fault
        }
        Some(_) => fault,
        None => fault.with_hint(format!("the thread is there: threadkeep show {thread}")),
    }
}

/// Closes the runs of dead processes, if they may keep this thread from running, so that `recover`
/// is not needed first. Returns the thread's new record, and what was charged for calls that those
/// runs left under way.
pub async fn recover_from_dead_holder(
    opened: &impl ThreadRuns,
    thread: Thread,
    screen: &mut OutputScreen,
) -> Result<(Thread, Vec<ChargedRow>), CommandFault> {
    let in_the_way = match (thread.status.as_str(), &thread.run.lease) {
        // A child that it waits for may be held by a process that died; without this step only the
        // end of that lease would tell.
        ("waiting", _) => true,
        (_, Some(lease)) => !fault::is_alive(opened, lease),
        (_, None) => false,
    };
    if !in_the_way {
        return Ok((thread, Vec::new()));
    }
    let recovered = opened.recover_runs(&[]).await?.closed;
    let charged = charges::load_closing_charges(opened, &recovered).await;
    for recovered in recovered {
        opened.refresh_documents(&recovered, screen).await;
        let goes_on = tree_totals::lies_in(opened, &recovered, &thread.id).await;
        let outcome = opened.get(&recovered).await.ok();
        let outcome = outcome.and_then(|found| found.outcome);
        screen.note(&match (outcome, goes_on) {
            (Some(outcome), _) => {
                format!("the process that held {recovered} died: the thread is {outcome} now")
            }
            (None, true) => format!("the process that held {recovered} died: it goes on"),
            (None, false) => format!(
                "the process that held {recovered} died, too: `threadkeep resume {recovered}` \
                 goes on with it"
            ),
        });
    }
    for row in &charged {
        screen.note(&row.describe(&thread.id));
    }
    let now = opened.get(&thread.id).await;
    let now = now.map_err(|error| fault::from_thread_call(opened, &thread.id, &error))?;
    Ok((now, charged))
}

/// Most held threads that are named.
const HELD_NAMED_MAX: usize = 10;

/// Names the threads below one that another process holds, or whose lock another program keeps:
/// this run can only wait for those.
pub async fn name_held_below(
    opened: &impl ProjectThreads,
    thread: &str,
    screen: &mut OutputScreen,
) {
    let (mut named, mut cursor) = (0, None);
    loop {
        // What cannot be read is told by the run itself.
        let Ok(page) = opened.tree(thread, cursor).await else {
            return;
        };
        let running = page.branches.iter().filter(|one| one.status == "running");
        for branch in running.filter(|one| one.thread != thread) {
            let held = opened.get(&branch.thread).await.ok();
            let Some(lease) = held.and_then(|held| held.run.lease) else {
                continue;
            };
            held_row(opened, &lease).note(screen);
            named += 1;
            if named == HELD_NAMED_MAX {
                return;
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return;
        }
    }
}

/// Describes who holds a thread, and what to do about it.
pub fn held_row(opened: &impl ProjectThreads, lease: &RunLease) -> HeldRow {
    HeldRow {
        thread_id: lease.thread.clone(),
        holder: lease.holder.clone(),
        next: fault::busy_hint(opened, lease),
    }
}

/// Resumes a thread in this process.
pub async fn resume(
    host: &impl CommandHost,
    mut resume: args::ResumeArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let text = resume.text.as_deref().or(resume.message.as_deref());
    text.map(inputs::user_message).transpose()?;
    let images = MessageImages::read(host, &resume.image)?;
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut resume.thread).await?;
    let thread = opened.get_tip(&resume.thread).await;
    let thread = thread.map_err(|why| fault::from_thread_call(&opened, &resume.thread, &why))?;
    let (thread, charged) = recover_from_dead_holder(&opened, thread, screen).await?;
    check_resumable(&opened, &thread)?;
    name_held_below(&opened, &thread.id, screen).await;
    images.check_model(&opened, &thread.model)?;
    let message = images.into_message(&opened, &thread.id, text).await?;
    let before = thread.status.clone();
    // The link that was named, so that the answer names it, too.
    let order = RunOrder {
        thread: resume.thread.clone(),
        input: message,
        resumes: Some(before.clone()),
        shows_thinking: resume.display.show_thinking,
    };
    let done = opened.perform(order, screen).await;
    let done = done.map_err(|fault| match (&fault.hint, fault.code.as_str()) {
        (None, "invalid") => {
            let next = format!("threadkeep resume {} --message TEXT", thread.id);
            fault.with_hint(next)
        }
        _ => fault,
    })?;
    let mut ended = done.answer;
    ended.charged.splice(0..0, charged);
    let resumption = done.resumption;
    Ok(screen.print_answer(&ResumeAnswer {
        success: ended.exit == CommandExit::Done,
        resumed: resumption.is_some(),
        previous_status: before,
        old_thread_id: resumption.as_ref().map(|done| done.old_thread_id.clone()),
        new_thread_id: resumption.as_ref().map(|done| done.new_thread_id.clone()),
        original_thread_id: Some(resume.thread)
            .filter(|named| !named.eq_ignore_ascii_case(&thread.id)),
        resolved_thread_id: thread.id,
        directive: thread.directive,
        reconstructed_turns: resumption.map(|done| done.reconstructed_turns),
        new_thread_result: ended.result.clone(),
        ended,
    }))
}
