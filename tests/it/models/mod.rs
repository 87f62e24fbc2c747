//! Model providers over real connections, each test over both wires: against a third-party server
//! that breaks on demand, and against canned answers for faults that it does not have. Further,
//! whole runs of the command against a server that judges each request as one of many kinds of real
//! servers would.

mod bills;
mod calls;
mod canned_answers;
mod certificates;
mod endings;
mod errors;
pub(crate) mod judged_project;
mod llmock;
mod network_reach;
mod probe;
mod providers_page;
mod replies;
mod requests;
mod roles;
mod switches;
mod unknown_usage;

use std::sync::Mutex;
use std::time::Duration;
use threadkeep::models::{
    CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, ReplyBlock, ReplyDelta,
    ToolSpec,
};

/// Longer than any answer takes.
const WAIT_TIME_MAX: Duration = Duration::from_secs(120);

/// A conversation of one message and one offered tool.
fn request(text: &str) -> CompletionRequest {
    let message = serde_json::json!({"role": "user", "content": [{"type": "text", "text": text}]});
    CompletionRequest {
        model: "a-model".into(),
        system: "You are a weather service.".into(),
        tools: vec![ToolSpec {
            name: "get_weather".into(),
            description: "The weather of a city.".into(),
            schema:
                r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#
                    .into(),
        }],
        messages: vec![message.to_string()],
        images: Default::default(),
        output_max: 256,
        session: None,
    }
}

async fn ask(
    llm: &dyn ModelProvider,
    request: &CompletionRequest,
) -> (Result<ModelCompletion, ModelFailure>, Vec<ReplyDelta>) {
    let deltas = Mutex::new(Vec::new());
    let result = llm
        .complete(request, &|delta| {
            deltas.lock().expect("no test panics here").push(delta)
        })
        .await;
    (result, deltas.into_inner().expect("no test panics here"))
}

/// The text of a reply.
fn text(completion: &ModelCompletion) -> String {
    let text = |block: &ReplyBlock| match block {
        ReplyBlock::Text { text } => Some(text.clone()),
        ReplyBlock::Thinking { .. } | ReplyBlock::ToolUse { .. } => None,
    };
    completion.blocks.iter().filter_map(text).collect()
}
