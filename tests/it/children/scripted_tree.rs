//! A tree of threads over a real component and a real store, whose scripted model knows which
//! thread asks.

use crate::component::fixture::assert_sound;
use crate::component::project::engine;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threadkeep::component::TenantContext;
use threadkeep::driver::Driver;
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    OneProvider, ReplyBlock, Usage,
};
use threadkeep::storage::{StorageBackend, memory::MemoryStore};
use threadkeep::tenant::Tenant;
use threadkeep::wit::ledger::Branch;
use threadkeep_tests::fixture::MapLibrary;

/// Large enough for the messages of the top of a large tree.
const MODEL: &str = concat!(
    r#"{"name":"default","provider":"p","window":200000,"output":400,"prices":{"input":"1","#,
    r#""output":"2"}}"#
);

/// A scripted model's reply, from the prompt of the asking thread, the number of its earlier calls,
/// and the last message.
pub type ReplyFunction = dyn Fn(&str, usize, &str) -> Vec<ReplyBlock> + Send + Sync;

/// A model that replies by the asking thread, and slowly to leaves. It counts calls under way.
pub struct ActingModel {
    act: Box<ReplyFunction>,
    /// Time that a reply to a leaf takes.
    pub pause: Mutex<Duration>,
    asked: Mutex<Vec<String>>,
    pub now: AtomicUsize,
    pub most: AtomicUsize,
}

impl ModelProvider for ActingModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        Box::pin(async move {
            let who = request.system.clone();
            let before = {
                let mut asked = self.asked.lock().unwrap();
                let before = asked.iter().filter(|asked| **asked == who).count();
                asked.push(who.clone());
                before
            };
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            let pause = if who == "leaf" {
                *self.pause.lock().unwrap()
            } else {
                Duration::from_millis(20)
            };
            tokio::time::sleep(pause).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            let last = request.messages.last().map_or("", String::as_str);
            let blocks = (self.act)(&who, before, last);
            Ok(ModelCompletion::new(blocks, "stop").with_usage(Usage {
                input: 1_000,
                output: 50,
                ..Usage::default()
            }))
        })
    }
}

pub fn text_blocks(text: &str) -> Vec<ReplyBlock> {
    vec![ReplyBlock::Text {
        text: text.to_owned(),
    }]
}

pub fn call_blocks(calls: &[(&str, Value)]) -> Vec<ReplyBlock> {
    let calls = calls.iter().map(|(name, arguments)| ReplyBlock::ToolUse {
        id: "x".to_owned(),
        name: (*name).to_owned(),
        arguments: arguments.to_string(),
        raw: None,
    });
    calls.collect()
}

pub struct ScriptedTree {
    store: Arc<dyn StorageBackend>,
    pub driver: Driver,
    pub actor: Arc<ActingModel>,
}

/// Builds directives `top`, `mid` and `leaf`, whose prompts are their names, over a memory store.
pub fn scripted_tree(spend: &str, pause: Duration, act: Box<ReplyFunction>) -> ScriptedTree {
    scripted_tree_over(Arc::new(MemoryStore::new()), spend, pause, act)
}

/// Builds the same over a given store.
pub fn scripted_tree_over(
    store: Arc<dyn StorageBackend>,
    spend: &str,
    pause: Duration,
    act: Box<ReplyFunction>,
) -> ScriptedTree {
    let mut library = MapLibrary::small().with("model", "default", MODEL);
    for name in ["top", "mid", "leaf"] {
        let front = json!({"capabilities": ["execute.tool.*"], "limits": match name {
            "top" => json!({"spend": spend, "spawns": 100}),
            _ => json!({}),
        }});
        let directive = json!({"name": name, "body": name, "front": front});
        library = library.with("directive", name, &directive.to_string());
    }
    let tenant = Tenant::new(
        engine(),
        TenantContext::new(Arc::clone(&store), Arc::new(library)),
    );
    let actor = Arc::new(ActingModel {
        act,
        pause: Mutex::new(pause),
        asked: Mutex::default(),
        now: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let models = Arc::new(OneProvider::new(Arc::<ActingModel>::clone(&actor)));
    let tools = Arc::<crate::component::fixture::CountingTools>::default();
    let driver = Driver::new(tenant, models, tools, "p-trees");
    ScriptedTree {
        store,
        driver,
        actor,
    }
}

impl ScriptedTree {
    /// Counts the requests to the model with this prompt.
    pub fn count_requests(&self, who: &str) -> usize {
        let asked = self.actor.asked.lock().unwrap();
        asked.iter().filter(|asked| *asked == who).count()
    }

    pub async fn create_top(&self) -> String {
        let draft = threadkeep_tests::fixture::draft(Some("top"));
        self.driver.tenant().create(draft).await.unwrap().id
    }

    /// All branches of the tree.
    pub async fn load_branches(&self, top: &str) -> Vec<Branch> {
        let (mut branches, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.driver.tenant().tree(top, cursor).await.unwrap();
            branches.extend(page.branches);
            cursor = page.cursor;
            if cursor.is_none() {
                return branches;
            }
        }
    }

    /// Checks to the nano-USD that the spend of all threads of a tree is the spend of its top's
    /// account.
    pub async fn assert_adds_up(&self, top: &str) {
        let tree = self.load_branches(top).await;
        let used: u64 = tree.iter().map(|branch| branch.spend).sum();
        let account = self.driver.tenant().account(top).await.unwrap();
        assert_eq!(account.spent, used);
        assert_sound(&*self.store);
    }
}
