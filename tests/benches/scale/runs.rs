//! Memory, threads and files of ten thousand waiting runs.

use super::size::{BenchSize, store};
use super::world::{self, DIRECTIVE_NAME};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use threadkeep::driver::{Driver, EventSink, ModelProviders, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::models::{
    BoxFuture, CompletionRequest, FailureKind, ModelCompletion, ModelFailure, ModelProvider,
    OnDelta,
};
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use tokio::task::JoinSet;

/// The time for which the waiting runs are watched.
const WATCHED: Duration = Duration::from_secs(5);
/// The time that a provider asks to wait.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// Prints the resources of the process before the runs, with them, and after.
pub fn compare(size: BenchSize) {
    let runs = size.scale_count(100_000).min(10_000);
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::new(EngineLimits::local(), None).expect("an engine");
    let tenant = Tenant::new(engine, world::context(&store(folder.path())));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    println!("{runs} runs of one tenant that wait for a provider");
    print("before", &ProcessResources::measure());
    runtime.block_on(async {
        let asked = Arc::new(AtomicUsize::new(0));
        let model = Arc::new(RateLimitedModel(Arc::clone(&asked)));
        let driver = Driver::new(
            tenant.clone(),
            Arc::new(RateLimitedModels(model)),
            Arc::new(NoTools),
            "b",
        );
        let begun = Instant::now();
        let mut waiting = start_waiting_runs(&driver, &tenant, runs).await;
        while asked.load(Ordering::Relaxed) < runs {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("  started in {:.1} s", begun.elapsed().as_secs_f64());
        let cpu = ProcessResources::measure().cpu;
        tokio::time::sleep(WATCHED).await;
        let held = ProcessResources::measure();
        print("while they wait", &held);
        println!(
            "  cores busy while they wait: {:.2}",
            (held.cpu - cpu).as_secs_f64() / WATCHED.as_secs_f64()
        );
        waiting.shutdown().await;
    });
    print("left to the store", &ProcessResources::measure());
}

/// Starts as many runs as asked, each on a thread of its own.
async fn start_waiting_runs(driver: &Driver, tenant: &Tenant, runs: usize) -> JoinSet<()> {
    let mut waiting = JoinSet::new();
    for _ in 0..runs {
        let draft = threadkeep_tests::fixture::draft(Some(DIRECTIVE_NAME));
        let thread = tenant.create(draft).await.expect("created").id;
        let driver = driver.clone();
        waiting.spawn(async move {
            let ended = driver
                .run(&thread, None, &EventSink::none(), &StopReceiver::never())
                .await;
            panic!("it ended: {ended:?}");
        });
    }
    waiting
}

fn print(when: &str, held: &ProcessResources) {
    println!(
        "  {when:20} {:>7} KiB   {:>4} threads   {:>4} open files",
        held.kib, held.threads, held.files
    );
}

/// The resources of this process.
struct ProcessResources {
    kib: u64,
    threads: usize,
    files: usize,
    cpu: Duration,
}

impl ProcessResources {
    fn measure() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let number = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        };
        // After the name, which may hold blanks: the 12th and 13th field are ticks of a hundredth
        // of a second.
        let ticks = stat.rsplit(')').next().unwrap_or_default();
        let ticks = ticks.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        let files = std::fs::read_dir("/proc/self/fd");
        Self {
            kib: number("VmRSS:").unwrap_or(0),
            threads: number("Threads:").unwrap_or(0) as usize,
            files: files.map_or(0, Iterator::count),
            cpu: Duration::from_millis(ticks * 10),
        }
    }
}

/// A provider that answers every request with a rate limit.
struct RateLimitedModel(Arc<AtomicUsize>);

impl ModelProvider for RateLimitedModel {
    fn complete<'a>(
        &'a self,
        _: &'a CompletionRequest,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Err(ModelFailure {
            kind: FailureKind::RateLimited,
            code: "http_429".to_owned(),
            message: "come again later".to_owned(),
            retry_after: Some(RETRY_AFTER),
            sent: true,
            refused: false,
            usage: None,
            partial: String::new(),
        })))
    }
}

struct RateLimitedModels(Arc<dyn ModelProvider>);

impl ModelProviders for RateLimitedModels {
    fn provider(&self, model: &str) -> Result<(Arc<dyn ModelProvider>, String), ModelFailure> {
        Ok((Arc::clone(&self.0), model.to_owned()))
    }
}

struct NoTools;

impl ToolSet for NoTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(std::future::ready(ToolResult::failure(name)))
    }
}
