//! The imports `llm` and `tools` of a call of `runner.run`: each is handed to the future that
//! awaits the call, and its thread waits for the answer.
//!
//! So the caller performs them as it performs steps of its own, on its own runtime; a caller that
//! is gone ends the call at its next import. Other calls get no such sender: for them the host has
//! a driver, and the imports trap.

use super::{CallMeter, size};
use crate::bindings::threadkeep::threads::{llm, tools, types};
use tokio::sync::{mpsc, oneshot};
use wasmtime::Result;
use wasmtime::component::HasData;

/// An import that the component has called, with the sender of its answer.
pub(crate) enum StepCall {
    /// `llm.complete`.
    Model(
        Box<llm::Request>,
        oneshot::Sender<std::result::Result<llm::Completion, llm::LlmError>>,
    ),
    /// `tools.call`.
    Tools(
        Vec<types::ToolCall>,
        oneshot::Sender<Vec<types::ToolOutcome>>,
    ),
}

/// Hands the imports of one call to its caller.
pub(crate) struct StepCallSender {
    calls: mpsc::UnboundedSender<StepCall>,
    /// Imports that the call may still make: it was asked for so many steps.
    left: u32,
}

impl StepCallSender {
    /// A sender for a call of so many steps, and the receiver for its caller.
    pub(crate) fn channel(steps: u32) -> (Self, mpsc::UnboundedReceiver<StepCall>) {
        let (calls, receiver) = mpsc::unbounded_channel();
        (Self { calls, left: steps }, receiver)
    }
}

/// The sender of a store, if its call has one, with the meter of the call.
pub(crate) struct StepCallView<'a> {
    pub(crate) calls: Option<&'a mut StepCallSender>,
    pub(crate) meter: &'a mut CallMeter,
}

/// Marker by which the linker finds the [`StepCallView`].
pub(crate) struct HasStepCallView;

impl HasData for HasStepCallView {
    type Data<'a> = StepCallView<'a>;
}

impl StepCallView<'_> {
    /// Hands an import to the caller and waits for its answer. The time until then is not the
    /// call's, and what follows is as much as follows a driver's `submit`: the limits count anew.
    fn ask<T>(
        &mut self,
        import: &str,
        bytes: usize,
        call: impl FnOnce(oneshot::Sender<T>) -> StepCall,
        size: impl FnOnce(&T) -> usize,
    ) -> Result<T> {
        let Some(calls) = &mut self.calls else {
            wasmtime::bail!("{import}: only runner.run may call it, the driver performs all others")
        };
        let Some(left) = calls.left.checked_sub(1) else {
            wasmtime::bail!("{import}: the component has performed all steps that it was asked for")
        };
        calls.left = left;
        // What the import takes is counted before it is handed on.
        let _ = self.meter.enter_import(bytes)?;
        let gone = || wasmtime::format_err!("{import}: the caller of runner.run is gone");
        let (answer, answered) = oneshot::channel();
        calls.calls.send(call(answer)).map_err(|_| gone())?;
        let answer = answered.blocking_recv().map_err(|_| gone())?;
        self.meter.begin_call();
        let entered = self.meter.enter_import(0)?;
        self.meter.leave_import(entered, size(&answer))?;
        Ok(answer)
    }
}

impl llm::Host for StepCallView<'_> {
    fn complete(
        &mut self,
        request: llm::Request,
    ) -> Result<std::result::Result<llm::Completion, llm::LlmError>> {
        let bytes = size::model_request(&request);
        let call = |answer| StepCall::Model(Box::new(request), answer);
        self.ask("llm.complete", bytes, call, size::model_answer)
    }
}

impl tools::Host for StepCallView<'_> {
    fn call(&mut self, calls: Vec<types::ToolCall>) -> Result<Vec<types::ToolOutcome>> {
        let bytes = size::tool_calls(&calls);
        let call = |answer| StepCall::Tools(calls, answer);
        self.ask("tools.call", bytes, call, |outcomes| {
            size::tool_outcomes(outcomes)
        })
    }
}
