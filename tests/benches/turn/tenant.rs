//! Calls the component as a user does: by a tenant of an engine, over the engine's pool.

use super::world::BenchCandidate;
use super::world::{self, DIRECTIVE_NAME, HOLDER};
use std::sync::Arc;
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::storage::StorageBackend;
use threadkeep::tenant::Tenant;
use threadkeep::wit::{self, llm, registry, runner};
use tokio::runtime::Runtime;

/// A draft of the benchmark's directive.
pub fn draft() -> registry::Draft {
    threadkeep_tests::fixture::draft(Some(DIRECTIVE_NAME))
}

/// Returns the outcome to submit: the result of the open call, or a reply.
pub fn outcome(
    call: Option<wit::ToolCall>,
    step: usize,
    blocks: &str,
    content: &str,
) -> runner::Outcome {
    match call {
        None => runner::Outcome::Completion(llm::Completion {
            blocks: blocks.to_owned(),
            finish: "tool_use".to_owned(),
            usage: Some(wit::Usage {
                input: 1_000 + step as u64,
                output: 500,
                read: 0,
                write: 0,
                reasoning: 0,
            }),
            session: None,
            id: None,
            model: None,
        }),
        Some(call) => runner::Outcome::Outcomes(vec![wit::ToolOutcome {
            version: call.version,
            index: call.index,
            state: "done".to_owned(),
            failed: false,
            content: wit::text_content(content),
            patches: String::new(),
            operations: String::new(),
            cost: 0,
        }]),
    }
}

/// Creates a tenant over a store.
pub fn tenant(storage: &Arc<dyn StorageBackend>) -> Tenant {
    let engine = Engine::new(EngineLimits::local(), None).expect("an engine");
    Tenant::new(engine, world::context(storage))
}

/// Creates a runtime with one thread, as a command line has it.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
}

/// A run on its own thread.
pub struct TenantRun {
    runtime: Runtime,
    tenant: Tenant,
    thread: String,
    token: u64,
    version: u64,
    calls: Vec<wit::ToolCall>,
}

impl TenantRun {
    /// A run whose calls take a thread of the engine's pool.
    pub fn start(storage: &Arc<dyn StorageBackend>) -> Self {
        Self::start_as(tenant(storage))
    }

    /// A run whose calls compute on the thread that asks.
    pub fn start_lent(storage: &Arc<dyn StorageBackend>) -> Self {
        Self::start_as(tenant(storage).on_calling_thread())
    }

    fn start_as(tenant: Tenant) -> Self {
        let runtime = runtime();
        let thread = runtime
            .block_on(tenant.create(draft()))
            .expect("created")
            .id;
        let started = runtime.block_on(tenant.start(&thread, None, HOLDER, "key", None));
        let handle = started.expect("started");
        Self {
            runtime,
            tenant,
            thread,
            token: handle.token,
            version: handle.step.version,
            calls: Vec::new(),
        }
    }
}

impl BenchCandidate for TenantRun {
    fn step(&mut self, step: usize, blocks: &str, content: &str) {
        let outcome = outcome(self.calls.pop(), step, blocks, content);
        let submitted = self.runtime.block_on(self.tenant.submit(
            &self.thread,
            self.token,
            self.version,
            outcome,
            self.version,
        ));
        let next = submitted.expect("submitted");
        self.version = next.version;
        self.calls = next.calls;
    }
}
