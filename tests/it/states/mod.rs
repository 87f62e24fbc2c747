//! The state document of a thread: its changes, its scopes, and what it was at a version.

mod appends;
mod costs;
mod edited_stores;
mod random_histories;
mod scopes;
mod tool_outcomes;

use crate::history::message_event;
use crate::runner::fixture::RunnerFixture;
use serde_json::{Value, json};
use threadkeep_component::service::Error;
use threadkeep_component::service::history::{AppendOutcome, ChangeTexts};
use threadkeep_core::thread::{CreatorOverrides, ThreadDraft};

/// Returns a change of the state without events.
pub fn change(patches: &[Value], operations: &[Value]) -> ChangeTexts {
    let texts = |values: &[Value]| values.iter().map(Value::to_string).collect();
    ChangeTexts {
        patches: texts(patches),
        operations: texts(operations),
        ..ChangeTexts::default()
    }
}

/// Returns a patch of a scope.
pub fn patch(scope: &str, steps: Value) -> Value {
    json!({"scope": scope, "patch": steps})
}

/// Returns a patch that sets one field of a scope.
pub fn set(scope: &str, name: &str, value: Value) -> Value {
    patch(
        scope,
        json!([{"op": "add", "path": format!("/{name}"), "value": value}]),
    )
}

/// Returns an operation on a scope.
pub fn operation(scope: &str, op: &str, path: &str, value: Value) -> Value {
    json!({"scope": scope, "op": op, "path": path, "value": value})
}

/// A chat with a message, and appends to it without a lease.
pub struct StateWorld {
    pub world: RunnerFixture,
    pub thread: String,
}

impl StateWorld {
    pub fn new() -> Self {
        Self::of(RunnerFixture::new())
    }

    /// A chat of a world, which may call the tool `read`.
    pub fn of(mut world: RunnerFixture) -> Self {
        let draft = ThreadDraft {
            overrides: CreatorOverrides {
                capabilities: vec!["execute.tool.read".to_owned()],
                ..CreatorOverrides::default()
            },
            ..ThreadDraft::default()
        };
        let thread = world
            .service
            .create(&draft)
            .unwrap()
            .thread
            .value
            .id
            .clone();
        world.note_thread(&thread);
        let events = [message_event("user", "hi").to_string()];
        world.service.append(&thread, None, None, &events).unwrap();
        Self { world, thread }
    }

    pub fn append(&self, change: &ChangeTexts) -> Result<AppendOutcome, Error> {
        let written = self
            .world
            .service
            .append_change(&self.thread, None, None, change);
        self.world.audit();
        written
    }

    pub fn version(&self) -> u64 {
        self.world
            .service
            .load(&self.thread)
            .unwrap()
            .head
            .value
            .version
    }

    /// The state now, or at a version.
    pub fn state(&self, at: Option<u64>) -> Value {
        state_of(&self.world, &self.thread, at)
    }
}

/// Returns the state of a thread now, or at a version.
pub fn state_of(world: &RunnerFixture, thread: &str, at: Option<u64>) -> Value {
    let loaded = world.service.load(thread).unwrap();
    let version = at.unwrap_or(loaded.head.value.version);
    let document = world.service.state_at(&loaded, version).unwrap();
    serde_json::from_str(&document.to_text()).unwrap()
}
