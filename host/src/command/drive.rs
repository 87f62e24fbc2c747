//! Performs one run on a screen: shows its events, handles Ctrl-C, waits for its documents and
//! builds the answer.
//!
//! The first Ctrl-C cancels the thread (in a chat: stops only the current reply) and drops the
//! request in flight; the second drops tools as well; the third stops waiting for the store. After
//! the first two the command reports the status of the thread; after the third `recover` closes its
//! run. SIGTERM and SIGHUP suspend the thread, and `resume` continues it.

use super::interrupts::{Interrupt, Interrupts};
use super::open::{Opened, stale};
use super::{family, fault, view};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::documents::DocumentWriter;
use threadkeep::driver::{
    DriveError, Ended, Observer, RunEvent, Sink, StopLevel, Stopper, stopper,
};
use threadkeep::tenant::Tenant;
use threadkeep::wit;
use threadkeep::wit::runner::SignalKind;
use threadkeep_cli::answer::{FamilyView, RunAnswer};
use threadkeep_cli::exit::{Exit, Fault};
use threadkeep_cli::money;
use threadkeep_cli::screen::Screen;
use threadkeep_cli::stream::Stream;
use tokio::task::JoinHandle;

/// Longest time to wait for a cancel to be written: after it the request is dropped without the
/// cancel. The end of a run waits as long for it.
const SIGNAL_TIME_MAX: Duration = Duration::from_secs(5);
/// Entries of one read.
const ENTRIES_A_PAGE: u32 = 100;
/// Most threads that are named because a call of theirs was charged; the others are added up.
const CHARGED_NAMED_MAX: usize = 10;
/// Most attempts to signal a cancel: other processes may be writing to the thread.
const SIGNAL_TRIES: u32 = 5;

/// The effect of the first Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPress {
    /// Cancels the thread.
    Cancels,
    /// Stops this run; the thread can be resumed.
    Stops,
}

/// The result of a run that this process performs no longer.
pub struct Driven {
    /// The answer of the command.
    pub answer: RunAnswer,
    /// Number of Ctrl-C presses; a request to end counts as one.
    pub presses: u32,
    /// True if the process was asked to end.
    pub terminated: bool,
}

/// Performs a thread that can be started in this process, and returns its final answer.
pub async fn run(
    opened: &Opened,
    thread: &str,
    input: Option<String>,
    screen: &mut Screen,
) -> Result<RunAnswer, Fault> {
    let mut interrupts = Interrupts::listen();
    let watch = Watch::new(&mut interrupts, FirstPress::Cancels, Stream::new());
    let driven = watch.drive(opened, thread, input, screen).await?;
    Ok(driven.answer)
}

/// One run and the events that this process watches meanwhile.
pub struct Watch<'a> {
    interrupts: &'a mut Interrupts,
    first: FirstPress,
    presses: u32,
    terminated: bool,
    cancel: Option<JoinHandle<()>>,
    /// The threads of the tree that this command performed, each with the version before its first run.
    performed: BTreeMap<String, u64>,
    stream: Stream,
}

impl<'a> Watch<'a> {
    /// A run that has not started.
    pub fn new(interrupts: &'a mut Interrupts, first: FirstPress, stream: Stream) -> Self {
        Self {
            interrupts,
            first,
            presses: 0,
            terminated: false,
            cancel: None,
            performed: BTreeMap::new(),
            stream,
        }
    }

    /// Performs the run.
    pub async fn drive(
        mut self,
        opened: &Opened,
        thread: &str,
        input: Option<String>,
        screen: &mut Screen,
    ) -> Result<Driven, Fault> {
        opened.catch_up(screen).await;
        let writer = opened.writer();
        let done = self
            .run(opened, thread, input, writer.as_ref(), screen)
            .await;
        if let Some(cancel) = self.cancel.take() {
            let _ = tokio::time::timeout(SIGNAL_TIME_MAX, cancel).await;
            if let Some(writer) = &writer {
                writer.committed(thread);
            }
        }
        if let Some(writer) = writer {
            flush(&writer, thread, self.interrupts, screen).await;
        }
        tokio::select! {
            biased;
            () = opened.project().usage_noted() => {}
            // A user who leaves now loses at most one line of the log.
            _ = self.interrupts.next() => {}
        }
        self.answer(opened, thread, done, screen).await
    }

    /// Drives the run to its end. Returns `None` if the user would not wait for the end.
    async fn run(
        &mut self,
        opened: &Opened,
        thread: &str,
        input: Option<String>,
        writer: Option<&Arc<DocumentWriter>>,
        screen: &mut Screen,
    ) -> Option<Result<Ended, DriveError>> {
        let mut driver = opened.project().driver();
        if let Some(writer) = writer {
            driver = driver.observed(Arc::<DocumentWriter>::clone(writer));
        }
        let (sink, mut events) = Sink::channel();
        let (stopper, stop) = stopper();
        let stopper = Arc::new(stopper);
        let mut run = pin!(driver.run(thread, input, &sink, &stop));
        let mut second = tokio::time::interval(Duration::from_secs(1));
        let done = loop {
            tokio::select! {
                biased;
                interrupt = self.interrupts.next() => {
                    if !self.interrupted(interrupt, opened.tenant(), thread, &stopper, screen) {
                        break None;
                    }
                }
                Some(event) = events.recv() => self.show(event, screen),
                done = &mut run => break Some(done),
                _ = second.tick() => self.stream.tick(screen),
            }
        };
        while let Ok(event) = events.try_recv() {
            self.show(event, screen);
        }
        done
    }

    /// Handles Ctrl-C or a request to end. Returns false if the command should end at once.
    fn interrupted(
        &mut self,
        interrupt: Interrupt,
        tenant: &Tenant,
        thread: &str,
        stopper: &Arc<Stopper>,
        screen: &mut Screen,
    ) -> bool {
        if interrupt == Interrupt::Terminate {
            self.terminated = true;
            if self.presses > 0 {
                return true;
            }
        }
        self.presses += 1;
        match (self.presses, self.first) {
            // A cancel is the decision of a user; a request to end the process is not.
            (1, FirstPress::Cancels) if interrupt == Interrupt::Press => {
                screen.note("cancelling; press Ctrl-C again to stop at once");
                self.cancel(tenant, thread, stopper);
                true
            }
            (1, _) => {
                screen.note("stopping; press Ctrl-C again to leave");
                stopper.raise(StopLevel::Cancel);
                true
            }
            (2, _) => {
                screen.note("stopping at once; press Ctrl-C again to leave the thread to `threadkeep recover`");
                stopper.raise(StopLevel::Now);
                true
            }
            _ => false,
        }
    }

    /// Signals the cancel before stopping: the steps that the run then submits end as cancelled,
    /// not as stopped.
    fn cancel(&mut self, tenant: &Tenant, thread: &str, stopper: &Arc<Stopper>) {
        let (tenant, thread) = (tenant.clone(), thread.to_owned());
        let stopper = Arc::clone(stopper);
        self.cancel = Some(tokio::spawn(async move {
            let signalled = signal_cancel(&tenant, &thread);
            let _ = tokio::time::timeout(SIGNAL_TIME_MAX, signalled).await;
            stopper.raise(StopLevel::Cancel);
        }));
    }

    fn show(&mut self, event: RunEvent, screen: &mut Screen) {
        self.note_performed(&event);
        let stream = &mut self.stream;
        match event {
            RunEvent::Started { thread, run, .. } => stream.started(screen, &thread, run),
            RunEvent::Text(text) => stream.text(screen, &text),
            RunEvent::Thinking(_) => stream.thinking(screen),
            RunEvent::ToolNamed(_) | RunEvent::Ended(_) | RunEvent::AfterFailed { .. } => {}
            RunEvent::Restarted => stream.restart(screen),
            RunEvent::Waits { .. } => stream.children(screen),
            RunEvent::Child { thread, event } => child(stream, &thread, &event, screen),
            RunEvent::ToolStarted {
                name, arguments, ..
            } => stream.tool_started(screen, &name, &arguments),
            RunEvent::ToolDone {
                name,
                failed,
                bytes,
                ..
            } => stream.tool_done(screen, &name, failed, bytes),
            RunEvent::Turn(costs) => stream.turn(screen, &view::cost(&costs)),
            RunEvent::Retry { millis, message } => stream.retry(screen, millis, &message),
            RunEvent::Waiting { millis, message } => stream.waits(screen, millis, &message),
            RunEvent::Disbelieved { reported, counted } => {
                stream.disbelieved(screen, reported.total(), counted.total());
            }
            _ => {}
        }
    }

    /// Remembers which threads were performed. What is charged for a call stands in a later entry than
    /// the one that handed it out.
    fn note_performed(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Started {
                thread, version, ..
            } => {
                self.performed.entry(thread.clone()).or_insert(*version);
            }
            RunEvent::Child { event, .. } => self.note_performed(event),
            _ => {}
        }
    }

    /// Builds the answer from the records; where the records do not mention the failure, the
    /// failure is the answer.
    async fn answer(
        mut self,
        opened: &Opened,
        thread: &str,
        done: Option<Result<Ended, DriveError>>,
        screen: &mut Screen,
    ) -> Result<Driven, Fault> {
        let counts = matches!(&done, Some(Ok(ended)) if replied(ended));
        self.stream.end(screen, counts);
        screen.end_line();
        let ours = self.presses > 0 || matches!(done, Some(Err(DriveError::Fenced(_))));
        let Some(done) = done else {
            return Err(left(thread));
        };
        let now = opened.tenant().get(thread).await;
        let thread = match (&done, now) {
            (Ok(_), Ok(now)) => now,
            // The thread has ended meanwhile: by a kill, or by a cancel of this command before its
            // first step.
            (Err(_), Ok(now)) if ours && now.outcome.is_some() => now,
            (Err(error), _) => return Err(fault::drive(opened, thread, error)),
            (Ok(_), Err(error)) => return Err(fault::of_thread(opened, thread, &error)),
        };
        for note in Charges::gather(opened.tenant(), &thread.id, &self.performed).await {
            screen.note(&note);
        }
        let (presses, terminated) = (self.presses, self.terminated);
        let family = family::view(opened, &thread.id).await;
        let family = family.map_err(|error| {
            screen.warn(&format!("the threads below it cannot be read: {error}"));
        });
        let payer = family::payer(opened.tenant(), &thread).await;
        let shape = Shape {
            text: self.stream.into_reply(),
            stopped: presses > 1,
            family: family.ok(),
            payer: payer.unwrap_or_else(|_| thread.id.clone()),
        };
        Ok(Driven {
            answer: shape.answer(opened, &thread),
            presses,
            terminated,
        })
    }
}

/// Returns true if the run ended with a reply: then the text shown last is durable.
fn replied(ended: &Ended) -> bool {
    matches!(ended.status.as_str(), "completed" | "idle")
}

/// Shows the beginning and the end of a child's run; its text is in its transcript.
fn child(stream: &mut Stream, thread: &str, event: &RunEvent, screen: &mut Screen) {
    match event {
        RunEvent::Started { run: 1, .. } => stream.child(screen, thread, "started"),
        RunEvent::LeftAlone { message } => {
            stream.child(screen, thread, &format!("is left alone: {message}"));
        }
        RunEvent::Ended(ended) => {
            let cause = ended.cause.as_ref().map(|why| format!(": {}", why.message));
            let what = format!("{}{}", ended.status, cause.unwrap_or_default());
            stream.child(screen, thread, &what);
        }
        _ => {}
    }
}

/// Charges for calls of unknown cost: calls that were dropped or broke off.
#[derive(Debug, Default)]
struct Charges {
    calls: u64,
    spend: u64,
    most: u64,
}

impl Charges {
    /// What is to be said of the threads that were performed: the top first, then its children by name,
    /// and those together that are too many to be named.
    async fn gather(tenant: &Tenant, top: &str, performed: &BTreeMap<String, u64>) -> Vec<String> {
        let (mut notes, mut others) = (Vec::new(), Self::default());
        if let Some(before) = performed.get(top) {
            notes.extend(Self::since(tenant, top, *before).await.note(""));
        }
        for (thread, before) in performed.iter().filter(|(thread, _)| *thread != top) {
            let charges = Self::since(tenant, thread, *before).await;
            match notes.len() < CHARGED_NAMED_MAX {
                true => notes.extend(charges.note(&format!(" of {thread}"))),
                false => others.add(&charges),
            }
        }
        notes.extend(others.note(" of other children"));
        notes
    }

    /// Those that stand in the events of a thread after a version, as far as they can be read.
    async fn since(tenant: &Tenant, thread: &str, before: u64) -> Self {
        let mut charges = Self::default();
        let mut after = before;
        while let Ok(page) = tenant.events(thread, after, ENTRIES_A_PAGE).await {
            for event in page.events.iter().filter(|event| event.kind == "charged") {
                let body = view::json(&event.body);
                let amount = |name| body.get(name).and_then(|n| n.as_u64()).unwrap_or(0);
                charges.add(&Self {
                    calls: 1,
                    spend: amount("spend"),
                    most: amount("most"),
                });
            }
            match page.cursor {
                Some(next) if next > after => after = next,
                _ => break,
            }
        }
        charges
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.spend = self.spend.saturating_add(other.spend);
        self.most = self.most.saturating_add(other.most);
    }

    /// `whose` stands behind the calls.
    fn note(&self, whose: &str) -> Option<String> {
        let what = match self.calls {
            0 => return None,
            1 => format!("one call{whose} has"),
            calls => format!("{calls} calls{whose} have"),
        };
        let (spend, most) = (money::shown(self.spend), money::shown(self.most));
        Some(format!(
            "nobody knows what {what} cost: {spend} is charged; at most it was {most}"
        ))
    }
}

fn left(thread: &str) -> Fault {
    let fault = Fault::new("abandoned", format!("{thread} was left while it ran"));
    let next = format!("threadkeep resume {thread}");
    Fault {
        exit: Exit::Stopped,
        ..fault.hint(next)
    }
}

async fn signal_cancel(tenant: &Tenant, thread: &str) {
    let id = super::signal::fresh_id();
    for _ in 0..SIGNAL_TRIES {
        match tenant.signal(thread, &id, SignalKind::Cancel).await {
            Err(error) if error.retry_unchanged() => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // A refused cancel came too late: the run has ended.
            Ok(_) | Err(_) => return,
        }
    }
}

/// Waits for the documents. If the user does not wait, warns that they are out of date.
async fn flush(
    writer: &DocumentWriter,
    thread: &str,
    interrupts: &mut Interrupts,
    screen: &mut Screen,
) {
    let flushed = tokio::select! {
        biased;
        flushed = writer.flush() => flushed,
        _ = interrupts.next() => {
            return stale(thread, "they were not waited for", screen);
        }
    };
    for (thread, error) in &flushed.failed {
        stale(thread, &error.to_string(), screen);
    }
}

/// The parts of an answer that the record of its thread does not hold.
struct Shape {
    text: String,
    stopped: bool,
    /// None if the tree could not be read.
    family: Option<FamilyView>,
    payer: String,
}

impl Shape {
    fn answer(self, opened: &Opened, thread: &wit::Thread) -> RunAnswer {
        let costs = threadkeep::driver::Costs::of(thread);
        let tree_spend = self.family.as_ref().map(|family| family.spend);
        let family = self.family.unwrap_or_default();
        RunAnswer {
            thread_id: thread.id.clone(),
            status: thread.status.clone(),
            outcome: thread.outcome.clone(),
            text: self.text,
            result: thread.result.as_deref().map(view::json),
            cause: thread.cause.as_ref().map(view::cause),
            bound: fault::bound(opened, thread),
            payer: self.payer,
            wait: thread.cause.as_ref().and_then(family::wait_of),
            cost: view::cost(&costs),
            tree_spend,
            tree_threads: family.threads,
            tree_unreadable: family.unreadable,
            suspended: family.suspended,
            suspended_left_out: family.suspended_left_out,
            exit: match self.stopped {
                true => Exit::Stopped,
                false => Exit::of_status(&thread.status),
            },
        }
    }
}
