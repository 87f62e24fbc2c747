//! `demo`: runs a small project in a temporary directory from end to end, then removes it. It needs
//! no network and no key.

use super::open::Session;
use super::temporary::TemporaryDirectory;
use super::{drive, run, show, transcript};
use std::path::Path;
use threadkeep::authority::Project;
use threadkeep::wit::registry::Draft;
use threadkeep_cli::answer::{Answer, DemoAnswer};
use threadkeep_cli::args::Format;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Name and content of each file of the project.
const FILES: [(&str, &str); 5] = [
    (".ai/directives/tour.md", include_str!("demo/tour.md")),
    (".ai/config/models.yaml", include_str!("demo/models.yaml")),
    (".ai/script.json", include_str!("demo/script.json")),
    ("notes/shopping.txt", "oats\nmilk\ncoffee, the dark one\n"),
    ("notes/ideas.txt", "a bicycle with a basket for coffee\n"),
];

/// Events that `show` prints in the tour.
const EVENTS: u32 = 6;

/// Runs the tour.
pub async fn demo(session: &Session, screen: &mut Screen) -> Result<Exit, Fault> {
    let common = session.common();
    for (given, option) in [
        (common.project.is_some(), "--project"),
        (common.store.is_some(), "--store"),
        (common.provider.is_some(), "--provider"),
    ] {
        if given {
            let message =
                format!("demo brings its own project, store and answers: {option} cannot be given");
            return Err(Fault::usage(message).hint("threadkeep demo"));
        }
    }
    let temporary = TemporaryDirectory::make(session, "demo")?;
    for (path, text) in FILES {
        temporary.write(path, text)?;
    }
    introduce(temporary.path(), screen);
    let answer = tour(session, &temporary, screen).await;
    temporary.remove(screen);
    Ok(screen.answer(&answer?))
}

fn introduce(path: &Path, screen: &mut Screen) {
    screen.line("A project is a directory with .ai in it. This one is in");
    screen.line(&format!("{} and is removed at the end.", path.display()));
    for (path, text) in FILES {
        if path.ends_with(".md") || path.starts_with("notes") {
            screen.line(&format!("\n{path}:"));
            text.lines()
                .for_each(|line| screen.line(&format!("  {line}")));
        }
    }
    screen.line("\nIts model answers from a script, so nothing leaves this machine. What it answers is made up; the");
    screen.line("tools, the accounts and the records are real.");
}

async fn tour(
    session: &Session,
    temporary: &TemporaryDirectory,
    screen: &mut Screen,
) -> Result<DemoAnswer, Fault> {
    let project = Project::from_dir(temporary.clone_dir()?);
    let opened = session.open_directory(&project)?;
    screen.line("\n$ threadkeep run tour --input word=coffee");
    let draft = Draft {
        title: Some("A tour of threadkeep".to_owned()),
        inputs: r#"{"word": "coffee"}"#.to_owned(),
        ..Draft::of("tour")
    };
    let thread = run::create_thread(&opened, draft).await?;
    let run = drive::run(&opened, &thread, None, screen).await?;
    run_printed(&run, screen);
    screen.line(&format!("\n$ threadkeep show {thread} --events {EVENTS}"));
    let shown = show::shown(&opened, &thread, EVENTS).await?;
    printed(&shown, screen);
    screen.line(&format!("\n$ threadkeep transcript {thread}"));
    let transcript = transcript::whole(&opened, &thread, Format::Markdown).await?;
    printed(&transcript, screen);
    Ok(DemoAnswer {
        exit: run.exit,
        run,
        transcript: transcript.text,
    })
}

/// Prints an answer as a user would see it; prints nothing with `--json`.
fn printed(answer: &impl Answer, screen: &mut Screen) {
    if !screen.ends().json {
        answer.print(screen);
        screen.end_line();
    }
}

fn run_printed(run: &impl Answer, screen: &mut Screen) {
    screen.end_line();
    printed(run, screen);
}
