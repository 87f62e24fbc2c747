//! `demo`: runs a small project in a temporary directory from end to end, then removes it. It needs
//! no network and no key.

use super::session::CommandSession;
use super::temporary::TemporaryDirectory;
use super::{drive, run, show, transcript};
use std::path::Path;
use threadkeep::authority::ProjectDir;
use threadkeep::wit::registry::Draft;
use threadkeep_cli::answer::{CommandAnswer, DemoAnswer};
use threadkeep_cli::args::{TranscriptArgs, TranscriptFormat};
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;

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
pub async fn demo(
    session: &CommandSession,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let common = session.common();
    for (given, option) in [
        (common.project.is_some(), "--project"),
        (common.store.is_some(), "--store"),
        (common.provider.is_some(), "--provider"),
    ] {
        if given {
            let message =
                format!("demo brings its own project, store and answers: {option} cannot be given");
            return Err(CommandFault::usage(message).with_hint("threadkeep demo"));
        }
    }
    let temporary = TemporaryDirectory::create(session, "demo")?;
    for (path, text) in FILES {
        temporary.write(path, text)?;
    }
    print_introduction(temporary.path(), screen);
    let answer = run_tour(session, &temporary, screen).await;
    temporary.remove(screen);
    Ok(screen.print_answer(&answer?))
}

fn print_introduction(path: &Path, screen: &mut OutputScreen) {
    screen.print_line("A project is a directory with .ai in it. This one is in");
    screen.print_line(&format!("{} and is removed at the end.", path.display()));
    for (path, text) in FILES {
        if path.ends_with(".md") || path.starts_with("notes") {
            screen.print_line("");
            screen.print_line(&format!("{path}:"));
            text.lines()
                .for_each(|line| screen.print_line(&format!("  {line}")));
        }
    }
    screen.print_line("");
    screen.print_line(
        "Its model answers from a script, so nothing leaves this machine. What it answers is \
         made up; the",
    );
    screen.print_line("tools, the accounts and the records are real.");
}

async fn run_tour(
    session: &CommandSession,
    temporary: &TemporaryDirectory,
    screen: &mut OutputScreen,
) -> Result<DemoAnswer, CommandFault> {
    let project = ProjectDir::from_dir(temporary.clone_dir()?);
    let opened = session.open_directory(&project)?;
    screen.print_line("");
    screen.print_line("$ threadkeep run tour --input word=coffee");
    let draft = Draft {
        title: Some("A tour of threadkeep".to_owned()),
        inputs: Some(r#"{"word": "coffee"}"#.to_owned()),
        ..Draft::for_directive("tour")
    };
    let thread = run::create_thread(&opened, draft).await?;
    let run = drive::run(&opened, &thread, None, screen).await?;
    print_run(&run, screen);
    screen.print_line("");
    screen.print_line(&format!("$ threadkeep show {thread} --events {EVENTS}"));
    let shown = show::load_thread(&opened, &thread, EVENTS, None).await?;
    print_plain(&shown, screen);
    screen.print_line("");
    screen.print_line(&format!("$ threadkeep transcript {thread}"));
    let asked = TranscriptArgs {
        thread: thread.clone(),
        format: TranscriptFormat::Markdown,
        at: None,
    };
    let transcript = transcript::load_transcript(&opened, &asked).await?;
    print_plain(&transcript, screen);
    Ok(DemoAnswer {
        exit: run.exit,
        run,
        transcript: transcript.text,
    })
}

/// Prints an answer as a user would see it; prints nothing with `--json`.
fn print_plain(answer: &impl CommandAnswer, screen: &mut OutputScreen) {
    if !screen.properties().json {
        answer.print(screen);
        screen.end_line();
    }
}

fn print_run(run: &impl CommandAnswer, screen: &mut OutputScreen) {
    screen.end_line();
    print_plain(run, screen);
}
