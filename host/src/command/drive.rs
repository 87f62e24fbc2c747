//! Performs one run on a screen: shows its events, handles Ctrl-C, waits for its documents and
//! builds the answer.
//!
//! The first Ctrl-C cancels the thread (in a chat it stops only the current reply, because a cancel
//! would end the chat) and drops the request in flight; the second drops tools as well; the third
//! stops waiting for the store. After the first two the command reports the status of the thread;
//! after the third `recover` closes its run. SIGTERM and SIGHUP suspend the thread, and `resume`
//! continues it.

use super::convert::ConvertRecord;
use super::fault;
use super::interrupts::{InterruptStream, ProcessInterrupt};
use super::session::{CommandProject, warn_stale, warn_unwritten};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::documents::DocumentWriter;
use threadkeep::driver::{
    DriveError, EndedRun, EventSink, RunEvent, StopLevel, StopSender, ThreadCosts,
    ThreadResumption, stop_channel,
};
use threadkeep::tenant::Tenant;
use threadkeep::wit::runner::SignalKind;
use threadkeep_cli::answer::{LeftAloneRow, RunAnswer, ThreadCost};
use threadkeep_cli::command::finished_run::{RunParts, build_answer};
use threadkeep_cli::command::{fresh_id, view};
use threadkeep_cli::context::ContextFill;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::stream::{RunStream, ToolEnd};
use threadkeep_cli::threads::{PerformedRun, ProjectThreads, RunOrder, RunResumption};
use tokio::task::JoinHandle;

/// Longest time to wait for a cancel to be written: after it the request is dropped without the
/// cancel. The end of a run waits as long for it.
const SIGNAL_TIME_MAX: Duration = Duration::from_secs(5);
/// Most attempts to signal a cancel: other processes may be writing to the thread.
const SIGNAL_TRIES: u32 = 5;
/// Most bytes of conversations that a chat keeps from message to message.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// The effect of the first Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPress {
    /// Cancels the thread.
    Cancels,
    /// Stops this run; the thread can be resumed.
    Stops,
}

/// The result of a run that this process performs no longer.
pub struct DriveOutcome {
    /// The answer of the command.
    pub answer: RunAnswer,
    /// Number of Ctrl-C presses; a request to end counts as one.
    pub presses: u32,
    /// True if the process was asked to end.
    pub terminated: bool,
    /// The successor that the run began in, if the thread had ended.
    pub resumption: Option<ThreadResumption>,
}

/// Performs a run in this process, and returns its final answer.
pub async fn perform(
    opened: &CommandProject,
    order: RunOrder,
    screen: &mut OutputScreen,
) -> Result<PerformedRun, CommandFault> {
    let mut interrupts = InterruptStream::listen();
    let stream = RunStream::new().with_thinking(order.shows_thinking);
    let mut watch = RunWatch::new(&mut interrupts, FirstPress::Cancels, stream);
    watch.resumes = order.resumes;
    let driven = watch
        .drive(opened, &order.thread, order.input, screen)
        .await?;
    let resumption = driven.resumption.map(|resumed| RunResumption {
        old_thread_id: resumed.old_thread_id,
        new_thread_id: resumed.new_thread_id,
        reconstructed_turns: resumed.reconstructed_turns,
    });
    Ok(PerformedRun {
        answer: driven.answer,
        resumption,
    })
}

/// One run and the events that this process watches meanwhile.
pub struct RunWatch<'a> {
    interrupts: &'a mut InterruptStream,
    first: FirstPress,
    presses: u32,
    terminated: bool,
    cancel: Option<JoinHandle<()>>,
    /// The thread that the run is in.
    current: String,
    /// The threads of the tree that this command performed, each with the version before its first
    /// run.
    performed: BTreeMap<String, u64>,
    /// The threads that the run has left for the next link of their chain.
    handed_off: Vec<String>,
    /// Their costs.
    left_costs: ThreadCosts,
    left_alone: Vec<LeftAloneRow>,
    stream: RunStream,
    /// The status before, if a thread that has ended is to go on in a successor.
    resumes: Option<String>,
    /// That successor, once its run has begun.
    resumption: Option<ThreadResumption>,
}

impl<'a> RunWatch<'a> {
    /// A run that has not started.
    pub fn new(interrupts: &'a mut InterruptStream, first: FirstPress, stream: RunStream) -> Self {
        Self {
            interrupts,
            first,
            presses: 0,
            terminated: false,
            cancel: None,
            current: String::new(),
            performed: BTreeMap::new(),
            handed_off: Vec::new(),
            left_costs: ThreadCosts::default(),
            left_alone: Vec::new(),
            stream: stream.with_times(),
            resumes: None,
            resumption: None,
        }
    }

    /// Performs the run.
    pub async fn drive(
        mut self,
        opened: &CommandProject,
        thread: &str,
        input: Option<String>,
        screen: &mut OutputScreen,
    ) -> Result<DriveOutcome, CommandFault> {
        thread.clone_into(&mut self.current);
        opened.catch_up(screen).await;
        self.note_state_before(opened).await;
        let writer = opened.document_writer();
        let done = self
            .perform(opened, thread, input, writer.as_ref(), screen)
            .await;
        if let Some(cancel) = self.cancel.take() {
            let _ = tokio::time::timeout(SIGNAL_TIME_MAX, cancel).await;
            if let Some(writer) = &writer {
                writer.enqueue(&self.current);
            }
        }
        if let Some(writer) = writer {
            flush_documents(&writer, &self.current, self.interrupts, screen).await;
        }
        tokio::select! {
            biased;
            () = opened.project().wait_for_usage_log() => {}
            // A user who leaves now loses at most one line of the log.
            _ = self.interrupts.next() => {}
        }
        self.build_answer(opened, done, screen).await
    }

    /// Notes what the thread has used before the run. Only for the figures of each turn: the run
    /// goes on if the read fails.
    async fn note_state_before(&mut self, opened: &CommandProject) {
        let Ok(tip) = opened.get_tip(&self.current).await else {
            return;
        };
        self.stream.set_before(view::cost(&tip.cost), tip.context);
        if self.resumes.is_some() && tip.status == "suspended" {
            self.stream.set_goes_on();
        }
    }

    /// Drives the run to its end. Returns `None` if the user would not wait for the end.
    async fn perform(
        &mut self,
        opened: &CommandProject,
        thread: &str,
        input: Option<String>,
        writer: Option<&Arc<DocumentWriter>>,
        screen: &mut OutputScreen,
    ) -> Option<Result<EndedRun, DriveError>> {
        let mut driver = opened
            .project()
            .driver()
            .with_kept_conversations(KEPT_BYTES_MAX);
        if let Some(writer) = writer {
            driver = driver.with_observer(Arc::<DocumentWriter>::clone(writer));
        }
        let (sink, mut events) = EventSink::channel();
        let (stopper, stop) = stop_channel();
        let stopper = Arc::new(stopper);
        let resumes = self.resumes.is_some();
        let mut run = pin!(async {
            match resumes {
                true => driver.resume(thread, input, &sink, &stop).await,
                false => driver.run(thread, input, &sink, &stop).await,
            }
        });
        // Not at once: a run that answers at once shows no wait.
        let second = Duration::from_secs(1);
        let mut second = tokio::time::interval_at(tokio::time::Instant::now() + second, second);
        let done = loop {
            tokio::select! {
                biased;
                interrupt = self.interrupts.next() => {
                    if !self.handle_interrupt(interrupt, opened, &stopper, screen) {
                        break None;
                    }
                }
                Some(event) = events.recv() => self.show_event(event, screen),
                done = &mut run => break Some(done),
                _ = second.tick() => self.stream.tick(screen),
            }
        };
        while let Ok(event) = events.try_recv() {
            self.show_event(event, screen);
        }
        done
    }

    /// Handles Ctrl-C or a request to end. Returns false if the command should end at once.
    fn handle_interrupt(
        &mut self,
        interrupt: ProcessInterrupt,
        opened: &CommandProject,
        stopper: &Arc<StopSender>,
        screen: &mut OutputScreen,
    ) -> bool {
        if interrupt == ProcessInterrupt::Terminate {
            self.terminated = true;
            if self.presses > 0 {
                return true;
            }
        }
        self.presses += 1;
        match (self.presses, self.first) {
            // A cancel is the decision of a user; a request to end the process is not.
            (1, FirstPress::Cancels) if interrupt == ProcessInterrupt::Press => {
                screen.note("cancelling; press Ctrl-C again to stop at once");
                self.spawn_cancel(opened, stopper);
                true
            }
            (1, _) => {
                screen.note("stopping; press Ctrl-C again to leave");
                stopper.raise(StopLevel::Cancel);
                true
            }
            (2, _) => {
                screen.note(
                    "stopping at once; press Ctrl-C again to leave the thread to `threadkeep \
                     recover`",
                );
                stopper.raise(StopLevel::Now);
                true
            }
            _ => false,
        }
    }

    /// Signals the cancel before stopping: the steps that the run then submits end as cancelled,
    /// not as stopped.
    fn spawn_cancel(&mut self, opened: &CommandProject, stopper: &Arc<StopSender>) {
        let (tenant, thread) = (opened.tenant().clone(), self.current.clone());
        let id = fresh_id(opened);
        let stopper = Arc::clone(stopper);
        self.cancel = Some(tokio::spawn(async move {
            let signalled = signal_cancel(&tenant, thread, &id);
            let _ = tokio::time::timeout(SIGNAL_TIME_MAX, signalled).await;
            stopper.raise(StopLevel::Cancel);
        }));
    }

    fn show_event(&mut self, event: RunEvent, screen: &mut OutputScreen) {
        self.note_performed(&event);
        let stream = &mut self.stream;
        match event {
            RunEvent::Started { thread, run, .. } => stream.show_start(screen, &thread, run),
            RunEvent::Text(text) => stream.show_text(screen, &text),
            RunEvent::Thinking(text) => stream.show_thinking(screen, &text),
            RunEvent::ToolNamed(_) | RunEvent::Ended(_) | RunEvent::AfterFailed { .. } => {}
            RunEvent::Restarted => stream.show_restart(screen),
            RunEvent::Resumed(resumed) => {
                let (old, new) = (&resumed.old_thread_id, &resumed.new_thread_id);
                let status = self.resumes.as_deref().unwrap_or_default();
                stream.show_resumption(screen, (old, status), new);
                self.current.clone_from(new);
                self.resumption = Some(*resumed);
            }
            RunEvent::HandingOff { tokens, window, .. } => {
                let window = Some(window);
                stream.show_summary(screen, ContextFill { tokens, window });
            }
            RunEvent::HandedOff {
                from,
                to,
                summary_problem,
                costs,
            } => {
                stream.show_hand_off(screen, &to, summary_problem.as_deref());
                self.handed_off.push(from);
                self.left_costs = self.left_costs.plus(costs);
                self.current = to;
            }
            RunEvent::Waits { .. } => stream.show_child_wait(screen),
            RunEvent::Child { thread, event } => show_child_event(stream, &thread, &event, screen),
            RunEvent::ToolStarted { .. }
            | RunEvent::ToolDone { .. }
            | RunEvent::ToolAnswered { .. } => show_tool_event(stream, event, screen),
            RunEvent::Turn {
                costs,
                context: tokens,
                window,
            } => {
                let costs = shown_cost(&self.left_costs.plus(costs));
                stream.show_turn(screen, &costs, ContextFill { tokens, window });
            }
            RunEvent::Retry { millis, message } => stream.show_retry(screen, millis, &message),
            RunEvent::Waiting { millis, message } => stream.show_wait(screen, millis, &message),
            RunEvent::Disbelieved { reported, counted } => {
                stream.show_usage_mismatch(screen, reported.total(), counted.total());
            }
            _ => {}
        }
    }

    /// Remembers which threads were performed. The entry that begins a run may charge a call of the
    /// process that it takes over from, and that which closes such a run does.
    fn note_performed(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Started {
                thread, version, ..
            }
            | RunEvent::Recovered { thread, version } => {
                let before = version.saturating_sub(1);
                self.performed.entry(thread.clone()).or_insert(before);
            }
            RunEvent::Resumed(resumed) => {
                self.performed
                    .entry(resumed.new_thread_id.clone())
                    .or_insert(0);
            }
            // All of a thread that continues another is of this run.
            RunEvent::HandedOff { to, .. } => {
                self.performed.entry(to.clone()).or_insert(0);
            }
            RunEvent::Child { thread, event } => match &**event {
                RunEvent::LeftAlone { message } => self.left_alone.push(LeftAloneRow {
                    thread_id: thread.clone(),
                    message: message.clone(),
                }),
                event => self.note_performed(event),
            },
            _ => {}
        }
    }

    /// Builds the answer from the records; where the records do not mention the failure, the
    /// failure is the answer.
    async fn build_answer(
        mut self,
        opened: &CommandProject,
        done: Option<Result<EndedRun, DriveError>>,
        screen: &mut OutputScreen,
    ) -> Result<DriveOutcome, CommandFault> {
        let thread = match &done {
            Some(Ok(ended)) => ended.thread.clone(),
            _ => self.current.clone(),
        };
        let thread = thread.as_str();
        let counts = matches!(&done, Some(Ok(ended)) if ended_with_reply(ended));
        self.stream.end(screen, counts);
        screen.end_line();
        let ours = self.presses > 0 || matches!(done, Some(Err(DriveError::Fenced(_))));
        let Some(done) = done else {
            return Err(abandoned_fault(thread));
        };
        let now = opened.tenant().get(thread).await;
        let thread = match (&done, now) {
            (Ok(_), Ok(now)) => now,
            // The thread has ended meanwhile: by a kill, or by a cancel of this command before its
            // first step.
            (Err(_), Ok(now)) if ours && now.outcome.is_some() => now,
            (Err(error), _) => return Err(fault::from_drive(opened, thread, error)),
            (Ok(_), Err(error)) => return Err(fault::from_thread_call(opened, thread, &error)),
        };
        let (presses, terminated) = (self.presses, self.terminated);
        let parts = RunParts {
            text: self.stream.into_reply(),
            stopped: presses > 1,
            performed: self.performed,
            handed_off: self.handed_off,
            left_cost: shown_cost(&self.left_costs),
            left_alone: self.left_alone,
        };
        Ok(DriveOutcome {
            answer: build_answer(opened, &thread.convert(), parts, screen).await,
            presses,
            terminated,
            resumption: self.resumption,
        })
    }
}

/// Converts costs that were reported.
fn shown_cost(costs: &ThreadCosts) -> ThreadCost {
    ThreadCost {
        turns: costs.turns,
        input_tokens: costs.input_tokens,
        output_tokens: costs.output_tokens,
        spend: costs.spend_nanos,
    }
}

/// Returns true if the run ended with a reply: then the text shown last is durable.
fn ended_with_reply(ended: &EndedRun) -> bool {
    matches!(ended.status.as_str(), "completed" | "idle")
}

/// Shows the beginning or the end of a tool call, or a call that was answered at once.
fn show_tool_event(stream: &mut RunStream, event: RunEvent, screen: &mut OutputScreen) {
    match event {
        RunEvent::ToolStarted {
            call,
            name,
            arguments,
        } => stream.show_tool_start(screen, &call, &name, &arguments),
        RunEvent::ToolDone {
            call,
            name,
            failed,
            bytes,
        } => {
            let end = ToolEnd {
                call: &call,
                name: &name,
                failed,
                bytes,
                refusal: None,
            };
            stream.show_tool_end(screen, end);
        }
        RunEvent::ToolAnswered {
            name,
            arguments,
            failed,
            bytes,
            refusal,
            ..
        } => {
            let end = ToolEnd {
                call: "",
                name: &name,
                failed,
                bytes,
                refusal: refusal.as_deref(),
            };
            stream.show_answered_call(screen, &arguments, end);
        }
        _ => {}
    }
}

/// Shows the beginning and the end of a child's run; its text is in its transcript.
fn show_child_event(
    stream: &mut RunStream,
    thread: &str,
    event: &RunEvent,
    screen: &mut OutputScreen,
) {
    match event {
        RunEvent::Started { run: 1, .. } => stream.show_child(screen, thread, "started"),
        RunEvent::Resumed(resumed) => {
            let to = &resumed.new_thread_id;
            stream.show_child(screen, thread, &format!("had ended: going on in {to}"));
        }
        RunEvent::HandedOff { to, .. } => {
            stream.show_child(screen, thread, &format!("is continued in {to}"));
        }
        RunEvent::Recovered { .. } => {
            stream.show_child(
                screen,
                thread,
                "was held by a process that died: it goes on",
            );
        }
        RunEvent::LeftAlone { message } => {
            stream.show_child(screen, thread, &format!("is left alone: {message}"));
        }
        RunEvent::Ended(ended) => {
            let cause = ended.cause.as_ref().map(|why| format!(": {}", why.message));
            let what = format!("{}{}", ended.status, cause.unwrap_or_default());
            stream.show_child(screen, thread, &what);
        }
        _ => {}
    }
}

fn abandoned_fault(thread: &str) -> CommandFault {
    let fault = CommandFault::new("abandoned", format!("{thread} was left while it ran"));
    let next = format!("threadkeep resume {thread}");
    CommandFault {
        exit: CommandExit::Stopped,
        ..fault.with_hint(next)
    }
}

/// Signals a cancel to the run of a thread, whichever thread it goes on in.
async fn signal_cancel(tenant: &Tenant, mut thread: String, id: &str) {
    for _ in 0..SIGNAL_TRIES {
        match tenant.signal_tip(&mut thread, id, SignalKind::Cancel).await {
            Err(error) if error.retry_unchanged() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // A refused cancel came too late: the run has ended.
            Ok(_) | Err(_) => return,
        }
    }
}

/// Waits for the documents. If the user does not wait, warns that they are out of date.
async fn flush_documents(
    writer: &DocumentWriter,
    thread: &str,
    interrupts: &mut InterruptStream,
    screen: &mut OutputScreen,
) {
    let flushed = tokio::select! {
        biased;
        flushed = writer.flush() => flushed,
        _ = interrupts.next() => {
            return warn_stale(thread, "they were not waited for", screen);
        }
    };
    for (thread, error) in &flushed.failed {
        warn_unwritten(thread, error, screen);
    }
}
