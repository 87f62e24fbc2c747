//! The answer of `doctor --probe`.

use super::CommandAnswer;
use crate::exit::CommandExit;
use crate::printable;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use serde::Serialize;

/// Most characters of a reply that are shown on a screen.
const TEXT_CHARS_MAX: usize = 80;

/// Tokens of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ProbeUsage {
    /// Input that neither came from a cache nor went into one.
    pub input: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// The part of the output that was reasoning.
    pub reasoning: u64,
}

/// The result of one request to one provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProbeAnswer {
    /// Name of the provider in the model table.
    pub provider: String,
    /// The model that was called.
    pub model: String,
    /// The address as it is written, with variables by their names.
    pub address: Option<String>,
    /// The dialect used with the provider.
    pub dialect: Option<String>,
    /// True if a reply came, whole or cut off.
    pub answered: bool,
    /// The text of the reply.
    pub text: Option<String>,
    /// The finish reason.
    pub finish: Option<String>,
    /// Milliseconds until the first part of the reply.
    pub first_millis: Option<u64>,
    /// Milliseconds in all.
    pub millis: Option<u64>,
    /// The usage that the provider reported; `null` if it reported none.
    pub usage: Option<ProbeUsage>,
    /// Messages of the server about fields that it refused; the request was repeated without them.
    pub refused: Vec<String>,
    /// The reason why there is no reply.
    pub error: Option<String>,
    /// The exit code: 0 if the provider answered.
    pub exit: CommandExit,
}

impl CommandAnswer for ProbeAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let mut table = TextTable::new(&[ColumnAlignment::Left, ColumnAlignment::Left]);
        let mut row = |name: &str, value: &str| table.add_row(&[name, &printable::line(value)]);
        row("provider", &self.provider);
        row("model", &self.model);
        for (name, value) in [("address", &self.address), ("dialect", &self.dialect)] {
            if let Some(value) = value {
                row(name, value);
            }
        }
        if let Some(text) = &self.text {
            let shown: String = text.chars().take(TEXT_CHARS_MAX).collect();
            row("answer", &shown);
        }
        if let Some(finish) = &self.finish {
            row("ended with", finish);
        }
        match (self.first_millis, self.millis) {
            (Some(first), Some(whole)) => {
                row(
                    "time",
                    &format!("{first} ms to its first part, {whole} ms in all"),
                );
            }
            (None, Some(whole)) => row("time", &format!("{whole} ms")),
            _ => {}
        }
        match self.usage {
            Some(usage) => row("usage", &describe_usage(usage)),
            None if self.answered => row("usage", "none reported: replies are charged by estimate"),
            None => {}
        }
        for words in &self.refused {
            row("refused", words);
        }
        if let Some(error) = &self.error {
            row("error", error);
        }
        for line in table.lines() {
            screen.print_line(&line);
        }
        screen.print_line(match self.answered {
            true => "the provider answers",
            false => "the provider does not answer",
        });
    }
}

fn describe_usage(usage: ProbeUsage) -> String {
    let ProbeUsage {
        input,
        cache_read,
        cache_write,
        output,
        reasoning,
    } = usage;
    format!(
        "{input} tokens of input, {cache_read} read from a cache, {cache_write} written to it, \
         {output} of output \
         ({reasoning} of reasoning)"
    )
}
