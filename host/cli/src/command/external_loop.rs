//! `open`, `append`, `close`: commands for an external loop that drives a thread, such as a shell
//! script.
//!
//! The token that `open` prints fences every later call. No file stores it: `--token` or
//! `THREADKEEP_TOKEN` passes it on, and the lease of a lost token ends at its deadline or by
//! `recover --dead`.

use super::change_lines::ChangeLines;
use super::view::format_time;
use super::{chain, fault, fresh_id, thread_names, view};
use crate::answer::{CommitAnswer, OpenAnswer};
use crate::args;
use crate::contract::{ChangeSet, CommittedChange, ExpectedVersion, RefusalKind, Thread, UnixTime};
use crate::exit::{CommandExit, CommandFault};
use crate::input::{InputLine, next_line};
use crate::screen::OutputScreen;
use crate::threads::{CallResult, CommandHost, ProjectThreads};
use crate::token::LeaseToken;
use std::time::Duration;

/// The environment variable that passes a token on.
const TOKEN_VARIABLE: &str = "THREADKEEP_TOKEN";

/// Most bytes of lines that are read for one append: more than the component accepts in one append,
/// so that the component reports what is too much.
const LINES_BYTES_MAX: usize = 2 << 20;

/// Most attempts of an append without a version. Each failed attempt means that another process has
/// appended, so this bounds how many processes may write to one thread at the same time.
const APPEND_TRIES_MAX: u32 = 64;

/// Opens a thread for an external loop and prints the token.
pub async fn open(
    host: &impl CommandHost,
    mut open: args::OpenArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut open.thread).await?;
    let failed = |error| fault::from_thread_call(&opened, &open.thread, &error);
    let threads = &opened;
    // Not a native holder: this process ends while the loop goes on.
    let holder = format!("{}/1", fresh_id(&opened));
    let deadline = deadline_after(threads, open.time);
    // First the steps that can fail before the thread is held: a token that is never printed would
    // lock the thread until its deadline.
    let thread_id = threads.get(&open.thread).await.map_err(failed)?.id;
    let held = threads.open_thread(&open.thread, &holder, deadline).await;
    let held = match held {
        Ok(held) => held,
        Err(error) => {
            return Err(chain::explain_refusal(&opened, &open.thread, "open", &error).await);
        }
    };
    opened.refresh_documents(&thread_id, screen).await;
    screen.set_lost_hint(format!(
        "the token is lost with it: the lease ends after {}, or at once with `threadkeep recover \
         --dead {holder}`",
        format_time(deadline)
    ));
    Ok(screen.print_answer(&OpenAnswer {
        token: LeaseToken::new(&thread_id, held.token).to_string(),
        thread_id,
        version: held.version,
        holder,
        deadline: format_time(deadline),
        exit: CommandExit::Done,
    }))
}

/// Returns the instant that lies `time` after now.
pub fn deadline_after(threads: &impl ProjectThreads, time: Duration) -> UnixTime {
    let now = threads.now();
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    UnixTime {
        seconds: now.seconds.saturating_add(seconds),
        nanos: now.nanos,
    }
}

/// Appends the lines of standard input, one JSON object each, as one commit.
pub async fn append(
    host: &impl CommandHost,
    mut append: args::AppendArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut append.thread).await?;
    let token = find_token(host, append.token, &append.thread)?;
    let failed = |error| fault::from_thread_call(&opened, &append.thread, &error);
    let threads = &opened;
    let thread = threads.get(&append.thread).await.map_err(failed)?;
    let lines = read_lines(host)?;
    // Another process may append the same lines at the same time, with the same token even.
    let change = lines.to_change(fresh_id(&opened));
    let written = match append.expected {
        Some(expected) => {
            let expected = ExpectedVersion::Exact(expected);
            threads
                .append_change(&thread.id, token, expected, change)
                .await
        }
        None => append_to_newest(threads, &thread, token, change).await,
    };
    let written = match written {
        Ok(written) => written,
        Err(error) => {
            let error = lines.with_line_number(error);
            return Err(chain::explain_refusal(&opened, &thread.id, "append", &error).await);
        }
    };
    answer_written(&opened, thread.id, written, screen).await
}

/// Appends at the newest version. If another append came first, reads the new version and tries
/// again.
async fn append_to_newest(
    threads: &impl ProjectThreads,
    thread: &Thread,
    token: Option<u64>,
    change: ChangeSet,
) -> CallResult<CommittedChange> {
    let mut newest = thread.version;
    for _ in 1..APPEND_TRIES_MAX {
        let expected = ExpectedVersion::Exact(newest);
        let written = threads.append_change(&thread.id, token, expected, change.clone());
        match written.await {
            Err(error) if error.is_refused_as(RefusalKind::Conflict) => {
                newest = threads.get(&thread.id).await?.version;
            }
            done => return done,
        }
    }
    let expected = ExpectedVersion::Exact(newest);
    threads
        .append_change(&thread.id, token, expected, change)
        .await
}

/// Closes a thread that an external loop holds.
pub async fn close(
    host: &impl CommandHost,
    mut close: args::CloseArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open()?;
    thread_names::resolve(&opened, &mut close.thread).await?;
    let Some(token) = find_token(host, close.token, &close.thread)? else {
        return Err(missing_token("a hold is ended with its token"));
    };
    let failed = |error| fault::from_thread_call(&opened, &close.thread, &error);
    let threads = &opened;
    let thread = threads.get(&close.thread).await.map_err(failed)?.id;
    let written = threads
        .close_thread(&thread, token, close.outcome.as_str(), close.result)
        .await;
    match written {
        Ok(written) => answer_written(&opened, thread, written, screen).await,
        Err(error) => Err(chain::explain_refusal(&opened, &thread, "close", &error).await),
    }
}

async fn answer_written(
    opened: &impl ProjectThreads,
    thread_id: String,
    written: CommittedChange,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    opened.refresh_documents(&thread_id, screen).await;
    Ok(screen.print_answer(&CommitAnswer {
        thread_id,
        version: written.version,
        status: written.status,
        mail: written
            .mail
            .iter()
            .map(|mail| view::parse_json(mail))
            .collect(),
        exit: CommandExit::Done,
    }))
}

/// Builds the fault of a command that needs a token and got none.
pub fn missing_token(what: &str) -> CommandFault {
    CommandFault::usage(what).with_hint(format!(
        "give the token of `threadkeep open` with --token or in {TOKEN_VARIABLE}"
    ))
}

/// Returns the number of the token in the option, or else in the environment variable; none if
/// neither is set.
pub fn find_token(
    host: &impl CommandHost,
    option: Option<LeaseToken>,
    thread: &str,
) -> Result<Option<u64>, CommandFault> {
    let token = match (option, host.variable(TOKEN_VARIABLE).as_deref()) {
        (Some(token), _) => token,
        (None, None | Some("")) => return Ok(None),
        (None, Some(text)) => text.parse().map_err(|wrong| {
            CommandFault::usage(format!("{TOKEN_VARIABLE} is {text:?}: {wrong}")).with_hint(
                format!("give it what `threadkeep open {thread}` prints, or unset it"),
            )
        })?,
    };
    token.number_for(thread).map(Some)
}

/// Reads the lines of standard input that are not empty.
fn read_lines(host: &impl CommandHost) -> Result<ChangeLines, CommandFault> {
    let mut input = host.input();
    let mut lines = ChangeLines::default();
    let (mut number, mut bytes) = (0, 0);
    while let Some(line) = next_line(&mut input) {
        number += 1;
        let line = match line {
            InputLine::Text(line) => line,
            InputLine::Bad(why) => {
                return Err(CommandFault::new(
                    "invalid",
                    format!("standard input {why}"),
                ));
            }
        };
        bytes += line.len();
        if bytes > LINES_BYTES_MAX {
            let message = format!("standard input has more than {LINES_BYTES_MAX} bytes");
            return Err(
                CommandFault::new("too-large", message).with_hint("append them in several parts")
            );
        }
        if !line.trim().is_empty() {
            lines.add(number, line)?;
        }
    }
    Ok(lines)
}
