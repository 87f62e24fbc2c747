//! Runs the same core compiled natively: the component's service over a store, without a component.

use super::world::BenchCandidate;
use super::world::{self, DIRECTIVE_NAME, HOLDER};
use std::sync::Arc;
use threadkeep::storage::{RecordKey, StorageBackend};
use threadkeep_component::service::ThreadService;
use threadkeep_core::ledger::Usage;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{
    self, DecisionInputs, LlmCompletion, ReplyBlock, StepSubmission, ToolOutcome, ToolState,
};
use threadkeep_core::thread::{CreatorOverrides, StepKind, ThreadDraft};
use threadkeep_tests::native::NativePorts;

/// A run on its own thread.
pub struct NativeRun {
    pub(super) service: ThreadService<NativePorts>,
    pub(super) thread: String,
    pub(super) token: u64,
    pub(super) version: u64,
    calls: Vec<(u64, u32)>,
}

impl NativeRun {
    pub fn start(storage: &Arc<dyn StorageBackend>) -> Self {
        let service = ThreadService::new(NativePorts::new(world::context(storage)));
        Self::start_root(service, None)
    }

    /// Creates a root, on a model of this name or the usual one.
    pub(super) fn start_root(service: ThreadService<NativePorts>, model: Option<String>) -> Self {
        let draft = ThreadDraft {
            directive: Some(DIRECTIVE_NAME.to_owned()),
            overrides: CreatorOverrides {
                model,
                ..CreatorOverrides::default()
            },
            ..ThreadDraft::default()
        };
        let thread = service
            .create(&draft)
            .expect("created")
            .thread
            .value
            .id
            .clone();
        Self::start_thread(service, thread)
    }

    /// Starts a thread that exists.
    pub(super) fn start_thread(service: ThreadService<NativePorts>, thread: String) -> Self {
        let handed = service
            .start(&thread, None, HOLDER, "key", None)
            .expect("started");
        Self {
            service,
            token: handed.loaded.head.value.token,
            version: handed.step.version,
            thread,
            calls: Vec::new(),
        }
    }

    /// The id of its thread.
    pub fn thread(&self) -> &str {
        &self.thread
    }
}

impl BenchCandidate for NativeRun {
    fn step(&mut self, step: usize, blocks: &str, content: &str) {
        let outcome = match self.calls.pop() {
            None => runner::StepOutcome::Completion(LlmCompletion {
                blocks: ReplyBlock::parse_all(blocks).0,
                finish: "tool_use".to_owned(),
                usage: Some(Usage {
                    input: 1_000 + step as u64,
                    output: 500,
                    ..Usage::default()
                }),
                ..LlmCompletion::default()
            }),
            Some((version, index)) => runner::StepOutcome::ToolOutcomes(vec![ToolOutcome {
                blocks: Vec::new(),
                version,
                index,
                state: ToolState::Done,
                failed: false,
                content: content.to_owned(),
                cost: NanoUsd::ZERO,
                patches: None,
                operations: None,
            }]),
        };
        let submission = StepSubmission {
            token: self.token,
            version: self.version,
            outcome,
            inputs: DecisionInputs::default(),
        };
        let handed = self.service.submit(&self.thread, &submission, self.version);
        let handed = handed.expect("submitted");
        assert!(matches!(
            handed.step.kind,
            Some(StepKind::CallLlm | StepKind::CallTools)
        ));
        self.version = handed.step.version;
        self.calls = handed
            .step
            .calls
            .iter()
            .map(|call| (call.version, call.index))
            .collect();
    }
}

/// Returns the values of the rows of a step, for a candidate that writes them by hand.
pub fn rows(storage: &Arc<dyn StorageBackend>, run: &NativeRun) -> [String; 3] {
    let key = threadkeep_core::id::key(run.thread());
    let value = |collection| {
        let items = storage
            .get(&[RecordKey::new(collection, key.clone())])
            .expect("read");
        items.first().expect("there").value.clone()
    };
    let lines = storage.read_log("history", &key, 0, 1, true).expect("read");
    let entry = lines.first().expect("there").value.clone();
    [value("head"), value("chain"), entry]
}

/// Returns the script's content of a step: a reply, and the tool's result.
pub fn script(step: usize) -> (String, String) {
    (world::blocks(step), world::prose(step))
}
