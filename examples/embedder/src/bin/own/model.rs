//! A custom model: it calls a tool once, and then answers with the result.

use serde_json::Value;
use threadkeep::models::{
    BoxFuture, CompletionRequest, FailureKind, ModelCompletion, ModelFailure, ModelProvider,
    OnDelta, ReplyBlock, ReplyDelta, Usage,
};

pub struct ClerkModel;

impl ModelProvider for ClerkModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        // A real adapter sends `request` over its wire here, once, and never retries by itself: the
        // runner does.
        Box::pin(async move {
            let last = request
                .messages
                .last()
                .map(|text| serde_json::from_str::<Value>(text));
            let Some(Ok(last)) = last else {
                let message = "a request without a message".to_owned();
                return Err(
                    ModelFailure::new(FailureKind::Permanent, "no_message", message).not_sent(),
                );
            };
            let block = match last["role"].as_str() {
                Some("tool") => {
                    let found = last["content"][0]["text"].as_str().unwrap_or("nothing");
                    let text = format!("The desk says: {found}");
                    on_delta(ReplyDelta::Text(text.clone()));
                    ReplyBlock::Text { text }
                }
                _ => ReplyBlock::ToolUse {
                    id: "1".to_owned(),
                    name: "look_up".to_owned(),
                    arguments: r#"{"word": "hours"}"#.to_owned(),
                    raw: None,
                },
            };
            let finish = if matches!(block, ReplyBlock::Text { .. }) {
                "stop"
            } else {
                "tool_use"
            };
            // Without it the call is charged by an estimate from the text of request and reply.
            let usage = Usage {
                input: 40,
                output: 10,
                ..Usage::default()
            };
            Ok(ModelCompletion::new(vec![block], finish).with_usage(usage))
        })
    }
}
