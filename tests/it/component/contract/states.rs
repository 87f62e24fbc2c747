//! Changes of the state through the component: by appends, and by the outcomes of a round.

use super::steps::{completion, outcomes};
use super::{ContractTenant, HELLO, THREAD, refusal};
use serde_json::{Value, json};
use threadkeep::wit::history::{ChangeSet, Expected, Written};
use threadkeep::wit::runner::Outcome;
use threadkeep_tests::auditor::audit;

fn set(scope: &str, name: &str, value: Value) -> Value {
    let step = json!({"op": "add", "path": format!("/{name}"), "value": value});
    json!({"scope": scope, "patch": [step]})
}

fn add(name: &str, value: i64) -> Value {
    let path = format!("/{name}");
    json!({"scope": "thread", "op": "add", "path": path, "value": value})
}

fn change(patches: &[Value], operations: &[Value]) -> ChangeSet {
    let texts = |values: &[Value]| values.iter().map(Value::to_string).collect();
    ChangeSet {
        patches: texts(patches),
        operations: texts(operations),
        ..ChangeSet::of_events(Vec::new())
    }
}

impl ContractTenant {
    async fn change(
        &self,
        expected: Expected,
        change: ChangeSet,
    ) -> Result<Written, threadkeep::error::CallError> {
        let changed = self.tenant.append_change(THREAD, None, expected, change);
        changed.await
    }

    /// The scope of the thread at a version, or now.
    async fn state(&self, at: Option<u64>) -> Value {
        let loaded = self.tenant.load(THREAD, at).await.unwrap();
        let state: Value = serde_json::from_str(&loaded.state).unwrap();
        state["thread"].clone()
    }
}

/// Two calls of one round whose patches touch one place: neither is applied, both results say so
/// and name both calls, and what a third changes is there.
#[tokio::test]
async fn patches_of_one_round_that_cross_are_told_to_both_calls() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let handle = tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    let call = json!({"type": "tool_use", "id": "x", "name": "read", "arguments": "{}"});
    let reply = completion(&json!([call, call, call]), "tool_use");
    let (token, version) = (handle.token, handle.step.version);
    let step = tenant.submit(THREAD, token, version, reply, 0).await;
    let step = step.unwrap();
    let Outcome::Outcomes(mut results) =
        outcomes(&step.calls, r#"[{"type": "text", "text": "ok"}]"#)
    else {
        panic!("outcomes of tools");
    };
    let patches = [
        set("thread", "a", json!({})),
        set("thread", "a", json!(1)),
        set("thread", "b", json!(2)),
    ];
    for (result, patch) in results.iter_mut().zip(patches) {
        result.patches = json!([patch]).to_string();
        result.operations = json!([add("n", 1)]).to_string();
    }
    let given = Outcome::Outcomes(results);
    let next = tenant.submit(THREAD, token, step.version, given, 0).await;
    next.unwrap();
    assert_eq!(world.state(None).await, json!({"b": 2, "n": 1}));
    let events = tenant.events(THREAD, 0, 100, None).await.unwrap().events;
    let results = events.iter().filter(|event| event.kind == "tool_result");
    let results: Vec<Value> = results
        .map(|event| serde_json::from_str(&event.body).unwrap())
        .collect();
    let names = [0, 1].map(|n| format!("call_{}_{n} (read)", step.version));
    for (n, result) in results.iter().enumerate() {
        let (crossed, text) = (n < 2, result["text"].as_str().unwrap());
        assert_eq!(result["failed"], crossed, "{result}");
        assert!(text.starts_with("ok"), "the result is kept: {text}");
        let told = names.iter().all(|name| text.contains(name));
        assert_eq!(told, crossed, "{text}");
    }
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}

/// A writer that saw an earlier version is refused by an exact version, and met by `any`; the same
/// request again is done already.
#[tokio::test]
async fn a_stale_writer_is_refused_and_writes_nothing() {
    let world = ContractTenant::new().await;
    let first = ChangeSet {
        request: Some("first".to_owned()),
        ..change(&[set("thread", "a", json!(1))], &[])
    };
    let exact = Expected::Exact;
    let written = world.change(exact(0), first.clone()).await.unwrap();
    assert_eq!(written.version, 1);
    let before = world.records();
    for stale in [
        change(&[set("thread", "a", json!(2))], &[]),
        change(&[], &[add("n", 1)]),
        ChangeSet {
            snapshot: Some(json!({"thread": {}}).to_string()),
            ..change(&[], &[])
        },
    ] {
        let told = refusal(world.change(exact(0), stale).await);
        assert_eq!(told, ("conflict", "version".to_owned()));
    }
    let repeated = world.change(exact(0), first).await.unwrap();
    assert_eq!(repeated.version, 1);
    assert_eq!(world.records(), before);
    let replaced = json!([{"op": "replace", "path": "/a", "value": 3}]);
    let newest = change(&[json!({"scope": "thread", "patch": replaced})], &[]);
    world.change(Expected::Any, newest).await.unwrap();
    assert_eq!(world.state(None).await, json!({"a": 3}));
    assert_eq!(world.state(Some(1)).await, json!({"a": 1}));
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}

/// A snapshot stands before the patches of its change, and these before the operations: each is
/// applied once.
#[tokio::test]
async fn a_snapshot_with_patches_is_applied_once_and_in_order() {
    let world = ContractTenant::new().await;
    let all = ChangeSet {
        snapshot: Some(json!({"thread": {"n": 40}}).to_string()),
        request: Some("once".to_owned()),
        ..change(&[set("thread", "list", json!([1]))], &[add("n", 2)])
    };
    world.change(Expected::Exact(0), all.clone()).await.unwrap();
    world.change(Expected::Exact(0), all).await.unwrap();
    assert_eq!(world.state(None).await, json!({"n": 42, "list": [1]}));
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}

/// Bad changes, each by its place.
#[tokio::test]
async fn bad_changes_are_refused_by_their_place_and_write_nothing() {
    let world = ContractTenant::new().await;
    let with_id = |text: &str| {
        let message = json!({"type": "message", "role": "user", "content": text, "id": "m-1"});
        ChangeSet::of_events(vec![message.to_string()])
    };
    world.append(&[HELLO]).await;
    world.change(Expected::Any, with_id("once")).await.unwrap();
    let before = world.records();
    let step = |step: Value| json!({"scope": "thread", "patch": [step]});
    let large = "x".repeat(70_000);
    let inner = json!({"op": "test", "path": "/a", "value": 1});
    for (field, bad) in [
        (
            "change.patches[0].scope",
            change(&[set("chain", "a", json!(1))], &[]),
        ),
        (
            "change.operations[0].scope",
            change(
                &[],
                &[json!({"scope": "x", "op": "add", "path": "/n", "value": 1})],
            ),
        ),
        ("change.patches[0].patch[0]", change(&[step(inner)], &[])),
        (
            "change.patches[1].patch[0]",
            change(
                &[
                    set("thread", "a", json!(1)),
                    step(json!({"op": "remove", "path": "/b"})),
                ],
                &[],
            ),
        ),
        (
            "change.patches",
            change(&[set("thread", "a", json!(large))], &[]),
        ),
        ("events[0].id", with_id("twice")),
    ] {
        let told = refusal(world.change(Expected::Any, bad).await);
        assert_eq!(told, ("invalid", field.to_owned()));
        assert_eq!(world.records(), before, "{field}");
    }
    world.change(Expected::Any, with_id("once")).await.unwrap();
    assert_eq!(world.records(), before, "a known message is added once");
    assert_eq!(audit(&*world.store), Vec::<String>::new());
}
