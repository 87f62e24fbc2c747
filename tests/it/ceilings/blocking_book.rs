//! A book that blocks is changed on threads of its own, and holds nothing for calls that were never
//! sent.

use super::fixture::{CountedModel, LONG, WORST_NANOS, policy, request, says, usage};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;
use threadkeep::ceilings::{
    CeilingGuard, CeilingRefusal, HostCeilings, InMemoryBook, UsageBook, UsageTotals,
};
use threadkeep::clock::SystemClock;
use tokio::task::JoinHandle;

/// A book whose changes block until the test opens it.
#[derive(Default)]
struct BlockingBook {
    kept: InMemoryBook,
    open: Mutex<bool>,
    opened: Condvar,
    inside: AtomicU64,
    most_inside: AtomicU64,
    threads: Mutex<Vec<ThreadId>>,
}

impl BlockingBook {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn close(&self) {
        *self.open.lock().unwrap() = false;
    }

    /// Waits until a change is blocked.
    async fn wait_until_blocked(&self) {
        while self.inside.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

struct SharedBook(Arc<BlockingBook>);

impl UsageBook for SharedBook {
    fn read_totals(&self) -> Result<UsageTotals, CeilingRefusal> {
        self.0.kept.read_totals()
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut UsageTotals) -> Result<(), CeilingRefusal>,
    ) -> Result<(), CeilingRefusal> {
        let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most_inside.fetch_max(inside, Ordering::SeqCst);
        let here = std::thread::current().id();
        self.0.threads.lock().unwrap().push(here);
        let open = self.0.open.lock().unwrap();
        drop(self.0.opened.wait_while(open, |open| !*open).unwrap());
        let done = self.0.kept.change(change);
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
        done
    }
}

fn slow_guard() -> (Arc<BlockingBook>, Arc<CeilingGuard>) {
    let slow = Arc::new(BlockingBook::default());
    let book = Box::new(SharedBook(Arc::clone(&slow)));
    let policy = policy(HostCeilings::none());
    (
        slow,
        Arc::new(CeilingGuard::with_book(policy, Arc::new(SystemClock), book)),
    )
}

fn spawn(guard: &Arc<CeilingGuard>, model: &Arc<CountedModel>) -> JoinHandle<bool> {
    spawn_within(LONG, guard, model)
}

fn spawn_within(
    longest: Duration,
    guard: &Arc<CeilingGuard>,
    model: &Arc<CountedModel>,
) -> JoinHandle<bool> {
    let (permit, model) = (guard.admit_run().unwrap(), Arc::clone(model));
    tokio::spawn(async move {
        let request = request("known");
        let answer = permit.complete(&*model, &request, &|_| {}, longest);
        answer.await.is_ok()
    })
}

/// Symptom: a process that kept the lock of a file of totals blocked everything on the runtime.
/// Cause: the book was changed on the runtime's threads. Fix: it is changed on a thread that may
/// block, one change at a time.
#[tokio::test]
async fn blocked_book_delays_no_other_work_and_uses_one_thread() {
    let (slow, guard) = slow_guard();
    let model = Arc::new(CountedModel::answering(says(usage(10, 1))));
    let calls: Vec<_> = (0..8).map(|_| spawn(&guard, &model)).collect();
    // This test has the runtime's only thread: it goes on here although the first change blocks.
    slow.wait_until_blocked().await;
    slow.open();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(slow.most_inside.load(Ordering::SeqCst), 1);
    let here = std::thread::current().id();
    let threads = slow.threads.lock().unwrap();
    assert!(threads.len() == 16 && !threads.contains(&here));
    assert_eq!(guard.used_totals().unwrap().spend_nanos, 8 * 24_000);
}

#[tokio::test]
async fn call_dropped_before_sending_holds_nothing() {
    let (slow, guard) = slow_guard();
    let model = Arc::new(CountedModel::answering(says(usage(10, 1))));
    let call = spawn(&guard, &model);
    slow.wait_until_blocked().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    slow.open();
    // The amount is held, and given back.
    while slow.threads.lock().unwrap().len() < 2 || slow.inside.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (guard.used_totals().unwrap(), model.call_count()),
        (UsageTotals::default(), 0)
    );
    assert!(
        spawn(&guard, &model).await.unwrap(),
        "and the next one passes"
    );
}

/// Starts `calls` calls that wait for their answers, then lets the answers arrive while the book is
/// blocked.
async fn answer_while_blocked(
    calls: usize,
    longest: Duration,
) -> (Arc<BlockingBook>, Arc<CeilingGuard>, Vec<JoinHandle<bool>>) {
    let (slow, guard) = slow_guard();
    slow.open();
    let model = Arc::new(CountedModel {
        gate: tokio::sync::Semaphore::new(0),
        ..CountedModel::answering(says(usage(10, 1)))
    });
    let tasks: Vec<_> = (0..calls)
        .map(|_| spawn_within(longest, &guard, &model))
        .collect();
    while model.call_count() < calls as u64 {
        tokio::task::yield_now().await;
    }
    slow.close();
    model.gate.add_permits(calls);
    slow.wait_until_blocked().await;
    // The first change is inside; this lets the others come as far as the queue.
    tokio::time::sleep(Duration::from_millis(1)).await;
    (slow, guard, tasks)
}

/// Symptom: an answer that had arrived became a timeout, and was paid twice. Cause: the call's time
/// ran on while the book was changed. Fix: it ends with the answer.
#[tokio::test]
async fn blocked_book_does_not_time_out_an_answer() {
    let longest = Duration::from_secs(2);
    let (slow, guard, calls) = answer_while_blocked(2, longest).await;
    tokio::time::sleep(longest + Duration::from_millis(100)).await;
    slow.open();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(guard.used_totals().unwrap().spend_nanos, 2 * 24_000);
}

/// Symptom: a call that was dropped after its answer had arrived kept its worst cost in the book.
/// Cause: its change of the book was dropped while it was queued. Fix: that change is a task of its
/// own.
#[tokio::test]
async fn bill_of_a_dropped_call_is_recorded() {
    let (slow, guard, calls) = answer_while_blocked(3, LONG).await;
    for call in calls {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    slow.open();
    let written = async {
        while guard.used_totals().unwrap().spend_nanos != 3 * 24_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let written = tokio::time::timeout(Duration::from_secs(30), written).await;
    assert!(written.is_ok(), "{:?}", guard.used_totals());
}

#[tokio::test]
async fn book_in_memory_is_changed_on_the_callers_thread() {
    let guard = super::fixture::guard(HostCeilings::none());
    let model = CountedModel {
        gate: tokio::sync::Semaphore::new(0),
        ..CountedModel::answering(says(None))
    };
    let permit = guard.admit_run().unwrap();
    let request = request("known");
    let mut call = Box::pin(permit.complete(&model, &request, &|_| {}, LONG));
    // One poll comes as far as the provider: there is no other thread to wait for.
    assert!(futures_util::FutureExt::now_or_never(&mut call).is_none());
    assert_eq!(model.call_count(), 1);
    assert_eq!(guard.used_totals().unwrap().spend_nanos, WORST_NANOS);
}
