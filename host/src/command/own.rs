//! `open`, `append`, `close`: for a loop of one's own around a thread, such as a shell script.
//!
//! The token that `open` prints fences every later call. Nothing stores it: `--token` or `THREADKEEP_TOKEN` passes it on,
//! and a lost one ends with its deadline or by `recover --dead`.

use super::fault;
use super::input::{Input, Line};
use super::open::{Opened, Session};
use super::view;
use threadkeep::documents::rfc3339;
use threadkeep::wit;
use threadkeep_cli::answer::{HeldAnswer, WrittenAnswer};
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// The variable that passes a token on.
const TOKEN: &str = "THREADKEEP_TOKEN";

/// Most bytes of events that are read for one append: more than the component takes in one, so that it is the component
/// that says what is too much.
const EVENTS_BYTES_MAX: usize = 2 << 20;

/// Hold a thread.
pub async fn open(session: &Session, open: args::Open, screen: &mut Screen) -> Result<Exit, Fault> {
    let opened = session.open()?;
    let failed = |error| fault::of_thread(&opened, &open.thread, &error);
    let tenant = opened.tenant();
    // Not a native holder: this process ends, and the hold goes on without it.
    let holder = format!("{}/1", super::signal::fresh_id());
    let now = tenant.context().clock.now();
    let seconds = i64::try_from(open.time.as_secs()).unwrap_or(i64::MAX);
    let deadline = wit::Instant {
        seconds: now.seconds.saturating_add(seconds),
        nanos: now.nanos,
    };
    // First what can fail without a hold: a token that nobody is told would lock the thread until its deadline.
    let thread_id = tenant.get(&open.thread).await.map_err(failed)?.id;
    let held = tenant.open_thread(&open.thread, &holder, deadline).await;
    let held = held.map_err(failed)?;
    opened.refresh(&thread_id, screen).await;
    Ok(screen.answer(&HeldAnswer {
        thread_id,
        token: held.token,
        version: held.version,
        holder,
        deadline: rfc3339(deadline),
        exit: Exit::Done,
    }))
}

/// Add the events that stand on standard input, one JSON object a line, as one commit.
pub async fn append(
    session: &Session,
    append: args::Append,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let token = token(session, append.token)?;
    let opened = session.open()?;
    let failed = |error| fault::of_thread(&opened, &append.thread, &error);
    let thread = opened.tenant().get(&append.thread).await;
    let thread = thread.map_err(failed)?;
    let events = events().await?;
    let expected = append.expected.unwrap_or(thread.version);
    let written = opened
        .tenant()
        .append(&thread.id, token, expected, events)
        .await;
    written_answer(&opened, thread.id, written.map_err(failed)?, screen).await
}

/// End a hold.
pub async fn close(
    session: &Session,
    close: args::Close,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let Some(token) = token(session, close.token)? else {
        return Err(Fault::usage("a hold is ended with its token").hint(format!(
            "give the token of `threadkeep open` with --token or in {TOKEN}"
        )));
    };
    let opened = session.open()?;
    let failed = |error| fault::of_thread(&opened, &close.thread, &error);
    let tenant = opened.tenant();
    let thread = tenant.get(&close.thread).await.map_err(failed)?.id;
    let written = tenant
        .close_thread(&thread, token, close.outcome.as_str(), close.result)
        .await;
    written_answer(&opened, thread, written.map_err(failed)?, screen).await
}

async fn written_answer(
    opened: &Opened,
    thread_id: String,
    written: wit::history::Written,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    opened.refresh(&thread_id, screen).await;
    Ok(screen.answer(&WrittenAnswer {
        thread_id,
        version: written.version,
        status: written.status,
        mail: written.mail.iter().map(|mail| view::json(mail)).collect(),
        exit: Exit::Done,
    }))
}

/// The option, or the variable.
fn token(session: &Session, option: Option<u64>) -> Result<Option<u64>, Fault> {
    match (option, session.environment().get(TOKEN)) {
        (Some(token), _) => Ok(Some(token)),
        (None, None | Some("")) => Ok(None),
        (None, Some(text)) => text.parse().map(Some).map_err(|_| {
            Fault::usage(format!("{TOKEN} is {text:?} and not a number"))
                .hint("it holds the token that `threadkeep open` printed")
        }),
    }
}

/// The lines of standard input that are not empty.
async fn events() -> Result<Vec<String>, Fault> {
    let mut input = Input::read();
    let (mut events, mut bytes) = (Vec::new(), 0);
    while let Some(line) = input.next().await {
        let line = match line {
            Line::Text(line) => line,
            Line::Bad(why) => return Err(Fault::new("invalid", format!("standard input {why}"))),
        };
        bytes += line.len();
        if bytes > EVENTS_BYTES_MAX {
            let message =
                format!("standard input has more than {EVENTS_BYTES_MAX} bytes of events");
            return Err(Fault::new("too-large", message).hint("append them in several parts"));
        }
        if !line.trim().is_empty() {
            events.push(line);
        }
    }
    Ok(events)
}
