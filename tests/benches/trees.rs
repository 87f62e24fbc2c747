//! `cargo bench -p threadkeep-tests --bench trees [-- CHILDREN]`: times a tree of 64 and one of
//! 1,024 children through the driver, from the creation of the top to its end, over a store in
//! memory, and prints how far the larger is from taking 16 times as long.
//!
//! The model answers at once, so what is measured is the work of the component and the driver.
//! With a number, only a tree of so many children is performed, so that a profiler shows it.

use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use threadkeep::component::TenantContext;
use threadkeep::driver::{Driver, EventSink, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    OneProvider, ReplyBlock, Usage,
};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use threadkeep_tests::fixture::{MapLibrary, draft};

/// Children that one reply spawns.
const SPAWNS: usize = 16;
/// Children of the small and of the large tree.
const FEW: usize = 64;
const MANY: usize = 1_024;
/// Trees of each size; the fastest counts.
const ROUNDS: usize = 3;

const MODEL: &str = concat!(
    r#"{"name":"default","provider":"p","window":100000000,"output":400,"prices":{"input":"1","#,
    r#""output":"2"}}"#
);

/// Replies to the top with spawns until all are there, then with a wait, then with its end; to a
/// leaf with its end.
struct CrowdModel {
    children: usize,
    asked: AtomicUsize,
}

impl ModelProvider for CrowdModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        Box::pin(async move {
            let call = |name: &str, arguments: String| ReplyBlock::ToolUse {
                id: "x".to_owned(),
                name: name.to_owned(),
                arguments,
                raw: None,
            };
            let blocks = match request.system.as_str() {
                "top" => {
                    let before = self.asked.fetch_add(1, Ordering::SeqCst) * SPAWNS;
                    let spawn = || call("spawn_thread", json!({"directive": "leaf"}).to_string());
                    match before.cmp(&self.children) {
                        std::cmp::Ordering::Less => (0..SPAWNS).map(|_| spawn()).collect(),
                        std::cmp::Ordering::Equal => {
                            vec![call("wait_threads", json!({}).to_string())]
                        }
                        std::cmp::Ordering::Greater => text("all done"),
                    }
                }
                _ => text("done"),
            };
            Ok(ModelCompletion::new(blocks, "stop").with_usage(Usage {
                input: 100,
                output: 10,
                ..Usage::default()
            }))
        })
    }
}

/// No tools beyond the built-in ones.
struct NoOutsideTools;

impl ToolSet for NoOutsideTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        unreachable!("no tool is offered")
    }
}

fn text(text: &str) -> Vec<ReplyBlock> {
    vec![ReplyBlock::Text {
        text: text.to_owned(),
    }]
}

/// Performs a tree of so many children; returns the time from its beginning to its end.
async fn perform_tree(engine: &Engine, children: usize) -> Duration {
    let mut library = MapLibrary::small().with("model", "default", MODEL);
    // A leaf that named a spend would have it reserved, and draws on the account of the top.
    for (name, spend) in [("top", json!("1000")), ("leaf", json!(null))] {
        let mut limits = json!({"spawns": 100_000, "turns": 100_000, "tokens": 1u64 << 50});
        if !spend.is_null() {
            limits["spend"] = spend;
        }
        let front = json!({"capabilities": ["execute.tool.*"], "limits": limits});
        let directive = json!({"name": name, "body": name, "front": front});
        library = library.with("directive", name, &directive.to_string());
    }
    let context = TenantContext::new(Arc::new(MemoryStore::new()), Arc::new(library));
    let tenant = Tenant::new(engine.clone(), context);
    let model = CrowdModel {
        children,
        asked: AtomicUsize::new(0),
    };
    let models = Arc::new(OneProvider::new(Arc::new(model)));
    let driver = Driver::new(tenant.clone(), models, Arc::new(NoOutsideTools), "b-trees");
    let top = tenant.create(draft(Some("top"))).await.expect("created").id;
    let (sink, mut events) = EventSink::channel();
    let drained = tokio::spawn(async move { while events.recv().await.is_some() {} });
    let begun = Instant::now();
    let stop = StopReceiver::never();
    let ended = driver
        .run(&top, None, &sink, &stop)
        .await
        .expect("performed");
    let took = begun.elapsed();
    assert_eq!(ended.status, "completed", "{ended:?}");
    assert_eq!(count_completed(&tenant, &top).await, children + 1);
    drop(sink);
    drained.await.expect("drained");
    took
}

async fn count_completed(tenant: &Tenant, top: &str) -> usize {
    let (mut completed, mut cursor) = (0, None);
    loop {
        let page = tenant.tree(top, cursor).await.expect("read");
        let branches = page.branches.iter();
        completed += branches
            .filter(|branch| branch.status == "completed")
            .count();
        cursor = page.cursor;
        if cursor.is_none() {
            return completed;
        }
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this file, too: then it only proves that the bench works.
    let measures = given.iter().any(|argument| argument == "--bench");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let engine = Engine::new(EngineLimits::local(), None).expect("an engine");
    let perform = |children| runtime.block_on(perform_tree(&engine, children));
    if let Some(children) = given.iter().find_map(|argument| argument.parse().ok()) {
        println!("{children} children: {:.2?}", perform(children));
        return;
    }
    if !measures {
        println!("{SPAWNS} children: {:.2?}", perform(SPAWNS));
        return;
    }
    let (mut few, mut many) = (Duration::MAX, Duration::MAX);
    perform(FEW);
    for _ in 0..ROUNDS {
        few = few.min(perform(FEW));
        many = many.min(perform(MANY));
    }
    let times = many.as_secs_f64() / few.as_secs_f64();
    println!("a tree through the driver, over a store in memory; the fastest of {ROUNDS}");
    println!(
        "  {FEW:5} children {few:>9.2?}, each {:.2?}",
        few / FEW as u32
    );
    println!(
        "  {MANY:5} children {many:>9.2?}, each {:.2?}",
        many / MANY as u32
    );
    println!(
        "  {times:.1} times as long, {:.2} of its work (at most 2)",
        times / 16.0
    );
}
