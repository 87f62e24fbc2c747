//! The maintenance thread of all stores of an owner: it makes checkpoints, and closes idle stores.
//!
//! It is started by the first request and ends with its owner. A store that is opened by itself has
//! its own; those of [`super::stores::Stores`] share one.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::checkpoint::Log;

/// Periodic work of the maintenance thread.
pub(super) trait Chore: Send + Sync {
    /// Does the work; returns the time until the next round, or `None` if there is nothing to wait
    /// for.
    fn tidy(&self) -> Option<Duration>;
}

/// Handle of the maintenance thread; see the documentation of the module.
#[derive(Debug)]
pub(super) struct Keeper {
    orders: Arc<Orders>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Orders {
    chore: Option<Weak<dyn Chore>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    logs: VecDeque<Weak<Log>>,
    /// Time at which the periodic work is due.
    tidy_at: Option<Instant>,
    ended: bool,
}

enum Order {
    Carry(Weak<Log>),
    Tidy,
    End,
}

impl Keeper {
    pub(super) fn new(chore: Option<Weak<dyn Chore>>) -> Self {
        let orders = Orders {
            chore,
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        Self {
            orders: Arc::new(orders),
            thread: Mutex::default(),
        }
    }

    /// Requests a checkpoint of a log.
    pub(super) fn carry(&self, log: &Arc<Log>) {
        self.tell(|state| state.logs.push_back(Arc::downgrade(log)));
    }

    /// Schedules the periodic work after `wait`, unless it is scheduled earlier. Does nothing if
    /// the time overflows.
    pub(super) fn tidy_in(&self, wait: Duration) {
        let Some(at) = Instant::now().checked_add(wait) else {
            return;
        };
        self.tell(|state| state.tidy_at = Some(state.tidy_at.map_or(at, |before| before.min(at))));
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.orders.state());
        self.orders.changed.notify_one();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let orders = Arc::clone(&self.orders);
            let started = Builder::new()
                .name("threadkeep-keeper".to_owned())
                .spawn(move || orders.work());
            match started {
                Ok(started) => *thread = Some(started),
                // The next request tries again; until then logs grow and stores stay open.
                Err(error) => tracing::warn!(%error, "no thread for the upkeep of stores"),
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.orders.state().ended = true;
        self.orders.changed.notify_one();
        let thread = self.thread.get_mut();
        let thread = thread.unwrap_or_else(PoisonError::into_inner).take();
        // The thread itself may drop this, at the end of its last task.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::warn!("the thread behind the stores had panicked");
        }
    }
}

impl Orders {
    fn work(&self) {
        loop {
            match self.next() {
                Order::Carry(log) => {
                    if let Some(log) = log.upgrade() {
                        log.carry();
                    }
                }
                Order::Tidy => {
                    let chore = self.chore.as_ref().and_then(Weak::upgrade);
                    let again = chore.as_ref().and_then(|chore| chore.tidy());
                    let at = again.and_then(|wait| Instant::now().checked_add(wait));
                    let mut state = self.state();
                    state.tidy_at = state.tidy_at.into_iter().chain(at).min();
                }
                Order::End => return,
            }
        }
    }

    /// Waits for the next task.
    fn next(&self) -> Order {
        let mut state = self.state();
        loop {
            if state.ended {
                return Order::End;
            }
            if let Some(log) = state.logs.pop_front() {
                return Order::Carry(log);
            }
            let wait = state
                .tidy_at
                .map(|at| at.saturating_duration_since(Instant::now()));
            state = match wait {
                Some(Duration::ZERO) => {
                    state.tidy_at = None;
                    return Order::Tidy;
                }
                Some(wait) => {
                    let waited = self.changed.wait_timeout(state, wait);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Orders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Orders")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
