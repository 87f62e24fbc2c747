//! A turn at a thousand messages of context, compared with one at ten; and with documents, compared
//! with one without.
//!
//! A turn is everything between two requests to the model: the reply's commit, the tool round, its
//! commit, the next request. The model and the tool answer at once.

use super::figures::{median, micros, ratio};
use super::size::{BenchSize, store};
use super::world::{self, DIRECTIVE_NAME};
use cap_std::fs::Dir;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use threadkeep::documents::{DocumentWriter, ThreadDocuments};
use threadkeep::driver::{Driver, EventSink, ModelProviders, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    ReplyBlock, Usage,
};
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use tokio::runtime::Runtime;

/// Messages of the short context, and of the long one.
const SHORT: usize = 10;
const LONG: usize = 1_000;
/// Messages around each that count.
const AROUND: usize = 100;

/// Prints both comparisons.
pub fn compare(size: BenchSize) {
    let long = size.scale_count(LONG * 10).min(LONG);
    let folder = tempfile::tempdir().expect("a folder");
    let bench = ContextBench::open(folder.path());
    let mut times = [(); 2].map(|()| Vec::new());
    for _ in 0..size.steps(8) {
        // As many short contexts as yield the turns of a long one.
        for _ in 0..size.steps(AROUND / SHORT) {
            times[0].extend(bench.turns(SHORT * 2, SHORT / 2, false));
        }
        times[1].extend(bench.turns(long + AROUND, long, false));
    }
    let [short, long_time] = times.map(|mut times| median(&mut times));
    println!(
        "a whole turn by the driver, median of each, SQLite NORMAL, a model that answers at once"
    );
    println!(
        "  {:44} {:>10}",
        format!("at {SHORT} messages"),
        micros(short)
    );
    println!(
        "  {:44} {:>10}   short/this {}   goal at least 0.80",
        format!("at {long} messages"),
        micros(long_time),
        ratio(short, long_time)
    );
    compare_documents(&bench, size);
}

/// Prints the same with documents, which are written off the path of commits: they cost time only
/// if no core is free.
fn compare_documents(bench: &ContextBench, size: BenchSize) {
    let mut times = [(); 2].map(|()| Vec::new());
    for _ in 0..size.steps(10) {
        for (place, documents) in [false, true].into_iter().enumerate() {
            times[place].extend(bench.turns(AROUND, SHORT, documents));
        }
    }
    let [off, on] = times.map(|mut times| median(&mut times));
    println!(
        "  {:44} {:>10}   with documents {:>10}   off/on {}",
        format!("at {SHORT} to {AROUND} messages"),
        micros(off),
        micros(on),
        ratio(off, on)
    );
}

/// A tenant, its runtime and the folder of its documents.
struct ContextBench {
    runtime: Runtime,
    tenant: Tenant,
    threads: Dir,
}

impl ContextBench {
    fn open(folder: &Path) -> Self {
        let engine = Engine::new(EngineLimits::local(), None).expect("an engine");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        Self {
            runtime: runtime.expect("a runtime"),
            tenant: Tenant::new(engine, world::context(&store(folder))),
            threads: Dir::open_ambient_dir(folder, cap_std::ambient_authority()).expect("a folder"),
        }
    }

    /// Runs a thread until its context has `most` messages. Returns the turns that began with
    /// `least` or more.
    fn turns(&self, most: usize, least: usize, documents: bool) -> Vec<Duration> {
        let answers = Arc::new(LoopingModel {
            most,
            asked: Mutex::default(),
        });
        let model: Arc<dyn ModelProvider> = Arc::<LoopingModel>::clone(&answers);
        let nonce = "bench";
        let mut driver = Driver::new(
            self.tenant.clone(),
            Arc::new(LoopingModels(model)),
            Arc::new(OneTool),
            nonce,
        );
        self.runtime.block_on(async {
            let threads = self.threads.try_clone().expect("a folder");
            let writer = Arc::new(DocumentWriter::new(ThreadDocuments::new(
                self.tenant.clone(),
                threads,
            )));
            if documents {
                driver = driver.with_observer(Arc::<DocumentWriter>::clone(&writer));
            }
            let draft = threadkeep_tests::fixture::draft(Some(DIRECTIVE_NAME));
            let thread = self.tenant.create(draft).await.expect("created").id;
            let (sink, _events) = EventSink::channel();
            let ended = driver
                .run(&thread, None, &sink, &StopReceiver::never())
                .await;
            assert_eq!(ended.expect("it ran").thread, thread);
            writer.flush().await;
        });
        answers.turns(least)
    }
}

/// A model that calls the tool until the context has its largest length. It records the time of
/// each request.
struct LoopingModel {
    most: usize,
    asked: Mutex<Vec<(usize, Instant)>>,
}

impl LoopingModel {
    /// Returns the turns that began with at least so many messages.
    fn turns(&self, least: usize) -> Vec<Duration> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked
            .windows(2)
            .filter_map(|pair| match pair {
                [(messages, begun), (_, ended)] if *messages >= least => Some(*ended - *begun),
                _ => None,
            })
            .collect()
    }
}

impl ModelProvider for LoopingModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        let messages = request.messages.len();
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push((messages, Instant::now()));
        drop(asked);
        let text = ReplyBlock::Text {
            text: world::prose(messages),
        };
        let call = ReplyBlock::ToolUse {
            id: "call".to_owned(),
            name: "read_file".to_owned(),
            arguments: format!("{{\"path\":\"notes/{messages}.txt\"}}"),
            raw: None,
        };
        let last = messages >= self.most;
        let (blocks, finish) = match last {
            true => (vec![text], "stop"),
            false => (vec![text, call], "tool_use"),
        };
        let completion = ModelCompletion::new(blocks, finish).with_usage(Usage {
            input: 1_000,
            output: 500,
            ..Usage::default()
        });
        Box::pin(std::future::ready(Ok(completion)))
    }
}

struct LoopingModels(Arc<dyn ModelProvider>);

impl ModelProviders for LoopingModels {
    fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
        Ok((Arc::clone(&self.0), model.to_owned()))
    }
}

struct OneTool;

impl ToolSet for OneTool {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, _: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        let content = world::prose(arguments.len());
        Box::pin(std::future::ready(ToolResult::ok(content)))
    }
}
