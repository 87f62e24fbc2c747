//! Conversations in Threadkeep: messages that a caller appends, a run whose driver is the bench,
//! and a run of the driver with a model that answers at once.

use super::{ConversationStore, NEWEST};
use cap_std::fs::Dir;
use serde_json::json;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use threadkeep::component::TenantContext;
use threadkeep::driver::{Driver, EventSink, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    OneProvider, ReplyBlock, Usage,
};
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use threadkeep::wit::{self, llm, runner};
use threadkeep_tests::fixture::{MapLibrary, draft};
use tokio::runtime::Runtime;

/// A chat in a store of its own, and the runtime that calls it.
struct OwnChat {
    runtime: Runtime,
    tenant: Tenant,
    thread: String,
}

impl OwnChat {
    fn begin(folder: &Path, durability: CommitDurability) -> Self {
        let dir = Dir::open_ambient_dir(folder, cap_std::ambient_authority()).expect("a folder");
        let options = SqliteOptions {
            durability,
            ..SqliteOptions::local()
        };
        let store = SqliteStore::open(&dir, "registry.db", options).expect("a store");
        let context = TenantContext::new(Arc::new(store), Arc::new(MapLibrary::small()));
        let engine = Engine::new(EngineLimits::local(), None).expect("an engine");
        let tenant = Tenant::new(engine, context).on_calling_thread();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let thread = runtime
            .block_on(tenant.create(draft(None)))
            .expect("created")
            .id;
        Self {
            runtime,
            tenant,
            thread,
        }
    }

    fn newest(&self) -> Duration {
        let began = Instant::now();
        let read = self.runtime.block_on(async {
            let version = self.tenant.get(&self.thread).await?.version;
            let after = version.saturating_sub(NEWEST);
            self.tenant
                .entries(&self.thread, after, NEWEST as u32, None)
                .await
        });
        assert!(!read.expect("read").entries.is_empty());
        began.elapsed()
    }
}

fn question(number: usize) -> String {
    let text = format!("Question {number}?");
    json!({"role": "user", "content": [{"type": "text", "text": text}]}).to_string()
}

/// Both messages in one append: one commit.
pub struct AppendedChat {
    chat: OwnChat,
    version: u64,
}

impl AppendedChat {
    pub fn begin(folder: &Path, durability: CommitDurability) -> Self {
        let chat = OwnChat::begin(folder, durability);
        let thread = chat.runtime.block_on(chat.tenant.get(&chat.thread));
        let version = thread.expect("it is there").version;
        Self { chat, version }
    }
}

impl ConversationStore for AppendedChat {
    fn name(&self) -> &str {
        "threadkeep, an append"
    }

    fn turn(&mut self, number: usize, answer: &str) -> Duration {
        let began = Instant::now();
        let asked = format!("Question {number}?");
        let events = vec![
            json!({"type": "message", "role": "user", "content": asked}).to_string(),
            json!({"type": "message", "role": "assistant", "content": answer}).to_string(),
        ];
        let chat = &self.chat;
        let appended = chat.tenant.append(&chat.thread, None, self.version, events);
        self.version = chat.runtime.block_on(appended).expect("appended").version;
        began.elapsed()
    }

    fn newest(&mut self) -> Duration {
        self.chat.newest()
    }
}

/// A run with its admission, account and lease: the start with the question, the reply.
pub struct SubmittedChat {
    chat: OwnChat,
}

impl SubmittedChat {
    pub fn begin(folder: &Path, durability: CommitDurability) -> Self {
        Self {
            chat: OwnChat::begin(folder, durability),
        }
    }
}

impl ConversationStore for SubmittedChat {
    fn name(&self) -> &str {
        "threadkeep, a run: start, submit"
    }

    fn turn(&mut self, number: usize, answer: &str) -> Duration {
        let began = Instant::now();
        let key = format!("bench/{number}");
        let blocks = json!([{"type": "text", "text": answer}]).to_string();
        let chat = &self.chat;
        let thread = chat.runtime.block_on(async {
            let tenant = &chat.tenant;
            let input = Some(question(number));
            let handle = tenant.start(&chat.thread, input, "bench/1", &key, None);
            let handle = handle.await.expect("started");
            let (mut step, mut thread) = (handle.step, chat.thread.clone());
            // A long conversation is handed off: a summary comes first, then the next link's step.
            while step.kind == "call-llm" {
                thread = step.thread;
                let reply = runner::Outcome::Completion(reply(&blocks));
                let submitted = tenant.submit(&thread, handle.token, step.version, reply, 0);
                step = submitted.await.expect("submitted");
            }
            assert_eq!(step.kind, "finished");
            thread
        });
        self.chat.thread = thread;
        began.elapsed()
    }

    fn newest(&mut self) -> Duration {
        self.chat.newest()
    }
}

/// A reply that is whole.
fn reply(blocks: &str) -> llm::Completion {
    llm::Completion {
        blocks: blocks.to_owned(),
        finish: "stop".to_owned(),
        usage: Some(wit::Usage {
            input: USAGE.input,
            output: USAGE.output,
            read: 0,
            write: 0,
            reasoning: 0,
        }),
        session: None,
        id: None,
        model: None,
    }
}

/// The driver: the same commits, and all that a driver does around them.
pub struct DrivenChat {
    chat: OwnChat,
    driver: Driver,
    model: Arc<InstantModel>,
}

impl DrivenChat {
    pub fn begin(folder: &Path, durability: CommitDurability) -> Self {
        let chat = OwnChat::begin(folder, durability);
        let model = Arc::new(InstantModel::default());
        let providers = Arc::new(OneProvider::new(model.clone()));
        let driver = Driver::new(
            chat.tenant.clone(),
            providers,
            Arc::new(EmptyToolSet),
            "bench",
        )
        .with_kept_conversations(KEPT_BYTES_MAX);
        Self {
            chat,
            driver,
            model,
        }
    }
}

impl ConversationStore for DrivenChat {
    fn name(&self) -> &str {
        "threadkeep, a run by the driver"
    }

    fn turn(&mut self, number: usize, answer: &str) -> Duration {
        let began = Instant::now();
        answer.clone_into(&mut self.model.answer.lock().expect("no panic"));
        let (sink, stop) = (EventSink::none(), StopReceiver::never());
        let run = self
            .driver
            .run(&self.chat.thread, Some(question(number)), &sink, &stop);
        let ended = self.chat.runtime.block_on(run).expect("it runs");
        self.chat.thread = ended.thread;
        began.elapsed()
    }

    fn newest(&mut self) -> Duration {
        self.chat.newest()
    }
}

/// Bytes of conversations that the driver keeps from run to run.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The usage that a reply tells: as little as leaves the last turn below the preset's caps.
const USAGE: Usage = Usage {
    input: 100,
    output: 120,
    read: 0,
    write: 0,
    reasoning: 0,
};

/// Answers at once.
#[derive(Default)]
struct InstantModel {
    answer: Mutex<String>,
}

impl ModelProvider for InstantModel {
    fn complete<'a>(
        &'a self,
        _: &'a CompletionRequest,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        let text = self.answer.lock().expect("no panic").clone();
        let blocks = vec![ReplyBlock::Text { text }];
        Box::pin(async move { Ok(ModelCompletion::new(blocks, "stop").with_usage(USAGE)) })
    }
}

/// A set without tools.
struct EmptyToolSet;

impl ToolSet for EmptyToolSet {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async { ToolResult::ok("") })
    }
}
