//! Shows a run while it is performed: its text on standard output, its steps and cost on standard
//! error.
//!
//! A terminal shows text as it comes. A file or a pipe gets only text that counts: the text of a
//! reply is withheld until the reply is durable, and goes to standard error if it never is. Lines
//! about other threads wait for the end of a reply that a terminal shows.

mod progress;

use crate::answer::ThreadCost;
use crate::context::ContextFill;
use crate::json_text::describe_json;
use crate::screen::OutputScreen;
use crate::style::{StyledLine, TextRole};
use crate::{money, time_format};
use progress::RunProgress;
use std::time::Duration;

/// Part of a window from which on the context is shown after each turn, in percent.
const NOTED_PERCENT: u128 = 10;

/// Most bytes of the last reply that are kept for the answer; the transcript has a longer one
/// whole.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// Most characters of a call's arguments in a note, where no terminal has a width.
const ARGUMENTS_CHARS_MAX: usize = 120;

/// Seconds without an event after which a note says that text is withheld.
const QUIET_SECONDS: u64 = 3;

/// Seconds without an event after which a terminal that shows a reply says that it waits.
const PAUSED_SECONDS: u64 = 2;

/// Most lines about other threads that wait for the end of a reply; further ones are counted.
const HELD_LINES_MAX: usize = 100;

/// The output of one run.
#[derive(Debug, Default)]
pub struct RunStream {
    reply: String,
    /// True if the reply has ended: the next text begins another.
    over: bool,
    /// Text of the current reply that was not written yet, as standard output is no terminal. The
    /// host that requests a reply bounds it.
    held: String,
    /// Lines about other threads, until the reply under way has ended.
    held_lines: Vec<StyledLine>,
    /// Number of such lines that were left out.
    lines_left_out: usize,
    /// True once a note has said that text is withheld.
    said_held: bool,
    thinking: bool,
    /// True if the thoughts of a model are shown.
    shows_thinking: bool,
    quiet: u64,
    /// True if the user knows the thread: no note names it.
    known: bool,
    /// True if it waited for its children: the same run goes on afterwards.
    waited: bool,
    /// True if the run was suspended and goes on in place.
    goes_on: bool,
    /// True if events come as they happen, so that times between them mean something.
    timed: bool,
    /// The cost before the next turn.
    cost_before: ThreadCost,
    progress: RunProgress,
}

/// The end of a tool call.
#[derive(Debug, Clone, Copy)]
pub struct ToolEnd<'a> {
    /// The id that the call began with.
    pub call: &'a str,
    /// The name of the tool.
    pub name: &'a str,
    /// True if the call failed.
    pub failed: bool,
    /// Bytes of the result.
    pub bytes: usize,
    /// The reason, where the call was refused before it ran.
    pub refusal: Option<&'a str>,
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

    /// Shows what a model thinks, if `shown`.
    #[must_use]
    pub fn with_thinking(mut self, shown: bool) -> Self {
        self.shows_thinking = shown;
        self
    }

    /// Takes the events as they happen: times between them are shown.
    #[must_use]
    pub fn with_times(mut self) -> Self {
        self.timed = true;
        self
    }

    /// Sets what the thread has used before the run, and the tokens of its first request as far as
    /// they are known.
    pub fn set_before(&mut self, cost: ThreadCost, context_tokens: u64) {
        self.cost_before = cost;
        self.progress.sent_tokens = context_tokens;
    }

    /// The run was suspended, and goes on in place.
    pub fn set_goes_on(&mut self) {
        self.goes_on = true;
    }

    /// Returns the text of the last reply.
    pub fn into_reply(self) -> String {
        self.reply
    }

    /// The run is held, and its first step is durable.
    pub fn show_start(&mut self, screen: &mut OutputScreen, thread: &str, run: u64) {
        self.quiet = 0;
        self.progress.begin_request();
        let waited = std::mem::take(&mut self.waited);
        let goes_on = std::mem::take(&mut self.goes_on);
        if !self.known && !waited {
            let line = StyledLine::plain(&format!("run {run} of ")).with(TextRole::Name, thread);
            let more = if goes_on { " goes on" } else { "" };
            screen.note_line(&line.with(TextRole::Plain, more));
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
        // The counters of the successor begin at zero.
        self.cost_before = ThreadCost::default();
        self.goes_on = false;
        let line = StyledLine::plain(&format!("{old} {had}: going on in "));
        screen.note_line(&line.with(TextRole::Name, new));
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

    /// An event of a descendant of the thread. While a terminal shows a reply, its line waits.
    pub fn show_child(&mut self, screen: &mut OutputScreen, thread: &str, what: &str) {
        let line = StyledLine::plain("  ").with(TextRole::Name, thread);
        let line = line.with(TextRole::Plain, &format!(" {what}"));
        let ends = screen.properties();
        let is_under_way = !self.over && !self.reply.is_empty();
        if !is_under_way || ends.json || !ends.out_terminal {
            self.quiet = 0;
            screen.end_line();
            return screen.note_line(&line);
        }
        match self.held_lines.len() < HELD_LINES_MAX {
            true => self.held_lines.push(line),
            false => self.lines_left_out += 1,
        }
    }

    /// Writes the lines that have waited for the end of a reply.
    fn release_lines(&mut self, screen: &mut OutputScreen) {
        if !self.held_lines.is_empty() {
            screen.end_line();
        }
        for line in std::mem::take(&mut self.held_lines) {
            screen.note_line(&line);
        }
        match std::mem::take(&mut self.lines_left_out) {
            0 => {}
            more => screen.note(&format!("  {more} more lines about children are left out")),
        }
    }

    /// More text of a reply arrived.
    pub fn show_text(&mut self, screen: &mut OutputScreen, text: &str) {
        self.quiet = 0;
        self.thinking = false;
        self.progress.add_received(text);
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
        self.release_lines(screen);
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

    /// The model is thinking. One note for each reply, or the thoughts where they are asked for; the
    /// transcript has them anyway.
    pub fn show_thinking(&mut self, screen: &mut OutputScreen, text: &str) {
        self.quiet = 0;
        self.progress.add_received(text);
        let begins = !std::mem::replace(&mut self.thinking, true);
        match self.shows_thinking {
            true => screen.print_aside(text),
            false if begins => screen.note_line(&aside("  thinking")),
            false => {}
        }
    }

    /// A tool call has started. On a terminal its line is cut to the width.
    pub fn show_tool_start(
        &mut self,
        screen: &mut OutputScreen,
        call: &str,
        name: &str,
        arguments: &str,
    ) {
        self.progress.begin_call(call, name);
        self.show_call(screen, name, arguments);
    }

    /// Shows a call that was answered without being run outside, and its answer.
    pub fn show_answered_call(
        &mut self,
        screen: &mut OutputScreen,
        arguments: &str,
        end: ToolEnd<'_>,
    ) {
        self.show_call(screen, end.name, arguments);
        self.show_tool_end(screen, end);
    }

    fn show_call(&mut self, screen: &mut OutputScreen, name: &str, arguments: &str) {
        self.quiet = 0;
        screen.end_line();
        let mut shown = describe_json(arguments);
        if screen.columns().is_none() && shown.chars().count() > ARGUMENTS_CHARS_MAX {
            shown = shown.chars().take(ARGUMENTS_CHARS_MAX).collect();
            shown.push('…');
        }
        let line = StyledLine::plain("  ").with(TextRole::Name, name);
        let line = line.with(TextRole::Aside, &format!(" {shown}"));
        screen.note_line(&fit_terminal(line, screen));
    }

    /// A tool call is done.
    pub fn show_tool_end(&mut self, screen: &mut OutputScreen, end: ToolEnd<'_>) {
        self.quiet = 0;
        let time = self.progress.end_call(end.call);
        let time = self.describe_time(screen, time.filter(|_| end.refusal.is_none()));
        let (role, word) = match end.failed {
            true => (TextRole::Failure, "failed"),
            false => (TextRole::Success, "done"),
        };
        let line = StyledLine::plain(&format!("  {} ", end.name)).with(role, word);
        let line = match end.refusal {
            Some(reason) => line.with(TextRole::Plain, &format!(": {reason}")),
            None => line.with(TextRole::Aside, &format!(", {} bytes{time}", end.bytes)),
        };
        screen.note_line(&fit_terminal(line, screen));
    }

    /// Formats a time behind other figures, for a user to whom it means something.
    fn describe_time(&self, screen: &OutputScreen, time: Option<Duration>) -> String {
        match time.filter(|_| self.timed && screen.shows_times()) {
            Some(time) => {
                let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                format!(", {}", time_format::format_duration(millis))
            }
            None => String::new(),
        }
    }

    /// A turn is durable. Shows what it used, and how full the window is. `cost` is that of the
    /// run's threads so far.
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
        let used = cost.minus(self.cost_before);
        self.cost_before = *cost;
        let time = self.describe_time(screen, Some(self.progress.request_time()));
        screen.note_line(&aside(&describe_turn(cost.turns, &used, &time, context)));
        self.progress.begin_request();
        self.progress.sent_tokens = context.tokens;
        self.release_lines(screen);
    }

    /// A provider broke off and another one behind its router begins anew: the text so far does not
    /// count.
    pub fn show_restart(&mut self, screen: &mut OutputScreen) {
        self.quiet = 0;
        self.over = true;
        self.discard_text(screen);
        screen.end_line();
        self.progress.begin_request();
        screen.note("  the provider broke off; another one begins the reply anew");
    }

    /// An attempt failed and will be repeated; its text does not count.
    pub fn show_retry(&mut self, screen: &mut OutputScreen, millis: u64, message: &str) {
        self.quiet = 0;
        self.over = true;
        self.discard_text(screen);
        screen.end_line();
        self.progress.begin_request();
        screen.note(&format!(
            "  {message}; next attempt in {}",
            time_format::format_duration(millis)
        ));
    }

    /// A call waits until a ceiling admits it.
    pub fn show_wait(&mut self, screen: &mut OutputScreen, millis: u64, message: &str) {
        self.quiet = 0;
        screen.end_line();
        screen.note(&format!(
            "  {message}; it goes on in {}",
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
        self.progress.tick();
        if self.quiet >= QUIET_SECONDS
            && !self.held.is_empty()
            && !std::mem::replace(&mut self.said_held, true)
        {
            screen.note("  a reply is under way; it is shown when it is whole");
        }
        let streams = screen.properties().out_terminal && !self.over && !self.reply.is_empty();
        if !streams || self.quiet >= PAUSED_SECONDS {
            screen.show_live(&self.progress.describe(self.thinking));
        }
    }
}

/// Cuts a line to the width of the terminal, if there is one.
fn fit_terminal(line: StyledLine, screen: &OutputScreen) -> StyledLine {
    match screen.columns() {
        Some(columns) => line.cut_to(columns),
        None => line,
    }
}

/// A line that stands beside the matter.
fn aside(text: &str) -> StyledLine {
    StyledLine::default().with(TextRole::Aside, text)
}

/// `turn 2: 250 input and 30 output tokens, 0.00021 USD; context 3,280 of 32,000 tokens (10 %)`:
/// what the turn used, and what the next request has, once that is worth a look.
fn describe_turn(turn: u64, used: &ThreadCost, time: &str, context: ContextFill) -> String {
    let context = context
        .describe()
        .filter(|_| context.percent() >= NOTED_PERCENT);
    format!(
        "turn {turn}: {} input and {} output tokens, {}{time}{}",
        used.input_tokens,
        used.output_tokens,
        money::format_usd(used.spend),
        context.map_or_else(String::new, |context| format!("; context {context}"))
    )
}

#[cfg(test)]
mod tests;
