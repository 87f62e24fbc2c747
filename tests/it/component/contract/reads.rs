//! Answers of reading: rows, pages, notes, documents at a version, and due threads.

use super::{ContractTenant, HELLO, NOTE, THREAD, draft_of};
use threadkeep::wit::registry::{Draft, Filter, RowPage};
use threadkeep::wit::runner::SignalKind;
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::draft;

async fn ids(world: &ContractTenant, filter: Filter) -> Vec<String> {
    let page = world.tenant.list(filter, 100, None).await.unwrap();
    page.threads.into_iter().map(|row| row.id).collect()
}

/// Symptom: a list with two filters used the first one and passed over the other: threads of
/// another owner were on the page. Fix: a filter is one thing.
#[tokio::test]
async fn each_filter_lists_what_it_names_and_nothing_else() {
    let world = ContractTenant::new().await;
    let some = |text: &str| Some(text.to_owned());
    for (id, agent, task, directive) in [
        ("ann-1", "ann", "t1", Some("work")),
        ("ann-2", "ann", "t2", Some("poor")),
        ("bob-1", "bob", "t1", None),
    ] {
        let wished = Draft {
            id: some(id),
            agent: some(agent),
            task: some(task),
            ..draft(directive)
        };
        world.tenant.create(wished).await.unwrap();
    }
    let text = str::to_owned;
    for (filter, expected) in [
        (Filter::Agent(text("ann")), vec!["ann-1", "ann-2"]),
        (Filter::Agent(text("bob")), vec!["bob-1"]),
        (Filter::Task(text("t1")), vec!["ann-1", "bob-1"]),
        (Filter::Directive(text("poor")), vec!["ann-2"]),
        (Filter::Chain(text("BOB-1")), vec!["bob-1"]),
        (Filter::Parent(text("bob-1")), vec![]),
        (Filter::Status(text("idle")), vec![]),
        (Filter::All, vec!["ann-1", "ann-2", "bob-1", THREAD]),
    ] {
        let shown = format!("{filter:?}");
        let mut found = ids(&world, filter).await;
        found.sort();
        assert_eq!(found, expected, "{shown}");
    }
    let page = world.tenant.list(Filter::All, 1, None).await.unwrap();
    let next = world.tenant.list(Filter::All, 100, page.cursor).await;
    assert_eq!(next.unwrap().threads.len(), 3);
}

/// The bytes of a page, as many as its texts have.
fn page_bytes(page: &RowPage) -> usize {
    format!("{page:?}").len()
}

#[tokio::test]
async fn a_page_of_the_largest_rows_is_less_than_a_mebibyte() {
    let world = ContractTenant::new().await;
    let label = || Some("l".repeat(200));
    for n in 0..100 {
        let wished = Draft {
            id: Some(format!("{n:0200}")),
            agent: label(),
            task: label(),
            title: Some("\u{1f642}".repeat(200)),
            inputs: Some(format!(r#"{{"file": "{}"}}"#, "i".repeat(60_000))),
            ..draft(None)
        };
        // A chat takes no inputs; where it does, they are not in its row.
        let made = match world.tenant.create(wished.clone()).await {
            Ok(made) => made,
            Err(_) => {
                let plain = Draft {
                    inputs: None,
                    ..wished
                };
                world.tenant.create(plain).await.unwrap()
            }
        };
        assert_eq!(made.id.len(), 200);
    }
    let page = world.tenant.list(Filter::All, 100, None).await.unwrap();
    assert_eq!(page.threads.len(), 100);
    let bytes = page_bytes(&page);
    assert!(bytes < 1 << 20, "{bytes}");
}

#[tokio::test]
async fn notes_are_kept_hashed_and_exported_and_no_model_is_sent_them() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let plain = ContractTenant::new().await;
    world.append(&[HELLO, NOTE]).await;
    plain.append(&[HELLO]).await;
    let events = tenant.events(THREAD, 0, 10, None).await.unwrap().events;
    assert_eq!((events[1].kind.as_str(), events[1].index), ("note", 1));
    assert_eq!(events[1].body, NOTE);
    let messages = |world: &ContractTenant| {
        let tenant = world.tenant.clone();
        async move {
            tenant
                .messages(THREAD, 0, None, None)
                .await
                .unwrap()
                .messages
        }
    };
    assert_eq!(messages(&world).await, messages(&plain).await);
    for (what, shown) in [("jsonl", r#""n":0.10"#), ("markdown", "Note: acme.step")] {
        let piece = tenant.render(THREAD, what, None, 0, None).await.unwrap();
        assert!(piece.text.contains(shown), "{what}: {}", piece.text);
    }
    let (noted, bare) = (
        tenant.get(THREAD).await.unwrap(),
        plain.tenant.get(THREAD).await.unwrap(),
    );
    assert_ne!(noted.hash, bare.hash);
    assert_eq!(noted.context, bare.context, "it takes no window");
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}

/// Symptom: a round could not be followed by an application's own record before its results. Kind:
/// a note stands anywhere, also while calls are open, and first in a history.
#[tokio::test]
async fn a_note_stands_anywhere() {
    let world = ContractTenant::new().await;
    let calls = r#"{"type":"tool_use","name":"read","arguments":"{}","id":"a"}"#;
    let result = r#"{"type":"tool_result","id":"a","text":"t"}"#;
    world
        .append(&[NOTE, HELLO, calls, NOTE, result, NOTE])
        .await;
    let messages = world.tenant.messages(THREAD, 0, None, None).await.unwrap();
    assert_eq!(messages.messages.len(), 3);
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}

#[tokio::test]
async fn a_thread_says_its_hash_its_context_and_its_window() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let created = tenant.get(THREAD).await.unwrap();
    assert_eq!((created.context, created.window), (0, None));
    assert!(created.base.is_none());
    let first = tenant.load(THREAD, Some(0)).await.unwrap();
    assert_eq!(first.hash, created.hash);
    let started = tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    let said = SignalKind::Message(super::super::fixture::message("hello"));
    tenant.signal(THREAD, "m", said).await.unwrap();
    let now = tenant.get(THREAD).await.unwrap();
    assert!(now.context > 0);
    assert_eq!(
        (now.window, started.thread.window),
        (Some(200_000), Some(200_000))
    );
    let more: serde_json::Value = serde_json::from_str(&now.more).unwrap();
    assert_eq!((&more["mail"], &more["children"]), (&1.into(), &0.into()));
    assert_eq!(started.step.more, "{}");
    let entry = &tenant.entries(THREAD, 0, 1, None).await.unwrap().entries[0];
    assert_eq!(entry.hash, now.hash);
    let body: serde_json::Value = serde_json::from_str(&entry.body).unwrap();
    assert_eq!(body["previous"], created.hash.as_str());
    let newest = tenant.load(THREAD, None).await.unwrap();
    assert_eq!((newest.version, &newest.hash), (1, &now.hash));
    assert_eq!(
        (now.run.version, created.run.version, created.run.number),
        (Some(1), None, 0)
    );
}

#[tokio::test]
async fn pages_go_on_by_their_cursor() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    world.append(&[HELLO]).await;
    for _ in 0..4 {
        world.append(&[NOTE]).await;
    }
    let (mut versions, mut cursor) = (Vec::new(), None);
    loop {
        let page = tenant.entries(THREAD, 1, 2, cursor).await.unwrap();
        versions.extend(page.entries.iter().map(|entry| entry.version));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(versions, [2, 3, 4, 5]);
    let page = tenant.events(THREAD, 0, 3, None).await.unwrap();
    let rest = tenant.events(THREAD, 0, 3, page.cursor).await.unwrap();
    let shown = |events: &[threadkeep::wit::Event]| -> Vec<u64> {
        events.iter().map(|event| event.version).collect()
    };
    assert_eq!(shown(&page.events), [1, 2, 3]);
    assert_eq!((shown(&rest.events), rest.cursor), (vec![4, 5], None));
}

#[tokio::test]
async fn documents_can_be_had_at_a_version_but_for_what_is_registered() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    for what in ["jsonl", "markdown"] {
        world.append(&[HELLO]).await;
        let before = tenant.render(THREAD, what, None, 0, None).await.unwrap();
        world.append(&[NOTE]).await;
        let at = Some(before.version);
        let then = tenant.render(THREAD, what, at, 0, None).await.unwrap();
        assert_eq!((&then.text, then.version), (&before.text, before.version));
        let rest = tenant.render(THREAD, what, None, before.version, None);
        let whole = tenant.render(THREAD, what, None, 0, None).await.unwrap();
        assert_eq!(then.text + &rest.await.unwrap().text, whole.text);
    }
    let newest = tenant.get(THREAD).await.unwrap().version;
    for what in ["manifest", "thread", "checkpoint"] {
        let now = tenant.render(THREAD, what, Some(newest), 0, None).await;
        assert_eq!(now.unwrap().version, newest, "{what}");
        let told = tenant.render(THREAD, what, Some(newest + 1), 0, None).await;
        assert_eq!(super::refusal(told), ("invalid", "at".to_owned()), "{what}");
    }
    let told = tenant.render(THREAD, "thread", Some(1), 0, None).await;
    assert_eq!(super::refusal(told), ("invalid", "at".to_owned()));
    for (what, version) in [
        ("manifest", "\"version\":1"),
        ("checkpoint", "\"history_version\": 1"),
    ] {
        let then = tenant.render(THREAD, what, Some(1), 0, None).await.unwrap();
        assert_eq!(then.version, 1, "{what}");
        assert!(then.text.contains(version), "{what}: {}", then.text);
    }
}

#[tokio::test]
async fn ready_says_which_calls_fit_and_when_to_look_again() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let due = tenant.ready(10, None, None).await.unwrap();
    assert_eq!(due.threads[0].thread, THREAD);
    assert_eq!(due.threads[0].calls, ["start"]);
    assert!(due.threads[0].since.is_none() && !due.threads[0].revive);
    assert!(due.threads[0].sighting.step.is_none());
    assert!(due.next.is_none(), "nothing else is to come");
    let begun = tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    for under in [None, Some(THREAD.to_owned())] {
        let due = tenant.ready(10, None, under.clone()).await.unwrap();
        assert!(due.threads.is_empty(), "{under:?}");
        let (lease, next) = (begun.thread.run.lease.as_ref().unwrap(), due.next.unwrap());
        assert!(next.seconds >= begun.step.deadline.seconds);
        assert!(next.seconds <= lease.expiry.seconds, "{under:?}");
    }
    tenant.create(draft_of("two")).await.unwrap();
    let due = tenant.ready(10, None, None).await.unwrap();
    assert_eq!((due.threads.len(), due.next.is_some()), (1, true));
    tenant.signal("two", "k", SignalKind::Kill).await.unwrap();
    let due = tenant.ready(10, None, None).await.unwrap();
    assert!(due.threads.is_empty(), "{due:?}");
}
