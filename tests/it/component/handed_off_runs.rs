//! A run that goes on in another thread than it began in. A small component takes the place of the
//! real one, so that each answer is known: it names the thread `old-1` until the first reply, and
//! `new-1` from then on.

use super::project::engine_with;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threadkeep::component::TenantContext;
use threadkeep::driver::{
    AfterRun, CommitNotice, CommitObserver, DriveError, Driver, DurableReply, EndedRun, EventSink,
    OnBusy, RunEvent, StopReceiver,
};
use threadkeep::error::CallError;
use threadkeep::limits::EngineLimits;
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    OneProvider, ReplyBlock,
};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit;
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::programs::{build_component, export_signature, field_offset};
use tokio::sync::Notify;

/// Texts in the memory of the component.
const TEXTS: &str = "old-1new-1call-llmfinishedrunningcompletedOLDNEW{\"n\":1}{\"n\":2}{\"n\":3}\
                     continued{\"next\":\"new-1\"}";
/// The place of the texts.
const TEXTS_AT: usize = 16_384;
/// The places of answers: the payload of a result follows eight bytes after, or four where it holds
/// no 64-bit integer.
const HANDLE: usize = 32_768;
const STEP: usize = 36_864;
const THREAD: usize = 40_960;
const PAGE: usize = 45_056;
const LIST: usize = 49_152;
const EMPTY: usize = 53_248;
const REFUSAL: usize = 57_344;

/// Code that puts a text at a place.
fn put_text(at: usize, text: &str) -> String {
    let from = TEXTS_AT + TEXTS.find(text).unwrap();
    let (after, bytes) = (at + 4, text.len());
    format!(
        "(i32.store (i32.const {at}) (i32.const {from}))\n\
         (i32.store (i32.const {after}) (i32.const {bytes}))\n"
    )
}

fn put_number(at: usize, number: usize) -> String {
    format!("(i64.store (i32.const {at}) (i64.const {number}))\n")
}

/// Code that puts a list of one text at a place, with its element at another.
fn put_texts(at: usize, element: usize, text: &str) -> String {
    let mut code = put_text(element, text);
    for (place, value) in [(at, element), (at + 4, 1)] {
        let _ = writeln!(code, "(i32.store (i32.const {place}) (i32.const {value}))");
    }
    code
}

/// Code that puts a step for a model call of this thread: a system prompt and one message.
fn put_model_call(at: usize, thread: &str, version: usize, asked: (&str, &str, usize)) -> String {
    let (system, message, since) = asked;
    let request = at + field_offset("step", "request");
    let field = |name| request + 8 + field_offset("request", name);
    let deadline = at + field_offset("step", "deadline") + field_offset("instant", "seconds");
    [
        put_text(at + field_offset("step", "kind"), "call-llm"),
        put_text(at + field_offset("step", "thread"), thread),
        put_number(at + field_offset("step", "version"), version),
        put_number(deadline, 4_000_000_000),
        format!("(i32.store8 (i32.const {request}) (i32.const 1))\n"),
        put_text(field("model"), thread),
        put_text(field("system"), system),
        put_texts(field("messages"), LIST + 16 * version, message),
        put_number(field("since"), since),
        put_number(field("output"), 10),
    ]
    .concat()
}

fn put_thread(at: usize, id: &str, status: &str) -> String {
    [
        put_text(at + field_offset("thread", "id"), id),
        put_text(at + field_offset("thread", "status"), status),
    ]
    .concat()
}

/// The function of an export: `code`, then the place of its answer.
fn export(name: &str, code: &str, answer: usize) -> String {
    let name = format!("threadkeep:threads/{name}");
    format!(
        "(func (export {name:?}) {}\n{code}\n(i32.const {answer}))\n",
        export_signature(&name)
    )
}

/// Code of `start`: the first call hands out a step of `old-1`, each later one is refused.
fn start_code() -> String {
    let answer = 8;
    let step = HANDLE + answer + field_offset("handle", "step");
    let record = HANDLE + answer + field_offset("handle", "thread");
    let refused = |field| REFUSAL + answer + field_offset("error", field);
    let named = refused("thread");
    [
        format!(
            "(if (global.get $started) (then
               (i32.store8 (i32.const {REFUSAL}) (i32.const 1))
               (i32.store8 (i32.const {named}) (i32.const 1))\n"
        ),
        put_text(refused("kind"), "continued"),
        put_text(named + 4, "old-1"),
        put_text(refused("details"), "{\"next\":\"new-1\"}"),
        format!("(return (i32.const {REFUSAL}))))\n(global.set $started (i32.const 1))\n"),
        put_thread(record, "old-1", "running"),
        put_number(HANDLE + answer + field_offset("handle", "token"), 7),
        put_model_call(step, "old-1", 1, ("OLD", "{\"n\":1}", 0)),
    ]
    .concat()
}

/// Code of `submit`: hands out a step of `new-1`, and then none. It traps unless it is told of the
/// thread that the last step named.
fn submit_code() -> String {
    let next = STEP + 8;
    let finished = [
        put_text(next + field_offset("step", "kind"), "finished"),
        put_text(next + field_offset("step", "thread"), "new-1"),
        put_number(next + field_offset("step", "version"), 6),
    ];
    format!(
        "(if (i32.ne (i32.load8_u (i32.load (local.get 0)))
                 (select (i32.const 110) (i32.const 111) (global.get $steps)))
           (then unreachable))
         (memory.fill (i32.const {STEP}) (i32.const 0) (i32.const 4096))
         (if (global.get $steps) (then {}) (else {}))
         (global.set $steps (i32.const 1))",
        finished.concat(),
        put_model_call(next, "new-1", 5, ("NEW", "{\"n\":3}", 4)),
    )
}

/// True in the code of a function whose first argument is `new-1`.
const IS_NEW: &str = "(i32.eq (i32.load8_u (local.get 0)) (i32.const 110))";

/// Code of `get`. The version of a thread counts the questions for the tree under `new-1`, each as
/// 100, and for that under `old-1`, each as 10,000.
fn get_code() -> String {
    let answer = 8;
    let version = THREAD + answer + field_offset("thread", "version");
    format!(
        "(if {IS_NEW} (then {}) (else {}))
         (i64.store (i32.const {version}) (global.get $asked))",
        put_thread(THREAD + answer, "new-1", "completed"),
        put_thread(THREAD + answer, "old-1", "running"),
    )
}

/// A component whose run goes on in another thread.
fn handing_off_component() -> Vec<u8> {
    let page = PAGE + 4 + field_offset("message-page", "messages");
    let messages = put_texts(page, LIST, "{\"n\":2}");
    let count = format!(
        "(global.set $asked (i64.add (global.get $asked)
           (select (i64.const 100) (i64.const 10000) {IS_NEW})))"
    );
    let text = [
        format!(
            "(module (memory (export \"memory\") 8)
             (data (i32.const {TEXTS_AT}) {TEXTS:?})
             (global $steps (mut i32) (i32.const 0))
             (global $started (mut i32) (i32.const 0))
             (global $asked (mut i64) (i64.const 6))
             (global $heap (mut i32) (i32.const 65536))
             (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
               (global.set $heap (i32.and (i32.add (global.get $heap) (i32.const 7))
                                          (i32.const -8)))
               (global.get $heap)
               (global.set $heap (i32.add (global.get $heap) (local.get 3))))\n"
        ),
        export("runner@0.1.0#start", &start_code(), HANDLE),
        export("runner@0.1.0#submit", &submit_code(), STEP),
        export("runner@0.1.0#ready", "", EMPTY),
        export("transcript@0.1.0#events", "", EMPTY),
        export("registry@0.1.0#get", &get_code(), THREAD),
        export("transcript@0.1.0#messages", &messages, PAGE),
        export("ledger@0.1.0#tree", &count, EMPTY),
        ")".to_owned(),
    ];
    build_component(&text.concat(), &[])
}

/// A model that keeps what it was asked. The second call waits until it is let go.
#[derive(Default)]
struct RecordingModel {
    asked: Mutex<Vec<(String, Vec<String>)>>,
    calls: AtomicU32,
    second: Notify,
    go_on: Notify,
}

impl ModelProvider for RecordingModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        _: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        Box::pin(async move {
            let asked = (request.system.clone(), request.messages.clone());
            self.asked.lock().unwrap().push(asked);
            if self.calls.fetch_add(1, Ordering::SeqCst) == 1 {
                self.second.notify_one();
                self.go_on.notified().await;
            }
            let text = "said".to_owned();
            Ok(ModelCompletion::new(
                vec![ReplyBlock::Text { text }],
                "stop",
            ))
        })
    }
}

/// Notes of commits, and of the work after replies and runs.
#[derive(Default)]
struct NoteTaker(Mutex<Vec<String>>);

impl CommitObserver for NoteTaker {
    fn on_commit(&self, commit: &CommitNotice<'_>) {
        let (thread, version, step) = (commit.thread, commit.version, commit.step);
        let note = match (version, step) {
            (Some(version), Some(step)) => format!("{thread} {version} {step}"),
            _ => thread.to_owned(),
        };
        self.0.lock().unwrap().push(note);
    }
}

impl AfterRun for NoteTaker {
    fn name(&self) -> &str {
        "notes"
    }

    fn after_run<'a>(
        &'a self,
        ended: &'a EndedRun,
    ) -> BoxFuture<'a, Result<(), Box<dyn std::error::Error + Send + Sync>>> {
        let note = format!("{} ended", ended.thread);
        self.0.lock().unwrap().push(note);
        Box::pin(async { Ok(()) })
    }

    fn wants_replies(&self) -> bool {
        true
    }

    fn after_reply<'a>(
        &'a self,
        replied: &'a DurableReply,
    ) -> BoxFuture<'a, Result<(), Box<dyn std::error::Error + Send + Sync>>> {
        let note = format!("{} replied {}", replied.thread, replied.version);
        self.0.lock().unwrap().push(note);
        Box::pin(async { Ok(()) })
    }
}

fn handing_off_driver(model: &Arc<RecordingModel>) -> (Tenant, Driver) {
    let engine = engine_with(EngineLimits::local());
    let engine = engine.prepare_sibling(&handing_off_component(), None);
    let context = TenantContext::new(Arc::new(MemoryStore::new()), Arc::new(MapLibrary::small()));
    let tenant = Tenant::new(engine.unwrap(), context);
    let models = Arc::new(OneProvider::new(Arc::<RecordingModel>::clone(model)));
    let tools = Arc::<super::fixture::CountingTools>::default();
    let driver = Driver::new(tenant.clone(), models, tools, "following");
    (tenant, driver)
}

/// Symptom: after a step of another thread, results went to the first thread (`fenced`), and its
/// conversation was sent on. Cause: the driver kept the thread that it had started. Fix: it follows
/// the thread of each step. Kind: conversation, observer, work after replies and runs, events, the
/// answer, and the questions about the tree.
#[tokio::test]
async fn a_driver_goes_on_with_the_thread_that_a_step_names() {
    let (model, commits, work) = (
        Arc::<RecordingModel>::default(),
        Arc::<NoteTaker>::default(),
        Arc::<NoteTaker>::default(),
    );
    model.go_on.notify_one();
    let (tenant, driver) = handing_off_driver(&model);
    let driver = driver
        .with_observer(Arc::<NoteTaker>::clone(&commits))
        .with_after_run(Arc::<NoteTaker>::clone(&work));
    let (sink, mut events) = EventSink::channel();
    let stop = StopReceiver::never();
    let ended = driver.run("old-1", None, &sink, &stop).await.unwrap();
    driver.wait_for_post_run_work().await;
    assert_eq!(
        (&*ended.thread, &*ended.status),
        ("new-1", "completed"),
        "{ended:?}"
    );
    let text = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let asked = [
        ("OLD".to_owned(), text(&[r#"{"n":1}"#])),
        ("NEW".to_owned(), text(&[r#"{"n":2}"#, r#"{"n":3}"#])),
    ];
    assert_eq!(*model.asked.lock().unwrap(), asked);
    assert_eq!(
        *commits.0.lock().unwrap(),
        [
            "old-1 1 call-llm",
            "old-1",
            "new-1 5 call-llm",
            "new-1 6 finished"
        ]
    );
    assert_eq!(
        *work.0.lock().unwrap(),
        ["old-1 replied 2", "new-1 replied 6", "new-1 ended"]
    );
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        match event {
            RunEvent::Started { thread, .. } => told.push(format!("{thread} started")),
            RunEvent::HandedOff { from, to, .. } => told.push(format!("{from} to {to}")),
            RunEvent::Ended(ended) => told.push(format!("{} ended", ended.thread)),
            RunEvent::Turn { .. } => told.push("turn".to_owned()),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(
        told,
        [
            "old-1 started",
            "turn",
            "old-1 to new-1",
            "turn",
            "new-1 ended"
        ]
    );
    let version = tenant.get("new-1").await.unwrap().version;
    assert!(
        (106..10_000).contains(&version),
        "the tree is that of the new thread: {version}"
    );
}

/// The run holds the new thread then: what waits for the old one is told where it is continued.
#[tokio::test]
async fn a_run_that_goes_on_elsewhere_frees_the_queue_of_its_first_thread() {
    let model = Arc::<RecordingModel>::default();
    let (_tenant, driver) = handing_off_driver(&model);
    let driver = driver.with_on_busy(OnBusy::Queue(Duration::from_secs(60)));
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let late = async {
        model.second.notified().await;
        let late = driver.run("old-1", None, &sink, &stop).await;
        model.go_on.notify_one();
        late
    };
    let (ended, late) = tokio::join!(driver.run("old-1", None, &sink, &stop), late);
    assert_eq!(ended.unwrap().thread, "new-1");
    let Err(DriveError::Call(CallError::Refused(wit::Error::Continued(to)))) = late else {
        panic!("{late:?}");
    };
    assert_eq!((&*to.thread, &*to.next), ("old-1", "new-1"));
}
