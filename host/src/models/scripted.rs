//! A provider that answers from a script ([`threadkeep_adapters::models::scripted`] says what a
//! script is): for tests, demonstrations and replays.

use super::{BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta};
pub use threadkeep_adapters::models::scripted::ScriptError;
use threadkeep_adapters::models::scripted::ScriptedModel;

/// A provider that answers from a script.
#[derive(Debug)]
pub struct ScriptedProvider {
    model: ScriptedModel,
}

impl ScriptedProvider {
    /// Parses a script: a JSON list of replies, or one reply a line.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let model = ScriptedModel::parse(text)?;
        Ok(Self { model })
    }
}

impl ModelProvider for ScriptedProvider {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        Box::pin(
            self.model
                .answer_request(request, on_delta, tokio::time::sleep),
        )
    }
}

#[cfg(test)]
mod tests;
