//! A run with all that it spawns: children side by side, and a waiting thread resumes when its
//! children have stopped.
//!
//! The records say what is due. The driver reads the tree when one of its runs stops, when one has
//! propagated to other threads, and from time to time, because other processes work on the tree as
//! well. It stays until no thread of the tree is created or waiting. Threads without room among the
//! `runs` of the policy begin once there is some, and leases of dead processes are taken over.
//!
//! No list of due threads names the top of a tree. So a driver whose top was closed because another
//! holder had died remembers it until there is room to begin it again.

mod look;

use super::hand_off::{HandOffLog, ThreadHandOff};
use super::run_admission::RunBeginning;
use super::{DriveError, Driver, EndedRun, EventSink, RunEvent, StopLevel, StopReceiver};
use crate::ceilings::RunPermit;
use crate::error::{CallError, describe};
use crate::wit::{self, runner};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use threadkeep_units::lease_grace::LEASE_GRACE_SECONDS;
use tokio::time::Instant;

/// Most threads of one tree that one driver performs at once; others wait.
pub const TREE_RUNS_MAX: usize = 64;
/// Pause before the first unprompted look; it doubles while there is nothing to do.
const LOOK_FIRST: Duration = Duration::from_secs(1);
/// The longest such pause.
const LOOK_LAST: Duration = Duration::from_secs(8);
/// Pause after a failed beginning of a thread.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);
/// Time for which an expired lease must stay unchanged before its thread is taken over.
const GRACE: Duration = Duration::from_secs(LEASE_GRACE_SECONDS);
/// Consecutive looks that may fail.
const LOOKS_FAILED_MAX: u32 = 8;
/// Failed beginnings after which this run leaves a thread alone: a thread whose directive is gone,
/// say, would keep it for ever.
const BEGINS_FAILED_MAX: u32 = 5;
/// Most times that this run revives one thread. As a rule something has changed each time; this
/// bounds the cost of a store that is full again and again.
const REVIVALS_MAX: u32 = 64;

/// The outcome of one run of the tree, and the thread that it began in.
type TreeRunResult = (String, Result<EndedRun, DriveError>);

/// The progress of a holder: the version of its step, and of its partial record.
type HolderProgress = (Option<u64>, Option<u64>);

/// The call by which a thread of the tree begins or goes on.
enum BeginCall {
    Start,
    Resume,
    Claim(runner::Proof),
}

/// A thread that this driver performs.
struct PerformedThread {
    /// The thread that the run began in.
    begun: String,
    /// The thread that the run is in.
    current: String,
}

impl PerformedThread {
    fn new(thread: &str) -> Self {
        Self {
            begun: thread.to_owned(),
            current: thread.to_owned(),
        }
    }
}

/// The runs of one tree that this driver performs.
struct RunTree<'a> {
    driver: &'a Driver,
    /// The thread at the top. It changes if the run of the top goes on in another thread.
    top: String,
    /// The threads that the top has been: an id that comes again is no link of a chain.
    former_tops: HashSet<String>,
    sink: &'a EventSink,
    stop: &'a StopReceiver,
    runs: FuturesUnordered<BoxFuture<'a, TreeRunResult>>,
    running: Vec<PerformedThread>,
    /// Threads that failed to begin: the time until which they are left alone, and the number of
    /// failures.
    refused: HashMap<String, (Instant, u32)>,
    /// Number of times each thread was revived.
    revived: HashMap<String, u32>,
    /// Threads with an expired lease: the last sighting of the holder's progress, and since when it
    /// is unchanged.
    silent: HashMap<String, (HolderProgress, Instant)>,
    /// The outcome of the top's run so far.
    result: Option<Result<EndedRun, DriveError>>,
    failed_looks: u32,
    has_children: bool,
    /// True if a run of the tree failed, and may still have its lease.
    has_lost_run: bool,
    /// The error of a child that could not begin because the store was full.
    full_store_error: Option<DriveError>,
    /// Threads with an unreadable child, which their sweep cannot notify of an end.
    unfinished_sweeps: HashSet<String>,
    /// Threads of the tree that were found to be unreadable.
    unreadable: HashSet<String>,
    /// True if one was found since all waiting threads were performed.
    has_new_unreadable: bool,
    /// A place in the queue for room among the runs of the policy, while a thread waits for room.
    queue_place: Option<BoxFuture<'a, RunPermit>>,
    /// The permit that the queue has just given.
    queued_permit: Option<RunPermit>,
    /// True if a due thread finds no room.
    lacks_room: bool,
    /// True if a thread below the top is created or waiting, and needs a driver.
    has_open_threads: bool,
    /// The top was closed because its holder had died, and is still to be started again.
    top_interrupted: bool,
    /// Time of the last survey of the whole tree.
    surveyed: Option<Instant>,
}

impl Driver {
    /// Begins a run and performs it with all that it spawns.
    pub(super) async fn run_tree(
        &self,
        permit: Option<RunPermit>,
        beginning: RunBeginning<'_>,
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let thread = beginning.thread;
        // A separate notification: changes in other trees are no reason to look at this one.
        let driver = Self {
            tree_changed: Arc::default(),
            has_begun: Arc::default(),
            hand_offs: HandOffLog::of_tree(),
            ..self.clone()
        };
        let tree = RunTree {
            driver: &driver,
            top: thread.to_owned(),
            former_tops: HashSet::new(),
            sink,
            stop,
            runs: FuturesUnordered::new(),
            running: vec![PerformedThread::new(thread)],
            refused: HashMap::new(),
            revived: HashMap::new(),
            silent: HashMap::new(),
            result: None,
            failed_looks: 0,
            has_children: false,
            has_lost_run: false,
            full_store_error: None,
            unfinished_sweeps: HashSet::new(),
            unreadable: HashSet::new(),
            has_new_unreadable: false,
            queue_place: None,
            queued_permit: None,
            lacks_room: false,
            has_open_threads: false,
            top_interrupted: false,
            surveyed: None,
        };
        tree.runs.push(Box::pin(async {
            let done = driver.begin_top_run(permit, beginning, sink, stop).await;
            (thread.to_owned(), done)
        }));
        tree.drive_tree().await
    }

    /// Begins the run of the top. A top that waits for its children resumes by itself, and the
    /// input is sent to it as a signal. A top that has ended may have children that have not: they
    /// are driven without it.
    async fn begin_top_run(
        &self,
        permit: Option<RunPermit>,
        beginning: RunBeginning<'_>,
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let begun = self.begin_run(permit, beginning.clone(), sink, stop).await;
        // A thread that has ended and has nothing to answer lacks an input.
        let Err(DriveError::Call(CallError::Refused(refused))) = &begun else {
            return begun;
        };
        let has_ended = match refused {
            wit::Error::Refused(_) => false,
            // Another field is at fault in the caller's request, or in a file of the operator.
            wit::Error::Invalid(what) => {
                if !beginning.resumes || beginning.input.is_some() || what.field != "input" {
                    return begun;
                }
                true
            }
            _ => return begun,
        };
        let mut top = self.tenant.get_tip(beginning.thread).await?;
        match top.status.as_str() {
            "waiting" if !has_ended => {}
            _ if top.outcome.is_some()
                && beginning.input.is_none()
                && self.has_open_descendants(&top.id).await? => {}
            _ => return begun,
        }
        if let Some(message) = beginning.input {
            let id = format!("message:{}", self.shared.new_run_lease().holder);
            let message = runner::SignalKind::Message(message);
            let mut tip = top.id.clone();
            self.tenant.signal_tip(&mut tip, &id, message).await?;
            if tip != top.id {
                top = self.tenant.get(&tip).await?;
            }
        }
        Ok(EndedRun::from_thread(&top))
    }
}

impl RunTree<'_> {
    async fn drive_tree(mut self) -> Result<EndedRun, DriveError> {
        let mut pause = LOOK_FIRST;
        let mut stop = self.stop.clone();
        let mut stopped = false;
        loop {
            let looks_around = self.needs_unprompted_looks();
            tokio::select! {
                biased;
                Some(done) = self.runs.next() => self.record_stopped_run(done),
                () = self.driver.tree_changed.notified() => {}
                () = stop.wait_for_level(StopLevel::Cancel), if !stopped => stopped = true,
                room = wait_for_permit(&mut self.queue_place), if self.queue_place.is_some() => {
                    (self.queue_place, self.queued_permit) = (None, Some(room));
                }
                () = tokio::time::sleep(pause), if looks_around => {}
            }
            // The holder of a top that this driver could not begin takes care of its tree.
            let asked_to_stop = stopped;
            stopped |= matches!(self.result, Some(Err(_)));
            let begun = self.look_at_tree(stopped).await?;
            self.update_queue_place(stopped);
            pause = if begun {
                LOOK_FIRST
            } else {
                (pause * 2).min(LOOK_LAST)
            };
            if begun || !self.runs.is_empty() {
                continue;
            }
            let goes_on = self.is_top_waiting()
                || self.has_open_threads
                || self.lacks_room
                || self.top_interrupted;
            if goes_on
                && !stopped
                && let Some(full) = self.full_store_error.take()
            {
                // Room in the store, which the tree waits for, will not be freed.
                return Err(full);
            }
            if asked_to_stop {
                self.suspend_waiting().await;
            }
            if stopped || !goes_on {
                return self.top_outcome().await;
            }
        }
    }

    /// The outcome of the top. A waiting top may have been ended since.
    async fn top_outcome(self) -> Result<EndedRun, DriveError> {
        if !self.is_top_waiting() {
            let none = || Err(DriveError::GivenUp(self.top.clone()));
            return self.result.unwrap_or_else(none);
        }
        let ended = EndedRun::from_thread(&self.driver.read_ended_thread(&self.top).await?);
        if ended.status != "waiting" {
            self.sink.emit(RunEvent::Ended(Box::new(ended.clone())));
        }
        Ok(ended)
    }

    /// True if unprompted looks are needed: a thread that has spawned nothing has no tree to look
    /// at.
    fn needs_unprompted_looks(&self) -> bool {
        self.result.is_some() || self.running.len() > 1
    }

    fn is_top_waiting(&self) -> bool {
        matches!(&self.result, Some(Ok(ended)) if ended.status == "waiting")
    }

    /// Records that a run of the tree has stopped.
    fn record_stopped_run(&mut self, (begun, done): TreeRunResult) {
        self.follow_hand_offs();
        let stopped = self.running.iter().position(|run| run.begun == begun);
        let stopped = stopped.map(|place| self.running.swap_remove(place).current);
        let thread = stopped.unwrap_or(begun);
        let top = thread == self.top;
        let error = match done {
            Ok(ended) => {
                self.refused.remove(&thread);
                if top {
                    self.result = Some(Ok(ended));
                }
                return;
            }
            Err(error) => error,
        };
        let blameless = is_no_fault_of_thread(&error);
        // A top that has stopped in order and could not be started again counts as stopped.
        let replaces = self.result.is_none() || !blameless && self.is_top_waiting();
        if top && replaces {
            self.result = Some(Err(error));
            return;
        }
        tracing::warn!(%thread, %error, "a thread of the tree could not be performed");
        let message = why_left(&error);
        self.has_lost_run = true;
        if let DriveError::Call(CallError::Refused(wit::Error::Full(_))) = &error {
            self.full_store_error = Some(error);
        }
        let refused = self.refused.entry(thread.clone());
        let refused = refused.or_insert((Instant::now(), 0));
        refused.0 = Instant::now() + REFUSED_PAUSE;
        refused.1 += u32::from(!blameless);
        if !blameless && refused.1 == BEGINS_FAILED_MAX {
            self.sink_of(&thread).emit(RunEvent::LeftAlone { message });
        }
    }

    /// Takes note of the runs that went on in another thread.
    fn follow_hand_offs(&mut self) {
        for ThreadHandOff { from, to } in self.driver.hand_offs.take() {
            for run in &mut self.running {
                if run.current == from {
                    run.current.clone_from(&to);
                }
            }
            // What bounds the cost of a thread bounds that of its chain.
            if let Some(times) = self.revived.remove(&from) {
                *self.revived.entry(to.clone()).or_default() += times;
            }
            if self.top == from {
                self.move_top(to);
            }
        }
    }

    fn move_top(&mut self, to: String) {
        let from = std::mem::replace(&mut self.top, to);
        self.former_tops.insert(from);
    }

    /// True if this driver performs the thread.
    fn is_performing(&self, thread: &str) -> bool {
        self.running.iter().any(|run| run.current == thread)
    }

    /// Keeps a place in the queue for room as long as a thread finds none.
    fn update_queue_place(&mut self, stopped: bool) {
        // An unused permit is returned to others.
        self.queued_permit = None;
        if !self.lacks_room || stopped {
            self.queue_place = None;
        } else if self.queue_place.is_none() {
            self.queue_place = Some(Box::pin(self.driver.guard.admit_run_queued()));
        }
    }

    /// A permit for one more run.
    fn take_permit(&mut self) -> Option<RunPermit> {
        let permit = self
            .queued_permit
            .take()
            .or_else(|| self.driver.guard.admit_run().ok());
        self.lacks_room |= permit.is_none();
        permit
    }

    /// Performs a thread, unless it is being performed already or failed to begin a moment ago.
    fn perform_thread(&mut self, thread: &str, call: BeginCall) -> bool {
        if self.is_performing(thread)
            || self.is_backing_off(thread)
            || self.running.len() >= TREE_RUNS_MAX
        {
            return false;
        }
        let Some(permit) = self.take_permit() else {
            return false;
        };
        let thread = thread.to_owned();
        self.running.push(PerformedThread::new(&thread));
        self.has_children |= thread != self.top;
        let (driver, stop) = (self.driver, self.stop);
        let sink = self.sink_of(&thread);
        self.runs.push(Box::pin(async move {
            let beginning = match call {
                BeginCall::Claim(proof) => {
                    let claimed = driver.claim_with_permit(permit, (&thread, proof), &sink, stop);
                    let done = claimed.await;
                    return (thread, done);
                }
                BeginCall::Start => RunBeginning::start(&thread, None),
                BeginCall::Resume => RunBeginning::resume(&thread, None),
            };
            let done = driver.begin_run(Some(permit), beginning, &sink, stop).await;
            (thread, done)
        }));
        true
    }

    /// Where the events of a thread of the tree go.
    fn sink_of(&self, thread: &str) -> EventSink {
        match thread == self.top {
            true => self.sink.clone(),
            false => self.sink.for_child(thread),
        }
    }

    /// True if a thread failed to begin a moment ago, or too often.
    fn is_backing_off(&self, thread: &str) -> bool {
        let refused = self.refused.get(thread);
        refused.is_some_and(|(until, _)| *until > Instant::now()) || self.is_given_up(thread)
    }

    /// True if a thread failed to begin so often that this run no longer tries.
    fn is_given_up(&self, thread: &str) -> bool {
        let refused = self.refused.get(thread);
        refused.is_some_and(|(_, failures)| *failures >= BEGINS_FAILED_MAX)
    }
}

/// Waits for the permit of the queue, or for ever if this tree is not in it.
async fn wait_for_permit(line: &mut Option<BoxFuture<'_, RunPermit>>) -> RunPermit {
    match line {
        Some(line) => line.await,
        None => std::future::pending().await,
    }
}

/// Explains why a thread could not be begun, and what would allow it.
fn why_left(error: &DriveError) -> String {
    let DriveError::Call(CallError::Refused(refused)) = error else {
        return error.to_string();
    };
    let described = describe(refused);
    let hint = described.hint.map(|hint| format!(": {hint}"));
    described.message + &hint.unwrap_or_default()
}

/// Returns true if the thread itself did not cause the failure: another holder has it, or this run
/// found no room or was stopped. False for a thread at rest that refuses to begin, for example
/// because its account is frozen.
fn is_no_fault_of_thread(error: &DriveError) -> bool {
    if let DriveError::Call(CallError::Refused(wit::Error::Refused(refusal))) = error {
        return !matches!(&*refusal.status, "created" | "idle" | "suspended");
    }
    matches!(
        error,
        DriveError::Fenced(_)
            | DriveError::Ceiling(_)
            | DriveError::Waited { .. }
            | DriveError::QueueFull(_)
            | DriveError::GivenUp(_)
            | DriveError::Call(CallError::Refused(
                wit::Error::Busy(_) | wit::Error::Conflict(_)
            ))
    )
}
