//! `raise`, `cancel`, `kill`, `message`: signals to a thread, whichever process holds it; and
//! `title`.
//!
//! The component accepts any cap below the operator's. `raise` only lifts: a user who names a cap
//! that is lower than the one in force, or that the thread has reached already, has made a mistake,
//! and the command refuses it before a signal is sent.

use super::chain::MeantThread;
use super::message_images::MessageImages;
use super::{chain, fault, fresh_id, thread_names, view};
use crate::answer::{
    CapKind, SignalAnswer, ThreadAnswer, UnreadableRow, advised_code, has_ended, repeats_in_vain,
};
use crate::args;
use crate::contract::{RaisedCaps, SignalContent, StopCause, Thread, ThreadLimits};
use crate::exit::{CommandExit, CommandFault};
use crate::inputs;
use crate::money;
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};

const MILLIS_PER_SECOND: u64 = 1_000;
/// Most threads that are named because they have not ended; the others are counted.
const LEFT_NAMED_MAX: usize = 20;

/// Raises caps of a thread.
pub async fn raise(
    host: &impl CommandHost,
    mut raise: args::RaiseArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    if raise.caps.is_empty() {
        return Err(CommandFault::usage("no cap is named").with_hint(
            "name one or more of --turns, --tokens, --spend, --spawns, --depth and --duration",
        ));
    }
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut raise.thread).await?;
    let done = "its caps are raised";
    let meant = chain::find_meant_thread(&opened, &raise.thread, done, screen).await;
    let failed = |error| fault::from_thread_call(&opened, &meant.id, &error);
    let thread = opened.get(&meant.id).await.map_err(failed)?;
    let caps = view::caps(&raise.caps);
    // A thread that has ended takes no signal; the component reports that.
    if thread.outcome.is_none() {
        check_raise(&thread, &caps)?;
    }
    let through = raise.through;
    let what = SignalContent::Raise(RaisedCaps { caps, through });
    send_signal(&opened, meant, "raise", what, screen).await
}

/// Refuses caps that would not lift anything.
fn check_raise(thread: &Thread, caps: &ThreadLimits) -> Result<(), CommandFault> {
    let now = &thread.limits;
    let wide = |count: Option<u32>| count.map(u64::from);
    for (option, new, force) in [
        ("--turns", wide(caps.turns), wide(now.turns)),
        ("--tokens", caps.tokens, now.tokens),
        ("--spend", caps.spend, now.spend),
        ("--spawns", wide(caps.spawns), wide(now.spawns)),
        ("--depth", wide(caps.depth), wide(now.depth)),
        ("--duration", caps.duration, now.duration),
    ] {
        let Some(new) = new else { continue };
        if force.is_none_or(|force| new < force) {
            let force = force.map_or("no such cap".to_owned(), |force| format_cap(option, force));
            let message = format!(
                "{option} {} lifts nothing: {force} is in force for {}",
                format_cap(option, new),
                thread.id
            );
            return Err(CommandFault::usage(message)
                .with_hint("name a higher cap, or leave the option out"));
        }
    }
    let raised = merge_caps(now, caps);
    match find_reached_cap(thread, &raised) {
        Some((cap, floor)) if fault::cap_of(caps, cap).is_some() => {
            let option = cap_option(cap);
            let floor = format_cap(option, floor);
            let message = format!(
                "{option} is too low for {}: it needs more than {floor}",
                thread.id
            );
            Err(CommandFault::usage(message)
                .with_hint(format!("name more than {floor} with {option}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the caps in force once `caps` are set.
fn merge_caps(now: &ThreadLimits, caps: &ThreadLimits) -> ThreadLimits {
    ThreadLimits {
        turns: caps.turns.or(now.turns),
        tokens: caps.tokens.or(now.tokens),
        spend: caps.spend.or(now.spend),
        spawns: caps.spawns.or(now.spawns),
        depth: caps.depth.or(now.depth),
        duration: caps.duration.or(now.duration),
    }
}

/// Returns the cap that a suspended thread would still have reached under these limits, and the
/// value that it must exceed, as the component says.
fn find_reached_cap(thread: &Thread, limits: &ThreadLimits) -> Option<(CapKind, u64)> {
    let cause = thread.cause.as_ref()?;
    let (floor, cap) = (cause.raise_above?, CapKind::from_code(&cause.code)?);
    let now = fault::cap_of(limits, cap)?;
    (now <= floor).then_some((cap, floor))
}

/// The option of `raise` that sets a cap.
fn cap_option(cap: CapKind) -> &'static str {
    match cap {
        CapKind::Turns => "--turns",
        CapKind::Tokens => "--tokens",
        CapKind::Spend => "--spend",
        CapKind::Spawns => "--spawns",
        CapKind::Depth => "--depth",
        CapKind::Duration => "--duration",
    }
}

/// Formats a cap as the user writes it.
fn format_cap(option: &str, value: u64) -> String {
    match option {
        "--spend" => money::format_usd(value),
        "--duration" => format!("{} s", value.div_ceil(MILLIS_PER_SECOND)),
        _ => value.to_string(),
    }
}

/// Cancels a thread: it ends when its current step is done.
pub async fn cancel(
    host: &impl CommandHost,
    mut named: args::ThreadArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut named.thread).await?;
    let meant = chain::find_meant_thread(&opened, &named.thread, "it is cancelled", screen).await;
    send_signal(&opened, meant, "cancel", SignalContent::Cancel, screen).await
}

/// Kills a thread: it ends at once.
pub async fn kill(
    host: &impl CommandHost,
    mut named: args::ThreadArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut named.thread).await?;
    let meant = chain::find_meant_thread(&opened, &named.thread, "it is killed", screen).await;
    send_signal(&opened, meant, "kill", SignalContent::Kill, screen).await
}

/// Sends a message to a thread.
pub async fn message(
    host: &impl CommandHost,
    mut message: args::MessageArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let text = inputs::user_message(&message.text)?;
    let images = MessageImages::read(host, &message.image)?;
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut message.thread).await?;
    let done = "the message goes";
    let meant = chain::find_meant_thread(&opened, &message.thread, done, screen).await;
    let shown = match message.image.is_empty() {
        true => None,
        false => {
            let thread = opened.get(&meant.id).await;
            let thread =
                thread.map_err(|error| fault::from_thread_call(&opened, &meant.id, &error))?;
            images.check_model(&opened, &thread.model)?;
            let text = Some(message.text.as_str());
            images.into_message(&opened, &thread.id, text).await?
        }
    };
    let what = SignalContent::Message(shown.unwrap_or(text));
    send_signal(&opened, meant, "message", what, screen).await
}

/// Sets or removes the title of a thread.
pub async fn title(
    host: &impl CommandHost,
    mut title: args::TitleArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut title.thread).await?;
    let done = "the title is set";
    let mut meant = chain::find_meant_thread(&opened, &title.thread, done, screen).await;
    let titled = opened.set_tip_title(&mut meant.id, title.text);
    let titled = titled.await;
    let titled = titled.map_err(|error| fault::from_thread_call(&opened, &meant.id, &error))?;
    opened.refresh_documents(&titled.id, screen).await;
    meant.note_moved(done, screen);
    let answer = ThreadAnswer::for_titled(view::thread(&titled), meant.continued_in);
    Ok(screen.print_answer(&answer))
}

async fn send_signal(
    opened: &impl ProjectThreads,
    mut meant: MeantThread,
    name: &str,
    what: SignalContent,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let threads = opened;
    let ends = matches!(what, SignalContent::Cancel | SignalContent::Kill);
    let sent = threads
        .signal_tip(&mut meant.id, &fresh_id(threads), what)
        .await;
    meant.note_moved("the signal goes", screen);
    let thread = meant.id.as_str();
    let failed = |error| fault::from_thread_call(opened, thread, &error);
    if let Err(error) = sent {
        let fault = failed(error);
        return Err(match ends {
            true => end_below(opened, thread, fault, screen).await,
            false => fault,
        });
    }
    let propagation = match ends {
        true => propagate_to_children(opened, thread, screen).await,
        false => EndPropagation::default(),
    };
    let record = threads.get(thread).await.map_err(failed)?;
    opened.refresh_documents(&record.id, screen).await;
    // A message makes another request of the one that has failed.
    let in_vain = name == "raise" && record.cause.as_ref().is_some_and(is_in_vain);
    let can_go_on = record.status == "suspended"
        && !in_vain
        && view::thread_needs(&record).calls().is_empty()
        && find_reached_cap(&record, &record.limits).is_none();
    let dead = record
        .run
        .lease
        .as_ref()
        .is_some_and(|lease| fault::is_dead(opened, lease));
    if name == "cancel" && dead {
        screen.note("the process that holds it is dead: `threadkeep recover` ends it");
    }
    Ok(screen.print_answer(&SignalAnswer {
        thread_id: record.id,
        continued_in: meant.continued_in,
        signal: name.to_owned(),
        status: record.status,
        limits: view::limits(&record.limits),
        version: record.version,
        unreadable: propagation.unreadable,
        not_told: propagation.error,
        can_go_on,
        own_loop: record.run.step.as_deref() == Some("own-loop"),
        exit: CommandExit::Done,
    }))
}

/// Ends what lies below a thread that cannot be ended itself, because a record of it is missing or
/// cannot be read. The component has told its children; the fault then says who has not ended.
async fn end_below(
    opened: &impl ProjectThreads,
    thread: &str,
    fault: CommandFault,
    screen: &mut OutputScreen,
) -> CommandFault {
    let threads = opened;
    // Nothing was told where the records are sound, or where no thread of this name ever was.
    if threads.get(thread).await.is_ok() || threads.tree(thread, None).await.is_err() {
        return fault;
    }
    let propagation = propagate_to_children(opened, thread, screen).await;
    for row in &propagation.unreadable {
        row.warn_not_told(screen);
    }
    if let Some(error) = &propagation.error {
        screen.note(&format!("its children could not all be told: {error}"));
    }
    let (mut ended, mut left, mut cursor) = (0_u64, Vec::new(), None);
    loop {
        let page = match threads.tree(thread, cursor).await {
            Ok(page) => page,
            Err(error) => {
                left.push(format!("the rest cannot be read ({error})"));
                break;
            }
        };
        for branch in page.branches.iter().filter(|branch| branch.depth > 0) {
            match branch.status.as_str() {
                status if has_ended(status) => ended += 1,
                status => left.push(format!("{} is {status}", branch.thread)),
            }
        }
        let others = page.unreadable.iter();
        let others = others.filter(|other| !other.thread.eq_ignore_ascii_case(thread));
        left.extend(others.map(|other| format!("{} cannot be read", other.thread)));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    let more = left.len().saturating_sub(LEFT_NAMED_MAX);
    left.truncate(LEFT_NAMED_MAX);
    if more > 0 {
        left.push(format!("{more} more have not ended"));
    }
    let message = match left.as_slice() {
        [] => format!("{}; all {ended} below it have ended", fault.message),
        left => format!(
            "{}; of those below it {ended} have ended, {}",
            fault.message,
            left.join(", ")
        ),
    };
    CommandFault { message, ..fault }
}

/// Returns true if a resume after a raise would only repeat what has failed.
fn is_in_vain(cause: &StopCause) -> bool {
    repeats_in_vain(advised_code(&cause.code, cause.failure.as_deref()))
}

/// Threads that a propagation did not reach.
#[derive(Default)]
struct EndPropagation {
    /// Threads that cannot be read.
    unreadable: Vec<UnreadableRow>,
    /// The reason why the propagation stopped, if it did.
    error: Option<String>,
}

/// Propagates the end of a thread to the threads that it spawned. An intent that cannot be
/// propagated now is in the records, for `recover` and the next run.
async fn propagate_to_children(
    opened: &impl ProjectThreads,
    thread: &str,
    screen: &mut OutputScreen,
) -> EndPropagation {
    let threads = opened;
    let mut propagation = EndPropagation::default();
    let mut told = match threads.sweep_all(Some(thread)).await {
        Ok(swept) => {
            let unreadable = swept.into_iter();
            propagation.unreadable = unreadable.map(view::unreadable).collect();
            Ok(None)
        }
        Err(error) => Err(error),
    };
    loop {
        let page = match told {
            Ok(cursor) => threads.tree(thread, cursor).await,
            Err(error) => Err(error),
        };
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                propagation.error = Some(error.to_string());
                return propagation;
            }
        };
        for branch in page.branches.iter().filter(|branch| branch.depth > 0) {
            opened.refresh_documents(&branch.thread, screen).await;
        }
        match page.cursor {
            None => return propagation,
            cursor => told = Ok(cursor),
        }
    }
}
