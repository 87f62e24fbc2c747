//! The driver: performs the steps that the component hands out. Model calls, tool rounds, waits; many threads at once.
//!
//! It decides nothing: what comes next is the answer to `submit`. Everything that it emits as done is durable.
//! Dropping the future of [`Driver::run`] drops the request in flight and leaves a thread that `recover` closes.

mod conversation;
mod events;
mod nonce;
mod perform;
mod stop;

pub use events::{Costs, Ended, RunEvent, Sink, Why};
pub use nonce::fresh_nonce;
pub use stop::{Stop, StopLevel, Stopper, stopper};

use crate::ceilings::{Guard, Permit, Refusal};
use crate::error::CallError;
use crate::models::{Failure, Llm};
use crate::policy::Policy;
use crate::tenant::Tenant;
use crate::tools::Tools;
use crate::wit::runner;
use conversation::Conversation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Finds the provider of a model.
pub trait Models: Send + Sync {
    /// The provider, and the model's name on its wire.
    ///
    /// # Errors
    /// A failure that the runner can act on: an unknown model or a provider that is not set up is `permanent`.
    fn provider(&self, model: &str) -> Result<(Arc<dyn Llm>, String), Failure>;
}

/// Told about every durable change of a thread, after it; must not block.
pub trait Observer: Send + Sync {
    /// `thread` was committed to.
    fn committed(&self, thread: &str);
}

/// Performs runs of one tenant. Cheap to clone.
#[derive(Clone)]
pub struct Driver {
    tenant: Tenant,
    models: Arc<dyn Models>,
    tools: Arc<dyn Tools>,
    observer: Option<Arc<dyn Observer>>,
    guard: Arc<Guard>,
    nonce: Arc<str>,
    runs: Arc<AtomicU64>,
}

/// Why a run could not be performed to its end. The thread is as its last commit left it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DriveError {
    /// A call of the component gave no answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Somebody else has taken the thread over, or killed it.
    #[error("{0} is held by somebody else now, or its run was ended")]
    Fenced(String),
    /// As many runs as the operator's policy allows are under way. Nothing was written.
    #[error("{0}")]
    Ceiling(Refusal),
}

impl Driver {
    /// A driver whose runs are held under `<nonce>/<n>`. The nonce must be this process's own, and locked where other
    /// processes may recover what it leaves (`authority::HolderLock`). It has no ceilings until it is given a guard.
    pub fn new(
        tenant: Tenant,
        models: Arc<dyn Models>,
        tools: Arc<dyn Tools>,
        nonce: &str,
    ) -> Self {
        let clock = Arc::clone(&tenant.context().clock);
        Self {
            guard: Arc::new(Guard::new(Policy::preset("local"), clock)),
            tenant,
            models,
            tools,
            observer: None,
            nonce: nonce.into(),
            runs: Arc::default(),
        }
    }

    /// Hold every run to the ceilings of this guard, which all drivers of the tenant share.
    #[must_use]
    pub fn within(mut self, guard: Arc<Guard>) -> Self {
        self.guard = guard;
        self
    }

    /// Tell `observer` about every durable change.
    #[must_use]
    pub fn observed(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The tenant whose threads it runs.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Begin a run, or go on in place, and perform it until it is idle, suspended or ended.
    ///
    /// `input` is a JSON message of a user, or `None` to try again.
    ///
    /// # Errors
    /// If the component refuses to start it, or the run cannot be performed to its end.
    pub async fn run(
        &self,
        thread: &str,
        input: Option<String>,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let permit = self.guard.begin().map_err(DriveError::Ceiling)?;
        let holder = self.next_holder();
        let handle = self
            .tenant
            .start(thread, input.clone(), &holder, &holder)
            .await?;
        self.perform(handle, &permit, sink, stop).await
    }

    /// Take over a thread that waits, or whose holder is gone, and perform it.
    ///
    /// # Errors
    /// `busy` while the holder lives; else as [`Driver::run`].
    pub async fn claim(
        &self,
        thread: &str,
        proof: runner::Proof,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let permit = self.guard.begin().map_err(DriveError::Ceiling)?;
        let holder = self.next_holder();
        let handle = self.tenant.claim(thread, &holder, proof).await?;
        self.perform(handle, &permit, sink, stop).await
    }

    fn next_holder(&self) -> String {
        format!(
            "{}/{}",
            self.nonce,
            self.runs.fetch_add(1, Ordering::Relaxed) + 1
        )
    }

    async fn perform(
        &self,
        handle: runner::Handle,
        permit: &Permit,
        sink: &Sink,
        stop: &Stop,
    ) -> Result<Ended, DriveError> {
        let thread = handle.thread.id.clone();
        self.committed(&thread);
        sink.emit(RunEvent::Started {
            thread: thread.clone(),
            run: handle.thread.run.number,
        });
        let mut run = perform::Run {
            driver: self,
            thread: thread.clone(),
            token: handle.token,
            permit,
            sink,
            stop: stop.clone(),
            conversation: Conversation::default(),
        };
        let mut step = handle.step;
        while step.kind != "finished" {
            step = run.perform(step).await?;
            self.committed(&thread);
        }
        let thread = self.tenant.get(&thread).await?;
        let ended = Ended::of(&thread);
        sink.emit(RunEvent::Ended(Box::new(ended.clone())));
        Ok(ended)
    }

    fn committed(&self, thread: &str) {
        if let Some(observer) = &self.observer {
            observer.committed(thread);
        }
    }
}
