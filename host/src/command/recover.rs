//! `recover`.

use super::fault;
use super::open::Session;
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
    let recovered = opened.project().recover(&recover.dead).await;
    let recovered = recovered.map_err(|error| fault::recovery(&error))?;
    opened
        .tenant()
        .sweep_all(None)
        .await
        .map_err(|error| fault::call(&error))?;
    for thread in &recovered {
        opened.refresh(thread, screen).await;
    }
    opened.say_if_empty(screen);
    Ok(screen.answer(&RecoverAnswer {
        recovered,
        exit: Exit::Done,
    }))
}
