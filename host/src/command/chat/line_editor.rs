//! The line editor of a chat in a terminal: history, multi-line paste, and lines typed ahead.
//!
//! It runs on a thread of its own, which reads only when it is asked to: between prompts the
//! terminal is in its ordinary mode, in which Ctrl-C is a signal.

use crate::command::terminal;
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Behavior, Config, Editor};
use std::sync::mpsc;
use tokio::sync::mpsc as replies;

/// Most lines of the history.
const HISTORY_LINES_MAX: usize = 500;

/// A line that was typed, or the reason why there is none.
#[derive(Debug)]
pub enum TypedLine {
    /// A line; with line feeds in it if it was pasted.
    Text(String),
    /// The terminal cannot be read, and why.
    Bad(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// An order to the thread of the editor.
enum EditorOrder {
    /// Read a line behind this prompt.
    Read(&'static str),
    /// Add a line to the history.
    Remember(String),
    /// Drop what was typed ahead.
    Discard,
}

type ChatEditor = Editor<(), MemHistory>;

/// The line editor.
pub struct LineEditor {
    orders: mpsc::Sender<EditorOrder>,
    lines: replies::Receiver<TypedLine>,
    /// True while a line is asked for.
    reads: bool,
}

impl LineEditor {
    /// Starts an editor. `prefers_terminal`: standard output is no terminal, so the editor writes to
    /// the one that controls the process. Returns `None` where the terminal cannot be edited on.
    pub fn start(prefers_terminal: bool) -> Option<Self> {
        let config = editor_config(prefers_terminal)?;
        let editor = new_editor(&config, MemHistory::with_config(&config))?;
        let (orders, waiting) = mpsc::channel();
        let (sender, lines) = replies::channel(1);
        std::thread::spawn(move || serve(editor, &config, &waiting, &sender));
        Some(Self {
            orders,
            lines,
            reads: false,
        })
    }

    /// Returns the next line. If it is dropped meanwhile, the next call goes on with the same line.
    pub async fn next(&mut self, prompt: &'static str) -> TypedLine {
        if !std::mem::replace(&mut self.reads, true) {
            self.order(EditorOrder::Read(prompt));
        }
        let line = self.lines.recv().await.unwrap_or(TypedLine::End);
        self.reads = false;
        line
    }

    /// Adds a line to the history.
    pub fn remember(&self, line: &str) {
        self.order(EditorOrder::Remember(line.to_owned()));
    }

    /// Drops what was typed ahead.
    pub fn discard_typed(&self) {
        self.order(EditorOrder::Discard);
    }

    fn order(&self, order: EditorOrder) {
        // Without its thread the next line is the end.
        let _ = self.orders.send(order);
    }
}

fn editor_config(prefers_terminal: bool) -> Option<Config> {
    let behavior = match prefers_terminal {
        true => Behavior::PreferTerm,
        false => Behavior::Stdio,
    };
    let config = Config::builder().max_history_size(HISTORY_LINES_MAX).ok()?;
    let config = config.history_ignore_dups(true).ok()?;
    Some(config.behavior(behavior).bracketed_paste(true).build())
}

fn new_editor(config: &Config, history: MemHistory) -> Option<ChatEditor> {
    ChatEditor::with_history(config.clone(), history).ok()
}

/// Serves orders until the chat is gone.
fn serve(
    mut editor: ChatEditor,
    config: &Config,
    orders: &mpsc::Receiver<EditorOrder>,
    lines: &replies::Sender<TypedLine>,
) {
    while let Ok(order) = orders.recv() {
        match order {
            EditorOrder::Read(prompt) => {
                let line = match editor.readline(prompt) {
                    Ok(line) => TypedLine::Text(line),
                    Err(ReadlineError::Interrupted) => TypedLine::Interrupt,
                    Err(ReadlineError::Eof) => TypedLine::End,
                    Err(error) => TypedLine::Bad(error.to_string()),
                };
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
            // A history in memory refuses nothing.
            EditorOrder::Remember(line) => drop(editor.add_history_entry(line)),
            EditorOrder::Discard => {
                terminal::discard_typed();
                // The editor holds what it has read beyond the last line: another one has nothing.
                let mut history = MemHistory::with_config(config);
                std::mem::swap(editor.history_mut(), &mut history);
                match new_editor(config, history) {
                    Some(fresh) => editor = fresh,
                    None => return,
                }
            }
        }
    }
}
