//! Hand-offs as the native driver performs them: what it asks, and what it reports.

use super::fixture::{library, words};
use crate::component::fixture::{CountingTools, assert_sound};
use crate::component::project::engine;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use threadkeep::component::TenantContext;
use threadkeep::driver::{Driver, EventSink, RunEvent, StopReceiver};
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    OneProvider, ReplyBlock, ReplyDelta, Usage,
};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep_tests::fixture::draft;

/// A model that keeps what it was asked: it writes summaries for the model `fast`, and long answers
/// else.
#[derive(Default)]
struct SummarizingModel {
    asked: Mutex<Vec<CompletionRequest>>,
}

impl ModelProvider for SummarizingModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        self.asked.lock().unwrap().push(request.clone());
        let text = match request.model.as_str() {
            "fast" => "THE SUMMARY".to_owned(),
            _ => format!("answer {}", words(90)),
        };
        let input = request.messages.iter().map(|text| text.len() as u64 / 4);
        let usage = Usage {
            input: input.sum::<u64>().max(1),
            output: text.len() as u64 / 4,
            ..Usage::default()
        };
        Box::pin(async move {
            on_delta(ReplyDelta::Text(text.clone()));
            let blocks = vec![ReplyBlock::Text { text }];
            Ok(ModelCompletion::new(blocks, "stop").with_usage(usage))
        })
    }
}

#[tokio::test]
async fn a_driven_chat_goes_on_in_the_next_link() {
    let store = Arc::new(MemoryStore::new());
    let context = TenantContext::new(store.clone(), Arc::new(library(json!({}))));
    let tenant = Tenant::new(engine(), context);
    let model = Arc::new(SummarizingModel::default());
    let providers = Arc::new(OneProvider::new(model.clone()));
    let tools = Arc::new(CountingTools::default());
    let driver = Driver::new(tenant.clone(), providers, tools, "one");
    let mut thread = tenant.create(draft(None)).await.unwrap().id;
    let (mut told, mut links) = (Vec::new(), vec![thread.clone()]);
    for n in 0..16 {
        let (sink, mut events) = EventSink::channel();
        let message = crate::component::fixture::message(&format!("question {n}"));
        let ended = driver
            .run(&thread, Some(message), &sink, &StopReceiver::never())
            .await
            .unwrap();
        assert_eq!(ended.status, "idle");
        drop(sink);
        let mut text = String::new();
        while let Ok(event) = events.try_recv() {
            match event {
                RunEvent::Text(more) => text.push_str(&more),
                RunEvent::HandingOff { tokens, window, .. } => {
                    assert!(tokens >= 900 && window == 1_000, "{tokens} of {window}");
                    told.push("handing off");
                }
                RunEvent::HandedOff { from, to, .. } => {
                    assert_eq!(from, thread);
                    assert_eq!(to, ended.thread);
                    links.push(to);
                    told.push("handed off");
                }
                _ => {}
            }
        }
        assert!(!text.contains("SUMMARY"), "{text}");
        thread = ended.thread;
    }
    assert!(links.len() >= 3, "{links:?}");
    let pairs = told.chunks(2);
    assert!(
        pairs
            .into_iter()
            .all(|pair| pair == ["handing off", "handed off"])
    );
    check_requests(&model.asked.lock().unwrap());
    assert_sound(&*store);
}

/// Each request fits the window, is of one conversation, and those for a summary are whole.
fn check_requests(asked: &[CompletionRequest]) {
    for request in asked {
        let messages: Vec<Value> = request
            .messages
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        if request.model == "fast" {
            assert_eq!(messages.len(), 1);
            assert!(request.tools.is_empty() && !request.system.is_empty());
            continue;
        }
        let bytes: usize = request.messages.iter().map(String::len).sum();
        assert!(bytes / 4 < 1_000, "{bytes}");
        assert_eq!(messages[0]["role"], "user");
        assert_eq!(messages.last().unwrap()["role"], "user");
    }
    let opened = asked.iter().filter(|request| {
        let first = request.messages.first();
        first.is_some_and(|text| text.contains("Handoff Context") && text.contains("THE SUMMARY"))
    });
    assert!(opened.count() >= 2);
}
