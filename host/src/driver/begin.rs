//! The beginning of a run: it gets room among the runs that the policy allows, its place in the
//! queue of its thread, and the lease of the thread.

use super::queue::{Holding, Patience, Place, Polls, WaitEnd};
use super::{DriveError, Driver, Ended, OnBusy, Sink, Stop};
use crate::ceilings::Permit;
use crate::error::CallError;
use crate::wit::{self, runner};

/// Room of a run among the runs of its process, and its place in the queue of its thread.
pub(super) struct Admitted {
    /// Released before the place, as fields are dropped in their order: the next run in the queue
    /// needs the room.
    pub(super) permit: Permit,
    _place: Option<Place>,
}

impl Admitted {
    pub(super) fn at_once(permit: Permit) -> Self {
        let _place = None;
        Self { permit, _place }
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
        permit: Permit,
        thread: &str,
        input: Option<String>,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        self.tree(Some(permit), (thread, input), sink, stop).await
    }

    /// Admits a run before there is a thread for it, so that a refusal leaves no thread behind. It
    /// waits for room as [`Driver::on_busy`] says.
    ///
    /// # Errors
    /// `Ceiling` if the maximal number of runs is under way, `GivenUp` if the run was stopped while
    /// it waited.
    pub async fn admit(&self, stop: &Stop) -> Result<Permit, DriveError> {
        match self.on_busy {
            OnBusy::Refuse => self.guard.begin().map_err(DriveError::Ceiling),
            OnBusy::Queue(wait) => {
                let mut patience = Patience::new("room for another run", wait, stop);
                self.room(&mut patience).await
            }
        }
    }

    /// Begins a run and performs it, with the given permit or the next one available.
    pub(super) async fn begin(
        &self,
        permit: Option<Permit>,
        (thread, input): (&str, Option<String>),
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let mut holding = self.shared.holding();
        let driver = self.marked(&holding);
        let begun = match self.on_busy {
            OnBusy::Refuse => {
                let permit = match permit {
                    Some(permit) => permit,
                    None => self.guard.begin().map_err(DriveError::Ceiling)?,
                };
                let handle = driver.start(thread, input, &mut holding).await?;
                (handle, Admitted::at_once(permit))
            }
            OnBusy::Queue(wait) => {
                let mut patience = Patience::new(thread, wait, stop);
                let queued = driver.queued(permit, input, &mut holding, &mut patience);
                queued.await?
            }
        };
        driver.held(begun, &mut holding, sink, stop).await
    }

    async fn start(
        &self,
        thread: &str,
        input: Option<String>,
        holding: &mut Holding,
    ) -> Result<runner::Handle, DriveError> {
        holding.may_hold();
        let (holder, key) = (holding.holder.clone(), holding.holder.clone());
        let mut started = self
            .tenant
            .start(thread, input.clone(), &holder, &key)
            .await;
        if let Err(CallError::Refused(wit::Error::Busy(lease))) = &started
            && self.shared.is_lost(&lease.holder)
        {
            // The lease is of a run of this process that is no longer performed: recover it and
            // start again.
            self.tenant
                .recover_all(std::slice::from_ref(&lease.holder))
                .await?;
            started = self.tenant.start(thread, input, &holder, &key).await;
        }
        Ok(started.inspect_err(|error| not_held(error, holding))?)
    }

    /// Waits for room among the runs that the policy allows: first come, first served.
    async fn room(&self, patience: &mut Patience<'_>) -> Result<Permit, DriveError> {
        match patience.until(self.guard.begin_in_turn()).await {
            Ok(permit) => Ok(permit),
            Err(WaitEnd::Late) => Err(DriveError::Ceiling(self.guard.full())),
            Err(WaitEnd::Stopped) => Err(DriveError::GivenUp(patience.thread.to_owned())),
        }
    }

    /// Waits for the place in this process's queue, then for room, then for the lease. A run that
    /// waits for its place or for a lease takes no room from others. A start under way is never
    /// given up.
    async fn queued(
        &self,
        mut permit: Option<Permit>,
        input: Option<String>,
        holding: &mut Holding,
        patience: &mut Patience<'_>,
    ) -> Result<(runner::Handle, Admitted), DriveError> {
        let thread = patience.thread;
        let full = || DriveError::QueueFull(thread.to_owned());
        let mut place = self.shared.join(thread).ok_or_else(full)?;
        if !place.turn_at_once() {
            // The run before this one in the queue may need the room of this permit.
            permit = None;
            if let Err(end) = patience.until(place.turn()).await {
                return Err(self.impatient(end, patience).await);
            }
        }
        let mut polls = Polls::new();
        loop {
            let permit = match permit.take() {
                Some(permit) => permit,
                None => self.room(patience).await?,
            };
            match self.start(thread, input.clone(), holding).await {
                Err(DriveError::Call(CallError::Refused(wit::Error::Busy(_)))) => drop(permit),
                begun => {
                    let _place = Some(place);
                    return Ok((begun?, Admitted { permit, _place }));
                }
            }
            if let Err(end) = patience.until(polls.next()).await {
                return Err(self.impatient(end, patience).await);
            }
        }
    }

    /// The error of a wait that ended in vain; names the current holder of the thread.
    async fn impatient(&self, end: WaitEnd, patience: &Patience<'_>) -> DriveError {
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
pub(super) fn not_held(error: &CallError, holding: &mut Holding) {
    let known =
        matches!(error, CallError::Refused(refused) if !matches!(refused, wit::Error::Unknown(_)));
    if known {
        holding.release();
    }
}
