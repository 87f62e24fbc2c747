//! The same core compiled natively: the component's service over a store, without a component.

use super::candidates::Candidate;
use super::world::{self, DIRECTIVE_NAME, Documents, HOLDER};
use std::fmt::Write as _;
use std::sync::Arc;
use threadkeep::clock::{Clock, SystemClock};
use threadkeep::component::{Random, SystemRandom};
use threadkeep::library::Library;
use threadkeep::storage::{self, Key, Op, Outcome, Storage};
use threadkeep_component::ports::{Item, LibraryError, Page, Ports, StorageError};
use threadkeep_component::service::Service;
use threadkeep_core::ledger::Usage;
use threadkeep_core::money::Nanos;
use threadkeep_core::plan::{Expect, Write};
use threadkeep_core::runner::{self, Completion, ReplyBlock, Submission, ToolOutcome, ToolState};
use threadkeep_core::thread::{Draft, Overrides, StepKind};
use threadkeep_core::time::Instant;

struct Native(Arc<dyn Storage>);

fn item(item: storage::Item) -> Item {
    Item {
        collection: item.key.collection,
        name: item.key.name,
        version: item.version,
        value: item.value,
    }
}

fn refused(error: &storage::StorageError) -> StorageError {
    StorageError::Other("bench".into(), error.to_string())
}

fn op(write: Write) -> Op {
    match write {
        Write::Put {
            collection,
            key,
            expect,
            value,
        } => Op::Put {
            key: Key::new(collection, key),
            expect: match expect {
                Expect::Any => storage::Expect::Any,
                Expect::Absent => storage::Expect::Absent,
                Expect::Version(version) => storage::Expect::Version(version),
            },
            value,
        },
        Write::Delete { collection, key } => Op::Delete {
            key: Key::new(collection, key),
        },
        Write::Append {
            partition,
            at,
            value,
        } => Op::Append {
            log: "history".to_owned(),
            partition,
            at,
            value,
        },
    }
}

impl Ports for Native {
    fn get(&self, keys: &[(&str, &str)]) -> Result<Vec<Item>, StorageError> {
        let keys: Vec<Key> = keys
            .iter()
            .map(|(kind, name)| Key::new(*kind, *name))
            .collect();
        let items = self.0.get(&keys).map_err(|e| refused(&e))?;
        Ok(items.into_iter().map(item).collect())
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<Page, StorageError> {
        let page = self.0.scan(collection, start, end, limit, reverse);
        let page = page.map_err(|e| refused(&e))?;
        Ok(Page {
            items: page.items.into_iter().map(item).collect(),
            cursor: page.cursor,
        })
    }

    fn read_history(
        &self,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, StorageError> {
        let lines = self.0.read_log("history", partition, start, limit, reverse);
        let lines = lines.map_err(|e| refused(&e))?;
        Ok(lines
            .into_iter()
            .map(|line| (line.position, line.value))
            .collect())
    }

    fn commit(&self, writes: Vec<Write>, closing: bool) -> Result<bool, StorageError> {
        let ops: Vec<Op> = writes.into_iter().map(op).collect();
        let outcome = self.0.commit(&ops, closing).map_err(|e| refused(&e))?;
        Ok(outcome == Outcome::Committed)
    }

    fn now(&self) -> Instant {
        let time = SystemClock.now();
        Instant {
            seconds: time.seconds,
            nanos: time.nanos,
        }
    }

    fn random(&self, bytes: u32) -> String {
        let mut buffer = vec![0; bytes as usize];
        SystemRandom.fill(&mut buffer);
        buffer.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn library(&self, kind: &str, name: &str) -> Result<Vec<String>, LibraryError> {
        Documents
            .get(kind, name)
            .map_err(|e| LibraryError::Other("bench".into(), e.to_string()))
    }
}

/// A run of its own thread.
pub struct NativeRun {
    service: Service<Native>,
    thread: String,
    token: u64,
    version: u64,
    calls: Vec<(u64, u32)>,
}

impl NativeRun {
    pub fn start(storage: &Arc<dyn Storage>) -> Self {
        let service = Service::new(Native(Arc::clone(storage)));
        let draft = Draft {
            id: None,
            directive: Some(DIRECTIVE_NAME.to_owned()),
            agent: None,
            task: None,
            title: None,
            overrides: Overrides::default(),
            inputs: String::new(),
        };
        let thread = service.create(&draft).expect("created").thread.value.id;
        let handed = service
            .start(&thread, None, HOLDER, "key")
            .expect("started");
        Self {
            service,
            thread,
            token: handed.loaded.head.value.token,
            version: handed.step.version,
            calls: Vec::new(),
        }
    }

    /// Its id.
    pub fn thread(&self) -> &str {
        &self.thread
    }
}

impl Candidate for NativeRun {
    fn step(&mut self, step: usize, blocks: &str, content: &str) {
        let outcome = match self.calls.pop() {
            None => runner::Outcome::Completion(Completion {
                blocks: ReplyBlock::parse_all(blocks).expect("blocks"),
                finish: "tool_use".to_owned(),
                usage: Some(Usage {
                    input: 1_000 + step as u64,
                    output: 500,
                    ..Usage::default()
                }),
                session: None,
            }),
            Some((version, index)) => runner::Outcome::Outcomes(vec![ToolOutcome {
                version,
                index,
                state: ToolState::Done,
                failed: false,
                content: content.to_owned(),
                cost: Nanos::ZERO,
            }]),
        };
        let submission = Submission {
            token: self.token,
            version: self.version,
            outcome,
            mail: Vec::new(),
        };
        let handed = self.service.submit(&self.thread, &submission, self.version);
        let handed = handed.expect("submitted");
        assert!(matches!(
            handed.step.kind,
            Some(StepKind::CallLlm | StepKind::CallTools)
        ));
        self.version = handed.step.version;
        self.calls = handed
            .step
            .calls
            .iter()
            .map(|call| (call.version, call.index))
            .collect();
    }
}

/// What the rows of a step hold, for who writes them without us.
pub fn rows(storage: &Arc<dyn Storage>, run: &NativeRun) -> [String; 3] {
    let key = threadkeep_core::id::key(run.thread());
    let value = |collection| {
        let items = storage
            .get(&[Key::new(collection, key.clone())])
            .expect("read");
        items.first().expect("there").value.clone()
    };
    let lines = storage.read_log("history", &key, 0, 1, true).expect("read");
    let entry = lines.first().expect("there").value.clone();
    [value("head"), value("chain"), entry]
}

/// What the world's script says at a step: a reply, or what the tool gave.
pub fn script(step: usize) -> (String, String) {
    (world::blocks(step), world::prose(step))
}
