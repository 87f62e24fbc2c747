//! The guard of a tenant, shared by all its drivers: its policy, book, call rate and room for runs.

use super::money::token_prices;
use super::permit::Permit;
use super::rate::{Bucket, WAIT_MAX};
use super::{Book, Ceilings, InMemory, Refusal, Used};
use crate::authority::Environment;
use crate::clock::Clock;
use crate::library::models::ModelTable;
use crate::policy::Policy;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use threadkeep_units::price::TokenPrices;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Enforces what one tenant may pass through the host. Share it between all drivers of the tenant.
pub struct Guard {
    policy: Policy,
    built_in: Option<ModelTable>,
    book: Box<dyn Book>,
    /// Permit for changing a book that blocks: other changes wait here without occupying a thread.
    writer: Arc<Semaphore>,
    rate: Option<Mutex<Bucket>>,
    runs: Option<Arc<Semaphore>>,
    clock: Arc<dyn Clock>,
}

/// Longest time that a reply waits for its totals. The queue of a book that stands still takes
/// longer, and a reply that comes after its step's deadline is lost; the totals are changed all the
/// same. Longer than one wait for the lock of a file.
const SETTLED_WAIT_MAX: Duration = Duration::from_secs(5);

/// A change of the book under way, made even if the caller does not wait for it.
#[must_use = "the next call may be refused if this one is not settled"]
pub(crate) struct Settling(Option<JoinHandle<()>>);

impl Settling {
    /// There is nothing to change, or the change is made.
    pub(super) const DONE: Self = Self(None);

    /// Waits until the change is made, or for as long as a reply can wait.
    pub(crate) async fn wait(self) {
        if let Some(changing) = self.0 {
            // A panic is reported where it happens; the book then keeps the upper bound.
            let _ = tokio::time::timeout(SETTLED_WAIT_MAX, changing).await;
        }
    }
}

/// The upper bound of a call, recorded in the book. Dropped before anything was sent, it is given
/// back; after that it stays until it is settled, and for good if it never is.
pub(super) struct Held {
    guard: Arc<Guard>,
    pub(super) most: Used,
    sent: bool,
}

impl Guard {
    /// A guard that begins to count now, in memory. The clock is the host's; the call rate is
    /// measured by it.
    pub fn new(policy: Policy, clock: Arc<dyn Clock>) -> Self {
        Self::over(policy, clock, Box::new(InMemory::default()))
    }

    /// A guard that continues with a book.
    pub fn over(policy: Policy, clock: Arc<dyn Clock>, book: Box<dyn Book>) -> Self {
        let per_minute = policy.ceilings.calls_per_minute_max;
        Self {
            rate: per_minute.map(|most| Mutex::new(Bucket::new(most, clock.now()))),
            built_in: ModelTable::built_in(Environment::default()).ok(),
            runs: policy.ceilings.runs_max.map(room_for),
            policy,
            book,
            writer: Arc::new(Semaphore::new(1)),
            clock,
        }
    }

    /// The policy that the guard enforces.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The totals used so far: a snapshot from which an [`InMemory`] book of a later process may
    /// continue. Blocks where the book does.
    ///
    /// # Errors
    /// If the book cannot be read.
    pub fn used(&self) -> Result<Used, Refusal> {
        self.book.used()
    }

    /// Admits a run.
    ///
    /// # Errors
    /// If the maximal number of runs is under way, or other runs are waiting.
    pub fn begin(self: &Arc<Self>) -> Result<Permit, Refusal> {
        let room = match &self.runs {
            None => None,
            Some(runs) => {
                let room = Arc::clone(runs).try_acquire_owned();
                Some(room.map_err(|_| self.full())?)
            }
        };
        Ok(Permit::new(self, room))
    }

    /// Admits a run once there is room for it: first come, first served.
    pub async fn begin_in_turn(self: &Arc<Self>) -> Permit {
        let room = match &self.runs {
            None => None,
            // The semaphore is never closed.
            Some(runs) => Arc::clone(runs).acquire_owned().await.ok(),
        };
        Permit::new(self, room)
    }

    /// The refusal for want of room for another run.
    pub(crate) fn full(&self) -> Refusal {
        let most = self.ceilings().runs_max.unwrap_or(u64::MAX);
        self.reached("runs", "runs", (most, 1), most)
    }

    pub(super) fn ceilings(&self) -> &Ceilings {
        &self.policy.ceilings
    }

    pub(super) fn refusal(&self, ceiling: &'static str, message: &str) -> Refusal {
        Refusal {
            ceiling,
            message: format!("{message}, by the operator's policy, {}", self.policy.name),
            retry_after: None,
        }
    }

    fn reached(
        &self,
        ceiling: &'static str,
        unit: &str,
        (used, need): (u64, u64),
        most: u64,
    ) -> Refusal {
        let message = format!(
            "the ceiling {ceiling} is reached: {used} of {most} {unit} are used, and {need} more may be needed"
        );
        self.refusal(ceiling, &message)
    }

    /// Refuses what would pass a ceiling. A sum that overflows passes every ceiling; a need of zero
    /// passes none.
    pub(super) fn room(
        &self,
        ceiling: &'static str,
        unit: &str,
        (used, need): (u64, u64),
        most: Option<u64>,
    ) -> Result<(), Refusal> {
        match (most, used.checked_add(need)) {
            (None, _) => Ok(()),
            (Some(most), Some(after)) if after <= most || need == 0 => Ok(()),
            (Some(most), _) => Err(self.reached(ceiling, unit, (used, need), most)),
        }
    }

    /// What the operator pays for a model: by the policy, else by the built-in table. A tenant's own file has no say.
    pub(super) fn prices_of(&self, model: &str) -> Option<TokenPrices> {
        let own = self.policy.models.as_ref();
        let own = own
            .and_then(|models| models.get(model))
            .and_then(Option::as_ref);
        let built_in = || self.built_in.as_ref()?.model(model)?.prices.as_ref();
        own.or_else(built_in).and_then(token_prices)
    }

    /// Reserves a slot of the call rate for a call that has the time `has`; returns the wait until
    /// the slot.
    pub(super) fn take_turn(&self, has: Duration) -> Result<Duration, Refusal> {
        let Some(rate) = &self.rate else {
            return Ok(Duration::ZERO);
        };
        let longest = WAIT_MAX.min(has / 2);
        let mut bucket = rate.lock().unwrap_or_else(PoisonError::into_inner);
        bucket
            .take(self.clock.now(), longest)
            .map_err(|retry_after| Refusal {
                retry_after,
                ..self.refusal("calls_per_minute", "too many calls wait for their turn")
            })
    }

    /// Gives back a reserved slot that was not used.
    pub(super) fn give_turn_back(&self) {
        if let Some(rate) = &self.rate {
            let mut bucket = rate.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.give_back();
        }
    }

    /// Records the upper bound of a call in the book, if it passes no ceiling.
    pub(super) async fn hold(self: &Arc<Self>, need: Used) -> Result<Held, Refusal> {
        self.on_book(move |guard| {
            let most = guard.change(&|used| {
                guard.admit(used, &need)?;
                Ok(used.add(need))
            })?;
            Ok(Held {
                guard: Arc::clone(guard),
                most,
                sent: false,
            })
        })
        .await
    }

    fn admit(&self, used: &Used, need: &Used) -> Result<(), Refusal> {
        let most = self.ceilings();
        let spend = (used.spend_nanos, need.spend_nanos);
        self.room("spend", "nano-USD", spend, most.spend_nanos_max)?;
        let calls = (used.model_calls, need.model_calls);
        self.room("model_calls", "calls", calls, most.model_calls_max)?;
        let bytes = (used.model_bytes, need.model_bytes);
        self.room("model_bytes", "bytes", bytes, most.model_bytes_max)?;
        let calls = (used.tool_calls, need.tool_calls);
        self.room("tool_calls", "calls", calls, most.tool_calls_max)?;
        let bytes = (used.tool_bytes, need.tool_bytes);
        self.room("tool_bytes", "bytes", bytes, most.tool_bytes_max)
    }

    /// Runs `act`, which changes the book, on a thread that may block if the book may. A change
    /// under way is finished even if its future is dropped.
    async fn on_book<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Arc<Self>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        if !self.book.blocks() {
            return act(self);
        }
        let turn = Arc::clone(&self.writer).acquire_owned().await;
        let guard = Arc::clone(self);
        let acted = tokio::task::spawn_blocking(move || {
            let acted = act(&guard);
            drop(turn);
            acted
        });
        acted.await.unwrap_or_else(|error| {
            let message = format!("the operator's book cannot be kept: {error}");
            Err(self.refusal("book", &message))
        })
    }

    /// Changes the book on this thread; returns what `change` returns.
    fn change(&self, change: &dyn Fn(&mut Used) -> Result<Used, Refusal>) -> Result<Used, Refusal> {
        let mut made = Used::default();
        self.book.change(&mut |used| {
            made = change(used)?;
            Ok(())
        })?;
        Ok(made)
    }

    /// Replaces the recorded upper bound of a call by its actual use. A book that cannot be written
    /// keeps the upper bound, and refuses the next call.
    fn replace(&self, held: Used, actual: Used) {
        let replaced = self.change(&|used| {
            used.replace(held, actual);
            Ok(actual)
        });
        if let Err(refusal) = replaced {
            tracing::warn!(%refusal, "a call stays in the book with the most that it could cost");
        }
    }

    /// As [`Self::replace`], in the queue of [`Self::on_book`] and on its own task, so that
    /// dropping a future does not lose the change.
    fn replace_in_turn(self: &Arc<Self>, held: Used, actual: Used) -> Settling {
        let runtime = Handle::try_current();
        let (Ok(runtime), true) = (runtime, self.book.blocks()) else {
            self.replace(held, actual);
            return Settling::DONE;
        };
        let guard = Arc::clone(self);
        let changing = match Arc::clone(&self.writer).try_acquire_owned() {
            Ok(turn) => runtime.spawn_blocking(move || {
                guard.replace(held, actual);
                drop(turn);
            }),
            Err(_) => runtime.spawn(async move {
                let replaced = guard.on_book(move |guard| {
                    guard.replace(held, actual);
                    Ok(())
                });
                if let Err(refusal) = replaced.await {
                    tracing::warn!(%refusal, "a call stays in the book with the most that it could cost");
                }
            }),
        };
        Settling(Some(changing))
    }
}

impl Held {
    /// Marks that from now on something may have been sent.
    pub(super) fn sent(&mut self) {
        self.sent = true;
    }

    /// Settles the call with its actual use. The change is made whatever becomes of the answer.
    pub(super) fn settle(mut self, actual: Used) -> Settling {
        self.sent = true;
        self.guard.replace_in_turn(self.most, actual)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.sent {
            let given_back = self.guard.replace_in_turn(self.most, Used::default());
            drop(given_back);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Clamped: a machine cannot run more runs than a semaphore counts.
fn room_for(runs: u64) -> Arc<Semaphore> {
    let runs = usize::try_from(runs).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(runs.min(Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::policy::Preset;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A slow book that counts how many changes are asked of it at once.
    #[derive(Default)]
    struct Counting {
        kept: InMemory,
        inside: AtomicU64,
        most_inside: AtomicU64,
    }

    impl Book for Arc<Counting> {
        fn used(&self) -> Result<Used, Refusal> {
            self.kept.used()
        }

        fn change(
            &self,
            change: &mut dyn FnMut(&mut Used) -> Result<(), Refusal>,
        ) -> Result<(), Refusal> {
            let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_inside.fetch_max(inside, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            let done = self.kept.change(change);
            self.inside.fetch_sub(1, Ordering::SeqCst);
            done
        }
    }

    /// Symptom: many calls that were dropped at once left what they held in a file's book. Cause:
    /// each asked for the lock of the file by itself, and gave up when its time was over. Fix: they
    /// queue as all other changes do.
    #[tokio::test]
    async fn what_many_calls_give_back_is_written_one_after_another() {
        let book = Arc::new(Counting::default());
        let (policy, clock) = (Policy::preset(Preset::Local), Arc::new(SystemClock));
        let guard = Arc::new(Guard::over(policy, clock, Box::new(Arc::clone(&book))));
        let need = Used {
            tool_calls: 1,
            ..Used::default()
        };
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(guard.hold(need).await.expect("there is room"));
        }
        assert_eq!(guard.used().map(|used| used.tool_calls), Ok(16));
        drop(held);
        while guard.used() != Ok(Used::default()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(book.most_inside.load(Ordering::SeqCst), 1);
    }
}
