//! A driver of one chain: it goes on in whichever link a step names, and keeps what it was asked.

use crate::runner::fixture::{RunnerFixture, reply, usage, user};
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_component::service::Error;
use threadkeep_component::service::runner::StepHandle;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{DecisionInputs, ReplyBlock, StepOutcome, StepSubmission};
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::fixture::MapLibrary;

/// Tokens that the model of the threads takes.
pub const WINDOW: u64 = 1_000;

/// A library whose default model has a small window, with a model for summaries and these settings
/// of continuation.
pub fn library(continuation: Value) -> MapLibrary {
    let settings = json!({"coordination": {"continuation": continuation}}).to_string();
    let model = |name: &str, window: u64, price: &str| {
        json!({
            "name": name, "provider": "p", "window": window, "output": 100,
            "prices": {"input": price, "output": price},
        })
        .to_string()
    };
    MapLibrary::small()
        .with("model", "default", &model("default", WINDOW, "1"))
        .with("model", "fast", &model("fast", 20_000, "2"))
        .with("settings", "coordination", &settings)
}

/// A library whose threads are handed off without a summary.
pub fn library_without_summary() -> MapLibrary {
    library(json!({"summary_directive": null}))
}

/// A text of so many tokens by the estimate.
pub fn words(tokens: usize) -> String {
    "abc ".repeat(tokens)
}

/// A chain that is driven through the service.
pub struct DrivenChain {
    pub world: RunnerFixture,
    /// The link that the run is in.
    pub thread: String,
    pub handed: StepHandle,
    /// The links that the run went through, the newest last.
    pub links: Vec<String>,
    /// Messages that the driver holds of the link.
    held: Vec<Value>,
    held_version: u64,
}

impl DrivenChain {
    /// Starts a thread of this directive with a message.
    pub fn start(library: MapLibrary, directive: Option<&str>, message: Option<&str>) -> Self {
        Self::start_over(Arc::new(MemoryStore::new()), library, directive, message)
    }

    /// Starts one over a store.
    pub fn start_over(
        store: Arc<dyn StorageBackend>,
        library: MapLibrary,
        directive: Option<&str>,
        message: Option<&str>,
    ) -> Self {
        let mut world = RunnerFixture::over(store, library);
        let thread = world.create(directive);
        let handed = world.start(&thread, message).unwrap();
        Self::of_step(world, handed)
    }

    /// Goes on with a step that was handed out.
    pub fn of_step(world: RunnerFixture, handed: StepHandle) -> Self {
        let thread = handed.loaded.thread.value.id.clone();
        let mut chain = Self {
            world,
            links: vec![thread.clone()],
            thread,
            handed: handed.clone(),
            held: Vec::new(),
            held_version: 0,
        };
        chain.take_step(handed);
        chain
    }

    /// Takes over a step as a driver does: a request with `since` 0 is whole, and another thread is
    /// followed with nothing held.
    pub fn take_step(&mut self, handed: StepHandle) {
        let thread = handed.loaded.thread.value.id.clone();
        if thread != self.thread {
            self.links.push(thread.clone());
            self.thread = thread;
            (self.held, self.held_version) = (Vec::new(), 0);
        }
        if handed.step.kind == Some(StepKind::CallLlm) {
            if handed.since == 0 {
                (self.held, self.held_version) = (Vec::new(), 0);
            }
            while self.held_version < handed.since {
                let read = self.world.service.messages(
                    &self.thread,
                    self.held_version,
                    Some(handed.since),
                );
                let (texts, cursor) = read.unwrap();
                self.held.extend(texts.iter().map(|text| parse(text)));
                self.held_version = cursor.unwrap_or(handed.since);
            }
            let summary = handed.summary.iter().map(|summary| &summary.message);
            let texts = summary.chain(&handed.messages);
            self.held.extend(texts.map(|text| parse(text)));
            self.held_version = handed.step.version;
        }
        self.handed = handed;
    }

    /// Submits the result of the pending step.
    pub fn try_submit(&mut self, outcome: StepOutcome) -> Result<(), Error> {
        let submission = self.submission(outcome);
        let (thread, have) = (self.thread.clone(), self.held_version);
        let handed = self.world.service.submit(&thread, &submission, have)?;
        self.take_step(handed);
        Ok(())
    }

    pub fn submission(&self, outcome: StepOutcome) -> StepSubmission {
        StepSubmission {
            token: self.handed.loaded.head.value.token,
            version: self.handed.step.version,
            outcome,
            inputs: DecisionInputs::default(),
        }
    }

    #[track_caller]
    pub fn submit(&mut self, outcome: StepOutcome) -> &mut Self {
        self.try_submit(outcome).unwrap();
        self
    }

    /// Answers with a text, and the tokens that the driver's request has by the estimate.
    #[track_caller]
    pub fn say(&mut self, text: &str) -> &mut Self {
        self.try_say(text).unwrap();
        self
    }

    /// Tries the same.
    pub fn try_say(&mut self, text: &str) -> Result<(), Error> {
        let block = ReplyBlock::Text {
            text: text.to_owned(),
        };
        let usage = self.counted_usage(text);
        self.try_submit(reply(vec![block], usage))
    }

    /// Calls a tool with a text as its argument, and performs the call with a result of so many
    /// tokens.
    #[track_caller]
    pub fn call_tool(&mut self, result_tokens: usize) -> &mut Self {
        self.try_call_tool(result_tokens).unwrap();
        self
    }

    /// Tries the same.
    pub fn try_call_tool(&mut self, result_tokens: usize) -> Result<(), Error> {
        let block = ReplyBlock::ToolUse {
            id: "x".to_owned(),
            name: "read".to_owned(),
            arguments: "{}".to_owned(),
            raw: None,
        };
        let usage = self.counted_usage("read {}");
        self.try_submit(reply(vec![block], usage))?;
        self.perform_calls(result_tokens)
    }

    /// Calls a tool and performs the call with a result of so many tokens and patches of the state.
    #[track_caller]
    pub fn call_tool_with(&mut self, result_tokens: usize, patches: &Value) -> &mut Self {
        let block = ReplyBlock::ToolUse {
            id: "x".to_owned(),
            name: "read".to_owned(),
            arguments: "{}".to_owned(),
            raw: None,
        };
        let usage = self.counted_usage("read {}");
        self.try_submit(reply(vec![block], usage)).unwrap();
        let patches = Some(patches.to_string());
        self.perform_with(result_tokens, patches).unwrap();
        self
    }

    /// Performs the call of the pending step with a result of so many tokens.
    pub fn perform_calls(&mut self, result_tokens: usize) -> Result<(), Error> {
        self.perform_with(result_tokens, None)
    }

    fn perform_with(&mut self, result_tokens: usize, patches: Option<String>) -> Result<(), Error> {
        assert_eq!(self.handed.step.kind, Some(StepKind::CallTools));
        let call = &self.handed.step.calls[0];
        let outcome = threadkeep_core::runner::ToolOutcome {
            blocks: Vec::new(),
            version: call.version,
            index: call.index,
            state: threadkeep_core::runner::ToolState::Done,
            failed: false,
            content: words(result_tokens),
            cost: threadkeep_core::money::NanoUsd::ZERO,
            patches,
            operations: None,
        };
        self.try_submit(StepOutcome::ToolOutcomes(vec![outcome]))
    }

    /// Begins the next run of the link with a message.
    #[track_caller]
    pub fn ask(&mut self, text: &str) -> &mut Self {
        self.try_start(Some(text)).unwrap();
        self
    }

    pub fn try_start(&mut self, text: Option<&str>) -> Result<(), Error> {
        let thread = self.thread.clone();
        self.world.count("starts");
        let handed = self.world.start(&thread, text)?;
        (self.held, self.held_version) = (Vec::new(), 0);
        self.take_step(handed);
        Ok(())
    }

    fn counted_usage(&self, reply: &str) -> Option<threadkeep_core::ledger::Usage> {
        let tokens = threadkeep_core::estimate::estimate_tokens;
        let sent: u64 = self.held.iter().map(|text| tokens(&text.to_string())).sum();
        usage(sent.max(1), tokens(reply).max(1))
    }

    /// The messages of the request of the pending step, each as its role and text.
    pub fn request(&self) -> Vec<(String, String)> {
        let message = |message: &Value| {
            let role = message["role"].as_str().unwrap().to_owned();
            let blocks = message["content"].as_array().unwrap();
            let texts = blocks.iter().map(|block| match block["type"].as_str() {
                Some("tool_use") => format!("call {}", block["id"].as_str().unwrap()),
                Some("tool_result") => format!("result {}", block["id"].as_str().unwrap()),
                _ => block["text"].as_str().unwrap_or_default().trim().to_owned(),
            });
            (role, texts.collect::<Vec<_>>().join("|"))
        };
        self.held.iter().map(message).collect()
    }

    /// True if the pending step asks for a summary.
    pub fn is_summarizing(&self) -> bool {
        self.handed.summary.is_some()
    }

    pub fn load(&self, thread: &str) -> LoadedThread {
        self.world.service.load(thread).unwrap()
    }

    pub fn status(&self) -> ThreadStatus {
        self.load(&self.thread).head.value.status
    }

    /// The code of the cause of the link that the run is in.
    pub fn cause(&self) -> String {
        let head = self.load(&self.thread).head.value;
        head.cause
            .clone()
            .map_or_else(String::new, |cause| cause.code)
    }

    /// The events of a thread's own entries, as JSON.
    pub fn events(&self, thread: &str) -> Vec<Value> {
        let loaded = self.load(thread);
        let after = loaded.thread.value.base_length();
        let mut events = Vec::new();
        for version in after + 1..=loaded.head.value.version {
            let entry = self.world.service.entry(&loaded, version).unwrap().unwrap();
            let entry: Value = serde_json::from_str(&entry.to_text()).unwrap();
            events.extend(entry["events"].as_array().unwrap().iter().cloned());
        }
        events
    }

    /// The event of this type that a thread has.
    #[track_caller]
    pub fn event(&self, thread: &str, kind: &str) -> Value {
        let events = self.events(thread);
        let found = events.iter().find(|event| event["type"] == kind);
        found
            .unwrap_or_else(|| panic!("no {kind} among {events:#?}"))
            .clone()
    }

    /// Checks the store, and that the chain's links point at each other.
    #[track_caller]
    pub fn check(&self) {
        self.world.audit();
        for pair in self.links.windows(2) {
            let (old, new) = (self.load(&pair[0]), self.load(&pair[1]));
            assert_eq!(old.thread.value.next.as_ref(), Some(&pair[1]));
            assert_eq!(new.thread.value.previous.as_ref(), Some(&pair[0]));
            assert_eq!(old.head.value.status, ThreadStatus::Continued);
        }
        let tip = self.load(self.links.last().unwrap());
        assert_eq!(tip.chain.value.tip, tip.thread.value.id);
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A user's message as a signal takes it.
pub fn message(text: &str) -> threadkeep_core::runner::Signal {
    let parsed = threadkeep_core::history::parse_user(&user(text)).unwrap();
    threadkeep_core::runner::Signal::Message(parsed)
}
