//! `transcript`: prints the transcript of a thread.

use super::fault;
use super::open::{Opened, Session};
use threadkeep_cli::answer::TranscriptAnswer;
use threadkeep_cli::args;
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::screen::Screen;

/// Largest transcript in one JSON document, which holds it in memory twice. A larger one is read
/// without `--json`.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Prints the transcript of a thread: piece by piece on a screen, as one document with `--json`.
pub async fn transcript(
    session: &Session,
    asked: args::Transcript,
    screen: &mut Screen,
) -> Result<Exit, Fault> {
    let opened = session.open_to_read(screen)?;
    if screen.ends().json {
        let answer = whole(&opened, &asked.thread, asked.format).await?;
        return Ok(screen.answer(&answer));
    }
    for what in parts(asked.format) {
        let mut next = Some(0);
        while let Some(after) = next {
            let piece = piece(&opened, &asked.thread, what, after).await?;
            screen.text(&piece.text);
            next = piece.cursor;
        }
    }
    screen.end_line();
    Ok(Exit::Done)
}

/// Loads the whole transcript.
pub async fn whole(
    opened: &Opened,
    thread: &str,
    format: args::Format,
) -> Result<TranscriptAnswer, Fault> {
    let mut answer = TranscriptAnswer {
        thread_id: opened
            .tenant()
            .get(thread)
            .await
            .map_err(|error| fault::of_thread(opened, thread, &error))?
            .id,
        format: format.as_str().to_owned(),
        version: 0,
        text: String::new(),
        exit: Exit::Done,
    };
    for what in parts(format) {
        let mut next = Some(0);
        while let Some(after) = next {
            let piece = piece(opened, thread, what, after).await?;
            answer.text.push_str(&piece.text);
            answer.version = piece.version;
            next = piece.cursor;
            if answer.text.len() > DOCUMENT_BYTES_MAX {
                let message = format!("the transcript is larger than {DOCUMENT_BYTES_MAX} bytes");
                return Err(Fault::new("too-large", message).hint("read it without --json"));
            }
        }
    }
    Ok(answer)
}

/// The component's names for the parts of a format.
fn parts(format: args::Format) -> &'static [&'static str] {
    match format {
        args::Format::Markdown => &["markdown"],
        args::Format::Jsonl => &["manifest", "jsonl"],
        args::Format::State => &["state"],
    }
}

async fn piece(
    opened: &Opened,
    thread: &str,
    what: &str,
    after: u64,
) -> Result<threadkeep::wit::transcript::Piece, Fault> {
    let piece = opened.tenant().render(thread, what, after).await;
    piece.map_err(|error| fault::of_thread(opened, thread, &error))
}
