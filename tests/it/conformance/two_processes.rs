//! A store in two processes: calls alternate between them, so the suite tests two processes on one
//! file as it tests one store.
//!
//! A server is this test binary again; requests and answers are lines of JSON.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use serde_json::{Value, json};
use threadkeep::storage::sqlite::SqliteStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordExpectation, RecordKey, RecordPage, StorageBackend,
    StorageError, StorageQuota, StoredRecord,
};

use super::fixture::{FILE, SqliteFixture, options};
use super::suite::StoreHome;

/// Prefix of an answer, which distinguishes it from the test harness's own lines.
const MARK: &str = "answer ";

/// Answers requests until there are no more, in the other process.
pub(super) fn serve() {
    let mut stores: HashMap<u64, SqliteStore> = HashMap::new();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let handle = request["handle"].as_u64().unwrap();
        let answer = match request["call"].as_str().unwrap() {
            "open" => {
                stores.insert(handle, open(&request));
                Value::Null
            }
            "close" => {
                stores.remove(&handle);
                Value::Null
            }
            call => answer(&stores[&handle], call, &request),
        };
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{MARK}{answer}").unwrap();
        out.flush().unwrap();
    }
}

fn open(request: &Value) -> SqliteStore {
    let path = request["directory"].as_str().unwrap();
    let dir = Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    let quota = request["limit"].as_u64().map(|limit_bytes| StorageQuota {
        limit_bytes,
        closing_margin_bytes: request["margin"].as_u64().unwrap(),
    });
    SqliteStore::open(&dir, FILE, options(quota)).unwrap()
}

fn answer(store: &SqliteStore, call: &str, request: &Value) -> Value {
    let text = |name: &str| request[name].as_str().unwrap();
    let (limit, reverse) = (&request["limit"], &request["reverse"]);
    let page = || (limit.as_u64().unwrap() as u32, reverse.as_bool().unwrap());
    match call {
        "get" => {
            let keys: Vec<RecordKey> = list(&request["keys"], key_from);
            answer_json(store.get(&keys), |items| json!(list_of(&items, item_to)))
        }
        "scan" => {
            let (limit, reverse) = page();
            let found = store.scan(
                text("collection"),
                text("start"),
                text("end"),
                limit,
                reverse,
            );
            answer_json(found, |page| {
                json!([list_of(&page.items, item_to), page.cursor])
            })
        }
        "read" => {
            let ((limit, reverse), start) = (page(), request["start"].as_u64().unwrap());
            let found = store.read_log(text("log"), text("partition"), start, limit, reverse);
            let line = |line: &LogEntry| json!([line.position, line.value]);
            answer_json(found, |lines| json!(list_of(&lines, line)))
        }
        _ => {
            let ops: Vec<CommitOp> = list(&request["ops"], op_from);
            let done = store.commit(&ops, request["closing"].as_bool().unwrap());
            answer_json(done, |outcome| match outcome {
                CommitOutcome::Committed => json!(true),
                CommitOutcome::Conflict => json!(false),
            })
        }
    }
}

fn answer_json<T>(answer: Result<T, StorageError>, to: impl Fn(T) -> Value) -> Value {
    match answer {
        Ok(found) => json!({"given": to(found)}),
        Err(error) => json!({"refused": error_to(&error)}),
    }
}

/// One of the two processes.
struct ServerProcess {
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl ServerProcess {
    fn call(&self, request: &Value) -> Value {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let (requests, answers) = &mut *pipes;
        writeln!(requests, "{request}").unwrap();
        requests.flush().unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(
                answers.read_line(&mut line).unwrap() > 0,
                "the other process is gone"
            );
            if let Some(answer) = line.strip_prefix(MARK) {
                return serde_json::from_str(answer).unwrap();
            }
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Our own child, not waited for yet.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both processes. They serve one case after the other.
pub(super) struct ServerPair {
    servers: [ServerProcess; 2],
    handles: AtomicUsize,
}

impl ServerPair {
    /// Starts them with `start`, which gives a process that runs [`serve`].
    pub(super) fn start(start: impl Fn() -> Child) -> Arc<Self> {
        let server = || {
            let mut child = start();
            let (requests, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let pipes = Mutex::new((requests, BufReader::new(answers)));
            ServerProcess { child, pipes }
        };
        Arc::new(Self {
            servers: [server(), server()],
            handles: AtomicUsize::new(0),
        })
    }

    /// Makes a directory whose store is opened in both processes.
    pub(super) fn home(self: &Arc<Self>, quota: Option<StorageQuota>) -> Box<dyn StoreHome> {
        Box::new(RemoteHome {
            fixture: SqliteFixture::new(),
            quota,
            servers: Arc::clone(self),
        })
    }
}

struct RemoteHome {
    fixture: SqliteFixture,
    quota: Option<StorageQuota>,
    servers: Arc<ServerPair>,
}

impl StoreHome for RemoteHome {
    fn open(&self) -> Arc<dyn StorageBackend> {
        let handle = self.servers.handles.fetch_add(1, Ordering::Relaxed);
        let request = json!({
            "call": "open", "handle": handle, "directory": self.fixture.temp.path(),
            "limit": self.quota.map(|quota| quota.limit_bytes),
            "margin": self.quota.map(|quota| quota.closing_margin_bytes),
        });
        for server in &self.servers.servers {
            server.call(&request);
        }
        Arc::new(TwoProcessStore {
            servers: Arc::clone(&self.servers),
            handle,
            calls: AtomicUsize::new(0),
        })
    }
}

/// One opening of a store, in both processes.
struct TwoProcessStore {
    servers: Arc<ServerPair>,
    handle: usize,
    calls: AtomicUsize,
}

impl TwoProcessStore {
    fn call<T>(&self, mut request: Value, from: impl Fn(&Value) -> T) -> Result<T, StorageError> {
        request["handle"] = self.handle.into();
        let turn = self.calls.fetch_add(1, Ordering::Relaxed) % 2;
        let answer = self.servers.servers[turn].call(&request);
        match answer.get("refused") {
            Some(error) => Err(error_from(error)),
            None => Ok(from(&answer["given"])),
        }
    }
}

impl Drop for TwoProcessStore {
    fn drop(&mut self) {
        for server in &self.servers.servers {
            server.call(&json!({"call": "close", "handle": self.handle}));
        }
    }
}

impl StorageBackend for TwoProcessStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let request = json!({"call": "get", "keys": list_of(keys, key_to)});
        self.call(request, |found| list(found, item_from))
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        let request = json!({
            "call": "scan", "collection": collection, "start": start, "end": end, "limit": limit,
            "reverse": reverse,
        });
        // Damaged records are not sent: no test of these stores damages any.
        self.call(request, |found| RecordPage {
            items: list(&found[0], item_from),
            damaged: Vec::new(),
            cursor: found[1].as_str().map(str::to_owned),
        })
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        let request = json!({
            "call": "read", "log": log, "partition": partition, "start": start, "limit": limit,
            "reverse": reverse,
        });
        let line = |line: &Value| LogEntry {
            position: line[0].as_u64().unwrap(),
            value: text(&line[1]),
        };
        self.call(request, |found| list(found, line))
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let request = json!({"call": "commit", "ops": list_of(ops, op_to), "closing": closing});
        self.call(request, |found| match found {
            Value::Bool(true) => CommitOutcome::Committed,
            Value::Bool(false) => CommitOutcome::Conflict,
            other => panic!("{other}"),
        })
    }
}

fn list<T>(value: &Value, from: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap().iter().map(from).collect()
}

fn list_of<T>(things: &[T], to: impl Fn(&T) -> Value) -> Vec<Value> {
    things.iter().map(to).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn key_to(key: &RecordKey) -> Value {
    json!([key.collection, key.name])
}

fn key_from(value: &Value) -> RecordKey {
    RecordKey::new(text(&value[0]), text(&value[1]))
}

fn item_to(item: &StoredRecord) -> Value {
    json!([key_to(&item.key), item.version, item.value])
}

fn item_from(value: &Value) -> StoredRecord {
    StoredRecord {
        key: key_from(&value[0]),
        version: value[1].as_u64().unwrap(),
        value: text(&value[2]),
    }
}

fn expect_to(expect: RecordExpectation) -> Value {
    match expect {
        RecordExpectation::Any => json!("any"),
        RecordExpectation::Absent => json!("absent"),
        RecordExpectation::Version(version) => json!(version),
    }
}

fn expect_from(value: &Value) -> RecordExpectation {
    match value.as_str() {
        Some("any") => RecordExpectation::Any,
        Some(_) => RecordExpectation::Absent,
        None => RecordExpectation::Version(value.as_u64().unwrap()),
    }
}

fn op_to(op: &CommitOp) -> Value {
    match op {
        CommitOp::Check { key, expect } => json!(["check", key_to(key), expect_to(*expect)]),
        CommitOp::Put { key, expect, value } => {
            json!(["put", key_to(key), expect_to(*expect), value])
        }
        CommitOp::Delete { key } => json!(["delete", key_to(key)]),
        CommitOp::Append {
            log,
            partition,
            at,
            value,
        } => json!(["append", [log, partition], at, value]),
        CommitOp::Trim {
            log,
            partition,
            below,
        } => json!(["trim", [log, partition], below]),
    }
}

fn op_from(value: &Value) -> CommitOp {
    let (name, third) = (&value[1], &value[2]);
    let (log, partition) = (text(&name[0]), text(&name[1]));
    match value[0].as_str().unwrap() {
        "check" => CommitOp::Check {
            key: key_from(name),
            expect: expect_from(third),
        },
        "put" => CommitOp::Put {
            key: key_from(name),
            expect: expect_from(third),
            value: text(&value[3]),
        },
        "delete" => CommitOp::Delete {
            key: key_from(name),
        },
        "append" => CommitOp::Append {
            log,
            partition,
            at: third.as_u64().unwrap(),
            value: text(&value[3]),
        },
        _ => CommitOp::Trim {
            log,
            partition,
            below: third.as_u64().unwrap(),
        },
    }
}

fn error_to(error: &StorageError) -> Value {
    match error {
        StorageError::Unavailable { message } => json!(["unavailable", message]),
        StorageError::OutcomeUnknown { message } => json!(["unknown", message]),
        StorageError::Corrupt { message } => json!(["corrupt", message]),
        StorageError::QuotaExceeded { limit, used } => json!(["quota", "", limit, used]),
        StorageError::TooLarge {
            what,
            limit,
            actual,
        } => json!(["large", what, limit, actual]),
        StorageError::Other { code, message } => json!(["other", message, code]),
    }
}

fn error_from(value: &Value) -> StorageError {
    let message = text(&value[1]);
    let number = |place: usize| value[place].as_u64().unwrap();
    // Leaks a few words in a test's process, which ends soon.
    let word = |value: &Value| -> &'static str { text(value).leak() };
    match value[0].as_str().unwrap() {
        "unavailable" => StorageError::Unavailable { message },
        "unknown" => StorageError::OutcomeUnknown { message },
        "corrupt" => StorageError::Corrupt { message },
        "quota" => StorageError::QuotaExceeded {
            limit: number(2),
            used: number(3),
        },
        "large" => StorageError::TooLarge {
            what: word(&value[1]),
            limit: number(2),
            actual: number(3),
        },
        _ => StorageError::Other {
            code: word(&value[2]),
            message,
        },
    }
}
