//! Tests of the pool: parallel, fair, bounded, and on time.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn limits() -> EngineLimits {
    EngineLimits {
        call_threads_max: 3,
        calls_running_max: 2,
        ..EngineLimits::strict()
    }
}

#[tokio::test]
async fn runs_calls_side_by_side_and_survives_a_panic() {
    let pool = CallPool::new(&limits());
    let lane = pool.add_lane();
    assert_eq!(
        pool.run_call(lane, |_| panic!("on purpose"))
            .await
            .map(|(): ()| ()),
        Err(NoAnswer::Abandoned)
    );
    let left = Arc::new(Barrier::new(2));
    let right = Arc::clone(&left);
    let both = tokio::join!(
        pool.run_call(lane, move |_| left.wait().is_leader()),
        pool.run_call(lane, move |_| right.wait().is_leader())
    );
    assert_ne!(both.0, both.1);
}

#[tokio::test]
async fn no_more_calls_run_at_once_than_the_lane_and_the_pool_allow() {
    for (lanes, most) in [(1, 2), (4, 3)] {
        let pool = CallPool::new(&limits());
        let lanes: Vec<TenantLane> = (0..lanes).map(|_| pool.add_lane()).collect();
        let (running, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let calls = (0..64).map(|n| {
            let (running, seen) = (Arc::clone(&running), Arc::clone(&seen));
            pool.run_call(lanes[n % lanes.len()], move |_| {
                seen.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                running.fetch_sub(1, SeqCst);
            })
        });
        let answers = futures_util::future::join_all(calls).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(seen.load(SeqCst), most, "{} lanes", lanes.len());
    }
}

/// Symptom: on a busy machine a neighbour's calls were stopped. Cause: elapsed time was taken for
/// computing time, so that a call lost its priority for having waited. Fix: the thread's CPU time
/// counts.
#[tokio::test]
async fn a_call_that_waits_has_not_computed() {
    let pool = CallPool::new(&limits());
    let computed = pool.run_call(pool.add_lane(), |_| {
        std::thread::sleep(Duration::from_millis(50));
        let waited = priority::call_cpu_time();
        let mut sum = 0_u64;
        while priority::call_cpu_time() <= waited {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        waited
    });
    let waited = computed.await.expect("answered");
    assert!(waited < Duration::from_millis(50), "{waited:?}");
}

/// The only thread is blocked until all calls are queued: then they come round-robin.
#[tokio::test]
async fn lanes_are_served_round_robin() {
    // One thread: of two, the system may keep one waiting while the other runs all of its lane.
    let one = EngineLimits {
        call_threads_max: 1,
        calls_running_max: 1,
        ..limits()
    };
    let pool = CallPool::new(&one);
    let (greedy, modest) = (pool.add_lane(), pool.add_lane());
    let gate = Arc::new(Barrier::new(2));
    let order = Arc::new(SleepingMutex::new(Vec::new()));
    let call = |lane, name: &'static str| {
        let order = Arc::clone(&order);
        pool.run_call(lane, move |_| order.lock().push(name))
    };
    let hold = |lane| {
        let gate = Arc::clone(&gate);
        pool.run_call(lane, move |_| {
            gate.wait();
        })
    };
    let calls = (0..50).map(|_| call(greedy, "greedy"));
    let (held, others, _, _, opened) = tokio::join!(
        hold(greedy),
        futures_util::future::join_all(calls),
        call(modest, "modest"),
        call(modest, "modest"),
        // Not before this is polled, which is last: else the gate may open while calls are still
        // being queued.
        async {
            let gate = Arc::clone(&gate);
            tokio::task::spawn_blocking(move || gate.wait()).await
        },
    );
    assert!(held.is_ok() && others.iter().all(Result::is_ok) && opened.is_ok());
    let order = order.lock();
    let last = order.iter().rposition(|name| *name == "modest").unwrap();
    assert!(last < 10, "the second of the modest was call {last} of 52");
}

#[tokio::test]
async fn a_full_queue_refuses_and_another_lane_does_not_notice() {
    let small = EngineLimits {
        calls_queued_max: 1,
        calls_running_max: 1,
        ..limits()
    };
    let pool = CallPool::new(&small);
    let (full, other) = (pool.add_lane(), pool.add_lane());
    let gate = Arc::new(Barrier::new(2));
    let (held, queued, refused, answered) = tokio::join!(
        pool.run_call(full, {
            let gate = Arc::clone(&gate);
            move |_| {
                gate.wait();
            }
        }),
        pool.run_call(full, |_| 1),
        pool.run_call(full, |_| 2),
        async {
            let answered = pool.run_call(other, |_| 3).await;
            let gate = Arc::clone(&gate);
            tokio::task::spawn_blocking(move || gate.wait())
                .await
                .unwrap();
            answered
        },
    );
    assert_eq!((held, queued), (Ok(()), Ok(1)));
    assert_eq!((refused, answered), (Err(NoAnswer::QueueFull), Ok(3)));
}

/// A call that does not return and one that waits behind it are both answered; the lane stays
/// occupied until the call returns.
#[tokio::test]
async fn time_passes_for_calls_that_run_and_for_calls_that_wait() {
    let short = EngineLimits {
        calls_running_max: 1,
        calls_queued_max: 1,
        wall_time_max: Duration::ZERO,
        ..limits()
    };
    let pool = CallPool::new(&short);
    let lane = pool.add_lane();
    let (gate, began) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (stuck, waiting, ()) = tokio::join!(
        pool.run_call(lane, {
            let (gate, began) = (Arc::clone(&gate), Arc::clone(&began));
            move |_| {
                began.wait();
                gate.wait();
            }
        }),
        pool.run_call(lane, |_| ()),
        async {
            let began = Arc::clone(&began);
            tokio::task::spawn_blocking(move || began.wait())
                .await
                .unwrap();
            pool.run_upkeep();
        },
    );
    assert_eq!(stuck, Err(NoAnswer::TimeOver));
    assert_eq!(waiting, Err(NoAnswer::TimeOver));
    {
        let queue = pool.inner.queue.lock();
        assert_eq!(queue.lanes[&lane].running, 1, "it still counts");
        assert!(queue.lanes[&lane].waiting.is_empty() && queue.calls.is_empty());
    }
    tokio::task::spawn_blocking(move || gate.wait())
        .await
        .unwrap();
    while !pool.inner.queue.lock().lanes.is_empty() {
        std::thread::yield_now();
    }
}

/// Symptom: a call was never answered. Cause: no thread could be started, and the call was queued
/// all the same. Fix: the call is refused and removed.
#[tokio::test]
async fn a_call_that_no_thread_can_be_started_for_is_refused() {
    let none = EngineLimits {
        stack_bytes_max: STACK_BYTES_REFUSED,
        ..limits()
    };
    let pool = CallPool::new(&none);
    let lane = pool.add_lane();
    for _ in 0..2 {
        assert_eq!(pool.run_call(lane, |_| ()).await, Err(NoAnswer::NoThread));
        let queue = pool.inner.queue.lock();
        assert!(queue.calls.is_empty() && queue.normal.startable == 0);
        assert_eq!((queue.thread_count(), queue.normal.idle), (0, 0));
    }
}

/// Captured by a call: records whether the queue was unlocked when the call was dropped.
struct DropProbe(Arc<PoolInner>, std::sync::mpsc::Sender<bool>);

impl Drop for DropProbe {
    fn drop(&mut self) {
        // Another thread may lock the queue for a moment; a thread that keeps it locked while
        // dropping this is seen every time.
        let free = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_micros(100));
            self.0.queue.try_lock().is_some()
        });
        let _ = self.1.send(free);
    }
}

/// Symptom: all tenants waited while a store closed. Cause: the work of a call that had waited too
/// long, or was one too many, was dropped with the queue locked. Fix: it is dropped afterwards.
#[tokio::test]
async fn forgotten_calls_are_dropped_outside_queue_lock() {
    let short = EngineLimits {
        calls_running_max: 1,
        calls_queued_max: 1,
        wall_time_max: Duration::ZERO,
        ..limits()
    };
    let none = EngineLimits {
        stack_bytes_max: STACK_BYTES_REFUSED,
        ..limits()
    };
    let (pool, threadless) = (CallPool::new(&short), CallPool::new(&none));
    let lane = pool.add_lane();
    let (gate, began) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (noted, notes) = std::sync::mpsc::channel();
    let keeping = |pool: &CallPool| {
        let kept = DropProbe(Arc::clone(&pool.inner), noted.clone());
        move |_: Instant| drop(kept)
    };
    let (stuck, expired, refused, unstarted, ()) = tokio::join!(
        pool.run_call(lane, {
            let (gate, began) = (Arc::clone(&gate), Arc::clone(&began));
            move |_| {
                began.wait();
                gate.wait();
            }
        }),
        pool.run_call(lane, keeping(&pool)),
        pool.run_call(lane, keeping(&pool)),
        threadless.run_call(threadless.add_lane(), keeping(&threadless)),
        async {
            let began = Arc::clone(&began);
            tokio::task::spawn_blocking(move || began.wait())
                .await
                .unwrap();
            pool.run_upkeep();
        },
    );
    assert_eq!(expired, Err(NoAnswer::TimeOver));
    assert_eq!(refused, Err(NoAnswer::QueueFull));
    assert_eq!(unstarted, Err(NoAnswer::NoThread));
    // One of them is dropped on a separate thread.
    let note = |_| notes.recv_timeout(Duration::from_secs(60)).ok();
    assert_eq!((0..3).filter_map(note).collect::<Vec<_>>(), [true; 3]);
    assert_eq!(stuck, Err(NoAnswer::TimeOver));
    gate.wait();
}

/// True if a call of the lane runs on a low-priority thread.
async fn is_low(pool: &CallPool, lane: TenantLane) -> bool {
    let low = pool.run_call(lane, |_| priority::is_low()).await;
    low.expect("answered")
}

/// The tenant of a call that was stopped, or computed long, runs at low priority for a while.
#[tokio::test]
async fn a_lane_whose_call_was_stopped_or_stepped_back_runs_low_for_a_while() {
    for stopped in [priority::mark_offender as fn(), priority::lower_priority] {
        let pool = CallPool::new(&limits());
        let (bad, good) = (pool.add_lane(), pool.add_lane());
        assert!(!is_low(&pool, bad).await, "nothing was done yet");
        assert_eq!(pool.run_call(bad, move |_| stopped()).await, Ok(()));
        // The answer is sent before the thread reports what became of the call.
        while pool.inner.queue.lock().class_of(bad) == PriorityClass::Normal {
            std::thread::yield_now();
        }
        for _ in 0..5 {
            assert!(is_low(&pool, bad).await);
            assert!(!is_low(&pool, good).await);
        }
        pool.inner
            .queue
            .lock()
            .raise_expired_lanes(Instant::now() + Duration::from_secs(60));
        assert!(!is_low(&pool, bad).await, "it is forgotten");
    }
}

/// A pool with one thread serves both classes, whichever comes first.
#[tokio::test]
async fn one_place_serves_both_sides_in_turn() {
    let one = EngineLimits {
        call_threads_max: 1,
        calls_running_max: 1,
        ..limits()
    };
    let pool = CallPool::new(&one);
    let (bad, good) = (pool.add_lane(), pool.add_lane());
    for _ in 0..3 {
        assert!(!is_low(&pool, good).await);
        pool.inner.queue.lock().lower_lane(bad, Instant::now());
        assert!(is_low(&pool, bad).await);
        let (low, ()) = tokio::join!(is_low(&pool, good), async {
            while !pool.inner.queue.lock().lanes.is_empty() {
                pool.run_upkeep();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(!low);
    }
}

/// Symptom: a tenant's calls were never answered while two others kept a backlog of long calls.
/// Cause: a low-priority thread took the next call of its class before it checked whether its place
/// was needed. Fix: it checks first, and a quarter of the places is never for the low class.
#[tokio::test]
async fn low_class_backlog_leaves_places_for_others() {
    let few = EngineLimits {
        call_threads_max: 4,
        calls_running_max: 3,
        ..limits()
    };
    let pool = CallPool::new(&few);
    let (bad, worse, good) = (pool.add_lane(), pool.add_lane(), pool.add_lane());
    let (over, began) = (
        Arc::new(SleepingMutex::new(())),
        Arc::new(AtomicUsize::new(0)),
    );
    let held = over.lock();
    for lane in [bad, worse] {
        pool.inner.queue.lock().lower_lane(lane, Instant::now());
    }
    let long = |lane| {
        let (over, began) = (Arc::clone(&over), Arc::clone(&began));
        pool.run_call(lane, move |_| {
            began.fetch_add(1, SeqCst);
            drop(over.lock());
        })
    };
    let backlog =
        futures_util::future::join_all((0..40).map(|n| long(if n < 20 { bad } else { worse })));
    let (answers, ()) = tokio::join!(backlog, async {
        while began.load(SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        for _ in 0..20 {
            assert!(!is_low(&pool, good).await);
        }
        assert_eq!(began.load(SeqCst), 3, "of four places");
        drop(held);
    });
    assert!(answers.iter().all(Result::is_ok));
}

/// Waiting calls move with their lane from one class to the other, and back.
#[test]
fn waiting_calls_move_with_their_lane() {
    struct IgnoredTicket;
    impl CallTicket for IgnoredTicket {
        fn expire(&self) {}
    }
    let mut queue = CallQueue::new(&limits());
    let (lane, other, now) = (queue.add_lane(), queue.add_lane(), Instant::now());
    for lane in [lane, other, lane] {
        let call = QueuedCall {
            lane,
            deadline: now,
            ticket: Arc::new(IgnoredTicket),
        };
        assert!(queue.push_call(call, Box::new(|| ()), 9).is_ok());
    }
    queue.lower_lane(lane, now);
    assert_eq!((queue.normal.startable, queue.low.startable), (1, 2));
    assert_eq!(
        queue.take_next(PriorityClass::Low).map(|it| it.lane),
        Some(lane)
    );
    assert_eq!(
        queue.take_next(PriorityClass::Normal).map(|it| it.lane),
        Some(other)
    );
    assert!(queue.take_next(PriorityClass::Normal).is_none());
    queue.raise_expired_lanes(now);
    assert_eq!(queue.low.startable, 1, "not yet");
    queue.raise_expired_lanes(now + Duration::from_secs(60));
    assert_eq!((queue.normal.startable, queue.low.startable), (1, 0));
    assert_eq!(
        queue.take_next(PriorityClass::Normal).map(|it| it.lane),
        Some(lane)
    );
}
