//! `transcript`: prints the transcript of a thread.

use super::{chain, fault};
use crate::answer::TranscriptAnswer;
use crate::args;
use crate::contract::TranscriptPiece;
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CommandHost, ProjectThreads};

const COMMAND: &str = "transcript";

/// Largest transcript in one JSON document, which holds it in memory twice. A larger one is read
/// without `--json`.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Prints the transcript of a thread: piece by piece on a screen, as one document with `--json`.
pub async fn transcript(
    host: &impl CommandHost,
    asked: args::TranscriptArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    if screen.properties().json {
        let mut answer = load_transcript(&opened, &asked).await?;
        answer.continued_in = chain::name_tip(&opened, &asked.thread, COMMAND, screen).await;
        return Ok(screen.print_answer(&answer));
    }
    for what in document_parts(asked.format) {
        let mut next = Some(None);
        while let Some(cursor) = next {
            let piece = load_piece(&opened, &asked, what, cursor).await?;
            screen.print_text(&piece.text);
            next = piece.cursor.map(Some);
        }
    }
    screen.end_line();
    chain::name_tip(&opened, &asked.thread, COMMAND, screen).await;
    Ok(CommandExit::Done)
}

/// Loads the whole transcript.
pub async fn load_transcript(
    opened: &impl ProjectThreads,
    asked: &args::TranscriptArgs,
) -> Result<TranscriptAnswer, CommandFault> {
    let (thread, format) = (&asked.thread, asked.format);
    let mut answer = TranscriptAnswer {
        thread_id: opened
            .get(thread)
            .await
            .map_err(|error| fault::from_thread_call(opened, thread, &error))?
            .id,
        format: format.as_str().to_owned(),
        version: 0,
        text: String::new(),
        continued_in: None,
        exit: CommandExit::Done,
    };
    for what in document_parts(format) {
        let mut next = Some(None);
        while let Some(cursor) = next {
            let piece = load_piece(opened, asked, what, cursor).await?;
            answer.text.push_str(&piece.text);
            answer.version = piece.version;
            next = piece.cursor.map(Some);
            if answer.text.len() > DOCUMENT_BYTES_MAX {
                let message = format!("the transcript is larger than {DOCUMENT_BYTES_MAX} bytes");
                return Err(
                    CommandFault::new("too-large", message).with_hint("read it without --json")
                );
            }
        }
    }
    Ok(answer)
}

/// The component's names for the parts of a format.
fn document_parts(format: args::TranscriptFormat) -> &'static [&'static str] {
    match format {
        args::TranscriptFormat::Markdown => &["markdown"],
        args::TranscriptFormat::Jsonl => &["manifest", "jsonl"],
        args::TranscriptFormat::State => &["checkpoint"],
    }
}

async fn load_piece(
    opened: &impl ProjectThreads,
    asked: &args::TranscriptArgs,
    what: &str,
    cursor: Option<String>,
) -> Result<TranscriptPiece, CommandFault> {
    let (thread, at) = (&asked.thread, asked.at);
    let piece = opened.render(thread, what, at, 0, cursor).await;
    piece.map_err(|error| fault::from_thread_call(opened, thread, &error))
}
