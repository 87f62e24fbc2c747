//! Trees that a driver performs: children side by side, over a real component and a real store.

use crate::component::project::engine;
use crate::component::world::sound;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threadkeep::component::Context;
use threadkeep::driver::{Driver, RunEvent, Sink, Stop, StopLevel, stopper};
use threadkeep::models::{
    Block, BoxFuture, Completion, Failure, Llm, OnDelta, OneProvider, Request, Usage,
};
use threadkeep::storage::{Storage, memory::MemoryStore};
use threadkeep::tenant::Tenant;
use threadkeep::wit::Limits;
use threadkeep::wit::runner::{Raised, SignalKind};
use threadkeep_tests::fixture::MapLibrary;

/// What a model does: the prompt of who asks, how often it was asked before, the last message.
type Act = dyn Fn(&str, usize, &str) -> Vec<Block> + Send + Sync;

/// A model that acts on who asks it; it takes its time for leaves. It notes how many ask at once.
struct Actor {
    act: Box<Act>,
    pause: Duration,
    asked: Mutex<Vec<String>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Llm for Actor {
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<Completion, Failure>> {
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
                self.pause
            } else {
                Duration::from_millis(20)
            };
            tokio::time::sleep(pause).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            let last = request.messages.last().map_or("", String::as_str);
            Ok(Completion {
                blocks: (self.act)(&who, before, last),
                finish: "stop".to_owned(),
                usage: Some(Usage {
                    input: 1_000,
                    output: 50,
                    ..Usage::default()
                }),
                session: None,
            })
        })
    }
}

fn say(text: &str) -> Vec<Block> {
    vec![Block::Text {
        text: text.to_owned(),
    }]
}

fn call(calls: &[(&str, Value)]) -> Vec<Block> {
    let calls = calls.iter().map(|(name, arguments)| Block::ToolUse {
        id: "x".to_owned(),
        name: (*name).to_owned(),
        arguments: arguments.to_string(),
    });
    calls.collect()
}

struct Grove {
    store: Arc<dyn Storage>,
    driver: Driver,
    actor: Arc<Actor>,
}

/// Directives `top`, `mid` and `leaf`, whose prompts are their names.
fn grove(spend: &str, pause: Duration, act: Box<Act>) -> Grove {
    let mut library = MapLibrary::small();
    for name in ["top", "mid", "leaf"] {
        let front = json!({"capabilities": ["execute.tool.*"], "limits": match name {
            "top" => json!({"spend": spend}),
            _ => json!({}),
        }});
        let directive = json!({"name": name, "body": name, "front": front});
        library = library.with("directive", name, &directive.to_string());
    }
    let store: Arc<dyn Storage> = Arc::new(MemoryStore::new());
    let tenant = Tenant::new(
        engine(),
        Context::new(Arc::clone(&store), Arc::new(library)),
    );
    let actor = Arc::new(Actor {
        act,
        pause,
        asked: Mutex::default(),
        now: AtomicUsize::new(0),
        most: AtomicUsize::new(0),
    });
    let models = Arc::new(OneProvider::new(Arc::<Actor>::clone(&actor)));
    let tools = Arc::<crate::component::world::Counting>::default();
    let driver = Driver::new(tenant, models, tools, "p-trees");
    Grove {
        store,
        driver,
        actor,
    }
}

impl Grove {
    async fn top(&self) -> String {
        let draft = threadkeep_tests::fixture::draft(Some("top"));
        self.driver.tenant().create(draft).await.unwrap().id
    }

    async fn tree(&self, top: &str) -> Vec<threadkeep::wit::ledger::Branch> {
        self.driver.tenant().tree(top, None).await.unwrap().branches
    }

    /// What all threads of a tree have used is what the account of its top says.
    async fn adds_up(&self, top: &str) {
        let tree = self.tree(top).await;
        let used: u64 = tree.iter().map(|branch| branch.spend).sum();
        let account = self.driver.tenant().account(top).await.unwrap();
        assert_eq!(account.spent, used);
        sound(&*self.store);
    }
}

/// Each level spawns two of the next with a reply, and waits for them with the same one.
fn two_each(who: &str, before: usize, _: &str) -> Vec<Block> {
    let next = match who {
        "top" => "mid",
        "mid" => "leaf",
        _ => return say("leaf done"),
    };
    if before > 0 && who == "top" {
        return say("all done");
    }
    let spawn = ("spawn_thread", json!({"directive": next}));
    call(&[spawn.clone(), spawn, ("wait_threads", json!({}))])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_run_side_by_side_and_their_parents_go_on() {
    // A `mid` that has its results is asked again: by then four times in all.
    let act = |who: &str, before: usize, last: &str| match who {
        "mid" if last.contains("leaf done") => say("mid done"),
        _ => two_each(who, before, last),
    };
    let grove = grove("1", Duration::from_millis(150), Box::new(act));
    let top = grove.top().await;
    let (sink, mut events) = Sink::channel();
    let ended = grove
        .driver
        .run(&top, None, &sink, &Stop::never())
        .await
        .unwrap();
    assert_eq!(ended.status, "completed", "{ended:?}");
    assert_eq!(ended.result.as_deref(), Some(r#""all done""#));
    let tree = grove.tree(&top).await;
    let depths: Vec<u32> = tree.iter().map(|branch| branch.depth).collect();
    assert_eq!(depths, [0, 1, 2, 2, 1, 2, 2]);
    assert!(
        tree.iter().all(|branch| branch.status == "completed"),
        "{tree:?}"
    );
    assert!(
        grove.actor.most.load(Ordering::SeqCst) >= 4,
        "leaves are asked at once"
    );
    grove.adds_up(&top).await;
    drop(sink);
    let (mut waits, mut children) = (0, 0);
    while let Some(event) = events.recv().await {
        match event {
            RunEvent::Waits { thread } => {
                assert_eq!(thread, top);
                waits += 1;
            }
            RunEvent::Child { event, .. } => {
                children += usize::from(matches!(*event, RunEvent::Ended(_)));
            }
            _ => {}
        }
    }
    assert_eq!((waits, children), (1, 6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_that_runs_out_of_money_goes_on_in_place_once_it_is_raised() {
    let act = |who: &str, before: usize, last: &str| match who {
        "leaf" if before < 5 => call(&[("thread_status", json!({"thread": "none"}))]),
        "leaf" => say("leaf done"),
        // A wait that says that a child has no money is asked for again.
        _ if before == 0 => {
            let next = if who == "top" { "mid" } else { "leaf" };
            call(&[
                ("spawn_thread", json!({"directive": next})),
                ("wait_threads", json!({})),
            ])
        }
        _ if last.contains("suspended") => call(&[("wait_threads", json!({}))]),
        _ => say("done"),
    };
    let grove = grove("0.006", Duration::from_millis(5), Box::new(act));
    let top = grove.top().await;
    let ended = grove
        .driver
        .run(&top, None, &Sink::none(), &Stop::never())
        .await
        .unwrap();
    assert_eq!(ended.status, "suspended", "{ended:?}");
    assert_eq!(ended.cause.unwrap().reason, "budget");
    assert!(
        grove
            .tree(&top)
            .await
            .iter()
            .all(|branch| branch.status == "suspended")
    );
    grove.adds_up(&top).await;
    let caps = Limits {
        spend: Some(500_000_000),
        ..Limits::default()
    };
    let raise = SignalKind::Raise(Raised {
        caps,
        through: false,
    });
    grove
        .driver
        .tenant()
        .signal(&top, "raise", raise)
        .await
        .unwrap();
    let ended = grove
        .driver
        .run(&top, None, &Sink::none(), &Stop::never())
        .await
        .unwrap();
    assert_eq!(
        ended.status,
        "completed",
        "{ended:?} {:?}",
        grove.tree(&top).await
    );
    let tree = grove.tree(&top).await;
    assert_eq!(tree.len(), 3, "nothing was spawned again");
    assert!(
        tree.iter().all(|branch| branch.status == "completed"),
        "{tree:?}"
    );
    grove.adds_up(&top).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_of_the_top_ends_the_whole_tree() {
    let grove = grove("1", Duration::from_secs(30), Box::new(two_each));
    let top = grove.top().await;
    let (stopper, stop) = stopper();
    let tenant = grove.driver.tenant().clone();
    let sink = Sink::none();
    let run = grove.driver.run(&top, None, &sink, &stop);
    let cancel = async {
        while grove.actor.now.load(Ordering::SeqCst) < 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tenant
            .signal(&top, "cancel", SignalKind::Cancel)
            .await
            .unwrap();
        stopper.raise(StopLevel::Cancel);
    };
    let (ended, ()) = tokio::join!(run, cancel);
    assert_eq!(ended.unwrap().status, "cancelled");
    assert!(
        grove
            .tree(&top)
            .await
            .iter()
            .all(|branch| branch.status == "cancelled")
    );
    grove.adds_up(&top).await;
}
