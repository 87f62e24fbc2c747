//! The runner's random histories through the component, with warm instances and with a fresh one
//! for every call: nothing that matters lives in an instance, so both give the same answers and
//! leave the same records.

use super::fixture::{assert_sound, message};
use super::project::engines;
use crate::runner::external_loop;
use crate::runner::random_requests::{RunnerRequest, request};
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::clock::{ClockTime, HostClock, ManualClock};
use threadkeep::component::TenantContext;
use threadkeep::engine::Engine;
use threadkeep::error::CallError;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::history::{ChangeSet, Expected};
use threadkeep::wit::registry::{Draft, Filter};
use threadkeep::wit::runner::{Outcome, Proof, Raised, Sighting, SignalKind, Step};
use threadkeep::wit::{self, ledger, llm};
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::native::CountingRandom;

const HISTORIES: usize = 16;
const DIRECTIVES: [Option<&str>; 3] = [Some("work"), Some("poor"), None];

/// The lease and step that a driver of one thread has.
struct DriverState {
    token: u64,
    step: Step,
    /// The last submission that was answered.
    last: Option<(u64, Outcome)>,
}

/// A tenant on one of the engines, and all its answers.
struct EngineTenant {
    tenant: Tenant,
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    threads: Vec<String>,
    held: BTreeMap<String, DriverState>,
    own: BTreeMap<String, u64>,
    /// The version that names the last call that an external loop held, by thread.
    calls: BTreeMap<String, u64>,
    answers: Vec<String>,
    /// Number of accepted calls, by name.
    answered: BTreeMap<&'static str, u64>,
}

impl EngineTenant {
    fn new(engine: Engine) -> Self {
        let store = Arc::new(MemoryStore::new());
        let seconds = 1_800_000_000;
        let clock = Arc::new(ManualClock::new(ClockTime { seconds, nanos: 0 }));
        let context = TenantContext {
            storage: Arc::<MemoryStore>::clone(&store),
            library: Arc::new(MapLibrary::small()),
            clock: Arc::<ManualClock>::clone(&clock),
            random: Arc::new(CountingRandom::default()),
        };
        Self {
            tenant: Tenant::new(engine, context),
            store,
            clock,
            threads: Vec::new(),
            held: BTreeMap::new(),
            own: BTreeMap::new(),
            calls: BTreeMap::new(),
            answers: Vec::new(),
            answered: BTreeMap::new(),
        }
    }

    /// Notes an answer, and returns its value if it is no error.
    fn note<T: Debug>(&mut self, name: &'static str, answer: Result<T, CallError>) -> Option<T> {
        self.answers.push(format!("{name}: {answer:?}"));
        let answer = answer.ok()?;
        *self.answered.entry(name).or_default() += 1;
        Some(answer)
    }

    async fn create(&mut self, kind: usize) {
        let directive = DIRECTIVES[kind % DIRECTIVES.len()].map(str::to_owned);
        let draft = Draft {
            directive,
            ..Draft::default()
        };
        let made = self.tenant.create(draft).await;
        let made = self.note("create", made).expect("it is created");
        self.threads.push(made.id);
    }

    async fn perform(&mut self, request: &RunnerRequest) {
        let pick = |side: &Self, n: u8| side.threads[usize::from(n) % side.threads.len()].clone();
        match *request {
            RunnerRequest::Create(kind) => self.create(usize::from(kind)).await,
            RunnerRequest::Start(t, input) => self.start(&pick(self, t), input).await,
            RunnerRequest::Reply(t, kind) => self.reply(&pick(self, t), kind).await,
            RunnerRequest::Fail(t, kind, sent) => self.fail(&pick(self, t), kind, sent).await,
            RunnerRequest::Stop(t) => {
                let failure = failure("cancelled", true);
                self.submit(&pick(self, t), Outcome::Stopped(failure)).await;
            }
            RunnerRequest::Progress(t, n) => self.progress(&pick(self, t), n).await,
            RunnerRequest::Repeat(t) => self.repeat_submission(&pick(self, t), None).await,
            RunnerRequest::Differ(t) => {
                self.repeat_submission(&pick(self, t), Some(says("other")))
                    .await
            }
            RunnerRequest::OldToken(t) => {
                let thread = pick(self, t);
                let late = self.tenant.submit(&thread, 0, 1, says("late"), 0).await;
                self.note("submit late", late);
            }
            RunnerRequest::Claim(t, proof) => self.claim(&pick(self, t), proof).await,
            RunnerRequest::Recover(t) => self.recover(&pick(self, t)).await,
            RunnerRequest::Signal(t, name, kind) => self.signal(&pick(self, t), name, kind).await,
            RunnerRequest::Decide(t, _, kind) => self.decide(&pick(self, t), kind).await,
            RunnerRequest::Own(t, ref own) => self.perform_loop_request(&pick(self, t), own).await,
            RunnerRequest::Advance(millis) => {
                self.clock.advance(Duration::from_millis(millis.into()))
            }
            RunnerRequest::StepBack(seconds) => {
                let seconds = self.clock.now().seconds - i64::from(seconds);
                self.clock.set(ClockTime { seconds, nanos: 0 });
            }
        }
    }

    async fn start(&mut self, thread: &str, input: bool) {
        let holder = format!("h/{}", self.answers.len());
        let input = input.then(|| message("go on 漢"));
        let started = self
            .tenant
            .start(thread, input, &holder, &holder, None)
            .await;
        let started = self.note("start", started);
        self.hold(thread, started);
    }

    fn hold(&mut self, thread: &str, handle: Option<wit::runner::Handle>) {
        if let Some(handle) = handle {
            let held = DriverState {
                token: handle.token,
                step: handle.step,
                last: None,
            };
            self.held.insert(thread.to_owned(), held);
        }
    }

    async fn reply(&mut self, thread: &str, kind: u8) {
        let Some(held) = self.held.get(thread) else {
            return;
        };
        let outcome = match held.step.kind.as_str() {
            "call-llm" => completion(kind),
            "call-tools" => Outcome::Outcomes(held.step.calls.iter().map(tool_outcome).collect()),
            "wait" => Outcome::Waited,
            _ => return,
        };
        self.submit(thread, outcome).await;
    }

    async fn fail(&mut self, thread: &str, kind: u8, sent: bool) {
        const KINDS: [&str; 4] = ["transient", "rate-limited", "permanent", "new"];
        let failed = llm::LlmError {
            usage: kind.is_multiple_of(4).then(|| usage(50, 5)),
            partial: "half a".to_owned(),
            ..failure(KINDS[usize::from(kind) % KINDS.len()], sent)
        };
        self.submit(thread, Outcome::Failure(failed)).await;
    }

    async fn submit(&mut self, thread: &str, outcome: Outcome) {
        let Some(held) = self.held.get(thread) else {
            return;
        };
        let (token, version) = (held.token, held.step.version);
        let sent = outcome.clone();
        let next = self.tenant.submit(thread, token, version, sent, version);
        let next = next.await;
        if let (Some(step), Some(held)) = (self.note("submit", next), self.held.get_mut(thread)) {
            held.step = step;
            held.last = Some((version, outcome));
        }
    }

    /// Repeats the last submission, or submits another outcome for the same step.
    async fn repeat_submission(&mut self, thread: &str, other: Option<Outcome>) {
        let Some(held) = self.held.get(thread) else {
            return;
        };
        let Some((version, last)) = held.last.clone() else {
            return;
        };
        let outcome = other.unwrap_or(last);
        let repeated = self
            .tenant
            .submit(thread, held.token, version, outcome, version);
        let repeated = repeated.await;
        self.note("submit again", repeated);
    }

    async fn progress(&mut self, thread: &str, n: u16) {
        let token = self.held.get(thread).map_or(0, |held| held.token);
        let text = "p".repeat(usize::from(n) % 50);
        let news = self.tenant.progress(thread, token, Some(text)).await;
        self.note("progress", news);
    }

    async fn claim(&mut self, thread: &str, proof: u8) {
        let step = self.held.get(thread).map_or(0, |held| held.step.version);
        let proof = match proof % 3 {
            0 => Proof::Dead,
            1 => Proof::None,
            _ => Proof::Watched(Sighting {
                step: Some(step),
                partial: None,
            }),
        };
        let holder = format!("claimer/{}", self.answers.len());
        let claimed = self.tenant.claim(thread, &holder, proof).await;
        let claimed = self.note("claim", claimed);
        self.hold(thread, claimed);
    }

    async fn recover(&mut self, thread: &str) {
        let found = self.tenant.get(thread).await;
        let lease = self.note("get", found).and_then(|found| found.run.lease);
        let dead = lease.into_iter().map(|lease| lease.holder).collect();
        let recovered = self.tenant.recover(dead, None).await;
        self.note("recover", recovered);
    }

    async fn signal(&mut self, thread: &str, name: u8, kind: u8) {
        let what = match kind % 64 {
            0..=40 => SignalKind::Message(message("by the way")),
            41..=61 => SignalKind::Raise(Raised {
                caps: wit::Limits {
                    turns: Some(kind.into()),
                    spend: Some(u64::from(kind) << 24),
                    ..wit::Limits::default()
                },
                through: kind.is_multiple_of(2),
            }),
            62 => SignalKind::Cancel,
            _ => SignalKind::Kill,
        };
        let name = format!("s{}", name % 8);
        let signalled = self.tenant.signal(thread, &name, what).await;
        self.note("signal", signalled);
    }

    /// Decides about the first call that waits, or about one that was never made.
    async fn decide(&mut self, thread: &str, kind: u8) {
        let found = self.tenant.get(thread).await;
        let more = self
            .note("get", found)
            .map_or(String::new(), |found| found.more);
        let more: Value = serde_json::from_str(&more).unwrap_or_default();
        let call = more["waits_for"]["calls"][0]["call"].as_str();
        let call = call.unwrap_or("call_999999_0");
        let decision = match kind % 3 {
            0 => json!({"call": call, "approve": true}),
            1 => json!({"call": call, "approve": false, "note": "no"}),
            _ => json!({"call": call, "answer": "yes"}),
        };
        let what = SignalKind::Decision(decision.to_string());
        let key = format!("d{}", self.answers.len());
        let decided = self.tenant.signal(thread, &key, what).await;
        self.note("decide", decided);
    }

    async fn perform_loop_request(&mut self, thread: &str, request: &external_loop::LoopRequest) {
        match request {
            external_loop::LoopRequest::Open(first, seconds) => {
                let deadline = self
                    .clock
                    .now()
                    .saturating_add(Duration::from_secs((*seconds).into()));
                let holder = format!("{thread}/{}", u8::from(*first));
                let opened = self
                    .tenant
                    .open_thread(thread, &holder, deadline.into())
                    .await;
                if let Some(opened) = self.note("open", opened) {
                    self.own.insert(thread.to_owned(), opened.token);
                }
            }
            external_loop::LoopRequest::Append(held, kinds, _) => {
                let token = held.then(|| self.own.get(thread).copied().unwrap_or_default());
                let found = self.tenant.get(thread).await;
                let version = self.note("get", found).map_or(0, |found| found.version);
                let events = kinds.iter().map(|kind| event(*kind)).collect();
                let change = ChangeSet {
                    // The tenant would make a name at random, which the entry's digest covers.
                    request: token.is_none().then(|| format!("append {version}")),
                    ..ChangeSet::of_events(events)
                };
                let expected = Expected::Exact(version);
                let tenant = &self.tenant;
                let appended = tenant.append_change(thread, token, expected, change).await;
                self.note("append", appended);
            }
            external_loop::LoopRequest::Close(kind) => {
                let token = self.own.get(thread).copied().unwrap_or_default();
                let (outcome, result) = match kind % 8 {
                    0 => ("completed", Some("1".to_owned())),
                    _ => ("idle", None),
                };
                let closed = self.tenant.close_thread(thread, token, outcome, result);
                let closed = closed.await;
                self.note("close", closed);
            }
            external_loop::LoopRequest::Hold(name, amount, _) => {
                let token = self.own.get(thread).copied().unwrap_or_default();
                let key = format!("call-{name}");
                let estimate = ledger::Estimate::Amount((*amount).into());
                let deadline = self
                    .clock
                    .now()
                    .saturating_add(Duration::from_secs(30))
                    .into();
                let held = self.tenant.hold(thread, token, &key, estimate, deadline);
                let held = held.await;
                if let Some(held) = self.note("hold", held) {
                    self.calls.insert(thread.to_owned(), held.version);
                }
            }
            external_loop::LoopRequest::Settle(_, kind) => {
                let version = self.calls.get(thread).copied().unwrap_or_default();
                let told = match kind {
                    0 => self.tenant.release(thread, version).await,
                    _ => {
                        let bill = ledger::Bill::Amount((*kind).into());
                        self.tenant.settle(thread, version, bill).await
                    }
                };
                self.note(if *kind == 0 { "release" } else { "settle" }, told);
            }
        }
    }

    /// Exercises the money of an external loop, on a thread that is made for it.
    async fn exercise_money(&mut self) {
        use external_loop::LoopRequest::{Close, Hold, Open, Settle};
        self.create(DIRECTIVES.len() - 1).await;
        let thread = self.threads.last().cloned().expect("it was made");
        let billed = [Hold(0, 900, false), Settle(0, 200), Settle(0, 100)];
        let released = [Hold(1, 900, false), Settle(0, 0), Settle(0, 0)];
        let charged = [Hold(2, 900, false), Close(1), Settle(0, 150)];
        let requests = [Open(true, 60)].into_iter().chain(billed);
        for request in requests.chain(released).chain(charged) {
            self.perform_loop_request(&thread, &request).await;
        }
    }

    /// Calls every function that reads.
    async fn read_everything(&mut self) {
        let listed = self.tenant.list(Filter::default(), 100, None).await;
        self.note("list", listed);
        let ready = self.tenant.ready(100, None, None).await;
        self.note("ready", ready);
        let stats = self.tenant.stats(None).await;
        self.note("stats", stats);
        for thread in self.threads.clone() {
            let account = self.tenant.account(&thread).await;
            self.note("account", account);
            let tree = self.tenant.tree(&thread, None).await;
            self.note("tree", tree);
            let entries = self.tenant.entries(&thread, 0, 500, None).await;
            self.note("entries", entries);
            let messages = self.tenant.messages(&thread, 0, None, None).await;
            self.note("messages", messages);
            for what in ["markdown", "jsonl", "checkpoint"] {
                let rendered = self.tenant.render(&thread, what, None, 0, None).await;
                self.note("render", rendered);
            }
        }
    }
}

fn usage(input: u64, output: u64) -> wit::Usage {
    wit::Usage {
        input,
        output,
        read: 0,
        write: 0,
        reasoning: 0,
    }
}

fn failure(kind: &str, sent: bool) -> llm::LlmError {
    llm::LlmError {
        kind: kind.to_owned(),
        code: "test".to_owned(),
        message: "on purpose".to_owned(),
        retry: None,
        sent,
        refused: false,
        usage: None,
        partial: String::new(),
    }
}

fn completion_of(blocks: &serde_json::Value, usage: Option<wit::Usage>) -> Outcome {
    Outcome::Completion(llm::Completion {
        blocks: blocks.to_string(),
        finish: "stop".to_owned(),
        usage,
        session: None,
        id: None,
        model: None,
    })
}

fn says(text: &str) -> Outcome {
    completion_of(
        &json!([{"type": "text", "text": text}]),
        Some(usage(100, 10)),
    )
}

fn completion(kind: u8) -> Outcome {
    let call = |name: &str, arguments: &str| {
        json!({"type": "tool_use", "id": "x", "name": name,
        "arguments": arguments})
    };
    let calls = match kind % 7 {
        0 => return says("done"),
        1 => json!([call("read", "{}")]),
        2 => json!([call("write", "{\"a\": 1}"), call("read", "{}")]),
        3 => json!([call("raed", "{}")]),
        4 => json!([call("read", "not json"), call("write", "{}")]),
        5 => return completion_of(&json!([{"type": "text", "text": "free"}]), None),
        _ => json!([{"type": "thinking", "text": "hm"}]),
    };
    completion_of(&calls, Some(usage(100, 10)))
}

fn tool_outcome(call: &wit::ToolCall) -> wit::ToolOutcome {
    wit::ToolOutcome {
        version: call.version,
        index: call.index,
        state: "done".to_owned(),
        failed: false,
        content: wit::text_content(&format!("{} said {}", call.name, call.arguments)),
        patches: String::new(),
        operations: String::new(),
        cost: 7,
    }
}

fn event(kind: u8) -> String {
    let event = match kind % 5 {
        0 | 1 => json!({"type": "message", "role": "user", "content": "by hand"}),
        2 => json!({"type": "message", "role": "assistant", "content": "I see"}),
        3 => {
            json!({"type": "tool_use", "name": "read", "arguments": "{}", "id": kind.to_string()})
        }
        _ => json!({"type": "tool_result", "id": (kind - 1).to_string(), "text": "42"}),
    };
    event.to_string()
}

#[tokio::test]
async fn a_fresh_instance_for_every_call_gives_the_same_answers() {
    let mut runner = TestRunner::deterministic();
    let mut answered = BTreeMap::<&str, u64>::new();
    for _ in 0..HISTORIES {
        let requests = vec(request(), 60..120).new_tree(&mut runner);
        let requests = requests.expect("requests").current();
        let [mut warm, mut fresh] = engines().map(EngineTenant::new);
        for side in [&mut warm, &mut fresh] {
            for kind in 0..DIRECTIVES.len() {
                side.create(kind).await;
            }
            for request in &requests {
                side.perform(request).await;
            }
            side.exercise_money().await;
            side.read_everything().await;
            assert_sound(&*side.store);
        }
        assert_eq!(
            (warm.tenant.instances_warm(), fresh.tenant.instances_warm()),
            (1, 0)
        );
        for (one, other) in warm.answers.iter().zip(&fresh.answers) {
            assert_eq!(one, other, "after {requests:?}");
        }
        assert_eq!(warm.answers.len(), fresh.answers.len());
        for (name, count) in fresh.answered {
            *answered.entry(name).or_default() += count;
        }
    }
    println!("answered, with a fresh instance for each: {answered:?}");
    for name in [
        "create",
        "start",
        "submit",
        "submit again",
        "progress",
        "claim",
        "recover",
        "signal",
        "open",
        "append",
        "close",
        "hold",
        "settle",
        "release",
        "account",
        "tree",
        "get",
        "list",
        "ready",
        "stats",
        "entries",
        "messages",
        "render",
    ] {
        assert!(answered.contains_key(name), "{name} was never answered");
    }
}
