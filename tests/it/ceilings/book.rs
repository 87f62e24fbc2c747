//! A book that waits for something is changed on threads that are there for it, and holds nothing for what was never sent.

use super::world::{LONG, Model, WORST_NANOS, policy, request, says, usage};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use threadkeep::ceilings::{Book, Ceilings, Guard, InMemory, Refusal, Used};
use threadkeep::clock::SystemClock;

/// A book whose changes wait until they may go on.
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

    /// Wait until a change waits.
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

fn spawn(guard: &Arc<Guard>, model: &Arc<Model>) -> tokio::task::JoinHandle<bool> {
    let (permit, model) = (guard.begin().unwrap(), Arc::clone(model));
    tokio::spawn(async move {
        let request = request("known");
        let answer = permit.complete(&*model, &request, &|_| {}, LONG);
        answer.await.is_ok()
    })
}

/// Symptom: a process that kept the lock of a file of totals stood in the way of everything that the runtime did.
/// Cause: the book was changed on the runtime's threads. Fix: on one that may block, one change at a time.
#[tokio::test]
async fn a_book_that_waits_keeps_nobody_else_waiting_and_takes_one_thread() {
    let (slow, guard) = slow_guard();
    let model = Arc::new(Model::answering(says(usage(10, 1))));
    let calls: Vec<_> = (0..8).map(|_| spawn(&guard, &model)).collect();
    // This test has the runtime's only thread: it goes on here although the first change waits.
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
    // Held, and given back.
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
