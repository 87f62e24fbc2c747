//! Conversions between WIT and the types of the store, the library and the models: only in this
//! file. But for the time and the request of a model they are the same in every host.

use crate::exports::{library, llm, storage, types};
#[cfg(feature = "http")]
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};
use threadkeep_adapters::models::{CompletionRequest, RequestImages, ToolSpec};

threadkeep_adapters::convert_imports!();

pub fn instant(time: SystemTime) -> types::Instant {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => types::Instant {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => types::Instant {
            seconds: -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
            nanos: 0,
        },
    }
}

/// The time that is left until a deadline.
#[cfg(feature = "http")]
pub fn time_until(deadline: types::Instant) -> Duration {
    let seconds = u64::try_from(deadline.seconds).unwrap_or(0);
    let deadline = UNIX_EPOCH + Duration::new(seconds, deadline.nanos);
    deadline
        .duration_since(SystemTime::now())
        .unwrap_or_default()
}

/// Makes the request for the provider that knows the model by this name. It is whole, as each of
/// `runner.run` is.
pub fn request(asked: &llm::Request, model: String, images: RequestImages) -> CompletionRequest {
    let tools = asked.tools.iter().map(|tool| ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: tool.schema.clone(),
    });
    CompletionRequest {
        model,
        system: asked.system.clone(),
        tools: tools.collect(),
        messages: asked.messages.clone(),
        images,
        output_max: asked.output,
        session: asked.session.clone(),
    }
}
