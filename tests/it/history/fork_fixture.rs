//! Threads that are forked: a scripted history with tools, open calls, mail and a cap, and what a
//! fork of it must be.

use crate::runner::fixture::{RunnerFixture, calls, fails, raise, says, user};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep_component::service::Error;
use threadkeep_core::hash::sha256;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{Signal, StepOutcome};
use threadkeep_core::thread::{CreatorOverrides, Head, ThreadDraft};

/// Turns after which the scripted run stops, until its cap is raised.
const TURNS: u64 = 3;

/// A thread with the heads that it had at its versions.
pub struct ScriptedThread {
    pub id: String,
    pub heads: BTreeMap<u64, Rc<Head>>,
}

impl ScriptedThread {
    /// Remembers the head that the thread has now.
    fn note_head(&mut self, world: &RunnerFixture) {
        let head = world.service.load(&self.id).unwrap().head.value;
        self.heads.insert(head.version, head);
    }

    /// Versions that the thread has reached.
    pub fn newest(&self) -> u64 {
        *self.heads.keys().last().unwrap()
    }

    fn send(&mut self, world: &RunnerFixture, key: &str, signal: Signal) {
        world.service.signal(&self.id, key, &signal).unwrap();
        self.note_head(world);
    }

    fn start(&mut self, world: &mut RunnerFixture, input: Option<&str>) {
        world.start(&self.id, input).unwrap();
        self.note_head(world);
    }

    fn submit(&mut self, world: &mut RunnerFixture, outcome: StepOutcome) {
        world.submit(&self.id, outcome).unwrap();
        self.note_head(world);
    }
}

/// Sends a message of a user.
pub fn message(text: &str) -> Signal {
    Signal::Message(threadkeep_core::history::parse_user(&user(text)).unwrap())
}

/// Makes a thread of a directive, or a chat, with calls that stay open for a while, a failed
/// attempt, mail, a cap that is reached and raised, and a second run.
pub fn scripted_thread(world: &mut RunnerFixture, directive: Option<&str>) -> ScriptedThread {
    let limits = ThreadCaps {
        turns: Some(TURNS),
        ..ThreadCaps::NONE
    };
    let capability = |tool| format!("execute.tool.{tool}");
    let draft = ThreadDraft {
        directive: directive.map(str::to_owned),
        overrides: CreatorOverrides {
            limits,
            capabilities: match directive {
                Some(_) => Vec::new(),
                None => ["read", "write"].map(capability).into(),
            },
            ..CreatorOverrides::default()
        },
        ..ThreadDraft::default()
    };
    let id = world
        .service
        .create(&draft)
        .unwrap()
        .thread
        .value
        .id
        .clone();
    let mut told = ScriptedThread {
        id,
        heads: BTreeMap::new(),
    };
    told.start(world, Some("look at both files"));
    told.submit(world, calls(&[("read", "{}"), ("write", "{}")]));
    told.send(world, "m1", message("and be quick"));
    let outcomes = world.outcomes(&told.id);
    told.submit(world, outcomes);
    told.submit(world, StepOutcome::Failure(fails("transient", true)));
    // The attempt is made again, once the wait is over.
    world.advance(60_000);
    told.submit(world, StepOutcome::Waited);
    told.submit(world, calls(&[("write", "{\"a\":1}")]));
    let outcomes = world.outcomes(&told.id);
    told.submit(world, outcomes);
    told.submit(world, calls(&[("read", "{}"), ("nothing", "{}")]));
    let outcomes = world.outcomes(&told.id);
    told.submit(world, outcomes);
    assert_eq!(world.status(&told.id), "suspended", "the cap is reached");
    told.send(world, "m2", message("why did you stop?"));
    let caps = ThreadCaps {
        turns: Some(9),
        ..ThreadCaps::NONE
    };
    told.send(world, "r1", raise(caps));
    told.start(world, None);
    told.submit(world, says("done"));
    if directive.is_none() {
        told.start(world, Some("thank you"));
        told.submit(world, says("you are welcome"));
    }
    told
}

/// Forks a thread, with a key that is used once.
pub fn fork_at(world: &RunnerFixture, thread: &str, version: u64) -> Result<LoadedThread, Error> {
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let key = format!("fork-{}", KEYS.fetch_add(1, Ordering::Relaxed));
    world.service.fork(thread, version, &key, None)
}

/// Reads the messages that a provider is sent of a thread, up to a version.
pub fn messages_until(world: &RunnerFixture, thread: &str, until: Option<u64>) -> Vec<String> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = world.service.messages(thread, after, until).unwrap();
        all.extend(page.0);
        match page.1 {
            Some(cursor) => after = cursor,
            None => return all,
        }
    }
}

/// Checks that messages are a conversation that a provider accepts: each call has one id and one
/// result, which comes before anything else is said.
#[track_caller]
pub fn assert_conversation(messages: &[String]) {
    let (mut used, mut open) = (BTreeSet::new(), BTreeSet::new());
    for text in messages {
        let message: Value = serde_json::from_str(text).unwrap();
        let blocks = message["content"].as_array().unwrap();
        if message["role"] != "tool" {
            assert!(open.is_empty(), "{open:?} have no result before {text}");
        }
        for block in blocks {
            let id = block["id"].as_str().unwrap_or_default().to_owned();
            match block["type"].as_str().unwrap() {
                "tool_use" => {
                    assert!(used.insert(id.clone()), "{id} is used twice");
                    open.insert(id);
                }
                "tool_result" => assert!(open.remove(&id), "{id} has no call, or two results"),
                _ => {}
            }
        }
    }
    assert!(open.is_empty(), "{open:?} have no result");
}

/// The hash that a head has of these messages.
pub fn prefix_of(messages: &[String]) -> String {
    let fold = |prefix: String, message: &String| sha256(&[&prefix, message]);
    messages.iter().fold(String::new(), fold)
}
