//! Performs a run by the component's own loop (`runner.run`), for a host that has no driver, and
//! shows what it does after each step.
//!
//! The loop streams nothing. Its steps are asked for one by one, and the entries that each has
//! committed are shown, as a driver's events would be. The threads below are performed by the same
//! calls, and are not shown.

use super::finished_run::{RunParts, build_answer};
use super::{fault, fresh_id, view};
use crate::answer::{LeftAloneRow, has_ended};
use crate::context::ContextFill;
use crate::contract::{CallError, Entry, RefusalKind, Thread, UnixTime};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::stream::{RunStream, ToolEnd};
use crate::threads::{
    CallResult, PerformedRun, ProjectThreads, RunOrder, RunResumption, find_other_tip,
};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Entries of one page.
const PAGE_ENTRIES: u32 = 100;
/// Most links that one run leaves behind it: more than the component makes in a row.
const LINKS_MAX: usize = 100;

/// The input of `runner.run` that resumes a thread without a message.
const RESUMPTION_INPUT: &str = "null";

/// An open project whose component performs runs by itself.
#[expect(
    async_fn_in_trait,
    reason = "static dispatch, and no command is sent to another thread"
)]
pub trait InnerRuns: ProjectThreads {
    /// `runner.run`, with the same name for holder and key.
    async fn run_inside(
        &self,
        thread: &str,
        input: Option<String>,
        holder: &str,
        steps: u32,
    ) -> CallResult<String>;

    /// Keeps in the files beside the records what the last call of `runner.run` has done; `tip` is
    /// the thread that the run is in. A failure is a warning on the screen.
    async fn follow_step(&self, tip: &Thread, screen: &mut OutputScreen);

    /// Brings the documents of a thread that this process has run up to date. A failure is a
    /// warning on the screen.
    async fn refresh_after_run(&self, thread: &str, screen: &mut OutputScreen);

    /// Waits until this time; a moment, if none is given.
    fn wait_until(&self, until: Option<UnixTime>);
}

/// The answer of `runner.run`.
#[derive(Debug, Deserialize)]
struct LoopAnswer {
    state: String,
    #[serde(rename = "for", default)]
    reason: String,
    until: Option<LoopTime>,
    thread: String,
    /// Steps that the call has performed.
    #[serde(default)]
    steps: u32,
    #[serde(default)]
    left: Vec<LeftThread>,
}

/// A time in the answer of `runner.run`.
#[derive(Debug, Clone, Copy, Deserialize)]
struct LoopTime {
    seconds: i64,
    nanos: u32,
}

/// A thread that could not be begun.
#[derive(Debug, Deserialize)]
struct LeftThread {
    thread: String,
    kind: String,
    #[serde(default)]
    code: String,
}

/// Performs a run to its end.
///
/// # Errors
/// If the thread cannot be begun, or a call gives no answer.
pub async fn perform(
    opened: &impl InnerRuns,
    order: RunOrder,
    screen: &mut OutputScreen,
) -> Result<PerformedRun, CommandFault> {
    let failed = |error| fault::from_thread_call(opened, &order.thread, &error);
    let holder = format!("bundle-{}/1", opened.random_digits());
    let tip = match order.resumes {
        Some(_) => opened.get_tip(&order.thread).await,
        None => opened.get(&order.thread).await,
    };
    let tip = tip.map_err(failed)?;
    let mut shown = ShownRun::begin(opened, &tip, order.resumes).await;
    shown.stream = shown.stream.with_thinking(order.shows_thinking);
    let id = fresh_id(opened);
    let input = order.input.map(|message| with_id(&message, id));
    let thread = order.thread.as_str();
    let done = shown.perform_steps((thread, &holder), &tip, input, screen);
    let done = done.await;
    for thread in shown.list_changed(&tip).await {
        opened.refresh_after_run(&thread, screen).await;
    }
    done.map_err(|error| match error {
        StepFault::Call(error) => fault::from_thread_call(opened, &shown.current, &error),
        StepFault::Answer(fault) => fault,
    })?;
    shown.finish(screen).await
}

/// Reason why a run is performed no longer before it has stopped.
enum StepFault {
    /// A call failed.
    Call(CallError),
    /// An answer cannot be read.
    Answer(CommandFault),
}

impl From<CallError> for StepFault {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Returns true for a refusal to resume a thread below which others may go on: it has nothing to
/// answer, or is suspended and may not go on yet.
fn may_go_on_below(tip: &Thread, error: &CallError) -> bool {
    let Some(refusal) = error.refusal() else {
        return false;
    };
    match refusal.kind {
        RefusalKind::Invalid => refusal.text("field") == Some("input"),
        RefusalKind::Refused | RefusalKind::Exceeded => !has_ended(&tip.status),
        _ => false,
    }
}

/// Lists the threads below one, as far as they can be read.
async fn list_below(opened: &impl InnerRuns, top: &str) -> Vec<Thread> {
    let (mut below, mut cursor) = (Vec::new(), None);
    while let Ok(page) = opened.tree(top, cursor).await {
        for branch in page.branches.iter().filter(|branch| branch.depth > 0) {
            if let Ok(thread) = opened.get(&branch.thread).await {
                below.push(thread);
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    below
}

/// Gives a message an id, by which the thread takes it once however often the call is repeated.
fn with_id(message: &str, id: String) -> String {
    let mut message = view::parse_json(message);
    if let Some(fields) = message.as_object_mut() {
        fields.entry("id").or_insert(id.into());
    }
    message.to_string()
}

fn read_answer(text: &str) -> Result<LoopAnswer, CommandFault> {
    serde_json::from_str(text).map_err(|error| {
        CommandFault::new(
            "bad-answer",
            format!("runner.run answered no such JSON: {error}"),
        )
    })
}

/// A run as it is shown so far.
struct ShownRun<'a, T> {
    opened: &'a T,
    /// The thread that the run is in.
    current: String,
    /// Its newest version that is shown.
    version: u64,
    /// The status of the tip before, if it may go on in a successor.
    resumes: Option<String>,
    has_started: bool,
    /// True once a wait is shown, until something else is.
    waits: bool,
    stream: RunStream,
    parts: RunParts,
    resumption: Option<RunResumption>,
}

impl<'a, T: InnerRuns> ShownRun<'a, T> {
    /// The run of a thread that has this record. What is in its tree already is not new.
    async fn begin(opened: &'a T, tip: &Thread, resumes: Option<String>) -> Self {
        let mut performed = BTreeMap::from([(tip.id.clone(), tip.version)]);
        // As far as they can be read: charges of the others are left out.
        for below in list_below(opened, &tip.id).await {
            performed.insert(below.id, below.version);
        }
        let mut stream = RunStream::new();
        stream.set_before(view::cost(&tip.cost), tip.context);
        if resumes.as_deref() == Some("suspended") {
            stream.set_goes_on();
        }
        Self {
            opened,
            current: tip.id.clone(),
            version: tip.version,
            resumes,
            has_started: false,
            waits: false,
            stream,
            parts: RunParts {
                performed,
                ..RunParts::default()
            },
            resumption: None,
        }
    }

    /// Performs steps until the run stops or waits for a person. Without a message, a thread that
    /// is resumed begins as `runner.resume` says, which the loop alone would leave at rest: one
    /// that had ended goes on in a successor where it has something to answer. Where that is
    /// refused, threads below it may go on without it.
    async fn perform_steps(
        &mut self,
        (thread, holder): (&str, &str),
        tip: &Thread,
        mut input: Option<String>,
        screen: &mut OutputScreen,
    ) -> Result<(), StepFault> {
        let resumes = self.resumes.is_some() && input.is_none();
        self.show_first_run(tip, input.is_some(), screen);
        let mut refused = None;
        if resumes {
            input = Some(RESUMPTION_INPUT.to_owned());
        }
        loop {
            let given = input.take();
            let is_resumption = given.as_deref() == Some(RESUMPTION_INPUT);
            let stepped = self.opened.run_inside(thread, given, holder, 1).await;
            let answer = match stepped {
                Err(error) if is_resumption && may_go_on_below(tip, &error) => {
                    refused = Some(error);
                    continue;
                }
                stepped => read_answer(&stepped?).map_err(StepFault::Answer)?,
            };
            self.follow(&answer.thread, screen).await?;
            self.add_left(&answer.left);
            if let Some(error) = refused.take() {
                let rests = !matches!(answer.reason.as_str(), "steps" | "time" | "holder");
                if rests && answer.steps == 0 && self.stands_at(tip) {
                    return Err(error.into());
                }
            }
            match (answer.state.as_str(), answer.reason.as_str()) {
                ("more", "steps") => {}
                ("more", "time" | "holder") => {
                    self.show_wait(&answer.reason, screen);
                    let until = answer.until.map(|until| UnixTime {
                        seconds: until.seconds,
                        nanos: until.nanos,
                    });
                    self.opened.wait_until(until);
                }
                _ => return Ok(()),
            }
        }
    }

    /// Returns true if nothing was committed to the tip since the run was to begin.
    fn stands_at(&self, tip: &Thread) -> bool {
        self.current == tip.id && self.version == tip.version
    }

    /// Shows the run that is about to begin, where its number is known: who stops this process
    /// during the first model call knows the thread then.
    fn show_first_run(&mut self, tip: &Thread, has_input: bool, screen: &mut OutputScreen) {
        let begins = match tip.status.as_str() {
            "created" => has_input || tip.directive.is_some(),
            "idle" => has_input,
            _ => false,
        };
        if begins {
            self.has_started = true;
            let run = u64::from(tip.run.number) + 1;
            self.stream.show_start(screen, &tip.id, run);
        }
    }

    /// Lists the threads that have changed since the run began at `tip`: those that the run was in,
    /// and those below.
    async fn list_changed(&self, tip: &Thread) -> Vec<String> {
        let mut changed = vec![self.current.clone()];
        let mut add = |thread: &str| {
            if !changed.iter().any(|known| known == thread) {
                changed.push(thread.to_owned());
            }
        };
        add(&tip.id);
        for link in &self.parts.handed_off {
            add(link);
        }
        for below in list_below(self.opened, &self.current).await {
            let mut link = Some(below);
            for _ in 0..LINKS_MAX {
                let Some(record) = link.take() else { break };
                let before = self.parts.performed.get(&record.id).copied();
                if before != Some(record.version) {
                    add(&record.id);
                }
                // A link that is new was handed over to by the one before it.
                if let Some(previous) = record.previous.filter(|_| before.is_none_or(|at| at == 0))
                {
                    link = self.opened.get(&previous).await.ok();
                }
            }
        }
        changed
    }

    /// Shows what a step has committed. `tip` is the thread that the run is in after it.
    async fn follow(&mut self, tip: &str, screen: &mut OutputScreen) -> CallResult<()> {
        for _ in 0..LINKS_MAX {
            let record = self.opened.get(&self.current).await?;
            self.show_entries(&record, screen).await?;
            self.opened.follow_step(&record, screen).await;
            let next = record.next.clone().filter(|_| self.current != tip);
            let Some(next) = next.filter(|_| find_other_tip(&record).is_some()) else {
                break;
            };
            let link = self.opened.get(&next).await?;
            let resumed = self.resumption.as_ref();
            if resumed.is_none_or(|resumed| resumed.old_thread_id != record.id) {
                self.parts.handed_off.push(record.id.clone());
                let left = view::cost(&record.cost);
                self.parts.left_cost = self.parts.left_cost.plus(left);
            }
            self.parts.performed.entry(next.clone()).or_insert(0);
            self.version = link.base.as_ref().map_or(0, |base| base.length);
            self.current = next;
        }
        Ok(())
    }

    async fn show_entries(&mut self, record: &Thread, screen: &mut OutputScreen) -> CallResult<()> {
        let mut cursor = None;
        while self.version < record.version {
            let after = self.version;
            let page = self
                .opened
                .entries(&record.id, after, PAGE_ENTRIES, cursor)
                .await?;
            for entry in &page.entries {
                self.show_entry(record, entry, screen);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        self.version = record.version;
        Ok(())
    }

    fn show_entry(&mut self, record: &Thread, entry: &Entry, screen: &mut OutputScreen) {
        let body = view::parse_json(&entry.body);
        let mut types = body["events"].as_array().into_iter().flatten();
        // What closes a tip is no run of it: that of the successor comes after.
        let closes = types.any(|event| event["type"] == "thread_resumed");
        if !closes && !std::mem::replace(&mut self.has_started, true) {
            let run = record.run.number.into();
            self.stream.show_start(screen, &record.id, run);
        }
        self.waits = false;
        let mut events: Vec<&Value> = body["events"].as_array().into_iter().flatten().collect();
        // A turn is shown after its text and before its calls.
        events.sort_by_key(|event| match event["type"].as_str() {
            Some("assistant_text" | "message" | "thinking") => 0,
            Some("result") => 1,
            _ => 2,
        });
        for event in events {
            self.show_event(record, event, screen);
        }
    }

    fn show_event(&mut self, record: &Thread, event: &Value, screen: &mut OutputScreen) {
        let text = |name: &str| event[name].as_str().unwrap_or_default();
        let context = ContextFill {
            tokens: record.context,
            window: record.window,
        };
        let stream = &mut self.stream;
        match text("type") {
            "assistant_text" => stream.show_text(screen, text("text")),
            "message" if text("role") == "assistant" && event["synthetic"] != true => {
                for block in event["content"].as_array().into_iter().flatten() {
                    stream.show_text(screen, block["text"].as_str().unwrap_or_default());
                }
            }
            "thinking" => stream.show_thinking(screen, text("text")),
            "result" if event["summary"] != true => {
                let cost = self.parts.left_cost.plus(view::cost(&record.cost));
                stream.show_turn(screen, &cost, context);
            }
            "tool_use" => stream.show_tool_start(screen, "", text("name"), text("arguments")),
            "tool_result" => {
                let is_refused = event["state"] == "denied";
                let end = ToolEnd {
                    call: "",
                    name: text("name"),
                    failed: is_refused || event["failed"] == true,
                    bytes: text("text").len(),
                    refusal: is_refused.then(|| text("text")),
                };
                stream.show_tool_end(screen, end);
            }
            "error" => {
                if let Some(millis) = event["retry"].as_u64() {
                    stream.show_retry(screen, millis, text("message"));
                }
            }
            "context_limit_reached" => stream.show_summary(screen, context),
            "thread_handoff" => {
                let problem = event["summary_problem"].as_str();
                stream.show_hand_off(screen, text("new_thread_id"), problem);
            }
            "thread_resumed" => {
                let status = self.resumes.as_deref().unwrap_or_default();
                stream.show_resumption(screen, (&record.id, status), text("new_thread_id"));
                self.has_started = false;
                self.resumption = Some(RunResumption {
                    old_thread_id: record.id.clone(),
                    new_thread_id: text("new_thread_id").to_owned(),
                    reconstructed_turns: event["reconstructed_turns"].as_u64().unwrap_or_default(),
                });
            }
            _ => {}
        }
    }

    /// Shows once that the run waits.
    fn show_wait(&mut self, reason: &str, screen: &mut OutputScreen) {
        if std::mem::replace(&mut self.waits, true) {
            return;
        }
        screen.end_line();
        screen.note(match reason {
            "holder" => "  waiting for a thread that another process holds",
            _ => "  waiting",
        });
    }

    fn add_left(&mut self, left: &[LeftThread]) {
        for left in left {
            let known = |row: &LeftAloneRow| row.thread_id == left.thread;
            if !self.parts.left_alone.iter().any(known) {
                let code = if left.code.is_empty() {
                    &left.kind
                } else {
                    &left.code
                };
                self.parts.left_alone.push(LeftAloneRow {
                    thread_id: left.thread.clone(),
                    message: format!("it could not be begun: {code}"),
                });
            }
        }
    }

    /// Builds the answer from the records.
    async fn finish(mut self, screen: &mut OutputScreen) -> Result<PerformedRun, CommandFault> {
        let thread = self.opened.get(&self.current).await;
        let thread =
            thread.map_err(|error| fault::from_thread_call(self.opened, &self.current, &error))?;
        let counts = CommandExit::from_status(&thread.status) == CommandExit::Done;
        self.stream.end(screen, counts);
        screen.end_line();
        self.add_children().await;
        let text = self.stream.into_reply();
        let parts = RunParts { text, ..self.parts };
        Ok(PerformedRun {
            answer: build_answer(self.opened, &thread, parts, screen).await,
            resumption: self.resumption,
        })
    }

    /// Adds the threads below that the run has made, for what was charged for them.
    async fn add_children(&mut self) {
        let mut cursor = None;
        while let Ok(page) = self.opened.tree(&self.current, cursor).await {
            for branch in page.branches {
                self.parts.performed.entry(branch.thread).or_insert(0);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "inner_run_tests.rs"]
mod tests;
