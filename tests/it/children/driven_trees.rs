//! Trees that a driver performs: children side by side, over a real component and a real store.

use super::scripted_tree::{call_blocks, scripted_tree, text_blocks};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::Duration;
use threadkeep::driver::{EventSink, RunEvent, StopLevel, StopReceiver, stop_channel};
use threadkeep::models::ReplyBlock;
use threadkeep::wit::Limits;
use threadkeep::wit::runner::{Raised, SignalKind};

/// Each level spawns two of the next and waits for them in the same reply.
fn two_each(who: &str, before: usize, _: &str) -> Vec<ReplyBlock> {
    let next = match who {
        "top" => "mid",
        "mid" => "leaf",
        _ => return text_blocks("leaf done"),
    };
    if before > 0 && who == "top" {
        return text_blocks("all done");
    }
    let spawn = ("spawn_thread", json!({"directive": next}));
    call_blocks(&[spawn.clone(), spawn, ("wait_threads", json!({}))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_run_side_by_side_and_their_parents_go_on() {
    // A `mid` that has its results is asked again: by then four calls in all.
    let act = |who: &str, before: usize, last: &str| match who {
        "mid" if last.contains("leaf done") => text_blocks("mid done"),
        _ => two_each(who, before, last),
    };
    let grove = scripted_tree("1", Duration::from_millis(150), Box::new(act));
    let top = grove.create_top().await;
    let (sink, mut events) = EventSink::channel();
    let ended = grove
        .driver
        .run(&top, None, &sink, &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!(ended.status, "completed", "{ended:?}");
    assert_eq!(ended.result.as_deref(), Some(r#""all done""#));
    let tree = grove.load_branches(&top).await;
    let depths: Vec<u32> = tree.iter().map(|branch| branch.depth).collect();
    assert_eq!(depths, [0, 1, 2, 2, 1, 2, 2]);
    assert!(
        tree.iter().all(|branch| branch.status == "completed"),
        "{tree:?}"
    );
    assert!(
        grove.actor.most.load(Ordering::SeqCst) >= 4,
        "leaves are asked at once"
    );
    grove.assert_adds_up(&top).await;
    drop(sink);
    let (mut waits, mut children) = (0, 0);
    while let Some(event) = events.recv().await {
        match event {
            RunEvent::Waits { thread } => {
                assert_eq!(thread, top);
                waits += 1;
            }
            RunEvent::Child { event, .. } => {
                children += usize::from(matches!(*event, RunEvent::Ended(_)));
            }
            _ => {}
        }
    }
    assert_eq!((waits, children), (1, 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_runs_out_of_money_goes_on_in_place_once_it_is_raised() {
    let act = |who: &str, before: usize, last: &str| match who {
        "leaf" if before < 5 => call_blocks(&[("thread_status", json!({"thread": "none"}))]),
        "leaf" => text_blocks("leaf done"),
        // The parent repeats a wait whose answer says that a child has no money.
        _ if before == 0 => {
            let next = if who == "top" { "mid" } else { "leaf" };
            call_blocks(&[
                ("spawn_thread", json!({"directive": next})),
                ("wait_threads", json!({})),
            ])
        }
        _ if last.contains("suspended") => call_blocks(&[("wait_threads", json!({}))]),
        _ => text_blocks("done"),
    };
    let grove = scripted_tree("0.006", Duration::from_millis(5), Box::new(act));
    let top = grove.create_top().await;
    let ended = grove
        .driver
        .run(&top, None, &EventSink::none(), &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!(ended.status, "suspended", "{ended:?}");
    assert_eq!(ended.cause.unwrap().reason, "budget");
    assert!(
        grove
            .load_branches(&top)
            .await
            .iter()
            .all(|branch| branch.status == "suspended")
    );
    grove.assert_adds_up(&top).await;
    let caps = Limits {
        spend: Some(500_000_000),
        ..Limits::default()
    };
    let raise = SignalKind::Raise(Raised {
        caps,
        through: false,
    });
    grove
        .driver
        .tenant()
        .signal(&top, "raise", raise)
        .await
        .unwrap();
    let ended = grove
        .driver
        .run(&top, None, &EventSink::none(), &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!(
        ended.status,
        "completed",
        "{ended:?} {:?}",
        grove.load_branches(&top).await
    );
    let tree = grove.load_branches(&top).await;
    assert_eq!(tree.len(), 3, "nothing was spawned again");
    assert!(
        tree.iter().all(|branch| branch.status == "completed"),
        "{tree:?}"
    );
    grove.assert_adds_up(&top).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_of_the_top_ends_the_whole_tree() {
    let grove = scripted_tree("1", Duration::from_secs(30), Box::new(two_each));
    let top = grove.create_top().await;
    let (stopper, stop) = stop_channel();
    let tenant = grove.driver.tenant().clone();
    let sink = EventSink::none();
    let run = grove.driver.run(&top, None, &sink, &stop);
    let cancel = async {
        while grove.actor.now.load(Ordering::SeqCst) < 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tenant
            .signal(&top, "cancel", SignalKind::Cancel)
            .await
            .unwrap();
        stopper.raise(StopLevel::Cancel);
    };
    let (ended, ()) = tokio::join!(run, cancel);
    assert_eq!(ended.unwrap().status, "cancelled");
    assert!(
        grove
            .load_branches(&top)
            .await
            .iter()
            .all(|branch| branch.status == "cancelled")
    );
    grove.assert_adds_up(&top).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_whose_run_was_dropped_goes_on_with_its_top() {
    let act = |who: &str, before: usize, last: &str| match who {
        "mid" if last.contains("leaf done") => text_blocks("mid done"),
        "mid" if last.contains("suspended") => {
            panic!("a child was not revived before its parent: {last}")
        }
        _ => two_each(who, before, last),
    };
    let grove = scripted_tree("1", Duration::from_secs(30), Box::new(act));
    let top = grove.create_top().await;
    let sink = EventSink::none();
    let stop = StopReceiver::never();
    let all_asked = async {
        while grove.actor.now.load(Ordering::SeqCst) < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        ended = grove.driver.run(&top, None, &sink, &stop) => panic!("{ended:?}"),
        () = all_asked => {}
    }
    *grove.actor.pause.lock().unwrap() = Duration::from_millis(30);
    let closed = grove.driver.recover_lost().await.unwrap();
    assert_eq!(closed.len(), 4, "four leaves were held: {closed:?}");
    let ended = grove.driver.run(&top, None, &sink, &stop).await.unwrap();
    assert_eq!(ended.status, "completed", "{ended:?}");
    let tree = grove.load_branches(&top).await;
    assert_eq!(tree.len(), 7, "nothing was spawned again");
    assert!(
        tree.iter().all(|branch| branch.status == "completed"),
        "{tree:?}"
    );
    grove.assert_adds_up(&top).await;
}

/// Symptom: a run of a tree never came back. Cause: its top was ended by another process while it
/// waited, and the driver did not read its status again. Fix: it does, with each look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_end_of_a_waiting_top_is_noticed() {
    let grove = scripted_tree("1", Duration::from_secs(60), Box::new(two_each));
    let top = grove.create_top().await;
    let tenant = grove.driver.tenant().clone();
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let run = grove.driver.run(&top, None, &sink, &stop);
    let kill = async {
        while grove.actor.now.load(Ordering::SeqCst) < 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tenant.signal(&top, "kill", SignalKind::Kill).await.unwrap();
    };
    let (ended, ()) = tokio::join!(run, kill);
    assert_eq!(ended.unwrap().status, "killed");
    assert!(
        grove
            .load_branches(&top)
            .await
            .iter()
            .all(|branch| branch.status == "killed")
    );
    grove.assert_adds_up(&top).await;
}
