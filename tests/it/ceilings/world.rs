//! A guard, and a provider and a tool that count how often they are reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use threadkeep::ceilings::{Called, Ceilings, Guard, Permit};
use threadkeep::clock::SystemClock;
use threadkeep::library::models::Prices;
use threadkeep::models::{
    Block, BoxFuture, Completion, Delta, Failure, FailureKind, Llm, OnDelta, Request, Usage,
};
use threadkeep::policy::{Policy, Preset};
use threadkeep::tools::{ToolEntry, ToolResult, Tools};
use tokio::sync::Semaphore;

/// A provider that counts its calls and gives a fixed answer once its gate opens.
pub struct Model {
    pub reached: AtomicU64,
    pub answer: Result<Completion, Failure>,
    /// Deltas that it sends while it answers.
    pub deltas: Vec<Delta>,
    pub gate: Semaphore,
}

impl Model {
    pub fn answering(answer: Result<Completion, Failure>) -> Self {
        Self {
            reached: AtomicU64::new(0),
            answer,
            deltas: Vec::new(),
            gate: Semaphore::new(1_000),
        }
    }

    pub fn reached(&self) -> u64 {
        self.reached.load(Ordering::SeqCst)
    }
}

impl Llm for Model {
    fn complete<'a>(
        &'a self,
        _: &'a Request,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Completion, Failure>> {
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
pub struct Tool {
    pub reached: AtomicU64,
    pub slow: bool,
    /// Bytes of its answer beside a word.
    pub more: usize,
}

impl Tools for Tool {
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

pub fn request(model: &str) -> Request {
    Request {
        model: model.to_owned(),
        system: "s".repeat(40),
        tools: Vec::new(),
        messages: vec!["m".repeat(60)],
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

pub fn says(usage: Option<Usage>) -> Result<Completion, Failure> {
    Ok(Completion {
        blocks: vec![Block::Text {
            text: "t".repeat(10),
        }],
        finish: "stop".to_owned(),
        usage,
        session: None,
    })
}

pub fn fails(sent: bool, usage: Option<Usage>) -> Result<Completion, Failure> {
    Err(Failure {
        kind: FailureKind::Transient,
        code: "test".to_owned(),
        message: "on purpose".to_owned(),
        retry_after: None,
        sent,
        usage,
        partial: "p".repeat(5),
    })
}

/// The operator's price of `known`; `free-for-all` has none.
pub fn policy(ceilings: Ceilings) -> Policy {
    let prices = Prices {
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
        ..Policy::preset(Preset::Strict)
    }
}

pub fn guard(ceilings: Ceilings) -> Arc<Guard> {
    Arc::new(Guard::new(policy(ceilings), Arc::new(SystemClock)))
}

pub async fn complete(permit: &Permit, model: &Model, name: &str) -> Result<Completion, Failure> {
    permit.complete(model, &request(name), &|_| {}, LONG).await
}

pub async fn call(permit: &Permit, tool: &Tool, name: &str) -> Called {
    permit.call(tool, name, ARGUMENTS, LONG).await
}
