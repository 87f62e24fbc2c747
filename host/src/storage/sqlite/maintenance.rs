//! The maintenance thread of all stores of an owner: it makes checkpoints, and closes idle stores.
//!
//! It is started by the first request and ends with its owner. A store that is opened by itself has
//! its own; those of [`super::stores::StorePool`] share one.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};
use threadkeep_storage::locks::{SleepingCondvar, SleepingMutex};

use super::checkpoint::WriteAheadLog;

/// Periodic work of the maintenance thread.
pub(super) trait MaintenanceTask: Send + Sync {
    /// Does the work; returns the time until the next round, or `None` if there is nothing to wait
    /// for.
    fn run_task(&self) -> Option<Duration>;
}

/// Handle of the maintenance thread; see the documentation of the module.
#[derive(Debug)]
pub(super) struct MaintenanceThread {
    orders: Arc<MaintenanceQueue>,
    thread: SleepingMutex<Option<JoinHandle<()>>>,
}

struct MaintenanceQueue {
    task: Option<Weak<dyn MaintenanceTask>>,
    state: SleepingMutex<MaintenanceState>,
    changed: SleepingCondvar,
}

#[derive(Debug, Default)]
struct MaintenanceState {
    logs: VecDeque<Weak<WriteAheadLog>>,
    /// Time at which the periodic work is due.
    task_due: Option<Instant>,
    ended: bool,
}

enum MaintenanceOrder {
    Checkpoint(Weak<WriteAheadLog>),
    RunTask,
    End,
}

impl MaintenanceThread {
    pub(super) fn new(chore: Option<Weak<dyn MaintenanceTask>>) -> Self {
        let orders = MaintenanceQueue {
            task: chore,
            state: SleepingMutex::default(),
            changed: SleepingCondvar::new(),
        };
        Self {
            orders: Arc::new(orders),
            thread: SleepingMutex::default(),
        }
    }

    /// Requests a checkpoint of a log.
    pub(super) fn request_checkpoint(&self, log: &Arc<WriteAheadLog>) {
        self.update_state(|state| state.logs.push_back(Arc::downgrade(log)));
    }

    /// Schedules the periodic work after `wait`, unless it is scheduled earlier. Does nothing if
    /// the time overflows.
    pub(super) fn schedule_task(&self, wait: Duration) {
        let Some(at) = Instant::now().checked_add(wait) else {
            return;
        };
        self.update_state(|state| {
            state.task_due = Some(state.task_due.map_or(at, |before| before.min(at)))
        });
    }

    fn update_state(&self, change: impl FnOnce(&mut MaintenanceState)) {
        change(&mut self.orders.state.lock());
        self.orders.changed.notify_one();
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let orders = Arc::clone(&self.orders);
            let started = Builder::new()
                .name("threadkeep-keeper".to_owned())
                .spawn(move || orders.run_thread());
            match started {
                Ok(started) => *thread = Some(started),
                // The next request tries again; until then logs grow and stores stay open.
                Err(error) => tracing::warn!(%error, "no thread for the upkeep of stores"),
            }
        }
    }
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        self.orders.state.lock().ended = true;
        self.orders.changed.notify_one();
        let thread = self.thread.get_mut().take();
        // The thread itself may drop this, at the end of its last task.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::warn!("the thread behind the stores had panicked");
        }
    }
}

impl MaintenanceQueue {
    fn run_thread(&self) {
        loop {
            match self.next_order() {
                MaintenanceOrder::Checkpoint(log) => {
                    if let Some(log) = log.upgrade() {
                        log.checkpoint();
                    }
                }
                MaintenanceOrder::RunTask => {
                    let chore = self.task.as_ref().and_then(Weak::upgrade);
                    let again = chore.as_ref().and_then(|chore| chore.run_task());
                    let at = again.and_then(|wait| Instant::now().checked_add(wait));
                    let mut state = self.state.lock();
                    state.task_due = state.task_due.into_iter().chain(at).min();
                }
                MaintenanceOrder::End => return,
            }
        }
    }

    /// Waits for the next task.
    fn next_order(&self) -> MaintenanceOrder {
        let mut state = self.state.lock();
        loop {
            if state.ended {
                return MaintenanceOrder::End;
            }
            if let Some(log) = state.logs.pop_front() {
                return MaintenanceOrder::Checkpoint(log);
            }
            let wait = state
                .task_due
                .map(|at| at.saturating_duration_since(Instant::now()));
            match wait {
                Some(Duration::ZERO) => {
                    state.task_due = None;
                    return MaintenanceOrder::RunTask;
                }
                Some(wait) => {
                    self.changed.wait_for(&mut state, wait);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl std::fmt::Debug for MaintenanceQueue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Orders")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
