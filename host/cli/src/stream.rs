//! Shows a run while it is performed: its text on standard output, its steps and cost on standard
//! error.
//!
//! A terminal shows text as it comes. A file or a pipe gets only text that counts: the text of a
//! reply is withheld until the reply is durable, and goes to standard error if it never is.

use crate::answer::ThreadCost;
use crate::context::ContextFill;
use crate::screen::OutputScreen;
use crate::{money, time_format};

/// Part of a window from which on the context is shown after each turn, in percent.
const NOTED_PERCENT: u128 = 10;

/// Most bytes of the last reply that are kept for the answer; the transcript has a longer one
/// whole.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Most characters of a call's arguments in a note.
const ARGUMENTS_CHARS_MAX: usize = 120;

/// Seconds without an event after which a terminal shows that the run still waits, and a note says
/// that text is withheld.
const QUIET_SECONDS: u64 = 3;

/// The output of one run.
#[derive(Debug, Default)]
pub struct RunStream {
    reply: String,
    /// True if the reply has ended: the next text begins another.
    over: bool,
    /// Text of the current reply that was not written yet, as standard output is no terminal. The
    /// host that requests a reply bounds it.
    held: String,
    /// True once a note has said that text is withheld.
    said_held: bool,
    thinking: bool,
    quiet: u64,
    /// True if the user knows the thread: no note names it.
    known: bool,
    /// True if it waited for its children: the same run goes on afterwards.
    waited: bool,
}

impl RunStream {
    /// The output of a run that has not started.
    pub fn new() -> Self {
        Self::default()
    }

    /// The output of a further run of a chat: no note names its thread again.
    pub fn for_further_run() -> Self {
        Self {
            known: true,
            ..Self::default()
        }
    }

    /// Returns the text of the last reply.
    pub fn into_reply(self) -> String {
        self.reply
    }

    /// The run is held, and its first step is durable.
    pub fn show_start(&mut self, screen: &mut OutputScreen, thread: &str, run: u64) {
        self.quiet = 0;
        let goes_on = std::mem::take(&mut self.waited);
        if !self.known && !goes_on {
            screen.note(&format!("run {run} of {thread}"));
        }
    }

    /// The run waits for its children.
    pub fn show_child_wait(&mut self, screen: &mut OutputScreen) {
        self.quiet = 0;
        self.waited = true;
        screen.end_line();
        screen.note("  waiting for its children");
    }

    /// A thread that had ended with this status goes on in a successor.
    pub fn show_resumption(
        &mut self,
        screen: &mut OutputScreen,
        (old, status): (&str, &str),
        new: &str,
    ) {
        let had = match status {
            "completed" => "had completed",
            "error" => "had failed",
            "cancelled" => "had been cancelled",
            "killed" => "had been killed",
            _ => "had ended",
        };
        self.quiet = 0;
        screen.end_line();
        screen.note(&format!("{old} {had}: going on in {new}"));
    }

    /// The window of the model is nearly full, and a summary is written. Its text is no reply.
    pub fn show_summary(&mut self, screen: &mut OutputScreen, context: ContextFill) {
        self.quiet = 0;
        self.over = true;
        screen.end_line();
        let context = context.describe().unwrap_or_default();
        screen.note(&format!(
            "  context {context}: handing off, a summary is written"
        ));
    }

    /// The run goes on in another thread.
    pub fn show_hand_off(
        &mut self,
        screen: &mut OutputScreen,
        thread: &str,
        summary_problem: Option<&str>,
    ) {
        self.quiet = 0;
        self.over = true;
        screen.end_line();
        screen.note(&match summary_problem {
            None => format!("  continued in {thread}"),
            Some(problem) => format!("  continued in {thread}, without a summary: {problem}"),
        });
    }

    /// An event of a descendant of the thread.
    pub fn show_child(&mut self, screen: &mut OutputScreen, thread: &str, what: &str) {
        self.quiet = 0;
        screen.end_line();
        screen.note(&format!("  {thread} {what}"));
    }

    /// More text of a reply arrived.
    pub fn show_text(&mut self, screen: &mut OutputScreen, text: &str) {
        self.quiet = 0;
        self.thinking = false;
        if std::mem::take(&mut self.over) {
            self.reply.clear();
        }
        let room = TEXT_BYTES_MAX.saturating_sub(self.reply.len());
        self.reply.push_str(&text[..text.floor_char_boundary(room)]);
        let ends = screen.properties();
        match ends.json || ends.out_terminal {
            true => screen.print_text(text),
            false => self.held.push_str(text),
        }
    }

    /// The run is performed no longer. `counts`: its last reply is durable.
    pub fn end(&mut self, screen: &mut OutputScreen, counts: bool) {
        match counts {
            true => self.release_text(screen),
            false => self.discard_text(screen),
        }
    }

    /// Writes the withheld text of a reply that is durable.
    fn release_text(&mut self, screen: &mut OutputScreen) {
        screen.print_text(&std::mem::take(&mut self.held));
        self.said_held = false;
    }

    /// Writes the withheld text of a void reply to standard error.
    fn discard_text(&mut self, screen: &mut OutputScreen) {
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            screen.note(&format!(
                "  the beginning of a reply, which does not count: {held}"
            ));
        }
        self.said_held = false;
    }

    /// The model is thinking. One note for each reply; the thoughts are in the transcript.
    pub fn show_thinking(&mut self, screen: &mut OutputScreen) {
        self.quiet = 0;
        if !std::mem::replace(&mut self.thinking, true) {
            screen.note("  thinking");
        }
    }

    /// A tool call has started.
    pub fn show_tool_start(&mut self, screen: &mut OutputScreen, name: &str, arguments: &str) {
        self.quiet = 0;
        screen.end_line();
        let mut shown: String = arguments.chars().take(ARGUMENTS_CHARS_MAX).collect();
        if shown.len() < arguments.len() {
            shown.push('…');
        }
        screen.note(&format!("  {name} {}", crate::printable::line(&shown)));
    }

    /// A tool call is done.
    pub fn show_tool_end(
        &mut self,
        screen: &mut OutputScreen,
        name: &str,
        failed: bool,
        bytes: usize,
    ) {
        self.quiet = 0;
        let what = if failed { "failed" } else { "done" };
        screen.note(&format!("  {name} {what}, {bytes} bytes"));
    }

    /// A turn is durable. Shows the cost of the run's threads so far and how full its window is.
    pub fn show_turn(
        &mut self,
        screen: &mut OutputScreen,
        cost: &ThreadCost,
        context: ContextFill,
    ) {
        self.quiet = 0;
        self.over = true;
        self.thinking = false;
        self.release_text(screen);
        screen.end_line();
        screen.note(&describe_turn(cost, context));
    }

    /// A provider broke off and another one behind its router begins anew: the text so far does not
    /// count.
    pub fn show_restart(&mut self, screen: &mut OutputScreen) {
        self.quiet = 0;
        self.over = true;
        self.discard_text(screen);
        screen.end_line();
        screen.note("  the provider broke off; another one begins the reply anew");
    }

    /// An attempt failed and will be repeated; its text does not count.
    pub fn show_retry(&mut self, screen: &mut OutputScreen, millis: u64, message: &str) {
        self.quiet = 0;
        self.over = true;
        self.discard_text(screen);
        screen.end_line();
        screen.note(&format!(
            "  {}; next attempt in {}",
            crate::printable::line(message),
            time_format::format_duration(millis)
        ));
    }

    /// A call waits until a ceiling admits it.
    pub fn show_wait(&mut self, screen: &mut OutputScreen, millis: u64, message: &str) {
        self.quiet = 0;
        screen.end_line();
        screen.note(&format!(
            "  {}; it goes on in {}",
            crate::printable::line(message),
            time_format::format_duration(millis)
        ));
    }

    /// The provider reports more tokens than the call can have used.
    pub fn show_usage_mismatch(&mut self, screen: &mut OutputScreen, reported: u64, counted: u64) {
        screen.end_line();
        screen.note(&format!(
            "  the provider reports {reported} tokens, which cannot be: {counted} are counted"
        ));
    }

    /// A second has passed.
    pub fn tick(&mut self, screen: &mut OutputScreen) {
        self.quiet += 1;
        if self.quiet >= QUIET_SECONDS {
            if !self.held.is_empty() && !std::mem::replace(&mut self.said_held, true) {
                screen.note("  a reply is under way; it is shown when it is whole");
            }
            screen.show_live(&format!(
                "  waiting, {}",
                time_format::format_duration(self.quiet * 1_000)
            ));
        }
    }
}

/// `turn 2: 250 input and 30 output tokens, 0.00021 USD so far; context 3,280 of 32,000 tokens
/// (10 %)`: the sums of the thread, and what its next request has, once that is worth a look.
fn describe_turn(cost: &ThreadCost, context: ContextFill) -> String {
    let context = context
        .describe()
        .filter(|_| context.percent() >= NOTED_PERCENT);
    format!(
        "turn {}: {} input and {} output tokens, {} so far{}",
        cost.turns,
        cost.input_tokens,
        cost.output_tokens,
        money::format_usd(cost.spend),
        context.map_or_else(String::new, |context| format!("; context {context}"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    const FILL: ContextFill = ContextFill {
        tokens: 3_280,
        window: Some(32_000),
    };

    fn cost(turns: u64) -> ThreadCost {
        ThreadCost {
            turns,
            input_tokens: 100,
            output_tokens: 10,
            spend: 120_000,
        }
    }

    #[test]
    fn a_run_with_a_tool() {
        let (mut screen, out, err) = screen(false, false);
        let mut stream = RunStream::new();
        stream.show_start(&mut screen, "a-1", 1);
        stream.show_thinking(&mut screen);
        stream.show_thinking(&mut screen);
        stream.show_text(&mut screen, "Let me ");
        stream.show_text(&mut screen, "look.");
        stream.show_turn(&mut screen, &cost(1), ContextFill::default());
        stream.show_tool_start(&mut screen, "read_file", "{\"path\":\n\"x\"}");
        stream.show_tool_end(&mut screen, "read_file", false, 25);
        stream.show_retry(&mut screen, 1_500, "overloaded");
        stream.show_wait(&mut screen, 20_000, "too many calls");
        stream.show_usage_mismatch(&mut screen, 1_000_000_000, 21_000);
        stream.show_text(&mut screen, "It holds a note.");
        stream.show_turn(&mut screen, &cost(2), FILL);
        assert_eq!(out.text(), "Let me look.\nIt holds a note.\n");
        assert_eq!(
            err.text(),
            "run 1 of a-1\n  thinking\nturn 1: 100 input and 10 output tokens, 0.00012 USD so \
             far\n  read_file {\"path\": \
             \"x\"}\n  read_file done, 25 bytes\n  overloaded; next attempt in 1.5 s\n  too many \
             calls; it goes on in 20 s\n  the \
             provider reports 1000000000 tokens, which cannot be: 21000 are counted\nturn 2: 100 \
             input and 10 output \
             tokens, 0.00012 USD so far; context 3,280 of 32,000 tokens (10 %)\n"
        );
        assert_eq!(stream.into_reply(), "It holds a note.");
    }

    #[test]
    fn a_hand_off_is_shown_as_it_happens() {
        let (mut screen, out, err) = screen(false, true);
        let mut stream = RunStream::new();
        stream.show_text(&mut screen, "before");
        stream.show_turn(&mut screen, &cost(1), FILL);
        let context = ContextFill {
            tokens: 3_700,
            window: Some(4_000),
        };
        stream.show_summary(&mut screen, context);
        stream.show_hand_off(&mut screen, "a-2", None);
        stream.show_text(&mut screen, "after");
        assert_eq!(out.text(), "before\nafter");
        let notes = "  context 3,700 of 4,000 tokens (92 %): handing off, a summary is written\n  \
                     continued in a-2\n";
        assert!(err.text().ends_with(notes), "{}", err.text());
        assert_eq!(stream.into_reply(), "after");
    }

    #[test]
    fn text_of_failed_attempt_is_no_reply() {
        let (mut screen, ..) = screen(true, false);
        let mut stream = RunStream::new();
        stream.show_text(&mut screen, "half a");
        stream.show_retry(&mut screen, 0, "cut off");
        stream.show_text(&mut screen, "whole");
        assert_eq!(stream.into_reply(), "whole");
    }

    /// Symptom: `run > file` had the beginning of a reply twice, and a torn one of an attempt that
    /// failed. Cause: text was written as it came. Fix: it is withheld until its reply is durable.
    /// Kinds: a retry, a provider that begins anew, a run that stops in the middle, a run whose
    /// last event never arrived.
    #[test]
    fn a_pipe_gets_only_replies_that_count() {
        type EndAction = fn(&mut RunStream, &mut OutputScreen);
        let rows: [(EndAction, &str, bool); 5] = [
            (
                |stream, screen| stream.show_turn(screen, &cost(1), FILL),
                "torn\n",
                false,
            ),
            (
                |stream, screen| stream.show_retry(screen, 0, "cut off"),
                "",
                true,
            ),
            (|stream, screen| stream.show_restart(screen), "", true),
            (|stream, screen| stream.end(screen, false), "", true),
            (|stream, screen| stream.end(screen, true), "torn", false),
        ];
        for (end, on_out, on_err) in rows {
            for terminal in [false, true] {
                let (mut screen, out, err) = screen(false, terminal);
                let mut stream = RunStream::new();
                stream.show_text(&mut screen, "torn");
                assert_eq!(out.text() == "torn", terminal, "a terminal sees it live");
                end(&mut stream, &mut screen);
                let said = err.text().contains("torn");
                assert_eq!(said, on_err && !terminal, "{}", err.text());
                if !terminal {
                    assert_eq!(out.text(), on_out);
                }
            }
        }
    }

    #[test]
    fn withheld_text_is_noted_once() {
        let (mut piped, _, err) = screen(false, false);
        let mut stream = RunStream::new();
        stream.show_text(&mut piped, "Begun");
        for _ in 0..3 * QUIET_SECONDS {
            stream.tick(&mut piped);
        }
        assert_eq!(
            err.text(),
            "  a reply is under way; it is shown when it is whole\n"
        );
    }

    #[test]
    fn a_quiet_run_is_shown_to_a_terminal_only() {
        let (mut on_terminal, _, err) = screen(false, true);
        let mut stream = RunStream::new();
        for _ in 0..QUIET_SECONDS {
            stream.tick(&mut on_terminal);
        }
        assert!(err.text().contains("waiting, 3.0 s"), "{:?}", err.text());
        let (mut piped, _, err) = screen(false, false);
        for _ in 0..QUIET_SECONDS {
            stream.tick(&mut piped);
        }
        assert_eq!(err.text(), "");
    }

    #[test]
    fn the_reply_is_bounded() {
        let (mut screen, ..) = screen(true, false);
        let mut stream = RunStream::new();
        for _ in 0..=TEXT_BYTES_MAX / (3 << 16) {
            stream.show_text(&mut screen, &"漢".repeat(1 << 16));
        }
        let reply = stream.into_reply();
        assert!(reply.len() <= TEXT_BYTES_MAX && reply.len() > TEXT_BYTES_MAX - 4);
    }
}
