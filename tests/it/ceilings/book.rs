//! A book that blocks is changed on threads of its own, and holds nothing for calls that were never
//! sent.

use super::world::{LONG, Model, WORST_NANOS, policy, request, says, usage};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;
use threadkeep::ceilings::{Book, Ceilings, Guard, InMemory, Refusal, Used};
use threadkeep::clock::SystemClock;
use tokio::task::JoinHandle;

/// A book whose changes block until the test opens it.
#[derive(Default)]
struct Slow {
    kept: InMemory,
    open: Mutex<bool>,
    opened: Condvar,
    inside: AtomicU64,
    most_inside: AtomicU64,
    threads: Mutex<Vec<ThreadId>>,
}

impl Slow {
    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn close(&self) {
        *self.open.lock().unwrap() = false;
    }

    /// Waits until a change is blocked.
    async fn reached(&self) {
        while self.inside.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

struct Shared(Arc<Slow>);

impl Book for Shared {
    fn used(&self) -> Result<Used, Refusal> {
        self.0.kept.used()
    }

    fn change(
        &self,
        change: &mut dyn FnMut(&mut Used) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
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

fn slow_guard() -> (Arc<Slow>, Arc<Guard>) {
    let slow = Arc::new(Slow::default());
    let book = Box::new(Shared(Arc::clone(&slow)));
    let policy = policy(Ceilings::none());
    (
        slow,
        Arc::new(Guard::over(policy, Arc::new(SystemClock), book)),
    )
}

fn spawn(guard: &Arc<Guard>, model: &Arc<Model>) -> JoinHandle<bool> {
    spawn_within(LONG, guard, model)
}

fn spawn_within(longest: Duration, guard: &Arc<Guard>, model: &Arc<Model>) -> JoinHandle<bool> {
    let (permit, model) = (guard.begin().unwrap(), Arc::clone(model));
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
async fn a_book_that_waits_keeps_nobody_else_waiting_and_takes_one_thread() {
    let (slow, guard) = slow_guard();
    let model = Arc::new(Model::answering(says(usage(10, 1))));
    let calls: Vec<_> = (0..8).map(|_| spawn(&guard, &model)).collect();
    // This test has the runtime's only thread: it goes on here although the first change blocks.
    slow.reached().await;
    slow.open();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(slow.most_inside.load(Ordering::SeqCst), 1);
    let here = std::thread::current().id();
    let threads = slow.threads.lock().unwrap();
    assert!(threads.len() == 16 && !threads.contains(&here));
    assert_eq!(guard.used().unwrap().spend_nanos, 8 * 24_000);
}

#[tokio::test]
async fn what_is_dropped_before_it_was_sent_holds_nothing() {
    let (slow, guard) = slow_guard();
    let model = Arc::new(Model::answering(says(usage(10, 1))));
    let call = spawn(&guard, &model);
    slow.reached().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    slow.open();
    // The amount is held, and given back.
    while slow.threads.lock().unwrap().len() < 2 || slow.inside.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        (guard.used().unwrap(), model.reached()),
        (Used::default(), 0)
    );
    assert!(
        spawn(&guard, &model).await.unwrap(),
        "and the next one passes"
    );
}

/// Starts `calls` calls that wait for their answers, then lets the answers arrive while the book is
/// blocked.
async fn answered(
    calls: usize,
    longest: Duration,
) -> (Arc<Slow>, Arc<Guard>, Vec<JoinHandle<bool>>) {
    let (slow, guard) = slow_guard();
    slow.open();
    let model = Arc::new(Model {
        gate: tokio::sync::Semaphore::new(0),
        ..Model::answering(says(usage(10, 1)))
    });
    let tasks: Vec<_> = (0..calls)
        .map(|_| spawn_within(longest, &guard, &model))
        .collect();
    while model.reached() < calls as u64 {
        tokio::task::yield_now().await;
    }
    slow.close();
    model.gate.add_permits(calls);
    slow.reached().await;
    // The first change is inside; this lets the others come as far as the queue.
    tokio::time::sleep(Duration::from_millis(1)).await;
    (slow, guard, tasks)
}

/// Symptom: an answer that had arrived became a timeout, and was paid twice. Cause: the call's time
/// ran on while the book was changed. Fix: it ends with the answer.
#[tokio::test]
async fn an_answer_is_not_late_because_the_book_is() {
    let longest = Duration::from_secs(2);
    let (slow, guard, calls) = answered(2, longest).await;
    tokio::time::sleep(longest + Duration::from_millis(100)).await;
    slow.open();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!(guard.used().unwrap().spend_nanos, 2 * 24_000);
}

/// Symptom: a call that was dropped after its answer had arrived kept its worst cost in the book.
/// Cause: its change of the book was dropped while it was queued. Fix: that change is a task of its
/// own.
#[tokio::test]
async fn what_a_call_came_to_is_written_although_it_is_dropped() {
    let (slow, guard, calls) = answered(3, LONG).await;
    for call in calls {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    slow.open();
    let written = async {
        while guard.used().unwrap().spend_nanos != 3 * 24_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let written = tokio::time::timeout(Duration::from_secs(30), written).await;
    assert!(written.is_ok(), "{:?}", guard.used());
}

#[tokio::test]
async fn a_book_in_memory_is_changed_where_it_is_asked() {
    let guard = super::world::guard(Ceilings::none());
    let model = Model {
        gate: tokio::sync::Semaphore::new(0),
        ..Model::answering(says(None))
    };
    let permit = guard.begin().unwrap();
    let request = request("known");
    let mut call = Box::pin(permit.complete(&model, &request, &|_| {}, LONG));
    // One poll comes as far as the provider: there is no other thread to wait for.
    assert!(futures_util::FutureExt::now_or_never(&mut call).is_none());
    assert_eq!(model.reached(), 1);
    assert_eq!(guard.used().unwrap().spend_nanos, WORST_NANOS);
}
