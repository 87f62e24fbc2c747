//! Refusals, each by the name of the function or field.

use super::super::fixture::message;
use super::{ContractTenant, HELLO, THREAD, draft_of, refusal};
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};
use threadkeep::wit::ledger::{Bill, Estimate, ModelCall};
use threadkeep::wit::registry::Filter;
use threadkeep::wit::runner::{Outcome, Proof, Raised, SignalKind};
use threadkeep::wit::{self, Limits, Usage, history};

#[tokio::test]
async fn unbuilt_functions_are_refused_by_name_and_write_nothing() {
    let world = ContractTenant::new().await;
    let (tenant, before) = (&world.tenant, world.records());
    for (name, told) in [
        (
            "registry.delete",
            refusal(tenant.delete(THREAD, None, None).await),
        ),
        (
            "transcript.search",
            refusal(tenant.search(THREAD, "{}", 1, None).await),
        ),
        (
            "maintenance.attest",
            refusal(tenant.attest(THREAD, 0, "{}").await),
        ),
    ] {
        let message = format!("not-built: {name} is not built in this version of the component");
        assert_eq!(told, ("other", message));
    }
    assert_eq!(world.records(), before);
}

#[tokio::test]
async fn unknown_kinds_are_refused_by_field_and_write_nothing() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let handle = tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    let (token, version) = (handle.token, handle.step.version);
    let before = world.records();
    let deadline = handle.step.deadline;
    for (text, kind) in [
        (r#"{"kind": "from-tomorrow", "n": 1}"#, ".kind"),
        (r#"{"n": 1}"#, ""),
        ("tomorrow", ""),
        ("", ""),
    ] {
        let text = || text.to_owned();
        let outcome = Outcome::Other(text());
        let estimate = Estimate::Other(text());
        for (field, told) in [
            (
                "filter",
                refusal(tenant.list(Filter::Other(text()), 1, None).await),
            ),
            (
                "signal",
                refusal(tenant.signal(THREAD, "s", SignalKind::Other(text())).await),
            ),
            (
                "proof",
                refusal(tenant.claim(THREAD, "h/2", Proof::Other(text())).await),
            ),
            (
                "outcome",
                refusal(tenant.submit(THREAD, token, version, outcome, 0).await),
            ),
            (
                "estimate",
                refusal(tenant.hold(THREAD, token, "k", estimate, deadline).await),
            ),
            (
                "bill",
                refusal(tenant.settle(THREAD, version, Bill::Other(text())).await),
            ),
        ] {
            assert_eq!(told, ("invalid", format!("{field}{kind}")), "{}", text());
        }
    }
    assert_eq!(world.records(), before);
}

/// A cap of each kind that a binding has made of -1, or that is just above the largest.
fn wrapped_caps() -> Vec<(&'static str, Limits)> {
    let mut caps = Vec::new();
    for count in [u32::MAX, 1 << 31] {
        let count = Some(count);
        let none = Limits::default;
        caps.extend([
            (
                "limits.turns",
                Limits {
                    turns: count,
                    ..none()
                },
            ),
            (
                "limits.spawns",
                Limits {
                    spawns: count,
                    ..none()
                },
            ),
            (
                "limits.depth",
                Limits {
                    depth: count,
                    ..none()
                },
            ),
        ]);
    }
    for number in [u64::MAX, 1 << 63] {
        let number = Some(number);
        let none = Limits::default;
        caps.extend([
            (
                "limits.tokens",
                Limits {
                    tokens: number,
                    ..none()
                },
            ),
            (
                "limits.spend",
                Limits {
                    spend: number,
                    ..none()
                },
            ),
            (
                "limits.duration",
                Limits {
                    duration: number,
                    ..none()
                },
            ),
        ]);
    }
    caps
}

/// Symptom: a cap of -1 from Python or JavaScript was a cap of 18,446,744,073 USD. Cause: their
/// bindings wrap it. Fix: such numbers are refused. Kind: caps, counts and tokens of every call.
#[tokio::test]
async fn numbers_that_a_binding_has_wrapped_are_refused_by_field() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let opened = super::super::fixture::open_for_a_minute(tenant, THREAD).await;
    let (token, deadline) = opened;
    let before = world.records();
    for (field, limits) in wrapped_caps() {
        let wished = threadkeep::wit::registry::Draft {
            limits,
            ..draft_of("two")
        };
        let told = refusal(tenant.create(wished).await);
        assert_eq!(told, ("invalid", field.to_owned()));
        let raise = SignalKind::Raise(Raised {
            caps: limits,
            through: false,
        });
        let told = refusal(tenant.signal(THREAD, "r", raise).await);
        assert_eq!(told, ("invalid", field.to_owned()), "raised");
    }
    for wrapped in [u64::MAX, 1 << 63] {
        for (field, input, output) in [("input", wrapped, 1), ("output", 1, wrapped)] {
            let model = "default".to_owned();
            let asked = Estimate::Tokens(ModelCall {
                model,
                input,
                output,
            });
            let told = refusal(tenant.hold(THREAD, token, "k", asked, deadline).await);
            assert_eq!(told, ("invalid", format!("estimate.{field}")));
        }
        let told = tenant.hold(THREAD, token, "k", Estimate::Amount(wrapped), deadline);
        assert_eq!(
            refusal(told.await),
            ("invalid", "estimate.amount".to_owned())
        );
        let usage = Usage {
            input: 1,
            output: wrapped,
            read: 0,
            write: 0,
            reasoning: 0,
        };
        let told = refusal(tenant.settle(THREAD, 1, Bill::Usage(usage)).await);
        assert_eq!(told, ("invalid", "bill.usage.output".to_owned()));
    }
    assert_eq!(world.records(), before);
}

#[tokio::test]
async fn changes_that_are_not_built_are_refused_by_field() {
    let world = ContractTenant::new().await;
    let before = world.records();
    let only = || history::ChangeSet::of_events(vec![HELLO.to_owned()]);
    let json = || "{}".to_owned();
    for (field, change) in [
        (
            "change.patches[0].scope",
            history::ChangeSet {
                patches: vec![json()],
                ..only()
            },
        ),
        (
            "change.operations[0].scope",
            history::ChangeSet {
                operations: vec![json()],
                ..only()
            },
        ),
        (
            "change.snapshot",
            history::ChangeSet {
                snapshot: Some(json()),
                ..only()
            },
        ),
    ] {
        let exact = history::Expected::Exact(0);
        let told = world.tenant.append_change(THREAD, None, exact, change);
        assert_eq!(refusal(told.await), ("invalid", field.to_owned()));
    }
    assert_eq!(world.records(), before);
}

/// Symptom: a wrong state of a tool outcome was refused without its place, and the empty list `[]`
/// of patches as if it were none. Kind: fields of one outcome among many. Patches and operations
/// are never refused: the tool has run, and its result must not be lost.
#[tokio::test]
async fn what_a_tool_outcome_cannot_have_is_refused_by_field() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let begun = tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    let (token, version) = (begun.token, begun.step.version);
    let before = world.records();
    let done = |state: &str, patches: &str, operations: &str| wit::ToolOutcome {
        version,
        index: 0,
        state: state.to_owned(),
        failed: false,
        content: "[]".to_owned(),
        patches: patches.to_owned(),
        operations: operations.to_owned(),
        cost: 0,
    };
    let submit = |last: wit::ToolOutcome| {
        let outcomes = vec![done("done", "[]", " []"), last];
        let outcomes = wit::runner::Outcome::Outcomes(outcomes);
        async move { refusal(tenant.submit(THREAD, token, version, outcomes, 0).await) }
    };
    for (field, last) in [
        ("outcomes[1].state", done("maybe", "", "")),
        ("outcomes[1].state", done("", "[{}]", "{}")),
    ] {
        assert_eq!(submit(last).await, ("invalid", field.to_owned()));
    }
    // All forms are taken: the step is of another kind.
    for given in ["", "[]", " []\n", "[{}]", "{"] {
        let (_, told) = submit(done("done", given, given)).await;
        assert!(
            !told.contains("patches") && !told.contains("operations"),
            "{told}"
        );
    }
    assert_eq!(world.records(), before);
}

/// Symptom: a call of which the model may write 0 tokens was answered as if it were held as an
/// amount. Kind: a zero is a value.
#[tokio::test]
async fn an_admission_says_no_output_for_an_amount_alone() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let (token, deadline) = super::super::fixture::open_for_a_minute(tenant, THREAD).await;
    let call = |output| {
        Estimate::Tokens(ModelCall {
            model: "default".to_owned(),
            input: 10,
            output,
        })
    };
    for (key, estimate, output) in [
        ("nothing", call(0), Some(0)),
        ("some", call(9), Some(9)),
        ("amount", Estimate::Amount(5), None),
    ] {
        for _ in 0..2 {
            let held = tenant.hold(THREAD, token, key, estimate.clone(), deadline);
            assert_eq!(held.await.unwrap().output, output, "{key}");
        }
    }
}

/// Symptom: callers of a thread whose inbox was full tried again for ever. Cause: it was `busy`,
/// which may be repeated. Fix: it is `exceeded`, which may not.
#[tokio::test]
async fn a_full_inbox_is_exceeded_and_not_busy() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    tenant.start(THREAD, None, "h/1", "k", None).await.unwrap();
    let send = |n: u32| {
        let said = SignalKind::Message(message("hello"));
        let key = n.to_string();
        async move { tenant.signal(THREAD, &key, said).await }
    };
    for n in 0..32 {
        send(n).await.unwrap();
    }
    let full = send(32).await;
    assert!(!full.as_ref().unwrap_err().retry_unchanged());
    assert_eq!(refusal(full), ("exceeded", "inbox_full".to_owned()));
    // One that was taken before is answered all the same.
    send(3).await.unwrap();
}

#[tokio::test]
async fn errors_name_the_thread_that_was_asked_for() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let twin = tenant.create(draft_of("ONE")).await;
    assert_eq!(refusal(twin), ("exists", "ONE".to_owned()));
    let key = RecordKey::new("head", THREAD);
    let broken = CommitOp::Put {
        key,
        expect: RecordExpectation::Any,
        value: "{".to_owned(),
    };
    world.store.commit(&[broken], false).unwrap();
    let refused = tenant.get("One").await;
    let Err(threadkeep::error::CallError::Refused(wit::Error::Corrupt(damage))) = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(damage.code, "contradiction");
    assert_eq!(refusal(refused), ("corrupt", THREAD.to_owned()));
    let page = tenant.list(Filter::All, 10, None).await.unwrap();
    assert_eq!(page.unreadable[0].thread, THREAD);
    assert_eq!(page.unreadable[0].why.code, "contradiction");
}

#[tokio::test]
async fn a_thread_of_a_newer_format_is_read_and_not_written() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let records = world.records();
    let head = &records[&("head".to_owned(), THREAD.to_owned())];
    let value = head.replacen(r#""format":1"#, r#""format":2,"later":"new""#, 1);
    assert_ne!(&value, head);
    let newer = CommitOp::Put {
        key: RecordKey::new("head", THREAD),
        expect: RecordExpectation::Any,
        value,
    };
    world.store.commit(&[newer], false).unwrap();
    let before = world.records();
    assert_eq!(tenant.get(THREAD).await.unwrap().id, THREAD);
    let title = tenant.set_title(THREAD, Some("t".to_owned())).await;
    let change = history::ChangeSet::of_events(vec![HELLO.to_owned()]);
    let appended = tenant.append_change(THREAD, None, history::Expected::Any, change);
    let cancelled = tenant.signal(THREAD, "c", SignalKind::Cancel).await;
    for told in [
        refusal(title),
        refusal(appended.await),
        refusal(cancelled),
        refusal(tenant.start(THREAD, None, "h/1", "k", None).await),
    ] {
        assert_eq!(told.0, "other");
        assert!(told.1.starts_with("newer-format: "), "{}", told.1);
    }
    assert_eq!(world.records(), before);
}

#[tokio::test]
async fn arguments_are_named_as_the_contract_names_them() {
    let world = ContractTenant::new().await;
    let tenant = &world.tenant;
    let some = |text: &str| Some(text.to_owned());
    let inputs = threadkeep::wit::registry::Draft {
        inputs: some(""),
        ..draft_of("two")
    };
    for (field, told) in [
        ("thread", refusal(tenant.get("../up").await)),
        ("version", refusal(tenant.load(THREAD, Some(9)).await)),
        ("after", refusal(tenant.entries(THREAD, 9, 1, None).await)),
        (
            "cursor",
            refusal(tenant.entries(THREAD, 0, 1, some("x")).await),
        ),
        (
            "cursor",
            refusal(tenant.messages(THREAD, 5, None, some("4")).await),
        ),
        (
            "until",
            refusal(tenant.messages(THREAD, 0, Some(9), None).await),
        ),
        (
            "at",
            refusal(tenant.render(THREAD, "jsonl", Some(9), 0, None).await),
        ),
        (
            "what",
            refusal(tenant.render(THREAD, "state", None, 0, None).await),
        ),
        (
            "about",
            refusal(tenant.start(THREAD, None, "h/1", "k", some("[]")).await),
        ),
        (
            "about",
            refusal(
                tenant
                    .start(THREAD, None, "h/1", "k", Some("x".repeat(5_000)))
                    .await,
            ),
        ),
        ("inputs", refusal(tenant.create(inputs).await)),
        (
            "key",
            refusal(tenant.create_once(draft_of("two"), "").await),
        ),
        (
            "key",
            refusal(tenant.signal(THREAD, "", SignalKind::Cancel).await),
        ),
    ] {
        assert_eq!(told, ("invalid", field.to_owned()));
    }
}
