//! Runs at other places than a root with a budget: without one, below one, and in the third link of
//! a chain.

use super::native::NativeRun;
use super::world::{self, DIRECTIVE_NAME};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep_component::service::ThreadService;
use threadkeep_core::ledger::Usage;
use threadkeep_core::runner::{self, DecisionInputs, LlmCompletion, ReplyBlock, StepSubmission};
use threadkeep_core::thread::ThreadDraft;
use threadkeep_tests::native::NativePorts;
use threadkeep_tests::planted_links::plant_link;

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

    /// Starts a run in a child with a reserve of its own.
    pub fn start_child(storage: &Arc<dyn StorageBackend>) -> Self {
        let limits = r#","limits":{"spend":1000}"#;
        let run = Self::start(storage);
        run.spawn_child(&format!(r#"{{"directive":"{DIRECTIVE_NAME}"{limits}}}"#))
    }

    /// Starts a run in the third link of a chain, which is planted as hand-offs write it.
    pub fn start_link(storage: &Arc<dyn StorageBackend>) -> Self {
        let service = ThreadService::new(NativePorts::new(world::context(storage)));
        let draft = ThreadDraft {
            directive: Some(DIRECTIVE_NAME.to_owned()),
            ..ThreadDraft::default()
        };
        let root = service
            .create(&draft)
            .expect("created")
            .thread
            .value
            .id
            .clone();
        let links = [root.clone(), format!("{root}-2"), format!("{root}-3")];
        for pair in links.windows(2) {
            plant_link(&service, &pair[0], &pair[1]);
        }
        let [.., third] = links;
        Self::start_thread(service, third)
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
        // A page may name nobody and have a cursor: new threads come last.
        let mut cursor = None;
        let child = loop {
            let page = service.ready(100, cursor, Some(&thread)).expect("read");
            if let Some(due) = page.threads.first() {
                break due.loaded.thread.value.id.clone();
            }
            cursor = Some(page.cursor.expect("it spawned"));
        };
        Self::start_thread(service, child)
    }
}
