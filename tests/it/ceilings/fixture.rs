//! A guard, and a provider and a tool that count how often they are reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use threadkeep::ceilings::{CeilingGuard, HostCeilings, RunPermit, ToolCallOutcome};
use threadkeep::clock::SystemClock;
use threadkeep::library::models::ModelPrices;
use threadkeep::models::{
    BoxFuture, CompletionRequest, FailureKind, ModelCompletion, ModelFailure, ModelProvider,
    OnDelta, ReplyBlock, ReplyDelta, Usage,
};
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use tokio::sync::Semaphore;

/// A provider that counts its calls and gives a fixed answer once its gate opens.
pub struct CountedModel {
    pub reached: AtomicU64,
    pub answer: Result<ModelCompletion, ModelFailure>,
    /// Deltas that it sends while it answers.
    pub deltas: Vec<ReplyDelta>,
    pub gate: Semaphore,
}

impl CountedModel {
    pub fn answering(answer: Result<ModelCompletion, ModelFailure>) -> Self {
        Self {
            reached: AtomicU64::new(0),
            answer,
            deltas: Vec::new(),
            gate: Semaphore::new(1_000),
        }
    }

    pub fn call_count(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }
}

impl ModelProvider for CountedModel {
    fn complete<'a>(
        &'a self,
        _: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        self.reached.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            self.deltas.iter().cloned().for_each(on_delta);
            let _open = self.gate.acquire().await.expect("nobody closes it");
            self.answer.clone()
        })
    }
}

/// A tool that counts its calls.
#[derive(Default)]
pub struct CountedTool {
    pub reached: AtomicU64,
    pub slow: bool,
    /// Bytes of its answer beside a word.
    pub more: usize,
}

impl ToolSet for CountedTool {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        self.reached.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {
            if self.slow {
                std::future::pending::<()>().await;
            }
            ToolResult::ok(format!("done{}", "x".repeat(self.more)))
        })
    }
}

/// Time limit of a call: twice the longest wait in the rate queue.
pub const LONG: Duration = Duration::from_secs(120);
pub const ARGUMENTS: &str = r#"{"path":"x"}"#;

pub fn request(model: &str) -> CompletionRequest {
    CompletionRequest {
        model: model.to_owned(),
        system: "s".repeat(40),
        tools: Vec::new(),
        messages: vec!["m".repeat(60)],
        images: Default::default(),
        output_max: 50,
        session: None,
    }
}

/// Bytes of [`request`].
pub const REQUEST_BYTES: u64 = 100;
/// Worst cost of that request: 100 input tokens at 2 USD and 50 output tokens at 4 USD a million.
pub const WORST_NANOS: u64 = 400_000;

pub fn usage(input: u64, output: u64) -> Option<Usage> {
    Some(Usage {
        input,
        output,
        ..Usage::default()
    })
}

pub fn says(usage: Option<Usage>) -> Result<ModelCompletion, ModelFailure> {
    let text = "t".repeat(10);
    let mut reply = ModelCompletion::new(vec![ReplyBlock::Text { text }], "stop");
    reply.usage = usage;
    Ok(reply)
}

pub fn fails(sent: bool, usage: Option<Usage>) -> Result<ModelCompletion, ModelFailure> {
    Err(ModelFailure {
        kind: FailureKind::Transient,
        code: "test".to_owned(),
        message: "on purpose".to_owned(),
        retry_after: None,
        sent,
        refused: false,
        usage,
        partial: "p".repeat(5),
    })
}

/// The operator's price of `known`; `free-for-all` has none.
pub fn policy(ceilings: HostCeilings) -> Policy {
    let prices = ModelPrices {
        input: "2".to_owned(),
        output: "4".to_owned(),
        read: None,
        write: None,
    };
    let models = [
        ("known".to_owned(), Some(prices)),
        ("free-for-all".to_owned(), None),
    ];
    Policy {
        models: Some(models.into()),
        tools: Some(vec!["read_file".to_owned(), "list_*".to_owned()]),
        ceilings,
        ..Policy::preset(PolicyPreset::Strict)
    }
}

pub fn guard(ceilings: HostCeilings) -> Arc<CeilingGuard> {
    Arc::new(CeilingGuard::new(policy(ceilings), Arc::new(SystemClock)))
}

pub async fn complete(
    permit: &RunPermit,
    model: &CountedModel,
    name: &str,
) -> Result<ModelCompletion, ModelFailure> {
    permit.complete(model, &request(name), &|_| {}, LONG).await
}

pub async fn call(permit: &RunPermit, tool: &CountedTool, name: &str) -> ToolCallOutcome {
    permit.call_tool(tool, name, ARGUMENTS, LONG).await
}
