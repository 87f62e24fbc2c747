//! Interrupted trees through the driver: no child's result is lost, and a run stays until nothing
//! below it is left to do.

use super::scripted_tree::{
    ReplyFunction, ScriptedTree, call_blocks, scripted_tree, scripted_tree_over, text_blocks,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use threadkeep::ceilings::{CeilingGuard, HostCeilings};
use threadkeep::clock::SystemClock;
use threadkeep::driver::{
    Driver, EndedRun, EventSink, RunEvent, StopLevel, StopReceiver, stop_channel,
};
use threadkeep::models::ReplyBlock;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::wit::Limits;
use threadkeep::wit::runner::{Raised, SignalKind};

const WAIT: &str = "wait_threads";
/// Time limit of a test: far more than a tree of these takes.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);

/// Each level spawns two of the next and waits for them; a parent that is told of a suspended child
/// replies that results are lost.
fn waits_for_all(who: &str, _: usize, last: &str) -> Vec<ReplyBlock> {
    let next = match who {
        "top" => "mid",
        "mid" => "leaf",
        _ => return text_blocks("leaf done"),
    };
    if last.contains("suspended") || last.contains(r#"timed_out\":true"#) {
        return text_blocks("results are lost");
    }
    if last.contains("done") {
        return text_blocks("all done");
    }
    let spawn = ("spawn_thread", json!({"directive": next}));
    call_blocks(&[spawn.clone(), spawn, (WAIT, json!({}))])
}

/// The top spawns five leaves and waits for them, or not.
fn five_leaves(waits: bool) -> Box<ReplyFunction> {
    Box::new(move |who: &str, before: usize, _: &str| match who {
        "top" if before == 0 => {
            let mut calls = vec![("spawn_thread", json!({"directive": "leaf"})); 5];
            if waits {
                calls.push((WAIT, json!({})));
            }
            call_blocks(&calls)
        }
        "top" => text_blocks("all done"),
        _ => text_blocks("leaf done"),
    })
}

/// The driver of a grove under a policy that allows this many runs at once.
fn driver_with_runs(grove: &ScriptedTree, runs: u64) -> Driver {
    let ceilings = HostCeilings {
        runs_max: Some(runs),
        ..HostCeilings::none()
    };
    let policy = Policy {
        ceilings,
        ..Policy::preset(PolicyPreset::Local)
    };
    let guard = CeilingGuard::new(policy, Arc::new(SystemClock));
    grove.driver.clone().with_guard(Arc::new(guard))
}

/// Runs a tree; if the run hangs, the panic shows the status of its threads.
async fn run(driver: &Driver, top: &str) -> EndedRun {
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let run = tokio::time::timeout(WAIT_TIME_MAX, driver.run(top, None, &sink, &stop));
    if let Ok(ended) = run.await {
        return ended.unwrap();
    }
    let tree = driver.tenant().tree(top, None).await.unwrap();
    for branch in tree.branches {
        let thread = driver.tenant().get(&branch.thread).await.unwrap();
        println!(
            "{} {} at version {}: {:?} {:?}",
            thread.id, thread.status, thread.version, thread.cause, thread.run
        );
    }
    println!("{:?}", driver.tenant().account(top).await);
    let ready = driver.tenant().ready(100, None, Some(top.to_owned()));
    panic!("{top} hangs; due: {:#?}", ready.await);
}

async fn assert_statuses(grove: &ScriptedTree, top: &str, threads: usize, status: &str) {
    let tree = grove.load_branches(top).await;
    assert_eq!(tree.len(), threads, "{tree:#?}");
    assert!(tree.iter().all(|one| one.status == status), "{tree:#?}");
}

async fn wait_for_calls(grove: &ScriptedTree, threads: usize) {
    while grove.actor.now.load(Ordering::SeqCst) < threads {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until the top has ended and two leaves are under way.
async fn wait_for_ended_top(grove: &ScriptedTree, top: &str) {
    while grove
        .driver
        .tenant()
        .get(top)
        .await
        .unwrap()
        .outcome
        .is_none()
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    wait_for_calls(grove, 2).await;
}

/// Symptom: a run of a tree came back with exit 0 and left children `created`, their money
/// reserved. Cause: they found no room among the `runs` of the policy, and the driver did not come
/// back to them. Fix: the run queues for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_that_find_no_room_among_the_runs_begin_once_there_is_some() {
    for (runs, waits) in [(1, false), (2, false), (1, true), (3, true)] {
        let grove = scripted_tree("1", Duration::from_millis(5), five_leaves(waits));
        let top = grove.create_top().await;
        let driver = driver_with_runs(&grove, runs);
        let ended = run(&driver, &top).await;
        assert_eq!(ended.status, "completed", "{runs} {waits}: {ended:?}");
        assert_statuses(&grove, &top, 6, "completed").await;
        let most = grove.actor.most.load(Ordering::SeqCst) as u64;
        assert!(most <= runs, "{most} at once, {runs} are allowed");
        grove.assert_adds_up(&top).await;
    }
}

/// Symptom: after Ctrl-C, a shutdown or SIGTERM the children stayed suspended when their tree was
/// resumed, and their parents ended without them. Fix: the driver suspends the whole tree, and all
/// of it goes on with its top.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_was_stopped_in_order_goes_on_with_its_top() {
    let grove = scripted_tree("1", Duration::from_secs(30), Box::new(waits_for_all));
    let top = grove.create_top().await;
    let (stopper, stop) = stop_channel();
    let sink = EventSink::none();
    let stopped = grove.driver.run(&top, None, &sink, &stop);
    let stops = async {
        wait_for_calls(&grove, 4).await;
        stopper.raise(StopLevel::Cancel);
    };
    let (ended, ()) = tokio::join!(stopped, stops);
    let ended = ended.unwrap();
    assert_eq!(ended.status, "suspended", "{ended:?}");
    assert_eq!(ended.cause.unwrap().code, "stopped");
    assert_statuses(&grove, &top, 7, "suspended").await;
    *grove.actor.pause.lock().unwrap() = Duration::from_millis(10);
    let ended = run(&grove.driver, &top).await;
    assert_eq!(ended.result.as_deref(), Some(r#""all done""#), "{ended:?}");
    assert_statuses(&grove, &top, 7, "completed").await;
    grove.assert_adds_up(&top).await;
}

/// Same kind: few `runs`, and a tree that was stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_tree_goes_on_where_few_runs_are_allowed() {
    let grove = scripted_tree("1", Duration::from_secs(30), five_leaves(true));
    let top = grove.create_top().await;
    let driver = driver_with_runs(&grove, 2);
    let (stopper, stop) = stop_channel();
    let sink = EventSink::none();
    let stopped = driver.run(&top, None, &sink, &stop);
    let stops = async {
        wait_for_calls(&grove, 2).await;
        stopper.raise(StopLevel::Cancel);
    };
    let (ended, ()) = tokio::join!(stopped, stops);
    // Three have not begun: they still go on by themselves, and so does the wait for them.
    assert_eq!(ended.unwrap().status, "waiting");
    *grove.actor.pause.lock().unwrap() = Duration::from_millis(10);
    let ended = run(&driver, &top).await;
    assert_eq!(ended.status, "completed", "{ended:?}");
    assert_statuses(&grove, &top, 6, "completed").await;
}

/// Symptom: threads below a top that had ended could not be driven any more: `resume` refused the
/// top. Fix: it drives the threads below.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_below_an_ended_top_are_driven() {
    let act = |who: &str, before: usize, last: &str| match who {
        "top" if before == 0 => call_blocks(&[("spawn_thread", json!({"directive": "mid"}))]),
        "top" => text_blocks("top done"),
        _ => waits_for_all(who, before, last),
    };
    for stops_in_order in [true, false] {
        let grove = scripted_tree("1", Duration::from_secs(30), Box::new(act));
        let top = grove.create_top().await;
        let (stopper, stop) = stop_channel();
        let sink = EventSink::none();
        let mut first = Box::pin(grove.driver.run(&top, None, &sink, &stop));
        tokio::select! {
            ended = &mut first => panic!("{ended:?}"),
            () = wait_for_ended_top(&grove, &top) => {}
        }
        match stops_in_order {
            true => {
                stopper.raise(StopLevel::Cancel);
                assert_eq!(first.await.unwrap().status, "completed");
            }
            false => {
                drop(first);
                grove.driver.recover_lost().await.unwrap();
            }
        }
        *grove.actor.pause.lock().unwrap() = Duration::from_millis(10);
        let ended = run(&grove.driver, &top).await;
        assert_eq!(ended.status, "completed", "{ended:?}");
        assert_statuses(&grove, &top, 4, "completed").await;
        let again = grove
            .driver
            .run(&top, None, &sink, &StopReceiver::never())
            .await;
        assert!(again.is_err(), "nothing is left to be done: {again:?}");
        grove.assert_adds_up(&top).await;
    }
}

/// Same kind: a child that was created and never begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_created_child_below_a_top_that_has_ended_is_begun() {
    let grove = scripted_tree("1", Duration::from_millis(10), five_leaves(false));
    let top = grove.create_top().await;
    let driver = driver_with_runs(&grove, 1);
    let (sink, mut events) = EventSink::channel();
    let stop = StopReceiver::never();
    let ends = async { while !matches!(events.recv().await, Some(RunEvent::Ended(_))) {} };
    tokio::select! {
        ended = driver.run(&top, None, &sink, &stop) => panic!("{ended:?}"),
        () = ends => {}
    }
    driver.recover_lost().await.unwrap();
    let tree = grove.load_branches(&top).await;
    assert!(tree.iter().any(|one| one.status == "created"), "{tree:#?}");
    run(&driver, &top).await;
    assert_statuses(&grove, &top, 6, "completed").await;
}

/// Symptom: the money of a tree ran out, was raised, and the parent ended without the results of
/// its children. Fix: all of them are suspended together, and go on together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_money_that_runs_out_is_raised_and_no_result_is_lost() {
    let act = |who: &str, before: usize, last: &str| match who {
        "leaf" if before < 24 => call_blocks(&[("thread_status", json!({"thread": "none"}))]),
        _ => waits_for_all(who, 0, last),
    };
    let grove = scripted_tree("0.02", Duration::from_millis(5), Box::new(act));
    let top = grove.create_top().await;
    let mut ended = run(&grove.driver, &top).await;
    let mut raises = 0;
    while ended.status == "suspended" {
        assert_eq!(ended.cause.as_ref().unwrap().reason, "budget", "{ended:?}");
        // Without money nothing goes on, and nothing is lost.
        let again = run(&grove.driver, &top).await;
        assert_eq!(again.status, "suspended", "{again:?}");
        raises += 1;
        let caps = Limits {
            spend: Some(20_000_000 + raises * 7_000_000),
            ..Limits::default()
        };
        let through = false;
        let raise = SignalKind::Raise(Raised { caps, through });
        let name = format!("raise/{raises}");
        grove
            .driver
            .tenant()
            .signal(&top, &name, raise)
            .await
            .unwrap();
        ended = run(&grove.driver, &top).await;
    }
    assert!(raises > 0, "the money never ran out");
    assert_eq!(ended.result.as_deref(), Some(r#""all done""#), "{ended:?}");
    assert_statuses(&grove, &top, 7, "completed").await;
    grove.assert_adds_up(&top).await;
}

/// Symptom: `recover` of a child whose driver had died answered the wait of its parent, which
/// another driver ran. Fix: that driver revives the child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_is_recovered_in_a_live_tree_is_revived() {
    let grove = scripted_tree("1", Duration::from_secs(30), Box::new(waits_for_all));
    let top = grove.create_top().await;
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let live = grove.driver.run(&top, None, &sink, &stop);
    let recovers = async {
        wait_for_calls(&grove, 4).await;
        *grove.actor.pause.lock().unwrap() = Duration::from_millis(10);
        // A person does the same who takes a holder for dead.
        let tenant = grove.driver.tenant();
        let tree = grove.load_branches(&top).await;
        let leaf = tree.iter().find(|one| one.depth == 2).unwrap();
        let lease = tenant.get(&leaf.thread).await.unwrap().run.lease.unwrap();
        let recovered = tenant.recover_all(&[lease.holder]).await.unwrap();
        assert_eq!(recovered.closed, [leaf.thread.as_str()]);
        for other in tree.iter().filter(|one| one.depth == 2).skip(1) {
            let lease = tenant.get(&other.thread).await.unwrap().run.lease.unwrap();
            tenant.recover_all(&[lease.holder]).await.unwrap();
        }
    };
    let (ended, ()) = tokio::join!(live, recovers);
    let ended = ended.unwrap();
    assert_eq!(ended.result.as_deref(), Some(r#""all done""#), "{ended:?}");
    assert_statuses(&grove, &top, 7, "completed").await;
    grove.assert_adds_up(&top).await;
}

/// Waits until the tree has a top and children of these states, in any order; the children that
/// run.
async fn await_states(grove: &ScriptedTree, top: &str, above: &str, below: &[&str]) -> Vec<String> {
    loop {
        let tree = grove.load_branches(top).await;
        let mut states: Vec<&str> = tree[1..].iter().map(|one| &*one.status).collect();
        states.sort_unstable();
        if tree[0].status == above && states == below {
            let run = tree[1..].iter().filter(|one| one.status == "running");
            return run.map(|one| one.thread.clone()).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The top spawns two leaves and waits for one of them.
fn waits_for_one(who: &str, before: usize, _: &str) -> Vec<ReplyBlock> {
    let spawn = ("spawn_thread", json!({"directive": "leaf"}));
    match who {
        "top" if before == 0 => call_blocks(&[spawn.clone(), spawn, (WAIT, json!({"any": true}))]),
        "top" => text_blocks("all done"),
        _ => text_blocks("leaf done"),
    }
}

/// Symptom: a driver whose top was run by another process that died ended with "suspended
/// (recovered)", though it could go on; without room among the `runs` the top was never begun
/// again. Fix: it goes on with the top, and tries again until there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_top_whose_other_holder_died_goes_on_once_there_is_room() {
    let grove = scripted_tree("1", Duration::from_secs(3), Box::new(waits_for_one));
    let top = grove.create_top().await;
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let (one, two) = (driver_with_runs(&grove, 1), driver_with_runs(&grove, 1));
    let mut first = Box::pin(one.run(&top, None, &sink, &stop));
    let leaf = tokio::select! {
        ended = &mut first => panic!("{ended:?}"),
        run = await_states(&grove, &top, "waiting", &["created", "running"]) => run[0].clone(),
    };
    let mut second = Box::pin(run(&two, &top));
    tokio::select! {
        ended = &mut first => panic!("{ended:?}"),
        ended = &mut second => panic!("{ended:?}"),
        _ = await_states(&grove, &top, "waiting", &["running", "running"]) => {}
    }
    drop(first);
    let tenant = grove.driver.tenant();
    // The second performs the other leaf, and has no room for the top when its wait is over.
    let died = async {
        tenant
            .signal(&leaf, "kill", SignalKind::Kill)
            .await
            .unwrap();
        let proof = threadkeep::wit::runner::Proof::None;
        tenant.claim(&top, "dead/1", proof).await.unwrap();
        let recovered = tenant.recover_all(&["dead/1".to_owned()]).await.unwrap();
        assert_eq!(recovered.closed, [top.as_str()]);
    };
    let (ended, ()) = tokio::join!(second, died);
    assert_eq!(ended.result.as_deref(), Some(r#""all done""#), "{ended:?}");
    grove.assert_adds_up(&top).await;
}

/// A stop that comes before the answer of a wait is looked at: the run is suspended, and its model
/// is not asked once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_sends_no_call_after_the_answer_of_a_wait() {
    let grove = scripted_tree("1", Duration::from_secs(30), Box::new(waits_for_one));
    let top = grove.create_top().await;
    let (sink, never) = (EventSink::none(), StopReceiver::never());
    let mut first = Box::pin(grove.driver.run(&top, None, &sink, &never));
    let leaves = tokio::select! {
        ended = &mut first => panic!("{ended:?}"),
        run = await_states(&grove, &top, "waiting", &["running", "running"]) => run,
    };
    drop(first);
    let tenant = grove.driver.tenant();
    let kill = tenant.signal(&leaves[0], "kill", SignalKind::Kill);
    kill.await.unwrap();
    let (stopper, stop) = stop_channel();
    stopper.raise(StopLevel::Cancel);
    let proof = threadkeep::wit::runner::Proof::None;
    let ended = grove.driver.claim(&top, proof, &sink, &stop).await.unwrap();
    let cause = ended.cause.as_ref().map(|cause| cause.code.as_str());
    assert_eq!((&*ended.status, cause), ("suspended", Some("stopped")));
    assert_eq!(
        grove.count_requests("top"),
        1,
        "the wait was answered, and nothing sent"
    );
}

/// The end of a child that cannot be read wakes nobody: whoever looks through the tree finds it,
/// and the wait goes on without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_through_the_tree_finds_a_child_that_cannot_be_read() {
    let temp = tempfile::tempdir().unwrap();
    let store = crate::audit::fixture::open(temp.path());
    let grove = scripted_tree_over(store, "1", Duration::from_millis(500), five_leaves(true));
    let top = grove.create_top().await;
    let driver = driver_with_runs(&grove, 1);
    let breaks = async {
        let below = ["created", "created", "created", "created", "running"];
        await_states(&grove, &top, "waiting", &below).await;
        let tree = grove.load_branches(&top).await;
        let created = tree.iter().rfind(|one| one.status == "created").unwrap();
        let shell = rusqlite::Connection::open(temp.path().join("registry.db")).unwrap();
        let broken = "UPDATE record_head SET value = '{' WHERE name = ?1";
        assert_eq!(shell.execute(broken, [&created.thread]), Ok(1));
    };
    let (ended, ()) = tokio::join!(run(&driver, &top), breaks);
    assert_eq!(ended.result.as_deref(), Some(r#""all done""#), "{ended:?}");
    let tree = driver.tenant().tree(&top, None).await.unwrap();
    assert_eq!((tree.branches.len(), tree.unreadable.len()), (5, 1));
    let done = tree.branches.iter().all(|one| one.status == "completed");
    assert!(done, "{tree:#?}");
}
