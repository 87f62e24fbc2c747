//! Model providers over real connections: against a third-party server that breaks on demand, and against canned
//! answers for what it cannot break.

mod canned;
mod llmock;

use std::sync::Mutex;
use threadkeep::models::openai::{OpenAi, OpenAiOptions};
use threadkeep::models::{Block, Completion, Delta, Failure, Llm, Request, ToolSpec};

/// A conversation of one message, in which one tool is offered.
fn request(text: &str) -> Request {
    let message = serde_json::json!({"role": "user", "content": [{"type": "text", "text": text}]});
    Request {
        model: "gpt-4o-mini".into(),
        system: "You are a weather service.".into(),
        tools: vec![ToolSpec {
            name: "get_weather".into(),
            description: "The weather of a city.".into(),
            schema:
                r#"{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}"#
                    .into(),
        }],
        messages: vec![message.to_string()],
        output_max: 256,
        session: None,
    }
}

async fn ask(
    options: OpenAiOptions,
    request: &Request,
) -> (Result<Completion, Failure>, Vec<Delta>) {
    let llm = OpenAi::new(options).expect("the options are right");
    let deltas = Mutex::new(Vec::new());
    let result = llm
        .complete(request, &|delta| {
            deltas.lock().expect("no test panics here").push(delta)
        })
        .await;
    (result, deltas.into_inner().expect("no test panics here"))
}

/// The text of a reply.
fn text(completion: &Completion) -> String {
    let text = |block: &Block| match block {
        Block::Text { text } => Some(text.clone()),
        Block::Thinking { .. } | Block::ToolUse { .. } => None,
    };
    completion.blocks.iter().filter_map(text).collect()
}
