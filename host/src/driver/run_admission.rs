//! The beginning of a run: it gets room among the runs that the policy allows, its place in the
//! queue of its thread, and the lease of the thread.

use super::queue::{DriverShared, LeasePolls, QueuePlace, RunLease, WaitDeadline, WaitEnd};
use super::{DriveError, Driver, EndedRun, EventSink, OnBusy, StopReceiver};
use crate::ceilings::RunPermit;
use crate::error::CallError;
use crate::tenant::Tenant;
use crate::wit::{self, runner};
use std::sync::Arc;

/// Room of a run among the runs of its process, and its place in the queue of its thread.
pub(super) struct RunAdmission {
    /// Released before the place, as fields are dropped in their order: the next run in the queue
    /// needs the room.
    pub(super) permit: RunPermit,
    place: Option<QueuePlace>,
}

/// The beginning of a run: the thread, its input, and the call that begins it.
#[derive(Debug, Clone)]
pub(super) struct RunBeginning<'a> {
    pub(super) thread: &'a str,
    pub(super) input: Option<String>,
    /// True if a thread that has ended goes on in a successor.
    pub(super) resumes: bool,
}

impl<'a> RunBeginning<'a> {
    pub(super) fn start(thread: &'a str, input: Option<String>) -> Self {
        Self {
            thread,
            input,
            resumes: false,
        }
    }

    pub(super) fn resume(thread: &'a str, input: Option<String>) -> Self {
        Self {
            resumes: true,
            ..Self::start(thread, input)
        }
    }

    /// Makes the call. The name of the holder is that of the request, too.
    async fn call(&self, tenant: &Tenant, holder: &str) -> Result<runner::Handle, CallError> {
        let (thread, input) = (self.thread, self.input.clone());
        match self.resumes {
            true => tenant.resume(thread, input, holder, holder, None).await,
            false => tenant.start(thread, input, holder, holder, None).await,
        }
    }
}

impl RunAdmission {
    pub(super) fn from_permit(permit: RunPermit) -> Self {
        Self {
            permit,
            place: None,
        }
    }

    /// Moves the run to the queue of the thread that it goes on in; it has the lease already. Those
    /// that wait for the thread that it left are no longer held up by it.
    pub(super) fn move_to(&mut self, shared: &Arc<DriverShared>, thread: &str) {
        if self.place.is_none() {
            return;
        }
        self.place = shared.join_queue(thread);
        if let Some(place) = &mut self.place {
            // Another run may be at the head: it waits for the lease, which this one has.
            place.try_reach_head();
        }
    }
}

impl Driver {
    /// As [`Driver::run`], with a permit that [`Driver::admit`] gave before a thread was made for
    /// the run. A run that has to wait in the queue of its thread gives the permit back and waits
    /// for room anew.
    ///
    /// # Errors
    /// As [`Driver::run`].
    pub async fn run_admitted(
        &self,
        permit: RunPermit,
        thread: &str,
        input: Option<String>,
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let beginning = RunBeginning::start(thread, input);
        self.run_tree(Some(permit), beginning, sink, stop).await
    }

    /// Admits a run before there is a thread for it, so that a refusal leaves no thread behind. It
    /// waits for room as [`Driver::with_on_busy`] says.
    ///
    /// # Errors
    /// `Ceiling` if the maximal number of runs is under way, `GivenUp` if the run was stopped while
    /// it waited.
    pub async fn admit(&self, stop: &StopReceiver) -> Result<RunPermit, DriveError> {
        match self.on_busy {
            OnBusy::Refuse => self.guard.admit_run().map_err(DriveError::Ceiling),
            OnBusy::Queue(wait) => {
                let mut patience = WaitDeadline::new("room for another run", wait, stop);
                self.wait_for_permit(&mut patience).await
            }
        }
    }

    /// Begins a run and performs it, with the given permit or the next one available.
    pub(super) async fn begin_run(
        &self,
        permit: Option<RunPermit>,
        beginning: RunBeginning<'_>,
        sink: &EventSink,
        stop: &StopReceiver,
    ) -> Result<EndedRun, DriveError> {
        let thread = beginning.thread;
        let mut holding = self.shared.new_run_lease();
        let driver = self.with_call_marker(&holding);
        let begun = match self.on_busy {
            OnBusy::Refuse => {
                let permit = match permit {
                    Some(permit) => permit,
                    None => self.guard.admit_run().map_err(DriveError::Ceiling)?,
                };
                let handle = driver.start_run(&beginning, &mut holding).await?;
                (handle, RunAdmission::from_permit(permit))
            }
            OnBusy::Queue(wait) => {
                let mut patience = WaitDeadline::new(thread, wait, stop);
                let queued = driver.start_queued(permit, beginning, &mut holding, &mut patience);
                queued.await?
            }
        };
        let leased = driver.perform_leased(thread, begun, &mut holding, sink, stop);
        leased.await
    }

    async fn start_run(
        &self,
        beginning: &RunBeginning<'_>,
        holding: &mut RunLease,
    ) -> Result<runner::Handle, DriveError> {
        holding.mark_held();
        let holder = holding.holder.clone();
        let mut started = beginning.call(&self.tenant, &holder).await;
        if let Err(CallError::Refused(wit::Error::Busy(busy))) = &started
            && self.shared.is_lost(&busy.lease.holder)
        {
            // The lease is of a run of this process that is no longer performed: recover it and
            // start again.
            self.tenant
                .recover_all(std::slice::from_ref(&busy.lease.holder))
                .await?;
            started = beginning.call(&self.tenant, &holder).await;
        }
        Ok(started.inspect_err(|error| release_if_refused(error, holding))?)
    }

    /// Waits for room among the runs that the policy allows: first come, first served.
    async fn wait_for_permit(
        &self,
        patience: &mut WaitDeadline<'_>,
    ) -> Result<RunPermit, DriveError> {
        match patience.wait_for(self.guard.admit_run_queued()).await {
            Ok(permit) => Ok(permit),
            Err(WaitEnd::Late) => Err(DriveError::Ceiling(self.guard.no_room_refusal())),
            Err(WaitEnd::Stopped) => Err(DriveError::GivenUp(patience.thread.to_owned())),
        }
    }

    /// Waits for the place in this process's queue, then for room, then for the lease. A run that
    /// waits for its place or for a lease takes no room from others. A start under way is never
    /// given up, not even at the deadline: its caller could not know whether the start was made.
    async fn start_queued(
        &self,
        mut permit: Option<RunPermit>,
        beginning: RunBeginning<'_>,
        holding: &mut RunLease,
        patience: &mut WaitDeadline<'_>,
    ) -> Result<(runner::Handle, RunAdmission), DriveError> {
        let thread = patience.thread;
        let full = || DriveError::QueueFull(thread.to_owned());
        let mut place = self.shared.join_queue(thread).ok_or_else(full)?;
        if !place.try_reach_head() {
            // The run before this one in the queue may need the room of this permit.
            permit = None;
            if let Err(end) = patience.wait_for(place.reach_head()).await {
                return Err(self.wait_error(end, patience).await);
            }
        }
        let mut polls = LeasePolls::new();
        loop {
            let permit = match permit.take() {
                Some(permit) => permit,
                None => self.wait_for_permit(patience).await?,
            };
            match self.start_run(&beginning, holding).await {
                Err(DriveError::Call(CallError::Refused(wit::Error::Busy(_)))) => drop(permit),
                begun => {
                    let place = Some(place);
                    return Ok((begun?, RunAdmission { permit, place }));
                }
            }
            if let Err(end) = patience.wait_for(polls.wait_for_next()).await {
                return Err(self.wait_error(end, patience).await);
            }
        }
    }

    /// The error of a wait that ended in vain; names the current holder of the thread.
    async fn wait_error(&self, end: WaitEnd, patience: &WaitDeadline<'_>) -> DriveError {
        if end == WaitEnd::Stopped {
            return DriveError::GivenUp(patience.thread.to_owned());
        }
        match self.tenant.get(patience.thread).await {
            Ok(found) => DriveError::Waited {
                thread: found.id,
                lease: found.run.lease,
                waited: patience.wait,
            },
            Err(error) => DriveError::Call(error),
        }
    }
}

/// Releases the holder name after a refused start or claim, which holds nothing; after an unknown
/// outcome it may hold a lease.
pub(super) fn release_if_refused(error: &CallError, holding: &mut RunLease) {
    let known =
        matches!(error, CallError::Refused(refused) if !matches!(refused, wit::Error::Unknown(_)));
    if known {
        holding.release();
    }
}
