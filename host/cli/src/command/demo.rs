//! `demo`: runs a small project in a temporary directory from end to end, then removes it. It needs
//! no network and no key.

use super::{run, show, transcript};
use crate::answer::{CommandAnswer, DemoAnswer};
use crate::args::{TranscriptArgs, TranscriptFormat};
use crate::contract::ThreadDraft;
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, RunOrder, ThreadRuns};

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
    host: &impl CommandHost,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let demo = host.create_demo(&FILES)?;
    print_introduction(&host.describe_demo(&demo), screen);
    let answer = run_tour(host, &demo, screen).await;
    host.remove_demo(demo, screen);
    Ok(screen.print_answer(&answer?))
}

fn print_introduction(place: &str, screen: &mut OutputScreen) {
    screen.print_line("A project is a directory with .ai in it. This one is in");
    screen.print_line(place);
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

async fn run_tour<H: CommandHost>(
    host: &H,
    demo: &H::DemoDirectory,
    screen: &mut OutputScreen,
) -> Result<DemoAnswer, CommandFault> {
    let opened = host.open_demo(demo)?;
    screen.print_line("");
    screen.print_line("$ threadkeep run tour --input word=coffee");
    let draft = ThreadDraft {
        directive: Some("tour".to_owned()),
        title: Some("A tour of threadkeep".to_owned()),
        inputs: Some(r#"{"word": "coffee"}"#.to_owned()),
        ..ThreadDraft::default()
    };
    let thread = run::create_thread(&opened, draft).await?;
    let order = RunOrder {
        thread: thread.clone(),
        ..RunOrder::default()
    };
    let run = opened.perform(order, screen).await?.answer;
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
        last: None,
        follow: false,
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
