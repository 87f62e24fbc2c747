//! Probes a provider with one small request, to see whether and how it answers.

use crate::ceilings::CeilingGuard;
use crate::driver::ModelProviders;
use crate::models::{
    CompletionRequest, ModelCompletion, ModelFailure, ReplyBlock, ReplyDelta, user_message,
};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep_storage::locks::SleepingMutex;

/// The prompt. The answer does not matter.
const QUESTION: &str = "Answer with the one word: ready";
/// Most output tokens: a word, and room for models that think before it.
const OUTPUT_TOKENS: u64 = 512;
/// Longest time of the whole request.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Most requests with one more refused field left out; a refusal costs nothing.
const FIELDS_REFUSED_MAX: usize = 4;

/// The observations of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeReport {
    /// Time until the first part of the reply.
    pub time_to_first: Option<Duration>,
    /// Time of the whole request.
    pub total_time: Duration,
    /// Fields that the server refused and that were then left out, in its words.
    pub refused: Vec<String>,
    /// The reply.
    pub completion: ModelCompletion,
}

impl ProbeReport {
    /// The text of the reply.
    pub fn text(&self) -> String {
        let text = |block: &ReplyBlock| match block {
            ReplyBlock::Text { text } => Some(text.clone()),
            ReplyBlock::Thinking { .. } | ReplyBlock::ToolUse { .. } => None,
        };
        self.completion.blocks.iter().filter_map(text).collect()
    }
}

/// Asks a model for one word, within the policy's ceilings.
///
/// # Errors
/// The failure of the request, as a run would suspend with it.
pub async fn probe_model(
    models: &dyn ModelProviders,
    guard: &Arc<CeilingGuard>,
    model: &str,
) -> Result<ProbeReport, ModelFailure> {
    let (provider, name) = models.provider(model)?;
    let permit = guard.admit_run().map_err(|refusal| refusal.to_failure())?;
    let request = CompletionRequest {
        model: name,
        messages: vec![user_message(QUESTION)],
        output_max: OUTPUT_TOKENS,
        ..CompletionRequest::default()
    };
    let mut refused = Vec::new();
    loop {
        let begun = Instant::now();
        let first = SleepingMutex::new(None);
        let on_delta = |delta: ReplyDelta| {
            if !matches!(delta, ReplyDelta::Received(_)) {
                let mut first = first.lock();
                first.get_or_insert_with(|| begun.elapsed());
            }
        };
        match permit
            .complete(&*provider, &request, &on_delta, TIME_MAX)
            .await
        {
            Ok(completion) => {
                let first = *first.lock();
                return Ok(ProbeReport {
                    time_to_first: first,
                    total_time: begun.elapsed(),
                    refused,
                    completion,
                });
            }
            Err(failure)
                if failure.code == "field_refused" && refused.len() < FIELDS_REFUSED_MAX =>
            {
                refused.push(failure.message);
            }
            Err(failure) => return Err(failure),
        }
    }
}
