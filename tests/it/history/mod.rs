//! Histories that are written without the runner: by an external loop, or by hand.

mod appends;
pub mod branch_fixture;
mod branches;
mod caps;
mod chains;
mod chats;
mod fork_counts;
mod fork_fixture;
mod fork_races;
mod forks;
mod late_commits;
mod live_windows;
mod loop_leases;
pub mod loop_money;
mod message_ids;
mod random_forks;
mod store_deaths;

use crate::runner::fixture::RunnerFixture;
use serde_json::{Value, json};
use std::rc::Rc;
use threadkeep_component::service::history::AppendOutcome;
use threadkeep_component::service::{Error, ErrorKind};
use threadkeep_core::error::ErrorKind as CoreErrorKind;
use threadkeep_core::thread::Head;
use threadkeep_core::time::UnixTime;

pub fn code(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Core(CoreErrorKind::Invalid { .. }) => "invalid",
        ErrorKind::Core(CoreErrorKind::NotFound { .. }) => "not-found",
        ErrorKind::Core(CoreErrorKind::Busy { .. }) => "busy",
        ErrorKind::Core(CoreErrorKind::Continued { .. }) => "continued",
        ErrorKind::Core(CoreErrorKind::Refused { .. }) => "refused",
        ErrorKind::Core(CoreErrorKind::Fenced { .. }) => "fenced",
        ErrorKind::Core(CoreErrorKind::Conflict { .. }) => "conflict",
        ErrorKind::Core(CoreErrorKind::Exceeded(_)) => "exceeded",
        _ => "other",
    }
}

pub fn message_event(role: &str, text: &str) -> Value {
    json!({"type": "message", "role": role, "content": text})
}

pub fn call_event(id: &str) -> Value {
    json!({"type": "tool_use", "name": "read", "arguments": "{}", "id": id})
}

pub fn result_event(id: &str) -> Value {
    json!({"type": "tool_result", "id": id, "text": "42"})
}

/// A world with the requests of an external loop.
pub struct LoopHost {
    pub world: RunnerFixture,
    pub thread: String,
    pub token: Option<u64>,
}

impl LoopHost {
    /// An empty chat.
    pub fn new() -> Self {
        let mut world = RunnerFixture::new();
        let thread = world.create(None);
        Self {
            world,
            thread,
            token: None,
        }
    }

    /// An empty chat that an external loop holds.
    pub fn open() -> Self {
        let mut host = Self::new();
        host.take_lease("h/1", 60).unwrap();
        host
    }

    pub fn now(&self) -> UnixTime {
        use threadkeep::clock::HostClock;
        let now = self.world.clock.now();
        UnixTime {
            seconds: now.seconds,
            nanos: now.nanos,
        }
    }

    pub fn take_lease(&mut self, holder: &str, seconds: u64) -> Result<u64, Error> {
        let deadline = self.now().plus_millis(seconds * 1_000);
        let loaded = self.world.service.open(&self.thread, holder, deadline)?;
        self.token = Some(loaded.head.value.token);
        Ok(loaded.head.value.version)
    }

    pub fn head(&self) -> Rc<Head> {
        self.world.service.load(&self.thread).unwrap().head.value
    }

    /// Appends at the newest version.
    pub fn append(&self, events: &[Value]) -> Result<AppendOutcome, Error> {
        self.append_at(self.head().version, events)
    }

    pub fn append_at(&self, expected: u64, events: &[Value]) -> Result<AppendOutcome, Error> {
        let texts: Vec<String> = events.iter().map(Value::to_string).collect();
        let written = self
            .world
            .service
            .append(&self.thread, self.token, Some(expected), &texts);
        self.world.audit();
        written
    }

    pub fn close(&self, outcome: &str, result: Option<&str>) -> Result<AppendOutcome, Error> {
        let token = self.token.unwrap_or_default();
        let closed =
            self.world
                .service
                .close(&self.thread, token, outcome, result.map(str::to_owned));
        self.world.audit();
        closed
    }
}
