//! A run with all that it spawns: children side by side, and a thread that waits goes on when they have stopped.
//!
//! What there is to do stands in the records: the driver looks for what is due under the thread when a run of the tree
//! stops, when one has told others something, and now and then, for other processes work on the tree as well.

use super::{DriveError, Driver, Ended, RunEvent, Sink, Stop, StopLevel};
use crate::ceilings::Permit;
use crate::error::CallError;
use crate::wit::{self, runner};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Most threads of one tree that one driver performs at once; others wait for their turn.
pub const TREE_RUNS_MAX: usize = 64;
/// Threads of one page that is looked at.
const PAGE_THREADS: u32 = 100;
/// The pause before the first look that nothing was the reason of; it doubles while there is nothing to do.
const LOOK_FIRST: Duration = Duration::from_secs(1);
/// The longest such pause.
const LOOK_LAST: Duration = Duration::from_secs(8);
/// How long a thread that could not be begun is left alone.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);
/// How long an expired lease must stand still before its thread is taken over.
const GRACE: Duration = Duration::from_secs(15);
/// Looks that may fail one after the other.
const LOOKS_FAILED_MAX: u32 = 8;

/// What became of one run of the tree.
type Done = (String, Result<Ended, DriveError>);

/// The runs of one tree that this driver performs.
struct Tree<'a> {
    driver: &'a Driver,
    top: &'a str,
    sink: &'a Sink,
    stop: &'a Stop,
    runs: FuturesUnordered<BoxFuture<'a, Done>>,
    running: Vec<String>,
    /// Threads that could not be begun, and until when they are left alone.
    refused: HashMap<String, Instant>,
    /// Threads whose holder is silent: what was seen, and since when.
    silent: HashMap<String, ((u64, u64), Instant)>,
    /// How the run of the top stands.
    result: Option<Result<Ended, DriveError>>,
    failed: u32,
    has_children: bool,
    /// A run of the tree failed, and may still hold its thread.
    lost: bool,
    /// The store had no room for a child to begin.
    full: Option<DriveError>,
    /// It has still to be seen whether the top goes on after it had no money: then so do those under it, once.
    revives: bool,
    /// Threads with children that cannot be read, and so not be told of an end.
    kept_sweeps: HashSet<String>,
    /// Threads that were revived and may not have begun yet: until then nobody is told that they had stopped.
    revived: Vec<String>,
}

impl Driver {
    /// Begin a run and perform it with all that it spawns.
    pub(super) async fn tree(
        &self,
        permit: Option<Permit>,
        (thread, input): (&str, Option<String>),
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        // A nudge of its own: what happens in other trees is no reason to look.
        let driver = Self {
            nudge: Arc::default(),
            began: Arc::default(),
            ..self.clone()
        };
        let tree = Tree {
            driver: &driver,
            top: thread,
            sink,
            stop,
            runs: FuturesUnordered::new(),
            running: vec![thread.to_owned()],
            refused: HashMap::new(),
            silent: HashMap::new(),
            result: None,
            failed: 0,
            has_children: false,
            lost: false,
            full: None,
            revives: true,
            kept_sweeps: HashSet::new(),
            revived: Vec::new(),
        };
        tree.runs.push(Box::pin(async {
            let done = driver.begin_top(permit, (thread, input), sink, stop).await;
            (thread.to_owned(), done)
        }));
        tree.perform().await
    }

    /// Begin the run of the top. One that waits for its children goes on by itself: it is told what there is to say.
    async fn begin_top(
        &self,
        permit: Option<Permit>,
        (thread, input): (&str, Option<String>),
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let begun = self
            .begin(permit, (thread, input.clone()), sink, stop)
            .await;
        let Err(DriveError::Call(CallError::Refused(wit::Error::Refused(refused)))) = &begun else {
            return begun;
        };
        if refused.status != "waiting" {
            return begun;
        }
        if let Some(message) = input {
            let id = format!("message:{}", self.shared.holding().holder);
            let message = runner::SignalKind::Message(message);
            self.tenant.signal(thread, &id, message).await?;
        }
        Ok(Ended::of(&self.tenant.get(thread).await?))
    }
}

impl Tree<'_> {
    async fn perform(mut self) -> Result<Ended, DriveError> {
        let mut pause = LOOK_FIRST;
        let mut stop = self.stop.clone();
        let mut stopped = false;
        loop {
            tokio::select! {
                biased;
                Some(done) = self.runs.next() => self.stopped(done),
                () = self.driver.nudge.notified() => {}
                () = stop.reached(StopLevel::Cancel), if !stopped => stopped = true,
                () = tokio::time::sleep(pause), if self.looks_around() => {}
            }
            // Whoever holds a top that this driver could not begin sees to its tree.
            stopped |= matches!(self.result, Some(Err(_)));
            let begun = self.look(stopped).await?;
            pause = if begun {
                LOOK_FIRST
            } else {
                (pause * 2).min(LOOK_LAST)
            };
            if !begun
                && self.runs.is_empty()
                && self.waits()
                && let Some(full) = self.full.take()
            {
                // Nobody frees what the top waits for.
                return Err(full);
            }
            if !begun && self.runs.is_empty() && (stopped || !self.waits()) {
                return self.ended().await;
            }
        }
    }

    /// How the top stands. One that waited may have been ended since.
    async fn ended(self) -> Result<Ended, DriveError> {
        if !self.waits() {
            let none = || Err(DriveError::GivenUp(self.top.to_owned()));
            return self.result.unwrap_or_else(none);
        }
        let ended = Ended::of(&self.driver.ended(self.top).await?);
        if ended.status != "waiting" {
            self.sink.emit(RunEvent::Ended(Box::new(ended.clone())));
        }
        Ok(ended)
    }

    /// Is there a reason to look without one? A thread that has spawned nothing is not looked for.
    fn looks_around(&self) -> bool {
        self.result.is_some() || self.running.len() > 1
    }

    fn waits(&self) -> bool {
        matches!(&self.result, Some(Ok(ended)) if ended.status == "waiting")
    }

    /// A run of the tree has stopped.
    fn stopped(&mut self, (thread, done): Done) {
        self.running.retain(|running| *running != thread);
        if thread == self.top {
            self.result = Some(done);
            return;
        }
        if let Err(error) = done {
            tracing::warn!(%thread, %error, "a child could not be performed");
            self.lost = true;
            if let DriveError::Call(CallError::Refused(wit::Error::Full(_))) = &error {
                self.full = Some(error);
            }
            self.refused.insert(thread, Instant::now() + REFUSED_PAUSE);
        }
    }

    /// Begin what is due, and pass on what threads were told; true if there was any of that.
    async fn look(&mut self, stopped: bool) -> Result<bool, DriveError> {
        if stopped && !self.has_children && matches!(self.result, Some(Err(_))) {
            return Ok(false);
        }
        match self.look_through(stopped).await {
            Ok(begun) => {
                self.failed = 0;
                Ok(begun)
            }
            // What the run itself says is more than that its children cannot be seen.
            Err(error) if self.failed >= LOOKS_FAILED_MAX => match self.result.take() {
                Some(Err(first)) => Err(first),
                _ => Err(error.into()),
            },
            Err(error) => {
                tracing::warn!(thread = self.top, %error, "what is due cannot be read");
                self.failed += 1;
                // Where there are no children, nothing is missed.
                Ok(self.waits() || !self.runs.is_empty())
            }
        }
    }

    async fn look_through(&mut self, stopped: bool) -> Result<bool, CallError> {
        let (mut cursor, mut begun) = (None, false);
        if !stopped && std::mem::take(&mut self.revives) && self.revive().await? {
            // Whoever waits for one of them is looked at once they go on.
            return Ok(true);
        }
        if std::mem::take(&mut self.lost) {
            self.driver.recover_lost().await?;
        }
        self.look_at_top().await?;
        let mut swept = false;
        let begins = self.is_reviving().await?;
        let tenant = &self.driver.tenant;
        loop {
            let under = Some(self.top.to_owned());
            let page = tenant.ready(PAGE_THREADS, cursor, under).await?;
            for due in page.threads {
                if due.sweep && !self.kept_sweeps.contains(&due.thread) {
                    let untold = tenant.sweep_or_name(&due.thread).await?;
                    if !untold.is_empty() {
                        self.keep_sweep(&due.thread, &untold);
                    }
                    (begun, swept) = (true, true);
                } else if due.sweep && due.status != "running" {
                    // What it has to pass on is kept, for its child cannot be read.
                    continue;
                } else if begins && due.status == "waiting" {
                    continue;
                } else if !stopped {
                    begun |= self.begin(due);
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                if swept {
                    self.tell_observer().await?;
                }
                return Ok(begun || begins);
            }
        }
    }

    /// A sweep that could not tell all children is kept by its thread: this driver does not try it again.
    fn keep_sweep(&mut self, thread: &str, untold: &[wit::Unreadable]) {
        for child in untold {
            let (child, why) = (&child.thread, &child.why.message);
            tracing::warn!(thread, ?child, ?why, "a child cannot be told of an end");
        }
        self.kept_sweeps.insert(thread.to_owned());
    }

    /// A top that waits, and that this driver does not perform, may have been ended by somebody else.
    async fn look_at_top(&mut self) -> Result<(), CallError> {
        if !self.waits() || self.running.iter().any(|running| running == self.top) {
            return Ok(());
        }
        let top = self.driver.tenant.get(self.top).await?;
        if !matches!(top.status.as_str(), "waiting" | "running") {
            let ended = Ended::of(&top);
            self.sink.emit(RunEvent::Ended(Box::new(ended.clone())));
            self.result = Some(Ok(ended));
        }
        Ok(())
    }

    /// Has a thread that was revived still to begin?
    async fn is_reviving(&mut self) -> Result<bool, CallError> {
        for thread in std::mem::take(&mut self.revived) {
            let stands = self.driver.tenant.get(&thread).await?.status;
            if stands == "suspended" && self.running.contains(&thread) {
                self.revived.push(thread);
            }
        }
        Ok(!self.revived.is_empty())
    }

    /// Threads that nobody held were ended by what they were told.
    async fn tell_observer(&mut self) -> Result<(), CallError> {
        if self.driver.observer.is_none() {
            return Ok(());
        }
        let mut cursor = None;
        loop {
            let page = self.driver.tenant.tree(self.top, cursor).await?;
            for branch in &page.branches {
                self.driver.committed(&branch.thread);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Let those under the top go on that stopped because their process died or the store was full, or for want of money if
    /// that is why the top had stopped: who asks for the top means its tree.
    async fn revive(&mut self) -> Result<bool, CallError> {
        let tenant = &self.driver.tenant;
        let began = self.driver.began.load(Ordering::Relaxed);
        let (mut cursor, mut begun, mut short) = (None, false, None);
        // A thread that was never run has nothing under it.
        if began == 1 {
            return Ok(false);
        }
        loop {
            let page = tenant.tree(self.top, cursor).await?;
            for branch in page.branches {
                if branch.depth == 0 || branch.status != "suspended" {
                    continue;
                }
                let Some(cause) = tenant.get(&branch.thread).await?.cause else {
                    continue;
                };
                if short.is_none() {
                    short = Some(self.was_short(began).await?);
                }
                let revives = match cause.reason.as_str() {
                    "budget" => short == Some(true),
                    _ => matches!(cause.code.as_str(), "recovered" | "store_full"),
                };
                if revives && self.perform_one(branch.thread.clone(), None) {
                    self.revived.push(branch.thread);
                    begun = true;
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(begun);
            }
        }
    }

    /// Had the top stopped for want of money before it began with this version?
    async fn was_short(&mut self, began: u64) -> Result<bool, CallError> {
        let Some(before) = began.checked_sub(1) else {
            return Ok(false);
        };
        let page = self.driver.tenant.entries(self.top, before, 1).await?;
        let resumed = r#""type":"resumed","code":"spend_exceeded""#;
        let first = page.entries.first();
        Ok(first.is_some_and(|entry| entry.body.contains(resumed)))
    }

    /// Perform a thread that is due.
    fn begin(&mut self, due: runner::Due) -> bool {
        let proof = match due.status.as_str() {
            "running" if !self.is_silent(&due, Instant::now()) => return false,
            "running" => Some(runner::Proof::Watched(due.sighting)),
            "waiting" => Some(runner::Proof::None),
            _ => None,
        };
        self.perform_one(due.thread, proof)
    }

    /// Perform a thread, unless that is done already or was refused a moment ago.
    fn perform_one(&mut self, thread: String, proof: Option<runner::Proof>) -> bool {
        let now = Instant::now();
        self.refused.retain(|_, until| *until > now);
        let refused = self.refused.contains_key(&thread);
        if refused || self.running.contains(&thread) || self.running.len() >= TREE_RUNS_MAX {
            return false;
        }
        self.running.push(thread.clone());
        self.has_children |= thread != self.top;
        let (driver, stop) = (self.driver, self.stop);
        let sink = match thread == self.top {
            true => self.sink.clone(),
            false => self.sink.of_child(&thread),
        };
        self.runs.push(Box::pin(async move {
            let done = match proof {
                Some(proof) => driver.claim(&thread, proof, &sink, stop).await,
                None => driver.begin(None, (&thread, None), &sink, stop).await,
            };
            (thread, done)
        }));
        true
    }

    /// Has the holder of a thread, whose lease is over, been silent for the grace?
    fn is_silent(&mut self, due: &runner::Due, now: Instant) -> bool {
        let seen = (due.sighting.step, due.sighting.partial);
        let entry = self.silent.entry(due.thread.clone()).or_insert((seen, now));
        if entry.0 != seen {
            *entry = (seen, now);
        }
        now.duration_since(entry.1) >= GRACE
    }
}
