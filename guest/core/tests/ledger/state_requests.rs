//! Requests that change states and decide about calls.

use super::states::document_at;
use super::world::TestWorld;
use serde_json::{Value, json};
use threadkeep_core::error::Error;
use threadkeep_core::history::Entry;
use threadkeep_core::json;
use threadkeep_core::plan::{DecisionContext, LoadedThread};
use threadkeep_core::runner::{
    self, AppendRequest, CallDecision, CommitDecision, DecidedCall, DecisionInputs, Signal,
    ToolOutcome, ToolState, decision_key,
};
use threadkeep_core::state::{StateDocument, StateEdits, StateSnapshot};
use threadkeep_core::thread::{DecisionRecord, DecisionVerdict, HistoryPath, ThreadStatus};
use threadkeep_core::{id, key};

/// The outcome of a request, with the thread that it is about.
type DecidedThread = (String, Result<CommitDecision, Error>);

impl TestWorld {
    /// Has a caller change the state of a thread that nobody drives.
    pub fn edit(&self, n: u16, kind: u8, moment: DecisionContext<'_>) -> DecidedThread {
        let thread = self.pick(n, |_, status, _| may_be_edited(status));
        let loaded = self.store.load(&thread);
        let round = self.round_of(&loaded);
        let (patches, operations, snapshot) = caller_edits(kind);
        let edits = StateEdits::parse(&patches, &operations, None, None).expect("they are edits");
        let snapshot = snapshot.map(|value| StateSnapshot {
            thread: Some(json::parse(&value).expect("it is JSON").into_owned()),
            run: None,
        });
        let edits = StateEdits { snapshot, ..edits };
        let append = AppendRequest {
            token: None,
            expected: None,
            digest: format!("append {}", moment.commit),
            events: &[],
            edits: &edits,
            mail: Vec::new(),
            known: Vec::new(),
        };
        let decided = runner::append(&loaded, round.as_ref(), None, append, moment);
        (thread, decided)
    }

    /// Has a person decide about the first call of a thread that waits for a decision.
    pub fn decide_call(
        &self,
        n: u16,
        kind: u8,
        moment: DecisionContext<'_>,
    ) -> Option<DecidedThread> {
        let asking = self.threads.iter();
        // A text is compared with, as most heads are not read.
        let asking = asking.filter(|thread| {
            let head = self.store.text(key::HEAD, &id::key(thread));
            head.is_some_and(|head| head.contains(r#""consent":"asked""#))
        });
        let asking: Vec<&String> = asking.collect();
        let thread = (*asking.get(usize::from(n) % asking.len().max(1))?).clone();
        let loaded = self.store.load(&thread);
        let head = &loaded.head.value;
        let index = head.undecided_calls().next()?.index;
        let verdict = match kind % 3 {
            0 => DecisionVerdict::Approve,
            1 => DecisionVerdict::Deny,
            _ => DecisionVerdict::Answer,
        };
        let decision = CallDecision {
            version: head.round.as_ref()?.version,
            index,
            verdict,
            text: (verdict != DecisionVerdict::Approve).then(|| "as I say".to_owned()),
        };
        let call = (decision.version, decision.index);
        let earlier = self.decision_record(&loaded, call);
        let name = format!("d{}", moment.commit);
        let signal = (name.as_str(), Signal::Decision(decision));
        let round = self.round_of(&loaded);
        let decided = runner::signal(
            &loaded,
            round.as_ref(),
            (Vec::new(), earlier),
            signal,
            moment,
        );
        Some((thread, decided))
    }

    /// Returns the inputs of a decision that does not need the live window.
    pub fn inputs_of(&self, loaded: &LoadedThread) -> DecisionInputs {
        let round = loaded.head.value.round.as_ref();
        let version = round.map_or(0, |round| round.version);
        let calls = round.into_iter().flat_map(|round| &round.calls);
        let decided = calls.filter(|call| call.was_not_run() && !call.is_undecided());
        let decided = decided.map(|call| DecidedCall {
            index: call.index,
            record: self.decision_record(loaded, (version, call.index)),
            prepared: None,
        });
        DecisionInputs {
            decided: decided.collect(),
            ..DecisionInputs::default()
        }
    }

    fn decision_record(&self, loaded: &LoadedThread, call: (u64, u32)) -> Option<DecisionRecord> {
        let name = decision_key(&loaded.chain_key(), &loaded.key(), call);
        let text = self.store.text(key::DECISION, &name)?;
        Some(json::read(text).expect("a record that was written"))
    }

    /// The entry that holds the open calls of a thread.
    pub fn round_of(&self, loaded: &LoadedThread) -> Option<Entry> {
        let version = loaded.head.value.round.as_ref()?.version;
        let text = self.store.entry_text(&loaded.thread.value, version)?;
        Some(Entry::from_text(text).expect("an entry"))
    }

    /// The state that a thread had at a version of its path, by the books of the test.
    pub fn state_of_version(&self, path: &HistoryPath<'_>, version: u64) -> StateDocument {
        let Some(range) = path.range_of(version) else {
            return StateDocument::empty();
        };
        let document = document_at(&self.store, &id::key(range.thread), version);
        json::read(&document.to_string()).expect("a document")
    }
}

/// Edits of a caller: texts of patches, of operations, and of a snapshot.
fn caller_edits(kind: u8) -> (Vec<String>, Vec<String>, Option<String>) {
    let n = kind / 6;
    let set = |scope: &str, place: &str| {
        let step = json!({"op": "add", "path": format!("/{place}"), "value": n});
        json!({"scope": scope, "patch": [step]}).to_string()
    };
    let operation = |scope: &str, op: &str, value: Value| {
        let path = if op.starts_with("set") {
            "/set"
        } else {
            "/sum"
        };
        json!({"scope": scope, "op": op, "path": path, "value": value}).to_string()
    };
    match kind % 6 {
        0 => (vec![set("thread", "a"), set("run", "b")], vec![], None),
        1 => {
            let steps = json!([
                {"op": "test", "path": "/a", "value": n % 4},
                {"op": "move", "from": "/a", "path": "/c"},
            ]);
            let patch = json!({"scope": "thread", "patch": steps}).to_string();
            (vec![patch], vec![], None)
        }
        2 => {
            let kinds = [("add", json!(n)), ("max", json!(n)), ("min", json!(-3))];
            let both = kinds.map(|(op, value)| operation("thread", op, value));
            (vec![], both.to_vec(), None)
        }
        3 => {
            let add = operation("run", "set-add", json!(n % 8));
            let remove = operation("run", "set-remove", json!(3));
            (vec![], vec![add, remove], None)
        }
        4 => {
            let then = operation("thread", "add", json!(1));
            (
                vec![set("thread", "d")],
                vec![then],
                Some(json!({"sum": n}).to_string()),
            )
        }
        _ => {
            let value = "x".repeat(5_000);
            let step = json!({"op": "add", "path": "/large", "value": value});
            let patch = json!({"scope": "thread", "patch": [step]}).to_string();
            (vec![patch], vec![], None)
        }
    }
}

/// Adds edits to the outcomes of a round: in the scope of each call, and in that of the thread. By
/// `kind` those of two calls cross, or do not apply, or the tool asks for consent instead.
pub fn add_tool_edits(outcomes: &mut [ToolOutcome], kind: u8) {
    for outcome in outcomes {
        if kind.is_multiple_of(8) {
            outcome.state = ToolState::NeedsConsent;
            continue;
        }
        let place = match kind % 4 {
            0 => "shared".to_owned(),
            _ => format!("call-{}", outcome.index),
        };
        let op = if kind % 4 == 1 { "replace" } else { "add" };
        let step = |op: &str, path: String| json!([{"op": op, "path": path, "value": kind}]);
        let patches = json!([
            {"scope": "tool-call", "patch": step("add", "/own".to_owned())},
            {"scope": "thread", "patch": step(op, format!("/{place}"))},
        ]);
        let operations = json!([{"scope": "run", "op": "add", "path": "/calls", "value": 1}]);
        outcome.patches = Some(patches.to_string());
        outcome.operations = Some(operations.to_string());
    }
}

/// True if a caller may change the state of a thread of this status.
fn may_be_edited(status: ThreadStatus) -> bool {
    use ThreadStatus::{Created, Idle, Suspended};
    [Created, Idle, Suspended].contains(&status)
}
