//! A tenant over any store with the small library, a scripted driver, and tools that count their
//! calls.

use super::project::engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use threadkeep::component::TenantContext;
use threadkeep::driver::Driver;
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::models::{BoxFuture, OneProvider};
use threadkeep::storage::StorageBackend;
use threadkeep::tenant::Tenant;
use threadkeep::tools::{ToolEntry, ToolResult, ToolSet};
use threadkeep::wit;
use threadkeep_tests::fixture::MapLibrary;

/// Tools that count their runs.
#[derive(Default)]
pub struct CountingTools {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
}

impl ToolSet for CountingTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        Vec::new()
    }

    fn call<'a>(&'a self, name: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        let counter = if name == "write" {
            &self.writes
        } else {
            &self.reads
        };
        counter.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { ToolResult::ok("ok") })
    }
}

pub fn tenant(storage: Arc<dyn StorageBackend>) -> Tenant {
    let context = TenantContext::new(storage, Arc::new(MapLibrary::small()));
    Tenant::new(engine(), context)
}

/// Takes the lease of a thread; returns its token and a time within it.
pub async fn open_for_a_minute(tenant: &Tenant, thread: &str) -> (u64, wit::Instant) {
    let now = tenant.context().clock.now();
    let deadline: wit::Instant = now.saturating_add(Duration::from_secs(60)).into();
    let opened = tenant.open_thread(thread, "h/own", deadline).await.unwrap();
    (opened.token, deadline)
}

/// A driver whose model answers from a script.
pub fn scripted_driver(
    tenant: &Tenant,
    script: &str,
    tools: &Arc<CountingTools>,
    nonce: &str,
) -> Driver {
    let script = Arc::new(ScriptedProvider::parse(script).unwrap());
    let tools = Arc::<CountingTools>::clone(tools);
    Driver::new(
        tenant.clone(),
        Arc::new(OneProvider::new(script)),
        tools,
        nonce,
    )
}

/// A user's message.
pub fn message(text: &str) -> String {
    serde_json::json!({"role": "user", "content": [{"type": "text", "text": text}]}).to_string()
}

/// Checks that the auditor finds nothing.
pub fn assert_sound(storage: &dyn StorageBackend) {
    let findings = threadkeep_tests::auditor::audit(storage);
    assert!(findings.is_empty(), "{findings:#?}");
}
