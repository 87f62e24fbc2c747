//! The guard of a tenant, shared by all its drivers: its policy, book, call rate and room for runs.

use super::money::token_prices;
use super::permit::RunPermit;
use super::rate::{RateBucket, SLOT_WAIT_MAX};
use super::{CeilingRefusal, HostCeilings, InMemoryBook, UsageBook, UsageTotals};
use crate::authority::EnvironmentSnapshot;
use crate::clock::HostClock;
use crate::library::models::ModelTable;
use crate::policy::Policy;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;
use threadkeep_units::money::NanoUsd;
use threadkeep_units::price::TokenPrices;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Enforces what one tenant may pass through the host. Share it between all drivers of the tenant.
pub struct CeilingGuard {
    policy: Policy,
    built_in: Option<ModelTable>,
    book: Box<dyn UsageBook>,
    /// Permit for changing a book that blocks: other changes wait here without occupying a thread.
    writer: Arc<Semaphore>,
    rate: Option<SleepingMutex<RateBucket>>,
    runs: Option<Arc<Semaphore>>,
    clock: Arc<dyn HostClock>,
}

/// Longest time that a reply waits for its totals. The queue of a book that stands still takes
/// longer, and a reply that comes after its step's deadline is lost; the totals are changed all the
/// same. Longer than one wait for the lock of a file.
const SETTLED_WAIT_MAX: Duration = Duration::from_secs(5);
/// The unit of the ceiling on money, which is shown as a decimal.
const MONEY: &str = "USD";

/// A change of the book under way, made even if the caller does not wait for it.
#[must_use = "the next call may be refused if this one is not settled"]
pub(crate) struct PendingSettlement(Option<JoinHandle<()>>);

impl PendingSettlement {
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
pub(super) struct UsageHold {
    guard: Arc<CeilingGuard>,
    pub(super) most: UsageTotals,
    sent: bool,
}

impl CeilingGuard {
    /// A guard that begins to count now, in memory. The clock is the host's; the call rate is
    /// measured by it.
    pub fn new(policy: Policy, clock: Arc<dyn HostClock>) -> Self {
        Self::with_book(policy, clock, Box::new(InMemoryBook::default()))
    }

    /// A guard that continues with a book.
    pub fn with_book(policy: Policy, clock: Arc<dyn HostClock>, book: Box<dyn UsageBook>) -> Self {
        let per_minute = policy.ceilings.calls_per_minute_max;
        Self {
            rate: per_minute.map(|most| SleepingMutex::new(RateBucket::new(most, clock.now()))),
            built_in: ModelTable::built_in(EnvironmentSnapshot::default()).ok(),
            runs: policy.ceilings.runs_max.map(run_semaphore),
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

    /// The totals used so far: a snapshot from which an [`InMemoryBook`] book of a later process
    /// may continue. Blocks where the book does.
    ///
    /// # Errors
    /// If the book cannot be read.
    pub fn used_totals(&self) -> Result<UsageTotals, CeilingRefusal> {
        self.book.read_totals()
    }

    /// Admits a run.
    ///
    /// # Errors
    /// If the maximal number of runs is under way, or other runs are waiting.
    pub fn admit_run(self: &Arc<Self>) -> Result<RunPermit, CeilingRefusal> {
        let room = match &self.runs {
            None => None,
            Some(runs) => {
                let room = Arc::clone(runs).try_acquire_owned();
                Some(room.map_err(|_| self.no_room_refusal())?)
            }
        };
        Ok(RunPermit::new(self, room))
    }

    /// Admits a run once there is room for it: first come, first served.
    pub async fn admit_run_queued(self: &Arc<Self>) -> RunPermit {
        let room = match &self.runs {
            None => None,
            // The semaphore is never closed.
            Some(runs) => Arc::clone(runs).acquire_owned().await.ok(),
        };
        RunPermit::new(self, room)
    }

    /// The refusal for want of room for another run.
    pub(crate) fn no_room_refusal(&self) -> CeilingRefusal {
        let most = self.ceilings().runs_max.unwrap_or(u64::MAX);
        self.reached_refusal("runs", "runs", (most, 1), most)
    }

    pub(super) fn ceilings(&self) -> &HostCeilings {
        &self.policy.ceilings
    }

    pub(super) fn policy_refusal(&self, ceiling: &'static str, message: &str) -> CeilingRefusal {
        CeilingRefusal {
            ceiling,
            message: format!("{message}, by the operator's policy, {}", self.policy.name),
            retry_after: None,
        }
    }

    fn reached_refusal(
        &self,
        ceiling: &'static str,
        unit: &str,
        (used, need): (u64, u64),
        most: u64,
    ) -> CeilingRefusal {
        let amount = |number| match unit {
            MONEY => NanoUsd::new(number).to_string(),
            _ => number.to_string(),
        };
        let (used, most, need) = (amount(used), amount(most), amount(need));
        let message = format!(
            "the ceiling {ceiling} is reached: {used} of {most} {unit} are used, and {need} more \
             may be needed"
        );
        self.policy_refusal(ceiling, &message)
    }

    /// Refuses what would exceed a ceiling. A sum that overflows exceeds every ceiling; a need of
    /// zero exceeds none.
    pub(super) fn check_ceiling(
        &self,
        ceiling: &'static str,
        unit: &str,
        (used, need): (u64, u64),
        most: Option<u64>,
    ) -> Result<(), CeilingRefusal> {
        match (most, used.checked_add(need)) {
            (None, _) => Ok(()),
            (Some(most), Some(after)) if after <= most || need == 0 => Ok(()),
            (Some(most), _) => Err(self.reached_refusal(ceiling, unit, (used, need), most)),
        }
    }

    /// Returns the prices that the operator pays for a model: those of the policy, else of the
    /// built-in table. A tenant's own file has no say.
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
    pub(super) fn reserve_slot(&self, has: Duration) -> Result<Duration, CeilingRefusal> {
        let Some(rate) = &self.rate else {
            return Ok(Duration::ZERO);
        };
        let longest = SLOT_WAIT_MAX.min(has / 2);
        let mut bucket = rate.lock();
        bucket
            .reserve_slot(self.clock.now(), longest)
            .map_err(|retry_after| CeilingRefusal {
                retry_after,
                ..self.policy_refusal("calls_per_minute", "too many calls wait for their turn")
            })
    }

    /// Gives back a reserved slot that was not used.
    pub(super) fn return_slot(&self) {
        if let Some(rate) = &self.rate {
            let mut bucket = rate.lock();
            bucket.return_slot();
        }
    }

    /// Records the upper bound of a call in the book, if it exceeds no ceiling.
    pub(super) async fn hold_usage(
        self: &Arc<Self>,
        need: UsageTotals,
    ) -> Result<UsageHold, CeilingRefusal> {
        self.run_on_book_thread(move |guard| {
            let most = guard.change(&|used| {
                guard.admit(used, &need)?;
                Ok(used.add(need))
            })?;
            Ok(UsageHold {
                guard: Arc::clone(guard),
                most,
                sent: false,
            })
        })
        .await
    }

    fn admit(&self, used: &UsageTotals, need: &UsageTotals) -> Result<(), CeilingRefusal> {
        let most = self.ceilings();
        let spend = (used.spend_nanos, need.spend_nanos);
        self.check_ceiling("spend", MONEY, spend, most.spend_nanos_max)?;
        let calls = (used.model_calls, need.model_calls);
        self.check_ceiling("model_calls", "calls", calls, most.model_calls_max)?;
        let bytes = (used.model_bytes, need.model_bytes);
        self.check_ceiling("model_bytes", "bytes", bytes, most.model_bytes_max)?;
        let calls = (used.tool_calls, need.tool_calls);
        self.check_ceiling("tool_calls", "calls", calls, most.tool_calls_max)?;
        let bytes = (used.tool_bytes, need.tool_bytes);
        self.check_ceiling("tool_bytes", "bytes", bytes, most.tool_bytes_max)
    }

    /// Runs `act`, which changes the book, on a thread that may block if the book may. A change
    /// under way is finished even if its future is dropped.
    async fn run_on_book_thread<T: Send + 'static>(
        self: &Arc<Self>,
        act: impl FnOnce(&Arc<Self>) -> Result<T, CeilingRefusal> + Send + 'static,
    ) -> Result<T, CeilingRefusal> {
        if !self.book.may_block() {
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
            Err(self.policy_refusal("book", &message))
        })
    }

    /// Changes the book on this thread; returns what `change` returns.
    fn change(
        &self,
        change: &dyn Fn(&mut UsageTotals) -> Result<UsageTotals, CeilingRefusal>,
    ) -> Result<UsageTotals, CeilingRefusal> {
        let mut made = UsageTotals::default();
        self.book.change(&mut |used| {
            made = change(used)?;
            Ok(())
        })?;
        Ok(made)
    }

    /// Replaces the recorded upper bound of a call by its actual use. A book that cannot be written
    /// keeps the upper bound, and refuses the next call.
    fn replace(&self, held: UsageTotals, actual: UsageTotals) {
        let replaced = self.change(&|used| {
            used.replace(held, actual);
            Ok(actual)
        });
        if let Err(refusal) = replaced {
            tracing::warn!(%refusal, "a call stays in the book with the most that it could cost");
        }
    }

    /// As [`Self::replace`], in the queue of [`Self::run_on_book_thread`] and on its own task, so
    /// that dropping a future does not lose the change.
    fn queue_replace(
        self: &Arc<Self>,
        held: UsageTotals,
        actual: UsageTotals,
    ) -> PendingSettlement {
        let runtime = Handle::try_current();
        let (Ok(runtime), true) = (runtime, self.book.may_block()) else {
            self.replace(held, actual);
            return PendingSettlement::DONE;
        };
        let guard = Arc::clone(self);
        let changing = match Arc::clone(&self.writer).try_acquire_owned() {
            Ok(turn) => runtime.spawn_blocking(move || {
                guard.replace(held, actual);
                drop(turn);
            }),
            Err(_) => runtime.spawn(async move {
                let replaced = guard.run_on_book_thread(move |guard| {
                    guard.replace(held, actual);
                    Ok(())
                });
                if let Err(refusal) = replaced.await {
                    tracing::warn!(%refusal, "a call stays in the book with the most that it could \
                                              cost");
                }
            }),
        };
        PendingSettlement(Some(changing))
    }
}

impl UsageHold {
    /// Marks that from now on something may have been sent.
    pub(super) fn mark_sent(&mut self) {
        self.sent = true;
    }

    /// Settles the call with its actual use. The change is made whatever becomes of the answer.
    pub(super) fn settle(mut self, actual: UsageTotals) -> PendingSettlement {
        self.sent = true;
        self.guard.queue_replace(self.most, actual)
    }
}

impl Drop for UsageHold {
    fn drop(&mut self) {
        if !self.sent {
            let given_back = self.guard.queue_replace(self.most, UsageTotals::default());
            drop(given_back);
        }
    }
}

impl fmt::Debug for CeilingGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Clamped: a machine cannot run more runs than a semaphore counts.
fn run_semaphore(runs: u64) -> Arc<Semaphore> {
    let runs = usize::try_from(runs).unwrap_or(usize::MAX);
    Arc::new(Semaphore::new(runs.min(Semaphore::MAX_PERMITS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::policy::PolicyPreset;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A slow book that counts how many changes are asked of it at once.
    #[derive(Default)]
    struct CountingBook {
        kept: InMemoryBook,
        inside: AtomicU64,
        most_inside: AtomicU64,
    }

    impl UsageBook for Arc<CountingBook> {
        fn read_totals(&self) -> Result<UsageTotals, CeilingRefusal> {
            self.kept.read_totals()
        }

        fn change(
            &self,
            change: &mut dyn FnMut(&mut UsageTotals) -> Result<(), CeilingRefusal>,
        ) -> Result<(), CeilingRefusal> {
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
    async fn dropped_calls_are_given_back_one_at_a_time() {
        let book = Arc::new(CountingBook::default());
        let (policy, clock) = (Policy::preset(PolicyPreset::Local), Arc::new(SystemClock));
        let guard = Arc::new(CeilingGuard::with_book(
            policy,
            clock,
            Box::new(Arc::clone(&book)),
        ));
        let need = UsageTotals {
            tool_calls: 1,
            ..UsageTotals::default()
        };
        let mut held = Vec::new();
        for _ in 0..16 {
            held.push(guard.hold_usage(need).await.expect("there is room"));
        }
        assert_eq!(guard.used_totals().map(|used| used.tool_calls), Ok(16));
        drop(held);
        while guard.used_totals() != Ok(UsageTotals::default()) {
            tokio::task::yield_now().await;
        }
        assert_eq!(book.most_inside.load(Ordering::SeqCst), 1);
    }
}
