//! `recover`.

use super::fault;
use super::open::Session;
use threadkeep::authority;
use threadkeep_cli::answer::RecoverAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Close the runs of dead holders, bring their documents up to date, remove lock files that nobody holds.
pub async fn recover(
    session: &Session,
    recover: args::Recover,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let opened = session.open()?;
    let recovered = opened.project().recover(&recover.dead).await;
    let recovered = recovered.map_err(|error| fault::recovery(&error))?;
    for thread in &recovered {
        opened.refresh(thread, screen).await;
    }
    opened.say_if_empty(screen);
    if let Some(threads) = opened.project().threads()
        && let Err(error) = authority::sweep(threads)
    {
        screen.warn(&format!(
            "old lock files stay: {}",
            fault::with_source(&error)
        ));
    }
    Ok(screen.answer(&RecoverAnswer {
        recovered,
        exit: Exit::Done,
    }))
}
