//! `recover`.

use super::open::Session;
use super::{fault, view};
use threadkeep_cli::answer::RecoverAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Close the runs of dead holders and bring their documents up to date.
pub async fn recover(
    session: &Session,
    recover: args::Recover,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let opened = session.open()?;
    // Afterwards nothing says any more who has died.
    opened.catch_up(screen).await;
    let recovered = opened.project().recover_runs(&recover.dead).await;
    let recovered = recovered.map_err(|error| fault::recovery(&error))?;
    let swept = opened.tenant().sweep_all(None).await;
    let swept = swept.map_err(|error| fault::call(&error))?;
    for thread in &recovered.closed {
        opened.refresh(thread, screen).await;
    }
    opened.say_if_empty(screen);
    let unreadable = [recovered.unreadable, swept.unreadable].concat();
    Ok(screen.answer(&RecoverAnswer {
        recovered: recovered.closed,
        unreadable: unreadable.into_iter().map(view::unreadable).collect(),
        exit: Exit::Done,
    }))
}
