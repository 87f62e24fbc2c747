//! Resumes that a driver performs, over a real component.

use crate::children::scripted_tree::{call_blocks, scripted_tree, text_blocks};
use serde_json::json;
use std::time::Duration;
use threadkeep::driver::{DriveError, EventSink, RunEvent, StopReceiver};
use threadkeep::error::CallError;
use threadkeep::models::user_message;
use threadkeep::wit;

/// The id of the child in the answer of a wait.
fn child_in(answer: &str) -> String {
    let (_, rest) = answer.split_once(r#"\"thread\":\""#).expect("a child");
    rest.split_once('\\').expect("its id").0.to_owned()
}

/// The driver of a tree resumes a child that its parent has sent a message, and the wait of the
/// parent gets the new result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_resumes_the_child_of_an_agent() {
    let act = |who: &str, before: usize, last: &str| match (who, before) {
        ("top", 0) => call_blocks(&[
            ("spawn_thread", json!({"directive": "mid"})),
            ("wait_threads", json!({})),
        ]),
        ("top", 1) => {
            assert!(last.contains("first try"), "{last}");
            let child = child_in(last);
            call_blocks(&[
                (
                    "resume_thread",
                    json!({"thread": child, "message": "do it better"}),
                ),
                ("wait_threads", json!({"threads": [child]})),
            ])
        }
        ("mid", 0) => text_blocks("first try"),
        ("mid", _) => {
            assert!(last.contains("do it better"), "{last}");
            text_blocks("second try")
        }
        _ => text_blocks(if last.contains("second try") {
            "good"
        } else {
            "bad"
        }),
    };
    let grove = scripted_tree("1", Duration::from_millis(5), Box::new(act));
    let top = grove.create_top().await;
    let (sink, mut events) = EventSink::channel();
    let never = StopReceiver::never();
    let ended = grove.driver.run(&top, None, &sink, &never).await.unwrap();
    assert_eq!(ended.result.as_deref(), Some(r#""good""#), "{ended:?}");
    drop(sink);
    let mut resumed = None;
    while let Some(event) = events.recv().await {
        if let RunEvent::Child { event, .. } = event
            && let RunEvent::Resumed(told) = *event
        {
            resumed = Some(told);
        }
    }
    let told = resumed.expect("it is told");
    assert_eq!(
        (told.reconstructed_turns, told.directive.as_deref()),
        (1, Some("mid"))
    );
    let tree = grove.load_branches(&top).await;
    assert_eq!(tree.len(), 2, "a chain is one child: {tree:?}");
    assert_eq!(tree[1].thread, told.new_thread_id);
    grove.assert_adds_up(&top).await;
}

/// `Driver::resume` serves both: a successor of a thread that has ended, and one that goes on in
/// place.
#[tokio::test]
async fn a_driver_resumes_what_has_ended() {
    let act = |_: &str, before: usize, _: &str| text_blocks(&format!("answer {before}"));
    let grove = scripted_tree("1", Duration::from_millis(1), Box::new(act));
    let top = grove.create_top().await;
    let (none, never) = (EventSink::none(), StopReceiver::never());
    let begun = grove
        .driver
        .resume(&top, None, &none, &never)
        .await
        .unwrap();
    assert_eq!(begun.thread, top, "a new thread is begun in place");
    let refused = grove.driver.resume(&top, None, &none, &never).await;
    match refused {
        Err(DriveError::Call(CallError::Refused(wit::Error::Invalid(what)))) => {
            assert_eq!(what.field, "input");
        }
        other => panic!("{other:?}"),
    }
    let again = grove
        .driver
        .run(&top, Some(user_message("more")), &none, &never)
        .await;
    assert!(again.is_err(), "a run is no resume");
    let (sink, mut events) = EventSink::channel();
    let more = Some(user_message("more"));
    let ended = grove
        .driver
        .resume(&top, more, &sink, &never)
        .await
        .unwrap();
    assert_eq!(ended.result.as_deref(), Some(r#""answer 1""#));
    assert_ne!(ended.thread, top);
    let told = std::iter::from_fn(|| events.try_recv().ok()).find_map(|event| match event {
        RunEvent::Resumed(told) => Some(told),
        _ => None,
    });
    let told = told.expect("it is told");
    assert_eq!(
        (&told.old_thread_id, &told.new_thread_id),
        (&top, &ended.thread)
    );
    assert_eq!(
        (told.original_thread_id, told.reconstructed_turns),
        (None, 1)
    );
    grove.assert_adds_up(&ended.thread).await;
}
