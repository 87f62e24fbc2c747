//! `run` and `resume`.

use super::drive::drive;
use super::fault;
use super::open::{Opened, Session};
use super::view;
use threadkeep::wit::registry::Draft;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::inputs;
use threadkeep_cli::screen::Screen;

/// Create a thread and carry it to its end. What is refused is refused before anything is written.
pub async fn run(session: &Session, run: args::Run, screen: &mut Screen) -> Result<Exit, Fault> {
    let given = inputs::object(run.inputs.as_deref(), &run.input)?;
    let message = run.message.as_deref().map(inputs::message).transpose()?;
    let opened = session.open()?;
    let draft = Draft {
        id: run.id,
        directive: Some(run.directive),
        agent: None,
        task: None,
        title: run.title,
        model: run.model,
        limits: view::caps(&run.caps),
        capabilities: Vec::new(),
        inputs: given,
    };
    let thread = create(&opened, draft).await?;
    let done = drive(&opened, &thread, message, screen).await;
    let answer = done.map_err(|fault| created(fault, &thread))?;
    Ok(screen.answer(&answer))
}

/// Create a thread; its id.
pub async fn create(opened: &Opened, draft: Draft) -> Result<String, Fault> {
    match opened.tenant().create(draft).await {
        Ok(thread) => Ok(thread.id),
        Err(error) => Err(fault::of_names(opened, &error)),
    }
}

/// A fault after the thread was created says that there is one.
fn created(fault: Fault, thread: &str) -> Fault {
    match fault.hint {
        Some(_) => fault,
        None => fault.hint(format!("the thread is there: threadkeep show {thread}")),
    }
}

/// Go on in place.
pub async fn resume(
    session: &Session,
    resume: args::Resume,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let message = resume.message.as_deref().map(inputs::message).transpose()?;
    let silent = message.is_none();
    let opened = session.open()?;
    let thread = opened.tenant().get(&resume.thread).await;
    let thread = thread.map_err(|error| fault::of_thread(&opened, &resume.thread, &error))?;
    let answer = drive(&opened, &thread.id, message, screen).await;
    let answer = answer.map_err(|fault| match fault.hint {
        None if silent && thread.status == "idle" => {
            fault.hint(format!("threadkeep resume {} --message TEXT", thread.id))
        }
        _ => fault,
    })?;
    Ok(screen.answer(&answer))
}
