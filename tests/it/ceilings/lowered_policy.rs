//! A policy that becomes tighter binds existing threads: at each place where a run goes on, each
//! cap is the lower of the thread's own and the policy's current one. Runs through the component.
//! The thread's own caps allow everything, so each case fails if the policy is ignored.

use super::raise;
use crate::component::project::{describe_draft, engine, project_dir};
use std::sync::Arc;
use threadkeep::authority::ProjectDir;
use threadkeep::error::CallError;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit;
use threadkeep::wit::runner::{Handle, Outcome, Proof};
use threadkeep_tests::auditor::audit;
use threadkeep_tests::fixture::SCRIPTED_MODELS;

/// A cap of the policy, the code of its suspension, and its bound.
const CAPS: [(&str, &str, u64); 4] = [
    ("turns: 1", "turns_exceeded", 1),
    ("tokens: 100", "tokens_exceeded", 100),
    ("spend: 0.0005", "spend_exceeded", 380_000),
    ("duration: 0", "duration_exceeded", 0),
];

/// One project over one store, opened under a policy that may change.
struct LoweredProject {
    _kept: tempfile::TempDir,
    dir: cap_std::fs::Dir,
    store: Arc<dyn StorageBackend>,
}

impl LoweredProject {
    fn new() -> Self {
        let (kept, dir) = project_dir(SCRIPTED_MODELS);
        Self {
            _kept: kept,
            dir,
            store: Arc::new(MemoryStore::new()),
        }
    }

    fn open_under(&self, policy: Policy) -> OpenProject {
        let options = ProjectOptions {
            store: Some(Arc::clone(&self.store)),
            ..ProjectOptions::new(policy)
        };
        let dir = self.dir.try_clone().unwrap();
        OpenProject::open(engine(), &ProjectDir::from_dir(dir), options).unwrap()
    }

    fn open_loose(&self) -> OpenProject {
        self.open_under(Policy::preset(PolicyPreset::Local))
    }

    fn open_tight(&self, cap: &str) -> OpenProject {
        let text = format!("limits: {{{cap}}}");
        self.open_under(Policy::parse(&text, "policy.yaml").unwrap())
    }

    /// Starts a thread that has made one call and whose tool round is handed out.
    async fn start_tool_round(&self, id: &str) -> (String, Handle) {
        let project = self.open_loose();
        let tenant = project.tenant();
        let draft = wit::registry::Draft {
            id: Some(id.to_owned()),
            ..describe_draft()
        };
        let thread = tenant.create(draft).await.unwrap();
        let started = tenant
            .start(&thread.id, None, "h/1", "k", None)
            .await
            .unwrap();
        let reply = Outcome::Completion(wit::llm::Completion {
            blocks: concat!(
                r#"[{"type":"tool_use","id":"c","name":"read_file","#,
                r#""arguments":"{\"path\":\"notes.txt\"}"}]"#
            )
            .to_owned(),
            finish: "tool_use".to_owned(),
            usage: Some(wit::Usage {
                input: 100,
                output: 10,
                read: 0,
                write: 0,
                reasoning: 0,
            }),
            session: None,
            id: None,
            model: None,
        });
        let (token, version) = (started.token, started.step.version);
        let step = tenant.submit(&thread.id, token, version, reply, version);
        let step = step.await.unwrap();
        assert_eq!(step.kind, "call-tools");
        (thread.id, Handle { step, ..started })
    }

    fn audit(&self) {
        let findings = audit(&*self.store);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

fn tool_outcomes(handle: &Handle) -> Outcome {
    let outcomes = handle.step.calls.iter().map(|call| wit::ToolOutcome {
        version: call.version,
        index: call.index,
        state: "done".to_owned(),
        failed: false,
        content: wit::text_content("milk"),
        patches: String::new(),
        operations: String::new(),
        cost: 0,
    });
    Outcome::Outcomes(outcomes.collect())
}

fn is_stopped_by_policy(cause: Option<&wit::Cause>, code: &str, maximum: u64, what: &str) {
    let cause = cause.unwrap_or_else(|| panic!("{what}: it goes on"));
    assert_eq!(
        (cause.code.as_str(), cause.maximum),
        (code, Some(maximum)),
        "{what}: {cause:?}"
    );
    assert!(
        cause.message.contains("operator's policy"),
        "{what}: {cause:?}"
    );
}

#[tokio::test]
async fn a_run_that_goes_on_is_held_to_the_policy_as_it_is_now() {
    let world = LoweredProject::new();
    for (at, (cap, code, maximum)) in CAPS.into_iter().enumerate() {
        let (id, handle) = world.start_tool_round(&format!("goes-on-{at}")).await;
        let project = world.open_tight(cap);
        let tenant = project.tenant();
        let (token, version) = (handle.token, handle.step.version);
        let step = tenant.submit(&id, token, version, tool_outcomes(&handle), version);
        assert_eq!(step.await.unwrap().kind, "finished", "{cap}");
        let thread = tenant.get(&id).await.unwrap();
        is_stopped_by_policy(thread.cause.as_ref(), code, maximum, cap);
        // A cap that the operator does not allow, no caller can raise.
        let raised = raise(wit::Limits {
            turns: Some(30),
            tokens: Some(2_000_000),
            spend: Some(2_000_000_000),
            duration: Some(3_600_000),
            ..describe_draft().limits
        });
        let refused = tenant.signal(&id, "r", raised).await.unwrap_err();
        assert!(
            refused.to_string().contains("operator's policy"),
            "{refused}"
        );
    }
    world.audit();
}

#[tokio::test]
async fn a_start_and_a_hold_of_a_suspended_thread_are_refused_and_a_claim_stops() {
    let world = LoweredProject::new();
    for (at, (cap, code, maximum)) in CAPS.into_iter().enumerate() {
        let (id, handle) = world.start_tool_round(&format!("starts-{at}")).await;
        let loose = world.open_loose();
        let (token, version) = (handle.token, handle.step.version);
        let step = loose
            .tenant()
            .submit(&id, token, version, tool_outcomes(&handle), version);
        assert_eq!(step.await.unwrap().kind, "call-llm", "{cap}");
        let project = world.open_tight(cap);
        let tenant = project.tenant();
        let claimed = tenant.claim(&id, "h/2", Proof::Dead).await.unwrap();
        assert_eq!(claimed.step.kind, "finished", "{cap}");
        let cause = claimed.thread.cause.as_ref();
        let claimed_code = cause.map(|cause| cause.code.clone());
        assert_eq!(claimed_code.as_deref(), Some(code), "{cap}");
        let soon = wit::Instant {
            seconds: claimed.thread.updated.seconds + 60,
            nanos: 0,
        };
        // Money is checked where it is needed: the run of a thread without any is suspended at
        // once.
        if code == "spend_exceeded" {
            let started = tenant.start(&id, None, "h/3", "k", None).await.unwrap();
            let cause = started.thread.cause.as_ref().expect("it is suspended");
            assert_eq!(cause.code, code);
            continue;
        }
        is_stopped_by_policy(cause, code, maximum, cap);
        let started = tenant.start(&id, None, "h/3", "k", None).await.map(drop);
        let opened = tenant.open_thread(&id, "h/4", soon).await.map(drop);
        for (what, answer) in [("start", started), ("open", opened)] {
            let Err(CallError::Refused(wit::Error::Exceeded(cause))) = answer else {
                panic!("{what} {cap}: {answer:?}");
            };
            is_stopped_by_policy(Some(&cause), code, maximum, what);
        }
    }
    world.audit();
}

/// Symptom: once a policy had lowered one cap, no other cap could be raised: the refusal named a
/// cap that the caller had not asked for. Cause: all caps of the thread were compared with the
/// policy. Fix: only those that the raise names.
#[tokio::test]
async fn a_cap_that_nobody_asks_for_does_not_refuse_a_raise() {
    let world = LoweredProject::new();
    let (id, _) = world.start_tool_round("raises").await;
    let project = world.open_tight("turns: 1, tokens: 2000");
    let raised = |turns, tokens| {
        raise(wit::Limits {
            turns,
            tokens,
            ..describe_draft().limits
        })
    };
    let tenant = project.tenant();
    tenant
        .signal(&id, "a", raised(None, Some(2_000)))
        .await
        .unwrap();
    tenant
        .signal(&id, "b", raised(Some(1), None))
        .await
        .unwrap();
    for (name, what) in [
        ("c", raised(Some(2), None)),
        ("d", raised(None, Some(2_001))),
    ] {
        let refused = tenant.signal(&id, name, what).await.unwrap_err();
        assert!(
            refused.to_string().contains("operator's policy"),
            "{refused}"
        );
    }
}
