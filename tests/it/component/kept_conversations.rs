//! A driver that keeps conversations: its requests are those of one that does not, it reads only
//! what is new, and it never mixes two histories. And a driver on a lent thread.

use super::fixture::{CountingTools, assert_sound, message};
use super::project::engine;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::Mutex;
use threadkeep::component::TenantContext;
use threadkeep::driver::{Driver, EventSink, StopReceiver};
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    OneProvider, ReplyBlock, Usage,
};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};
use threadkeep::tenant::Tenant;
use threadkeep::wit::registry;
use threadkeep::wit::runner::SignalKind;
use threadkeep_tests::counting_store::CallCountingStore;
use threadkeep_tests::fixture::{MapLibrary, draft};

const KEPT_BYTES_MAX: usize = 1 << 20;

/// A model that keeps what it was asked. Each third reply calls a tool, and each fifth one that
/// needs consent.
#[derive(Default)]
struct CallingModel {
    asked: Mutex<Vec<CompletionRequest>>,
}

impl ModelProvider for CallingModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        let mut asked = self.asked.lock().unwrap();
        asked.push(request.clone());
        let number = asked.len();
        let tool = match number {
            _ if request.tools.is_empty() => None,
            number if number.is_multiple_of(3) => Some("read"),
            number if number.is_multiple_of(5) => Some("ask"),
            _ => None,
        };
        let block = match tool {
            Some(name) => ReplyBlock::ToolUse {
                id: format!("own-{number}"),
                name: name.to_owned(),
                arguments: "{}".to_owned(),
                raw: None,
            },
            None => ReplyBlock::Text {
                text: format!("answer {number}: {}", "word ".repeat(40)),
            },
        };
        let finish = if tool.is_some() { "tool_use" } else { "stop" };
        let input = request.messages.iter().map(|text| text.len() as u64 / 4);
        let usage = Usage {
            input: input.sum::<u64>().max(1),
            output: 60,
            ..Usage::default()
        };
        Box::pin(async move { Ok(ModelCompletion::new(vec![block], finish).with_usage(usage)) })
    }
}

/// A tenant, its driver, and what the driver's model was asked.
struct KeptChat {
    tenant: Tenant,
    driver: Driver,
    model: Arc<CallingModel>,
    links: Vec<String>,
}

impl KeptChat {
    async fn begin(storage: Arc<dyn StorageBackend>, window: u64, kept: usize) -> Self {
        let library = Arc::new(MapLibrary::small_with_window(window));
        let tenant = Tenant::new(engine(), TenantContext::new(storage, library));
        Self::begin_as(tenant, kept).await
    }

    async fn begin_as(tenant: Tenant, kept: usize) -> Self {
        let model = Arc::new(CallingModel::default());
        let providers = Arc::new(OneProvider::new(model.clone()));
        let tools = Arc::new(CountingTools::default());
        let driver = Driver::new(tenant.clone(), providers, tools, "one");
        let mut chat = Self {
            tenant,
            driver: driver.with_kept_conversations(kept),
            model,
            links: Vec::new(),
        };
        chat.create().await;
        chat
    }

    /// Creates the thread `talk`.
    async fn create(&mut self) {
        let talk = registry::Draft {
            id: Some("talk".to_owned()),
            capabilities: vec![
                "execute.tool.read".to_owned(),
                "execute.tool.ask".to_owned(),
            ],
            ..draft(None)
        };
        self.links = vec![self.tenant.create(talk).await.unwrap().id];
    }

    /// Sends a message, and approves the call that the run stops for, if any.
    async fn say(&mut self, text: &str) {
        let mut input = Some(message(text));
        loop {
            let thread = self.links.last().unwrap();
            let (sink, stop) = (EventSink::none(), StopReceiver::never());
            let run = self.driver.run(thread, input.take(), &sink, &stop);
            let ended = run.await.unwrap();
            if ended.thread != *thread {
                self.links.push(ended.thread.clone());
            }
            if ended.status == "idle" {
                return;
            }
            assert_eq!(ended.cause.unwrap().code, "approval_needed");
            self.approve(&ended.thread).await;
        }
    }

    /// Approves the call that a thread waits for.
    async fn approve(&self, thread: &str) {
        let more = self.tenant.get(thread).await.unwrap().more;
        let more: Value = serde_json::from_str(&more).unwrap();
        let call = more["waits_for"]["calls"][0]["call"].as_str().unwrap();
        let decision = json!({"call": call, "approve": true});
        let what = SignalKind::Decision(decision.to_string());
        self.tenant.signal(thread, call, what).await.unwrap();
    }

    /// The requests to the model, with a link's place in the chain for its id.
    fn read_requests(&self) -> Vec<String> {
        let asked = self.model.asked.lock().unwrap();
        let texts = asked.iter().map(|request| {
            let tools: Vec<&str> = request.tools.iter().map(|tool| &*tool.name).collect();
            let text = format!(
                "{}\n{tools:?}\n{}",
                request.system,
                request.messages.join("\n")
            );
            let links = self.links.iter().enumerate();
            links.fold(text, |text, (n, id)| text.replace(id, &format!("link {n}")))
        });
        texts.collect()
    }
}

#[tokio::test]
async fn requests_are_those_of_a_driver_that_keeps_nothing() {
    for (window, links) in [(200_000, 1), (1_500, 2)] {
        let mut asked = Vec::new();
        for kept in [0, KEPT_BYTES_MAX] {
            let store = Arc::new(MemoryStore::new());
            let mut chat = KeptChat::begin(store.clone(), window, kept).await;
            for n in 0..14 {
                chat.say(&format!("question {n}")).await;
            }
            assert!(chat.links.len() >= links, "{:?}", chat.links);
            assert_sound(&*store);
            asked.push(chat.read_requests());
        }
        assert_eq!(asked[0], asked[1], "a window of {window}");
        assert!(asked[0].len() > 20, "tools were called");
        let offered = |text: &&String| text.contains(r#""ask""#);
        assert!(
            asked[1].iter().filter(offered).count() > 20,
            "tools were offered"
        );
    }
}

/// A driver goes on the same on the thread that is lent to its tenant.
#[tokio::test]
async fn a_driver_runs_on_a_lent_thread() {
    let mut asked = Vec::new();
    for lends in [false, true] {
        let store = Arc::new(MemoryStore::new());
        let library = Arc::new(MapLibrary::small());
        let mut tenant = Tenant::new(engine(), TenantContext::new(store.clone(), library));
        if lends {
            tenant = tenant.on_calling_thread();
        }
        let mut chat = KeptChat::begin_as(tenant, KEPT_BYTES_MAX).await;
        for n in 0..8 {
            chat.say(&format!("question {n}")).await;
        }
        assert_sound(&*store);
        asked.push(chat.read_requests());
    }
    assert_eq!(asked[0], asked[1]);
}

/// A call on a lent thread is over with its first poll, whoever polls it.
#[test]
fn a_lent_call_needs_no_runtime() {
    let lent = std::thread::Builder::new().stack_size(8 << 20).spawn(|| {
        let library = Arc::new(MapLibrary::small());
        let tenant = Tenant::new(
            engine(),
            TenantContext::new(Arc::new(MemoryStore::new()), library),
        );
        let tenant = tenant.on_calling_thread();
        let mut polled = std::pin::pin!(tenant.create(draft(None)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        // The first call of an instance may take its time, after which a task gives way once.
        let mut poll = || polled.as_mut().poll(&mut context);
        let first = poll();
        let made = if first.is_ready() { first } else { poll() };
        matches!(made, std::task::Poll::Ready(Ok(thread)) if thread.status == "created")
    });
    assert!(lent.unwrap().join().unwrap());
}

#[tokio::test]
async fn a_run_reads_only_what_is_new() {
    let mut read = Vec::new();
    for kept in [0, KEPT_BYTES_MAX] {
        let store = CallCountingStore::over(Arc::new(MemoryStore::new()));
        let mut chat = KeptChat::begin(store.clone(), 200_000, kept).await;
        for n in 0..20 {
            chat.say(&format!("question {n}")).await;
        }
        store.take_calls();
        chat.say("the last").await;
        read.push(store.take_calls().entries);
    }
    assert!(read[0] > 40, "without: {read:?}");
    assert!(read[1] < 12, "with: {read:?}");
}

/// A store that is replaced by another while the process runs.
struct ReplaceableStore(Mutex<Arc<MemoryStore>>);

impl ReplaceableStore {
    fn now(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.0.lock().unwrap())
    }
}

impl StorageBackend for ReplaceableStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        self.now().get(keys)
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        self.now().scan(collection, start, end, limit, reverse)
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        self.now().read_log(log, partition, start, limit, reverse)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        self.now().commit(ops, closing)
    }
}

/// The other store has a thread of the same id and the same length, but of other words: as a backup
/// of another day has.
#[tokio::test]
async fn a_conversation_of_a_replaced_store_is_not_sent() {
    let store = Arc::new(ReplaceableStore(Mutex::new(Arc::new(MemoryStore::new()))));
    let mut chat = KeptChat::begin(store.clone(), 200_000, KEPT_BYTES_MAX).await;
    for n in 0..4 {
        chat.say(&format!("before {n}")).await;
    }
    let first = store.now();
    *store.0.lock().unwrap() = Arc::new(MemoryStore::new());
    chat.create().await;
    for n in 0..4 {
        chat.say(&format!("after {n}")).await;
    }
    let second = store.now();
    for (now, own, others) in [(first, "before", "after"), (second, "after", "before")] {
        *store.0.lock().unwrap() = now;
        chat.say(&format!("{own} at last")).await;
        let asked = chat.read_requests().pop().unwrap();
        assert!(asked.contains(&format!("{own} 3")), "{asked}");
        assert!(!asked.contains(others), "{asked}");
    }
}
