//! Calls that are repeated: the same one finds out, another one is told.

use super::super::fixture::{message, tenant};
use super::{ContractTenant, HELLO, NOTE, THREAD, draft_of, refusal};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit::registry::{Draft, Filter};
use threadkeep::wit::{history, runner};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::faulty::{DeathPoint, FaultyStore};
use threadkeep_tests::fixture::draft;

/// Symptom: `create`, repeated after `unknown` as the error says, made a second thread. Cause:
/// nothing named the request. Fix: it has a key. Kind: the outcome is lost before or after the
/// commit, and with or without an id.
#[tokio::test]
async fn a_repeated_creation_makes_one_thread() {
    for (death, named) in [
        (DeathPoint::Unknown(1), false),
        (DeathPoint::Unknown(1), true),
        (DeathPoint::UnknownLost(1), false),
        (DeathPoint::After(1), true),
    ] {
        let memory = Arc::new(MemoryStore::new());
        let inner = Arc::clone(&memory) as Arc<dyn StorageBackend>;
        let dying = tenant(Arc::new(FaultyStore::new(Arc::clone(&inner), death)));
        let wished = || match named {
            true => draft_of(THREAD),
            false => draft(Some("work")),
        };
        let first = dying.create_once(wished(), "k").await;
        let second = tenant(inner);
        let made = second.create_once(wished(), "k").await.unwrap();
        let again = second.create_once(wished(), "k").await.unwrap();
        assert_eq!(made.id, again.id, "{death:?}");
        if let Ok(first) = first {
            assert_eq!(
                first.id, made.id,
                "{death:?}: the host repeats it by itself"
            );
        }
        let page = second.list(Filter::All, 10, None).await.unwrap();
        assert_eq!(page.threads.len(), 1, "{death:?}");
        let other = Draft {
            title: Some("another".to_owned()),
            ..wished()
        };
        let told = refusal(second.create_once(other, "k").await);
        assert_eq!(told, ("conflict", "draft".to_owned()));
        second.create_once(draft(Some("work")), "l").await.unwrap();
        assert_eq!(audit(&*memory), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_creation_that_is_repeated_later_answers_the_thread_as_it_is() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let made = tenant.create_once(draft_of("two"), "k").await.unwrap();
    assert_eq!((made.status.as_str(), made.version), ("created", 0));
    let started = tenant.start("two", None, "h/1", "k", None).await.unwrap();
    let again = tenant.create_once(draft_of("two"), "k").await.unwrap();
    assert_eq!(again.status, "running");
    assert_eq!(again.version, started.step.version);
}

/// Symptom: a start with a key that was used answered the first run, and the new input was gone.
/// Cause: only the key was compared. Fix: another input or origin is a conflict.
#[tokio::test]
async fn a_used_key_of_a_start_takes_no_other_input() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let about = || Some(r#"{"origin": "acme", "parent": {"run": 3}}"#.to_owned());
    let said = |text: &str| Some(message(text));
    let first = tenant
        .start(THREAD, said("a"), "h/1", "k", about())
        .await
        .unwrap();
    let again = tenant.start(THREAD, said("a"), "h/1", "k", about()).await;
    let again = again.unwrap();
    assert_eq!(
        (again.token, again.step.version),
        (first.token, first.step.version)
    );
    for (input, origin) in [
        (said("b"), about()),
        (None, about()),
        (said("a"), None),
        (said("a"), Some("{}".to_owned())),
    ] {
        let told = refusal(tenant.start(THREAD, input, "h/1", "k", origin).await);
        assert_eq!(told, ("conflict", "input".to_owned()));
    }
    let page = tenant.entries(THREAD, 0, 10, None).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    let entry: serde_json::Value = serde_json::from_str(&page.entries[0].body).unwrap();
    assert_eq!(entry["about"]["origin"], "acme");
    assert_eq!(entry["about"]["parent"]["run"], 3);
    let messages = tenant.messages(THREAD, 0, None, None).await.unwrap();
    assert!(!messages.messages.concat().contains("acme"));
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}

#[tokio::test]
async fn an_append_to_any_version_follows_what_is_there() {
    let world = ContractTenant::new().await;
    assert_eq!(world.append(&[HELLO]).await.version, 1);
    assert_eq!(world.append(&[NOTE]).await.version, 2);
    assert_eq!(world.append(&[NOTE]).await.version, 3, "it appends again");
    let exact = |version, request: Option<&str>| {
        let mut change = history::ChangeSet::of_events(vec![NOTE.to_owned()]);
        change.request = request.map(str::to_owned);
        let expected = history::Expected::Exact(version);
        world.tenant.append_change(THREAD, None, expected, change)
    };
    assert_eq!(exact(3, Some("r")).await.unwrap().version, 4);
    let again = exact(3, Some("r")).await;
    assert_eq!(again.unwrap().version, 4, "it was done already");
    for (version, request) in [(0, Some("r")), (3, Some("s")), (3, None)] {
        let told = refusal(exact(version, request).await);
        assert_eq!(told, ("conflict", "version".to_owned()));
    }
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}

#[tokio::test]
async fn progress_only_asks_without_a_text() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let begun = tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    let expiry = |thread: &threadkeep::wit::Thread| {
        let lease = thread.run.lease.as_ref().unwrap();
        (lease.expiry.seconds, lease.expiry.nanos)
    };
    let before = world.records();
    let news = tenant.progress(THREAD, begun.token, None).await.unwrap();
    assert_eq!(news.verdict, "go-on");
    assert_eq!(world.records(), before);
    let text = Some("half".to_owned());
    tenant.progress(THREAD, begun.token, text).await.unwrap();
    let now = tenant.get(THREAD).await.unwrap();
    assert_eq!(
        expiry(&now),
        expiry(&begun.thread),
        "the lease is as it was"
    );
    let cancel = runner::SignalKind::Cancel;
    tenant.signal(THREAD, "c", cancel).await.unwrap();
    let news = tenant.progress(THREAD, begun.token, None).await.unwrap();
    assert_eq!(news.verdict, "stop");
}
