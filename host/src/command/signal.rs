//! `raise`, `cancel`, `kill`: signals to a thread, whoever holds it.

use super::open::Session;
use super::{fault, view};
use threadkeep::wit::runner::SignalKind;
use threadkeep_cli::answer::SignalAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Lift caps.
pub async fn raise(
    session: &Session,
    raise: args::Raise,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    if raise.caps.is_empty() {
        return Err(Fault::usage("no cap is named")
            .hint("name one or more of --turns, --tokens, --spend and --duration"));
    }
    let what = SignalKind::Raise(view::caps(&raise.caps));
    send(session, &raise.thread, "raise", what, screen).await
}

/// End a thread when its step is done.
pub async fn cancel(
    session: &Session,
    named: args::Named,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    send(session, &named.thread, "cancel", SignalKind::Cancel, screen).await
}

/// End a thread at once.
pub async fn kill(
    session: &Session,
    named: args::Named,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    send(session, &named.thread, "kill", SignalKind::Kill, screen).await
}

async fn send(
    session: &Session,
    thread: &str,
    name: &str,
    what: SignalKind,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let opened = session.open()?;
    let failed = |error| fault::of_thread(&opened, thread, &error);
    let tenant = opened.tenant();
    tenant
        .signal(thread, &fresh_id(), what)
        .await
        .map_err(failed)?;
    let record = tenant.get(thread).await.map_err(failed)?;
    opened.refresh(&record.id, screen).await;
    Ok(screen.answer(&SignalAnswer {
        thread_id: record.id,
        signal: name.to_owned(),
        status: record.status,
        limits: view::limits(&record.limits),
        version: record.version,
        exit: Exit::Done,
    }))
}

/// An id for a signal that is sent once.
pub fn fresh_id() -> String {
    let mut bytes = [0_u8; 8];
    // Without random numbers the component could make no id either; a repeated id with the same content is harmless.
    let _ = getrandom::fill(&mut bytes);
    format!("cli-{:016x}", u64::from_be_bytes(bytes))
}
