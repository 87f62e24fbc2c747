//! A driver that keeps conversations: its requests are those of one that does not, it reads what is
//! new alone, and it never mixes two histories.

use super::fixture::{CountingTools, assert_sound, message};
use super::project::engine;
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
use threadkeep_tests::counting_store::CallCountingStore;
use threadkeep_tests::fixture::{MapLibrary, draft};

const KEPT_BYTES_MAX: usize = 1 << 20;

/// A model that keeps what it was asked. Each third reply calls a tool.
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
        let calls = number.is_multiple_of(3) && !request.tools.is_empty();
        let block = match calls {
            true => ReplyBlock::ToolUse {
                id: format!("own-{number}"),
                name: "read".to_owned(),
                arguments: "{}".to_owned(),
                raw: None,
            },
            false => ReplyBlock::Text {
                text: format!("answer {number}: {}", "word ".repeat(40)),
            },
        };
        let finish = if calls { "tool_use" } else { "stop" };
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
            capabilities: vec!["execute.tool.read".to_owned()],
            ..draft(None)
        };
        self.links = vec![self.tenant.create(talk).await.unwrap().id];
    }

    async fn say(&mut self, text: &str) {
        let thread = self.links.last().unwrap();
        let (sink, stop) = (EventSink::none(), StopReceiver::never());
        let run = self.driver.run(thread, Some(message(text)), &sink, &stop);
        let ended = run.await.unwrap();
        assert_eq!(ended.status, "idle");
        if ended.thread != *thread {
            self.links.push(ended.thread);
        }
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
        assert!(asked[0].len() > 14);
    }
}

#[tokio::test]
async fn a_run_reads_what_is_new_alone() {
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
