//! One look at a tree: begins what is due, finishes propagations, and takes over the leases of dead
//! processes.
//!
//! The component says which threads these are, and names new ones last. So a look asks for about as
//! many as it has room for, and ends at the first new one that finds none. A waiting thread is
//! begun only when no thread under the top is about to be revived: else it would be told that its
//! children are suspended.
//!
//! The leases of dead processes are closed by the names of their holders, in one recovery. Claims
//! of single threads, by several drivers that see one death, would fence each other.

use super::{BeginCall, GRACE, LOOKS_FAILED_MAX, REVIVALS_MAX, RunTree, TREE_RUNS_MAX};
use crate::authority::HolderState;
use crate::driver::{Driver, EndedRun, RunEvent, ThreadCosts};
use crate::error::CallError;
use crate::tenant::PAGE_THREADS_MAX;
use crate::wit::ledger::Branch;
use crate::wit::{self, runner};
use std::time::Duration;
use tokio::time::Instant;

/// The call for a due thread that a driver takes over, and does not start.
const CLAIM: &str = "claim";
/// The call that passes the end of a thread on to its children.
const SWEEP: &str = "sweep";
/// The call that goes on with a thread that has ended, in a successor.
const RESUME: &str = "resume";
/// The status of a thread that was not begun yet.
const CREATED: &str = "created";
/// Fewest threads of the first page of a look: a few may be due that this driver leaves alone.
const FIRST_PAGE_MIN: usize = 4;
/// The pause between two surveys of the whole tree.
const SURVEY_PAUSE: Duration = Duration::from_secs(2);

impl RunTree<'_> {
    /// Begins what is due, and finishes propagations; true if there was any.
    pub(super) async fn look_at_tree(&mut self, stopped: bool) -> Result<bool, super::DriveError> {
        if stopped && !self.has_children && matches!(self.result, Some(Err(_))) {
            return Ok(false);
        }
        match self.look_through_tree(stopped).await {
            Ok(begun) => {
                self.failed_looks = 0;
                Ok(begun)
            }
            // The run's own error says more than that its children cannot be read.
            Err(error) if self.failed_looks >= LOOKS_FAILED_MAX => match self.result.take() {
                Some(Err(first)) => Err(first),
                _ => Err(error.into()),
            },
            Err(error) => {
                tracing::warn!(thread = %self.top, %error, "what is due cannot be read");
                self.failed_looks += 1;
                // Without children, nothing is missed.
                Ok(self.is_top_waiting() || !self.runs.is_empty())
            }
        }
    }

    async fn look_through_tree(&mut self, stopped: bool) -> Result<bool, CallError> {
        self.follow_hand_offs();
        if std::mem::take(&mut self.has_lost_run) {
            self.driver.recover_lost().await?;
        }
        self.refresh_top().await?;
        self.lacks_room = false;
        let mut begun = !stopped && self.revive_top();
        let (mut cursor, mut swept) = (None, false);
        let (mut waiting, mut reviving) = (Vec::new(), false);
        let tenant = &self.driver.tenant;
        let room = TREE_RUNS_MAX.saturating_sub(self.running.len());
        let mut limit = (room.max(FIRST_PAGE_MIN) as u32).min(PAGE_THREADS_MAX);
        loop {
            let under = Some(self.top.clone());
            let page = tenant.ready(limit, cursor, under).await?;
            limit = PAGE_THREADS_MAX;
            let mut is_full = false;
            for due in page.threads {
                let new = due.status == CREATED;
                if due.needs(SWEEP) && !self.unfinished_sweeps.contains(&due.thread) {
                    let untold = tenant.sweep_or_report(&due.thread).await?;
                    if !untold.is_empty() {
                        self.record_unfinished_sweep(&due.thread, &untold);
                    }
                    (begun, swept) = (true, true);
                } else if stopped || due.needs(SWEEP) && due.holder.is_none() {
                    // Where its child cannot be read, the propagation stays with the thread.
                } else if due.revive {
                    begun |= self.revive_thread(&due.thread);
                    reviving |= self.is_reviving(&due.thread);
                } else if due.needs(CLAIM) && due.holder.is_none() {
                    waiting.push(due);
                } else {
                    begun |= self.perform_due(due);
                    is_full |= new && !self.has_room();
                }
            }
            cursor = page.cursor;
            if cursor.is_none() || is_full {
                break;
            }
        }
        if swept {
            self.notify_observer().await?;
        }
        if reviving {
            // Waiting threads are begun once the revived ones go on.
            begun |= !self.lacks_room;
        } else {
            for due in waiting {
                begun |= self.perform_due(due);
            }
        }
        if !stopped && self.is_survey_due(begun) {
            begun |= self.survey_tree().await?;
        }
        Ok(begun)
    }

    /// Records a sweep that could not notify all children. The thread keeps the sweep; this driver
    /// does not try it again.
    fn record_unfinished_sweep(&mut self, thread: &str, untold: &[wit::Unreadable]) {
        for child in untold {
            let (child, why) = (&child.thread, &child.why.message);
            tracing::warn!(thread, ?child, ?why, "a child cannot be told of an end");
        }
        self.unfinished_sweeps.insert(thread.to_owned());
    }

    /// Reads a waiting top that this driver does not perform: another process may have ended it. A
    /// run that was closed because its holder died is no end: the driver of the tree goes on with
    /// it.
    async fn refresh_top(&mut self) -> Result<(), CallError> {
        if !self.is_top_waiting() || self.is_performing(&self.top) {
            return Ok(());
        }
        let top = self.read_tip_of_top().await?;
        let cause = top.cause.as_ref().map(|cause| cause.code.as_str());
        if (top.status.as_str(), cause) == ("suspended", Some("recovered"))
            && self.can_be_revived(&self.top)
        {
            self.top_interrupted = true;
            return Ok(());
        }
        self.top_interrupted = false;
        if !matches!(top.status.as_str(), "waiting" | "running") {
            let ended = EndedRun::from_thread(&top);
            self.sink.emit(RunEvent::Ended(Box::new(ended.clone())));
            self.result = Some(Ok(ended));
        }
        Ok(())
    }

    /// Returns true if one more thread may be begun, as far as this look knows.
    fn has_room(&self) -> bool {
        !self.lacks_room && self.running.len() < TREE_RUNS_MAX
    }

    /// Reads the thread at the top. Where another process has continued it, the tree goes on with
    /// the thread that continues it.
    async fn read_tip_of_top(&mut self) -> Result<wit::Thread, CallError> {
        loop {
            let top = self.driver.tenant.get(&self.top).await?;
            match &top.next {
                Some(next) if next != &self.top && !self.former_tops.contains(next) => {
                    self.sink.emit(RunEvent::HandedOff {
                        from: self.top.clone(),
                        to: next.clone(),
                        summary_problem: None,
                        costs: ThreadCosts::from_thread(&top),
                    });
                    self.driver.notify_change(&self.top);
                    self.move_top(next.clone());
                }
                _ => return Ok(top),
            }
        }
    }

    /// Performs a thread that is due.
    fn perform_due(&mut self, due: runner::Due) -> bool {
        let call = match (due.needs(CLAIM), &due.holder) {
            (true, Some(_)) if !self.record_sighting(&due, Instant::now()) => return false,
            (true, Some(_)) => BeginCall::Claim(runner::Proof::Watched(due.sighting)),
            (true, None) => BeginCall::Claim(runner::Proof::None),
            (false, _) if due.needs(RESUME) => BeginCall::Resume,
            (false, _) => BeginCall::Start,
        };
        self.perform_thread(&due.thread, call)
    }

    /// Restarts a suspended thread that can go on.
    fn revive_thread(&mut self, thread: &str) -> bool {
        let times = self.revived.get(thread).copied().unwrap_or_default();
        let begun = times < REVIVALS_MAX && self.perform_thread(thread, BeginCall::Start);
        if begun {
            self.revived.insert(thread.to_owned(), times + 1);
        }
        begun
    }

    /// Starts the top again if the process that held it died. Where it finds no room, the next look
    /// tries again: no list of what is due names a top.
    fn revive_top(&mut self) -> bool {
        if !self.top_interrupted {
            return false;
        }
        let top = self.top.clone();
        let begun = self.revive_thread(&top);
        self.top_interrupted = !begun && self.can_be_revived(&top);
        begun
    }

    /// Returns true if this run may start the thread again, now or later.
    fn can_be_revived(&self, thread: &str) -> bool {
        let times = self.revived.get(thread).copied().unwrap_or_default();
        times < REVIVALS_MAX && !self.is_given_up(thread)
    }

    /// True if a suspended thread is about to go on: it may be begun already, or find no room yet.
    fn is_reviving(&self, thread: &str) -> bool {
        self.is_performing(thread) || self.can_be_revived(thread) && !self.is_backing_off(thread)
    }

    /// Records the progress of a holder whose lease has expired; returns true if there was none for
    /// [`GRACE`].
    fn record_sighting(&mut self, due: &runner::Due, now: Instant) -> bool {
        let seen = (due.sighting.step, due.sighting.partial);
        let entry = self.silent.entry(due.thread.clone()).or_insert((seen, now));
        if entry.0 != seen {
            *entry = (seen, now);
        }
        now.duration_since(entry.1) >= GRACE
    }

    /// True if a survey of the whole tree is due: before this run ends, and from time to time.
    fn is_survey_due(&self, begun: bool) -> bool {
        let ends = !begun && self.runs.is_empty() && !self.is_top_waiting();
        let since = self.surveyed.map(|last| last.elapsed());
        ends || since.is_none_or(|since| since >= SURVEY_PAUSE)
    }

    /// Surveys the whole tree: finds threads that still need a driver, and runs of dead processes.
    /// Those runs are closed, and their threads revived with the next look; true if there were any.
    async fn survey_tree(&mut self) -> Result<bool, CallError> {
        let (mut cursor, mut open, mut dead) = (None, false, Vec::new());
        let mut waiting = Vec::new();
        loop {
            let page = self.driver.tenant.tree(&self.top, cursor).await?;
            for child in page.unreadable {
                if !self.unreadable.contains(&child.thread) {
                    let (thread, why) = (&child.thread, &child.why.message);
                    tracing::warn!(?thread, ?why, "a thread of the tree cannot be read");
                    self.unreadable.insert(child.thread);
                    self.has_new_unreadable = true;
                }
            }
            for branch in page.branches {
                match branch.status.as_str() {
                    "created" | "waiting" => {
                        open |= !self.is_given_up(&branch.thread);
                        if branch.status == "waiting" {
                            waiting.push(branch.thread);
                        }
                    }
                    "running" => dead.extend(self.dead_holder(branch).await?),
                    _ => {}
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        (self.has_open_threads, self.surveyed) = (open, Some(Instant::now()));
        let mut begun = self.close_dead_runs(&dead).await?;
        if self.has_new_unreadable {
            // The end of an unreadable child wakes no thread: each waiting thread is performed, and
            // leaves the child out from then on. Where one finds no room, a later survey tries
            // again.
            self.has_new_unreadable = false;
            for thread in waiting {
                let performed = self.perform_thread(&thread, BeginCall::Claim(runner::Proof::None));
                begun |= performed;
                self.has_new_unreadable |= !performed;
            }
        }
        Ok(begun)
    }

    /// The holder of a thread that this driver does not perform, if its process is known to be
    /// dead.
    async fn dead_holder(&mut self, branch: Branch) -> Result<Option<String>, CallError> {
        if self.is_performing(&branch.thread) {
            return Ok(None);
        }
        let lease = self.driver.tenant.get(&branch.thread).await?.run.lease;
        let holder = lease.map(|lease| lease.holder);
        Ok(holder.filter(|holder| self.driver.shared.holder_state(holder) == HolderState::Dead))
    }

    /// Closes the runs of these holders, and nothing that another process has taken over meanwhile:
    /// where many drivers detect a death, a claim by each would fence the one before.
    async fn close_dead_runs(&mut self, dead: &[String]) -> Result<bool, CallError> {
        if dead.is_empty() {
            return Ok(false);
        }
        let closed = self.driver.tenant.recover_all(dead).await?.closed;
        for thread in &closed {
            self.driver.notify_change(thread);
            // Only for listeners: the tree goes on if the read fails.
            if let Ok(record) = self.driver.tenant.get(thread).await {
                self.sink_of(thread).emit(RunEvent::Recovered {
                    thread: record.id,
                    version: record.version,
                });
            }
            self.top_interrupted |= *thread == self.top;
        }
        if !closed.is_empty() {
            self.driver.tree_changed.notify_one();
        }
        Ok(!closed.is_empty())
    }

    /// Suspends the threads that wait for the stopped runs of this driver, the lowest first, so
    /// that a resume of the top resumes all of them.
    pub(super) async fn suspend_waiting(&mut self) {
        let (mut cursor, mut waiting) = (None, Vec::new());
        loop {
            let Ok(page) = self.driver.tenant.tree(&self.top, cursor).await else {
                return;
            };
            let found = page.branches.into_iter();
            waiting.extend(found.filter(|branch| branch.status == "waiting"));
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        waiting.sort_by_key(|branch| std::cmp::Reverse(branch.depth));
        for branch in waiting {
            let sink = self.sink_of(&branch.thread);
            let claimed = self
                .driver
                .claim(&branch.thread, runner::Proof::None, &sink, self.stop);
            if let Err(error) = claimed.await {
                tracing::debug!(thread = branch.thread, %error, "it waits further");
            }
        }
    }

    /// Notifies the observer of threads without a lease that a propagation has ended.
    async fn notify_observer(&mut self) -> Result<(), CallError> {
        if self.driver.observer.is_none() {
            return Ok(());
        }
        let mut cursor = None;
        loop {
            let page = self.driver.tenant.tree(&self.top, cursor).await?;
            for branch in &page.branches {
                self.driver.notify_change(&branch.thread);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }
}

impl Driver {
    /// True if a thread below `top` needs a driver.
    pub(super) async fn has_open_descendants(&self, top: &str) -> Result<bool, CallError> {
        let mut cursor = None;
        loop {
            let under = Some(top.to_owned());
            let page = self.tenant.ready(PAGE_THREADS_MAX, cursor, under).await?;
            if !page.threads.is_empty() {
                return Ok(true);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut cursor = None;
        loop {
            let page = self.tenant.tree(top, cursor).await?;
            let goes_on = |branch: &Branch| {
                branch.depth > 0
                    && matches!(branch.status.as_str(), "created" | "waiting" | "running")
            };
            if page.branches.iter().any(goes_on) {
                return Ok(true);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(false);
            }
        }
    }
}
