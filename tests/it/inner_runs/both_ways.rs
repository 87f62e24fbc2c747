//! The same directives, run by the host's driver and by `runner.run`: the stores are the same.

use super::run_host::{RunHost, RunWorld, block_on};
use super::store_text::store_text;
use crate::component::fixture::{CountingTools, assert_sound, message};
use crate::component::project::engine;
use crate::continuation::fixture::words;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use threadkeep::clock::ClockTime;
use threadkeep::driver::{Driver, EventSink, InnerRun, RunEvent, StopReceiver};
use threadkeep::models::scripted::ScriptedProvider;
use threadkeep::models::{
    BoxFuture, CompletionRequest, ModelCompletion, ModelFailure, ModelProvider, OnDelta,
    OneProvider,
};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::runner::{Raised, SignalKind};
use threadkeep::wit::{Limits, Thread};
use threadkeep_tests::fixture::{MapLibrary, draft};

/// Most calls of `runner.run` until a run stops.
const CALLS_MAX: usize = 100;

/// The act of a person once the run is suspended.
#[derive(Debug, Clone, Copy)]
enum PersonAct {
    Nothing,
    Approve,
    RaiseTurns(u32),
}

/// A run that is made both ways.
struct BothWays {
    library: MapLibrary,
    directive: Option<&'static str>,
    inputs: Vec<String>,
    script: Value,
    /// The model call, counted from 1, during which the thread is cancelled.
    cancelled_at: Option<usize>,
    /// True if the thread is resumed without a message afterwards.
    is_resumed: bool,
    person: PersonAct,
}

/// The input of `runner.run` that resumes a thread without a message.
const RESUMPTION: &str = "null";

/// A scripted model that cancels a thread in the middle of one of its calls.
struct CancellingModel {
    script: ScriptedProvider,
    calls: AtomicUsize,
    cancelled_at: Option<usize>,
    thread: Mutex<Option<(Tenant, String)>>,
}

impl ModelProvider for CancellingModel {
    fn complete<'a>(
        &'a self,
        request: &'a CompletionRequest,
        on_delta: OnDelta<'a>,
    ) -> BoxFuture<'a, Result<ModelCompletion, ModelFailure>> {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        Box::pin(async move {
            if self.cancelled_at == Some(calls) {
                let (tenant, thread) = self.thread.lock().unwrap().clone().unwrap();
                let cancelled = tenant.signal(&thread, "cancel", SignalKind::Cancel);
                cancelled.await.unwrap();
            }
            self.script.complete(request, on_delta).await
        })
    }
}

impl BothWays {
    fn of_script(script: Value) -> Self {
        Self {
            library: MapLibrary::small(),
            directive: Some("boss"),
            inputs: Vec::new(),
            script,
            cancelled_at: None,
            is_resumed: false,
            person: PersonAct::Nothing,
        }
    }

    fn model(&self) -> Arc<CancellingModel> {
        Arc::new(CancellingModel {
            script: ScriptedProvider::parse(&self.script.to_string()).unwrap(),
            calls: AtomicUsize::new(0),
            cancelled_at: self.cancelled_at,
            thread: Mutex::default(),
        })
    }

    /// Makes the world and the thread.
    fn begin(&self) -> (RunWorld, Tenant, Arc<CancellingModel>, String) {
        let world = RunWorld::new(Arc::new(MemoryStore::new()), self.library.clone());
        let tenant = Tenant::new(engine(), world.context.clone());
        let thread = block_on(tenant.create_once(draft(self.directive), "made"))
            .unwrap()
            .id;
        let model = self.model();
        *model.thread.lock().unwrap() = Some((tenant.clone(), thread.clone()));
        (world, tenant, model, thread)
    }

    fn inputs(&self) -> Vec<Option<String>> {
        let inputs = self.inputs.iter().map(|text| Some(message(text)));
        let mut inputs: Vec<Option<String>> = inputs.collect();
        if inputs.is_empty() {
            inputs.push(None);
        }
        if self.is_resumed {
            inputs.push(Some(RESUMPTION.to_owned()));
        }
        inputs
    }

    /// Runs it by the host's driver; returns the store and the calls of tools.
    fn by_driver(&self) -> (Vec<String>, (u64, u64)) {
        let (world, tenant, model, mut thread) = self.begin();
        let tools = Arc::new(CountingTools::default());
        let providers = Arc::new(OneProvider::new(model));
        let driver = Driver::new(tenant.clone(), providers, tools.clone(), "driver");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            for input in self.inputs() {
                let mut input = input;
                loop {
                    let (sink, mut events) = EventSink::channel();
                    let clock = world.clock.clone();
                    let moving = tokio::spawn(async move {
                        while let Some(event) = events.recv().await {
                            if let RunEvent::Retry { millis, .. } = event {
                                clock.advance(Duration::from_millis(millis));
                            }
                        }
                    });
                    let never = StopReceiver::never();
                    let ended = match input.take() {
                        Some(input) if input == RESUMPTION => {
                            driver.resume(&thread, None, &sink, &never).await
                        }
                        input => driver.run(&thread, input, &sink, &never).await,
                    };
                    let ended = ended.unwrap();
                    drop(sink);
                    moving.await.unwrap();
                    thread = ended.thread;
                    let record = tenant.get(&thread).await.unwrap();
                    if record.status != "suspended" || !self.act(&tenant, &record).await {
                        break;
                    }
                }
            }
        });
        assert_sound(&*world.store);
        (store_text(&*world.store), tool_calls(&tools))
    }

    /// Runs it by `runner.run` with so many steps a call, on a host that links models and tools.
    fn by_run(&self, steps: u32) -> (Vec<String>, (u64, u64), Vec<String>) {
        let (world, tenant, model, thread) = self.begin();
        let host = RunHost::new(&world, model);
        let reasons = self.call_until_done(&world, &tenant, &thread, &mut |n, thread, input| {
            let holder = format!("run/{n}");
            host.run(thread, input.as_deref(), &holder, steps).unwrap()
        });
        assert_sound(&*world.store);
        (store_text(&*world.store), tool_calls(&host.tools), reasons)
    }

    /// The same by the native host, whose driver performs the model and tool calls.
    fn by_inner_run(&self, steps: u32) -> (Vec<String>, (u64, u64), Vec<String>) {
        let (world, tenant, model, thread) = self.begin();
        let tools = Arc::new(CountingTools::default());
        let providers = Arc::new(OneProvider::new(model));
        let driver = Driver::new(tenant.clone(), providers, tools.clone(), "inner");
        let mut run: Option<(usize, InnerRun)> = None;
        let reasons = self.call_until_done(&world, &tenant, &thread, &mut |n, thread, input| {
            let run = match &mut run {
                Some((of, run)) if *of == n => run,
                other => {
                    let begun = driver.begin_inner_run(&EventSink::none()).unwrap();
                    &mut other.insert((n, begun)).1
                }
            };
            let report = block_on(run.perform_steps(thread, input, steps)).unwrap();
            serde_json::from_str(&report.json).unwrap()
        });
        assert_sound(&*world.store);
        (store_text(&*world.store), tool_calls(&tools), reasons)
    }

    /// Calls the loop with each input until the run stops, with its number; returns the reasons for
    /// which it came back.
    fn call_until_done(
        &self,
        world: &RunWorld,
        tenant: &Tenant,
        thread: &str,
        call: &mut dyn FnMut(usize, &str, Option<String>) -> Value,
    ) -> Vec<String> {
        let (mut reasons, mut calls) = (Vec::new(), 0);
        for (n, mut input) in self.inputs().into_iter().enumerate() {
            loop {
                calls += 1;
                assert!(calls < CALLS_MAX, "{reasons:?}");
                let answer = call(n, thread, input.take());
                assert_eq!(answer["left"], Value::Null, "{answer}");
                let reason = answer["for"].as_str().unwrap_or("").to_owned();
                assert_eq!(answer["state"] == "finished", reason.is_empty(), "{answer}");
                reasons.push(reason.clone());
                let tip = answer["thread"].as_str().unwrap();
                let record = block_on(tenant.get(tip)).unwrap();
                assert_eq!(answer["status"], record.status);
                match reason.as_str() {
                    "" => break,
                    "steps" => {}
                    "time" => world.clock.set(ClockTime {
                        seconds: answer["until"]["seconds"].as_i64().unwrap(),
                        nanos: answer["until"]["nanos"].as_u64().unwrap() as u32,
                    }),
                    "person" => {
                        let more: Value = serde_json::from_str(&record.more).unwrap();
                        assert_eq!(answer["waits_for"], more["waits_for"]);
                        if !block_on(self.act(tenant, &record)) {
                            break;
                        }
                    }
                    other => panic!("{other}: {answer}"),
                }
            }
        }
        reasons
    }

    /// Does what the person does; returns false if that is nothing.
    async fn act(&self, tenant: &Tenant, record: &Thread) -> bool {
        let signal = match self.person {
            PersonAct::Nothing => return false,
            PersonAct::Approve => {
                let more: Value = serde_json::from_str(&record.more).unwrap();
                let call = &more["waits_for"]["calls"][0]["call"];
                SignalKind::Decision(json!({"call": call, "approve": true}).to_string())
            }
            PersonAct::RaiseTurns(turns) => SignalKind::Raise(Raised {
                caps: Limits {
                    turns: Some(turns),
                    ..Limits::default()
                },
                through: false,
            }),
        };
        tenant.signal(&record.id, "person", signal).await.unwrap();
        true
    }

    /// Runs it all ways and compares the stores; returns the reasons for which `run` came back,
    /// with one step a call and with enough.
    fn check(&self) -> [Vec<String>; 2] {
        let (driven, tools) = self.by_driver();
        [1, 1_000].map(|steps| {
            let ran = self.by_run(steps);
            let natively = self.by_inner_run(steps);
            assert_eq!(ran.2, natively.2, "{steps}");
            for (text, called, _) in [&ran, &natively] {
                for (at, line) in driven.iter().enumerate() {
                    let found = text.get(at).map_or("(nothing)", String::as_str);
                    assert_eq!(found, line, "with {steps} steps a call");
                }
                assert_eq!((text.len(), *called), (driven.len(), tools), "{steps}");
            }
            ran.2
        })
    }
}

fn tool_calls(tools: &CountingTools) -> (u64, u64) {
    let count = |calls: &std::sync::atomic::AtomicU64| calls.load(Ordering::SeqCst);
    (count(&tools.reads), count(&tools.writes))
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// Returns how often a reason was given.
fn count_of(reasons: &[String], reason: &str) -> usize {
    reasons.iter().filter(|given| *given == reason).count()
}

#[test]
fn a_directive_with_tools_has_the_same_history() {
    let both = BothWays::of_script(json!([
        {"text": "I look.", "calls": [call("read", json!({})), call("write", json!({"a": 1}))]},
        {"thinking": "hm", "calls": [call("none", json!({})), call("read", json!({}))]},
        {"calls": [call("read", "broken".into())]},
        {"text": "Done."},
    ]));
    let [each, all] = both.check();
    assert_eq!(all, [""]);
    assert_eq!(count_of(&each, "steps") + 1, each.len());
    assert_eq!(each.len(), 6);
}

#[test]
fn a_failed_call_is_tried_again_at_its_time() {
    let slow = json!({"kind": "rate-limited", "retry_after_ms": 1_500});
    let fail = json!({"kind": "transient", "code": "http_503"});
    let both = BothWays::of_script(json!([
        {"text": "First.", "calls": [call("read", json!({}))]},
        {"fail": slow},
        {"fail": fail, "text": "Second."},
    ]));
    let [each, all] = both.check();
    assert_eq!(all, ["time", "time", ""]);
    assert_eq!(count_of(&each, "time"), 2);
}

#[test]
fn a_permanent_failure_waits_for_a_person() {
    let both = BothWays::of_script(json!([
        {"fail": {"kind": "permanent", "code": "http_400", "times": 9}, "text": "never"},
    ]));
    assert_eq!(both.check().map(|reasons| reasons.len()), [1, 1]);
}

#[test]
fn a_cap_that_is_raised_lets_it_go_on() {
    let read = json!({"calls": [call("read", json!({}))]});
    let mut script = vec![read; 13];
    script.push(json!({"text": "Done."}));
    let both = BothWays {
        directive: Some("work"),
        person: PersonAct::RaiseTurns(20),
        ..BothWays::of_script(Value::Array(script))
    };
    let [_, all] = both.check();
    assert_eq!(all, ["person", ""]);
}

#[test]
fn a_budget_that_is_used_up_suspends_it() {
    let long = "abc ".repeat(400);
    let both = BothWays {
        directive: Some("poor"),
        ..BothWays::of_script(json!([
            {"text": long, "calls": [call("read", json!({}))]},
            {"text": long, "calls": [call("read", json!({}))]},
            {"text": long, "calls": [call("read", json!({}))]},
            {"text": "Done."},
        ]))
    };
    let [_, all] = both.check();
    assert_eq!(all, ["person"]);
}

/// A library with directives of which each has one thread, so that their ids are told apart.
fn library_of_children() -> MapLibrary {
    let child = |name: &str| {
        json!({
            "name": name, "body": format!("You are {name}."),
            "front": {"capabilities": ["execute.tool.*"], "limits": {"spend": "0.02"}},
        })
        .to_string()
    };
    ["one", "two", "three"]
        .iter()
        .fold(MapLibrary::small(), |library, name| {
            library.with("directive", name, &child(name))
        })
}

#[test]
fn children_run_and_wake_the_one_that_waits() {
    let spawn = |name: &str| call("spawn_thread", json!({"directive": name}));
    let both = BothWays {
        library: library_of_children(),
        ..BothWays::of_script(json!([
            {"for": "You are one", "calls": [call("read", json!({})), spawn("three")]},
            {"for": "You are one", "calls": [call("wait_threads", json!({}))]},
            {"for": "You are one", "text": "One is done."},
            {"for": "You are two", "calls": [call("write", json!({}))]},
            {"for": "You are two", "text": "Two is done."},
            {"for": "You are three", "text": "Three is done."},
            {"calls": [spawn("one"), spawn("two"), call("wait_threads", json!({}))]},
            {"text": "All is done."},
        ]))
    };
    let [each, all] = both.check();
    assert_eq!(all, [""]);
    assert!(each.len() > 10, "{each:?}");
}

#[test]
fn a_child_that_nobody_waits_for_is_run_as_well() {
    let both = BothWays {
        library: library_of_children(),
        ..BothWays::of_script(json!([
            {"for": "You are one", "text": "One is done."},
            {"calls": [call("spawn_thread", json!({"directive": "one"}))]},
            {"text": "I am done."},
        ]))
    };
    let [_, all] = both.check();
    assert_eq!(all, [""]);
}

#[test]
fn a_chat_is_handed_off_and_goes_on_in_its_successor() {
    let answer = json!({"text": format!("answer {}", words(90)), "repeat": "forever"});
    let both = BothWays {
        library: crate::continuation::fixture::library(json!({})),
        directive: None,
        inputs: (0..14).map(|n| format!("question {n}")).collect(),
        ..BothWays::of_script(json!([answer]))
    };
    let (driven, _) = both.by_driver();
    assert!(driven.iter().any(|line| line.contains("<chat 1>")));
    both.check();
}

/// Symptom: a thread that was cancelled and resumed without a message by the loop had one entry
/// more than the driver's, `suspended` with the code `resumed`. Cause: the loop began no thread
/// that has ended without a message, so its host called `resume` and gave the first step back.
#[test]
fn a_thread_that_has_ended_is_resumed_without_a_message() {
    let both = BothWays {
        cancelled_at: Some(1),
        is_resumed: true,
        ..BothWays::of_script(json!([
            {"calls": [call("read", json!({}))]},
            {"text": "Done."},
        ]))
    };
    let (driven, _) = both.by_driver();
    assert!(driven.iter().any(|line| line.contains("thread_resumed")));
    let [_, all] = both.check();
    assert_eq!(all, ["", ""]);
}

#[test]
fn an_approved_call_is_run() {
    let both = BothWays {
        person: PersonAct::Approve,
        ..BothWays::of_script(json!([
            {"calls": [call("ask", json!({})), call("read", json!({}))]},
            {"text": "Done."},
        ]))
    };
    let [each, all] = both.check();
    assert_eq!(all, ["person", ""]);
    assert_eq!(count_of(&each, "person"), 1);
}

#[test]
fn a_cancel_ends_the_run_with_its_next_commit() {
    let both = BothWays {
        cancelled_at: Some(2),
        ..BothWays::of_script(json!([
            {"calls": [call("read", json!({}))]},
            {"calls": [call("write", json!({}))]},
            {"text": "never"},
        ]))
    };
    let [each, all] = both.check();
    assert_eq!(all, [""]);
    assert!(
        each.iter()
            .all(|reason| matches!(reason.as_str(), "" | "steps"))
    );
}

/// When the driver passes the cancel on depends on its clock; that it is passed on does not.
#[test]
fn a_cancel_is_passed_on_to_what_the_thread_has_spawned() {
    let spawn = call("spawn_thread", json!({"directive": "one"}));
    let both = BothWays {
        library: library_of_children(),
        cancelled_at: Some(2),
        ..BothWays::of_script(json!([
            {"for": "You are one", "calls": [call("write", json!({}))], "repeat": "forever"},
            {"calls": [spawn, call("wait_threads", json!({}))]},
            {"text": "never"},
        ]))
    };
    let (text, _, reasons) = both.by_run(3);
    assert_eq!(reasons.last().map(String::as_str), Some(""));
    let heads = text.iter().filter(|line| line.starts_with("head "));
    let cancelled = heads.filter(|line| line.contains("\"status\":\"cancelled\""));
    assert_eq!(cancelled.count(), 2, "{text:#?}");
}
