//! `transcript`: prints the transcript of a thread, the whole or its end, and goes on while the
//! thread runs.

use super::thread_path::load_last_entries;
use super::{chain, fault, thread_names, view};
use crate::answer::TranscriptAnswer;
use crate::args::{self, TranscriptFormat};
use crate::contract::{Entry, Thread, TranscriptPiece};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};
use std::time::Duration;

const COMMAND: &str = "transcript";

/// Largest transcript in one JSON document, which holds it in memory twice. A larger one is read
/// without `--json`.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// The pause after which a followed thread is looked at again: a person sees no delay, and an idle
/// machine no load.
const FOLLOW_PAUSE: Duration = Duration::from_millis(250);

/// Entries that are looked at for each turn that `--last` asks for, at first: a turn with tools has
/// two, and a run begins and ends with others.
const ENTRIES_PER_TURN: u32 = 4;
/// Most entries that are read to find the last turns; the oldest of them is then where they begin.
const ENTRIES_MAX: u32 = 8_000;

/// Prints the transcript of a thread: piece by piece on a screen, as one document with `--json`.
pub async fn transcript(
    host: &impl CommandHost,
    mut asked: args::TranscriptArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    thread_names::resolve(&opened, &mut asked.thread).await?;
    check_options(&asked)?;
    if screen.properties().json {
        if asked.follow {
            await_rest(&opened, &mut asked.thread).await?;
        }
        let mut answer = load_transcript(&opened, &asked).await?;
        answer.continued_in = chain::name_tip(&opened, &asked.thread, COMMAND, screen).await;
        return Ok(screen.print_answer(&answer));
    }
    let after = find_beginning(&opened, &asked).await?;
    let mut printed = 0;
    for what in document_parts(asked.format) {
        printed = print_pieces(&opened, &asked, what, after, screen).await?;
    }
    if asked.follow {
        return follow(&opened, asked, printed, screen).await;
    }
    screen.end_line();
    chain::name_tip(&opened, &asked.thread, COMMAND, screen).await;
    Ok(CommandExit::Done)
}

/// Refuses options that a state document, which has no parts, cannot have.
fn check_options(asked: &args::TranscriptArgs) -> Result<(), CommandFault> {
    if asked.format == TranscriptFormat::State && (asked.last.is_some() || asked.follow) {
        let message = "a state document is one whole: --last and --follow are for transcripts";
        return Err(CommandFault::usage(message).with_hint("leave --format state out"));
    }
    Ok(())
}

/// Prints the pieces of a part of the document; returns the version that it reaches.
async fn print_pieces(
    opened: &impl ProjectThreads,
    asked: &args::TranscriptArgs,
    what: &str,
    after: u64,
    screen: &mut OutputScreen,
) -> Result<u64, CommandFault> {
    let mut cursor = None;
    loop {
        let piece = load_piece(opened, asked, what, (after, cursor)).await?;
        screen.print_text(&piece.text);
        cursor = piece.cursor;
        if cursor.is_none() {
            return Ok(piece.version);
        }
    }
}

/// Prints what is added to a thread, and to the threads that continue it, until nobody runs the
/// last of them; the exit code is that of its status.
async fn follow(
    opened: &impl ProjectThreads,
    mut asked: args::TranscriptArgs,
    mut printed: u64,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let events = document_parts(asked.format)
        .last()
        .copied()
        .unwrap_or_default();
    loop {
        // The status is read before the entries: what a thread did before it stopped is printed.
        let thread = load_record(opened, &asked.thread).await?;
        if thread.version > printed {
            printed = print_pieces(opened, &asked, events, printed, screen).await?;
            continue;
        }
        if let Some(next) = thread.next.clone() {
            screen.end_line();
            screen.note(&format!("{} goes on in {next}", thread.id));
            // What the next link carries over is in the earlier ones.
            let base = load_record(opened, &next).await?.base;
            printed = base.map_or(0, |base| base.length);
            asked.thread = next;
            continue;
        }
        if !is_under_way(opened, &thread) {
            screen.end_line();
            screen.note(&describe_stop(&thread));
            return Ok(CommandExit::from_status(&thread.status));
        }
        opened.pause(FOLLOW_PAUSE).await;
    }
}

/// Returns once nobody runs a thread, or the thread that continues it, which `thread` names then.
async fn await_rest(opened: &impl ProjectThreads, thread: &mut String) -> Result<(), CommandFault> {
    loop {
        let record = load_record(opened, thread).await?;
        match &record.next {
            Some(next) => *thread = next.clone(),
            None if is_under_way(opened, &record) => opened.pause(FOLLOW_PAUSE).await,
            None => return Ok(()),
        }
    }
}

/// Returns true for a thread that goes on without a person: what runs it is not known to be dead.
fn is_under_way(opened: &impl ProjectThreads, thread: &Thread) -> bool {
    let is_dead = |lease| fault::is_dead(opened, lease);
    match thread.status.as_str() {
        "running" => !thread.run.lease.as_ref().is_some_and(is_dead),
        status => status == "waiting",
    }
}

/// Says how a thread stands that nobody runs any more.
fn describe_stop(thread: &Thread) -> String {
    let Thread { id, status, .. } = thread;
    match status.as_str() {
        "running" => format!("the process that ran {id} is dead: `threadkeep resume {id}` goes on"),
        _ => format!("{id} is {status}"),
    }
}

/// Returns the version after which the transcript begins: 0, or the one before the last turns.
async fn find_beginning(
    opened: &impl ProjectThreads,
    asked: &args::TranscriptArgs,
) -> Result<u64, CommandFault> {
    let Some(turns) = asked.last else {
        return Ok(0);
    };
    let thread = load_record(opened, &asked.thread).await?;
    let until = asked.at.unwrap_or(thread.version);
    if until == 0 {
        return Ok(0);
    }
    let mut looked_at = turns.saturating_mul(ENTRIES_PER_TURN).min(ENTRIES_MAX);
    loop {
        let entries = load_last_entries(opened, &thread, until, looked_at).await?;
        let is_whole = entries.len() < looked_at as usize;
        let turns = usize::try_from(turns).unwrap_or(usize::MAX);
        let places = (0..entries.len())
            .rev()
            .filter(|place| begins_turn(&entries[*place]));
        let found = places.into_iter().nth(turns - 1);
        match found {
            Some(place) if place > 0 => return Ok(entries[place - 1].version),
            _ if is_whole => return Ok(0),
            // A path may leave versions out, so what lies before the first entry has no name here.
            _ if looked_at == ENTRIES_MAX => return Ok(entries[0].version),
            _ => looked_at = looked_at.saturating_mul(2).min(ENTRIES_MAX),
        }
    }
}

/// Returns true for an entry with a message to the thread, or a reply of its model.
fn begins_turn(entry: &Entry) -> bool {
    let body = view::parse_json(&entry.body);
    let mut events = body["events"].as_array().into_iter().flatten();
    events.any(|event| {
        let kind = event["type"].as_str().unwrap_or_default();
        matches!(kind, "message" | "assistant_text" | "tool_use")
    })
}

/// Loads the whole transcript, or the part that is asked for.
pub async fn load_transcript(
    opened: &impl ProjectThreads,
    asked: &args::TranscriptArgs,
) -> Result<TranscriptAnswer, CommandFault> {
    let format = asked.format;
    let after = find_beginning(opened, asked).await?;
    let mut answer = TranscriptAnswer {
        thread_id: load_record(opened, &asked.thread).await?.id,
        format: format.as_str().to_owned(),
        version: 0,
        text: String::new(),
        continued_in: None,
        exit: CommandExit::Done,
    };
    for what in document_parts(format) {
        let mut next = Some(None);
        while let Some(cursor) = next {
            let piece = load_piece(opened, asked, what, (after, cursor)).await?;
            answer.text.push_str(&piece.text);
            answer.version = piece.version;
            next = piece.cursor.map(Some);
            if answer.text.len() > DOCUMENT_BYTES_MAX {
                let message = format!("the transcript is larger than {DOCUMENT_BYTES_MAX} bytes");
                return Err(
                    CommandFault::new("too-large", message).with_hint("read it without --json")
                );
            }
        }
    }
    Ok(answer)
}

/// The component's names for the parts of a format.
fn document_parts(format: TranscriptFormat) -> &'static [&'static str] {
    match format {
        TranscriptFormat::Markdown => &["markdown"],
        TranscriptFormat::Jsonl => &["manifest", "jsonl"],
        TranscriptFormat::State => &["checkpoint"],
    }
}

async fn load_record(opened: &impl ProjectThreads, thread: &str) -> Result<Thread, CommandFault> {
    let found = opened.get(thread).await;
    found.map_err(|error| fault::from_thread_call(opened, thread, &error))
}

/// Loads the piece at a place: the version after which the document begins, and a cursor.
async fn load_piece(
    opened: &impl ProjectThreads,
    asked: &args::TranscriptArgs,
    what: &str,
    (after, cursor): (u64, Option<String>),
) -> Result<TranscriptPiece, CommandFault> {
    let (thread, at) = (&asked.thread, asked.at);
    let piece = opened.render(thread, what, at, after, cursor).await;
    piece.map_err(|error| fault::from_thread_call(opened, thread, &error))
}
