//! The cost of a budget in a turn's commit: runs without one, with one, and below one.

use super::native::NativeRun;
use super::world::{self, DIRECTIVE_NAME};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep_component::service::ThreadService;
use threadkeep_core::ledger::Usage;
use threadkeep_core::runner::{self, DecisionInputs, LlmCompletion, ReplyBlock, StepSubmission};
use threadkeep_tests::native::NativePorts;

impl NativeRun {
    /// Starts a run on a model that costs nothing, so that no account is written.
    pub fn start_free(storage: &Arc<dyn StorageBackend>) -> Self {
        let service = ThreadService::new(NativePorts::new(world::context(storage)));
        Self::start_root(service, Some(world::FREE_NAME.to_owned()))
    }

    /// Starts a run three levels below a root: each level with a reserve of its own, or all on the
    /// account of the root.
    pub fn start_deep(storage: &Arc<dyn StorageBackend>, reserve: bool) -> Self {
        let service = ThreadService::new(NativePorts::new(world::context(storage)));
        let mut run = Self::start_root(service, None);
        for level in 1..=3_u64 {
            let limits = match reserve {
                true => format!(r#","limits":{{"spend":{}}}"#, 100_000 / level),
                false => String::new(),
            };
            let name = if reserve {
                DIRECTIVE_NAME
            } else {
                world::PLAIN_NAME
            };
            run = run.spawn_child(&format!(r#"{{"directive":"{name}"{limits}}}"#));
        }
        run
    }

    /// Spawns a child and continues with its run.
    fn spawn_child(self, arguments: &str) -> Self {
        let outcome = runner::StepOutcome::Completion(LlmCompletion {
            blocks: vec![ReplyBlock::ToolUse {
                id: "x".to_owned(),
                name: "spawn_thread".to_owned(),
                arguments: arguments.to_owned(),
                raw: None,
            }],
            finish: "tool_use".to_owned(),
            usage: Some(Usage::default()),
            ..LlmCompletion::default()
        });
        let submission = StepSubmission {
            token: self.token,
            version: self.version,
            outcome,
            inputs: DecisionInputs::default(),
        };
        let (service, thread) = (self.service, self.thread);
        service.submit(&thread, &submission, 0).expect("submitted");
        let due = service.ready(100, None, Some(&thread)).expect("read");
        let child = due
            .threads
            .first()
            .expect("it spawned")
            .loaded
            .thread
            .value
            .id
            .clone();
        Self::start_thread(service, child)
    }
}
