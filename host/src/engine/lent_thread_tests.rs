//! Tests of calls on the thread of their caller.

use super::*;

fn limits() -> EngineLimits {
    EngineLimits {
        call_threads_max: 2,
        calls_running_max: 1,
        ..EngineLimits::strict()
    }
}

/// The name of this thread, which is its own in each test.
fn thread_name() -> Option<String> {
    std::thread::current().name().map(str::to_owned)
}

/// Runs a test on a thread with this much stack.
fn run_on_stack<T: Send + 'static>(bytes: usize, test: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(bytes);
    let thread = thread.name("lent".to_owned()).spawn(test).expect("started");
    thread.join().expect("no panic")
}

/// Runs a call on this thread; `None` if it was given back.
fn run_here<T>(
    pool: &CallPool,
    lane: TenantLane,
    call: impl FnOnce() -> T,
) -> Option<Result<T, NoAnswer>> {
    match pool.run_on_lent_thread(lane, |_| call()) {
        LentCall::Answered(answer) => Some(answer),
        LentCall::GivenBack(_) => None,
    }
}

/// Asks for the name of the thread of a call; `None` if it was given back.
fn ask_name(pool: &CallPool, lane: TenantLane) -> Option<Option<String>> {
    let here = run_here(pool, lane, thread_name)?;
    Some(here.expect("an answer"))
}

#[test]
fn a_call_runs_on_the_thread_that_its_caller_lends() {
    run_on_stack(8 << 20, || {
        let pool = CallPool::new(&limits());
        let lane = pool.add_lane();
        for _ in 0..3 {
            assert_eq!(ask_name(&pool, lane), Some(Some("lent".to_owned())));
        }
        let queue = pool.inner.queue.lock();
        assert!(queue.lanes.is_empty() && queue.thread_count() == 0);
    });
}

#[test]
fn a_call_is_given_back_that_would_overtake_others() {
    run_on_stack(8 << 20, || {
        let pool = CallPool::new(&limits());
        let (lane, other) = (pool.add_lane(), pool.add_lane());
        // Within a call of the lane, which may run one at once.
        let names = || (ask_name(&pool, lane), ask_name(&pool, other));
        let within = run_here(&pool, lane, names);
        let (own, others) = within.expect("it ran").expect("an answer");
        assert_eq!((own, others.is_some()), (None, true));
        pool.inner.queue.lock().normal.startable += 1;
        assert_eq!(
            ask_name(&pool, lane),
            None,
            "another call waits for a thread"
        );
        pool.inner.queue.lock().normal.startable -= 1;
        assert!(ask_name(&pool, lane).is_some());
        pool.inner.queue.lock().lower_lane(lane, Instant::now());
        assert_eq!(ask_name(&pool, lane), None, "its lane is in the low class");
        assert!(ask_name(&pool, other).is_some());
    });
}

#[test]
fn a_thread_with_little_stack_is_not_used() {
    let pool = CallPool::new(&limits());
    let lane = pool.add_lane();
    // The C library may give a stack of an earlier thread, up to four times what is asked for.
    let needed = LENT_STACK_BYTES + limits().stack_bytes_max;
    let (pool, small) = run_on_stack(needed / 8, move || {
        let small = ask_name(&pool, lane);
        (pool, small)
    });
    assert_eq!(small, None);
    let large = run_on_stack(needed + (1 << 20), move || ask_name(&pool, lane));
    assert!(large.is_some());
}

/// The lane of a call that computed long, or was stopped, is lowered; the thread is not.
#[test]
fn a_lent_thread_keeps_its_priority() {
    run_on_stack(8 << 20, || {
        for offend in [priority::lower_priority, priority::mark_offender] {
            let pool = CallPool::new(&limits());
            let lane = pool.add_lane();
            assert_eq!(run_here(&pool, lane, offend), Some(Ok(())));
            assert!(!priority::is_low());
            assert_eq!(pool.inner.queue.lock().class_of(lane), PriorityClass::Low);
            assert!(!priority::take_offender_mark(), "nobody else is blamed");
        }
    });
}

/// Symptom: a thread that was lent twice, a call within a call, lost its priority for good. Cause:
/// the end of the inner call took the mark of the outer one away. Fix: it leaves what it found.
#[test]
fn a_call_within_a_call_leaves_its_marks() {
    run_on_stack(8 << 20, || {
        let pool = CallPool::new(&limits());
        let (lane, other) = (pool.add_lane(), pool.add_lane());
        let outer = run_here(&pool, lane, || {
            priority::mark_offender();
            assert_eq!(run_here(&pool, other, || ()), Some(Ok(())));
            priority::lower_priority();
        });
        assert_eq!(outer, Some(Ok(())));
        assert!(!priority::is_low());
        let queue = pool.inner.queue.lock();
        assert_eq!(queue.class_of(lane), PriorityClass::Low);
        assert_eq!(queue.class_of(other), PriorityClass::Normal);
    });
}

#[test]
fn a_panic_has_no_answer_and_leaves_the_lane_free() {
    run_on_stack(8 << 20, || {
        let pool = CallPool::new(&limits());
        let lane = pool.add_lane();
        let panicked = run_here(&pool, lane, || -> () { panic!("on purpose") });
        assert_eq!(panicked, Some(Err(NoAnswer::Abandoned)));
        assert!(ask_name(&pool, lane).is_some());
    });
}

/// A call that waits because its lane was busy begins when the lent thread is done.
#[test]
fn a_waiting_call_begins_when_a_lent_thread_is_done() {
    run_on_stack(8 << 20, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let pool = CallPool::new(&limits());
        let lane = pool.add_lane();
        let mut waiting = Box::pin(pool.run_call(lane, |_| thread_name()));
        let held = run_here(&pool, lane, || {
            // Queued while the lane is full, so nothing starts it.
            let polled = futures_util::FutureExt::now_or_never(&mut waiting);
            assert!(polled.is_none());
        });
        assert_eq!(held, Some(Ok(())));
        let name = runtime.block_on(waiting).expect("answered");
        assert!(name.is_some_and(|name| name.starts_with("threadkeep-call")));
    });
}
