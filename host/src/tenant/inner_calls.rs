//! `runner.run`: the component's own loop, whose model and tool calls the caller performs.

use super::Tenant;
use crate::bindings::Threads;
use crate::component::{StepCall, StepCallSender};
use crate::engine::{InstanceState, NoAnswer};
use crate::error::CallError;
use crate::models::BoxFuture;
use crate::wit::{self, llm};
use tokio::sync::mpsc::UnboundedReceiver;
use wasmtime::Store;

/// Performs the model and tool calls of a call of `runner.run`. It bounds their time.
pub trait InnerCalls: Send + Sync {
    /// Makes exactly one request to a provider.
    fn complete(
        &self,
        request: llm::Request,
    ) -> BoxFuture<'_, Result<llm::Completion, llm::LlmError>>;

    /// Runs one round of tools; the outcomes are in the order of the calls.
    fn call_tools(&self, calls: Vec<wit::ToolCall>) -> BoxFuture<'_, Vec<wit::ToolOutcome>>;
}

impl Tenant {
    /// `runner.run`, once, in an instance of its own on a thread of its own. `calls` performs its
    /// model and tool calls within this future: the time until they answer is not the call's, and
    /// after each the limits of a call count anew. Dropping the future drops the call under way;
    /// the component ends at its next one, and the thread is as its last commit left it.
    ///
    /// The host's own loop is [`Driver::run`](crate::driver::Driver::run), and
    /// [`Driver::begin_inner_run`](crate::driver::Driver::begin_inner_run) performs the calls of
    /// this one as a driver does.
    ///
    /// # Errors
    /// Those of `runner.run`. What it had committed stands; call again as the contract says.
    pub async fn run_inside(
        &self,
        thread: &str,
        input: Option<String>,
        (holder, key): (&str, &str),
        steps: u32,
        calls: &dyn InnerCalls,
    ) -> Result<String, CallError> {
        let (sender, mut asked) = StepCallSender::channel(steps);
        let texts = [thread, holder, key].map(str::to_owned);
        let export = move |exports: &Threads, store: &mut Store<InstanceState>| {
            let [thread, holder, key] = texts;
            store.data_mut().step_calls = Some(sender);
            let runner = exports.threadkeep_threads_runner();
            let input = input.as_deref();
            let answer = runner.call_run(&mut *store, &thread, input, &holder, &key, steps);
            store.data_mut().step_calls = None;
            answer
        };
        let room = self.engine.admit_inner_run().await?;
        let tenant = self.clone();
        let called = self.engine.run_outside_pool(room, move |deadline| {
            let answer = tenant.call_on_thread(true, deadline, export);
            answer.result
        });
        let mut called = std::pin::pin!(called);
        let answer = tokio::select! {
            biased;
            answer = &mut called => answer,
            late = self.perform_inner_calls(&mut asked, calls) => match late {
                Some(error) => return Err(error),
                None => called.await,
            },
        };
        answer.unwrap_or_else(|none| Err(none.into()))
    }

    /// Performs the calls until the component makes no more. Returns an error once an import of the
    /// store has not returned within the time of a call: no epoch stops that.
    async fn perform_inner_calls(
        &self,
        asked: &mut UnboundedReceiver<StepCall>,
        calls: &dyn InnerCalls,
    ) -> Option<CallError> {
        loop {
            let most = self.engine.limits().wall_time_max;
            match tokio::time::timeout(most, asked.recv()).await {
                // A caller that is gone is that of a thread that has ended.
                Ok(Some(StepCall::Model(request, answer))) => {
                    let _ = answer.send(calls.complete(*request).await);
                }
                Ok(Some(StepCall::Tools(round, answer))) => {
                    let _ = answer.send(calls.call_tools(round).await);
                }
                Ok(None) => return None,
                Err(_) => return Some(NoAnswer::TimeOver.into()),
            }
        }
    }
}
