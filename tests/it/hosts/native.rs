//! The native host as the third player of the scenario: its own imports and store, and the exports
//! called by the types that the component itself tells.

use super::imports::{ImportScript, ScenarioImports, ThrownImport};
use super::values::{to_json, to_val};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use threadkeep::clock::ClockTime;
use threadkeep::component::{CallMeter, ImportView, TenantContext, add_to_linker};
use threadkeep::engine::COMPONENT;
use threadkeep::limits::EngineLimits;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend};
use wasmtime::component::types::ComponentFunc;
use wasmtime::component::{Component, Instance, InstancePre, Linker, Type, Val};
use wasmtime::{Engine, Store, StoreContextMut};

const RANDOM: &str = "threadkeep:threads/random@0.1.0";

/// The data of a store of the engine.
struct ScenarioState {
    context: TenantContext,
    meter: CallMeter,
    imports: Arc<ScenarioImports>,
}

/// A host, and what the scenario keeps of its answers.
pub struct NativePlayer {
    engine: Engine,
    pre: InstancePre<ScenarioState>,
    imports: Arc<ScenarioImports>,
    instance: Option<(Store<ScenarioState>, Instance)>,
    kept: Map<String, Value>,
    answers: Vec<ScenarioAnswer>,
    line: usize,
}

/// The answer of one call.
pub struct ScenarioAnswer {
    /// Index of the line of the scenario that made the call.
    pub line: usize,
    /// The call and its answer, as each host prints them.
    pub answer: Value,
}

/// Scripted answers of the model and the tools of a run.
struct DriveScript {
    replies: VecDeque<Value>,
    tools: Value,
}

impl NativePlayer {
    pub fn new() -> Self {
        let engine = Engine::default();
        let mut linker = Linker::<ScenarioState>::new(&engine);
        add_to_linker(&mut linker, |state: &mut ScenarioState| ImportView {
            context: &state.context,
            meter: &mut state.meter,
        })
        .unwrap();
        // The host makes no text of its own here: a scenario may ask for wrong text.
        let bytes = |store: StoreContextMut<'_, ScenarioState>, (count,): (u32,)| {
            Ok((store.data().imports.random_text(count),))
        };
        linker.allow_shadowing(true);
        let mut random = linker.instance(RANDOM).unwrap();
        random.func_wrap("bytes", bytes).unwrap();
        link_scripted(&mut linker);
        let component = Component::new(&engine, COMPONENT).unwrap();
        Self {
            pre: linker.instantiate_pre(&component).unwrap(),
            engine,
            imports: Arc::new(ScenarioImports::new()),
            instance: None,
            kept: Map::new(),
            answers: Vec::new(),
            line: 0,
        }
    }

    /// Plays a scenario; returns the answer of each call.
    pub fn play(mut self, scenario: &[Value]) -> Vec<ScenarioAnswer> {
        for (at, line) in scenario.iter().enumerate() {
            self.line = at;
            self.play_line(line);
        }
        self.answers
    }

    fn play_line(&mut self, line: &Value) {
        if let Some(library) = line["library"].as_object() {
            self.imports.library().extend(library.clone());
        }
        if line["clock"].is_object() {
            self.set_clock(&line["clock"]);
        }
        if let Some(name) = line["call"].as_str() {
            if let Some(faults) = line["faults"].as_object() {
                self.imports.faults().extend(faults.clone());
            }
            let replies = self.fill(&line["replies"]);
            *self.imports.script() = ImportScript {
                replies: replies.as_array().cloned().unwrap_or_default().into(),
                tools: self.fill(&line["tools"]),
                asked: Vec::new(),
            };
            let answer = self.call(name, &self.fill(&line["with"]));
            for (name, path) in line["keep"].as_object().into_iter().flatten() {
                let path = path.as_str().expect("a path").replace('.', "/");
                let value = answer.pointer(&format!("/{path}"));
                let value = value.unwrap_or_else(|| panic!("{line} keeps nothing of {answer}"));
                self.kept.insert(name.clone(), value.clone());
            }
        }
        if line["drive"].is_object() {
            self.drive(&self.fill(&line["drive"]));
        }
        if line["pages"].is_object() {
            let answer = pages(&line["pages"]);
            self.answers.push(ScenarioAnswer {
                line: self.line,
                answer,
            });
        }
    }

    fn set_clock(&self, instant: &Value) {
        self.imports.clock.set(ClockTime {
            seconds: instant["seconds"].as_i64().expect("seconds"),
            nanos: instant["nanos"].as_u64().expect("nanoseconds") as u32,
        });
    }

    /// Puts in what was kept (`$name`), and JSON as text (`{"$json": ...}`).
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => match text.strip_prefix('$') {
                Some(name) => self.kept[name].clone(),
                None => value.clone(),
            },
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => match fields.get("$json") {
                Some(json) => Value::String(self.fill(json).to_string()),
                None => {
                    let fields = fields.iter();
                    Value::Object(fields.map(|(at, of)| (at.clone(), self.fill(of))).collect())
                }
            },
            other => other.clone(),
        }
    }

    /// Calls an export, notes what it answers, and returns that.
    fn call(&mut self, name: &str, arguments: &Value) -> Value {
        let (mut store, instance) = self.instance.take().unwrap_or_else(|| self.instantiate());
        let called = catch_unwind(AssertUnwindSafe(|| {
            let answer = call_export(&mut store, &instance, name, arguments);
            (answer, store, instance)
        }));
        let (case, answer) = match called {
            Ok((answer, store, instance)) => {
                self.instance = Some((store, instance));
                answer
            }
            Err(panic) => match panic.downcast::<ThrownImport>() {
                Ok(thrown) => ("thrown", Value::from(thrown.0)),
                Err(panic) => resume_unwind(panic),
            },
        };
        self.imports.faults().clear();
        let asked = std::mem::take(&mut self.imports.script().asked);
        self.answers
            .extend(asked.into_iter().map(|request| ScenarioAnswer {
                line: self.line,
                answer: json!({ "asked": request }),
            }));
        let answer = json!({"call": name, case: answer});
        self.answers.push(ScenarioAnswer {
            line: self.line,
            answer: answer.clone(),
        });
        answer
    }

    fn instantiate(&self) -> (Store<ScenarioState>, Instance) {
        let context = TenantContext {
            clock: Arc::clone(&self.imports) as _,
            ..TenantContext::new(
                Arc::clone(&self.imports) as _,
                Arc::clone(&self.imports) as _,
            )
        };
        let state = ScenarioState {
            context,
            meter: CallMeter::new(&EngineLimits::strict()),
            imports: Arc::clone(&self.imports),
        };
        let mut store = Store::new(&self.engine, state);
        let instance = self.pre.instantiate(&mut store).unwrap();
        (store, instance)
    }

    /// Performs a thread and all that it spawned, until nothing of it is left to be done.
    fn drive(&mut self, drive: &Value) {
        let (top, holder) = (&drive["thread"], drive["holder"].as_str().unwrap());
        let mut script = DriveScript {
            replies: drive["replies"]
                .as_array()
                .unwrap()
                .iter()
                .cloned()
                .collect(),
            tools: drive["tools"].clone(),
        };
        let first = start_run(top, &drive["input"], &format!("{holder}/0"), holder);
        self.run("runner.start", &first, &mut script);
        let (mut runs, mut named, mut cursor) = (0, false, Value::Null);
        loop {
            let ready = json!({"limit": 10, "cursor": cursor, "under": top});
            let page = self.call("runner.ready", &ready)["ok"].clone();
            for entry in page["threads"].as_array().expect("threads that are due") {
                runs += 1;
                named = true;
                self.begin(entry, &format!("{holder}/{runs}"), &mut script);
            }
            cursor = page["cursor"].clone();
            if cursor.is_null() && !std::mem::take(&mut named) {
                return;
            }
        }
    }

    /// Gets a thread going that `ready` has named, by the calls that it named.
    fn begin(&mut self, entry: &Value, holder: &str, script: &mut DriveScript) {
        let thread = &entry["thread"];
        for name in entry["calls"].as_array().expect("names of calls") {
            let name = name.as_str().expect("a name");
            if name == "sweep" {
                self.call("runner.sweep", &json!({"thread": thread, "cursor": null}));
            } else if name == "claim" {
                let claim = json!({"thread": thread, "holder": holder, "proof": {"none": null}});
                self.run("runner.claim", &claim, script);
            } else {
                let start = start_run(thread, &Value::Null, holder, holder);
                self.run(&format!("runner.{name}"), &start, script);
            }
        }
    }

    /// Begins a run and performs its steps, in whichever thread a step is.
    fn run(&mut self, name: &str, arguments: &Value, script: &mut DriveScript) {
        let handle = self.call(name, arguments)["ok"].clone();
        let (mut step, mut held) = (handle["step"].clone(), json!({}));
        while !step.is_null() && step["kind"] != "finished" {
            if held["thread"] != step["thread"] {
                held = json!({"thread": step["thread"], "version": 0, "messages": []});
            }
            let outcome = self.perform(&step, &mut held, script);
            let submit = json!({
                "thread": step["thread"], "token": handle["token"], "version": step["version"],
                "outcome": outcome, "have": held["version"],
            });
            step = self.call("runner.submit", &submit)["ok"].clone();
        }
    }

    /// Adds to what is held of a thread what a request has, and notes what a model is sent.
    fn extend(&mut self, held: &mut Value, step: &Value) {
        let asked = &step["request"];
        let since = asked["since"].as_u64().expect("a version");
        if since == 0 {
            held["messages"] = json!([]);
            for name in ["system", "tools"] {
                held[name] = asked[name].clone();
            }
        }
        let mut messages = held["messages"].as_array().expect("messages").clone();
        let (after, mut cursor) = (held["version"].as_u64().expect("a version"), Value::Null);
        let mut lacks = after < since;
        while lacks {
            let thread = &step["thread"];
            let given = json!({"thread": thread, "after": after, "until": since, "cursor": cursor});
            let page = self.call("transcript.messages", &given)["ok"].clone();
            messages.extend(page["messages"].as_array().expect("messages").clone());
            cursor = page["cursor"].clone();
            lacks = !cursor.is_null();
        }
        messages.extend(asked["messages"].as_array().expect("messages").clone());
        held["messages"] = Value::Array(messages);
        held["version"] = step["version"].clone();
        self.answers.push(ScenarioAnswer {
            line: self.line,
            answer: json!({"model": held, "since": since}),
        });
    }

    fn perform(&mut self, step: &Value, held: &mut Value, script: &mut DriveScript) -> Value {
        match step["kind"].as_str() {
            Some("call-llm") => {
                self.extend(held, step);
                script.replies.pop_front().expect("a scripted reply")
            }
            Some("call-tools") => {
                let outcome = |call: &Value| scripted_outcome(&script.tools, call);
                let calls = step["calls"].as_array().expect("calls").iter();
                json!({"outcomes": calls.map(outcome).collect::<Value>()})
            }
            _ => {
                self.set_clock(&step["until"]);
                json!({"waited": null})
            }
        }
    }
}

/// Links `llm` and `tools`, which answer what the line of the scenario says.
fn link_scripted(linker: &mut Linker<ScenarioState>) {
    let mut model = linker.instance("threadkeep:threads/llm@0.1.0").unwrap();
    let complete = |store: StoreContextMut<'_, ScenarioState>,
                    kind: ComponentFunc,
                    given: &[Val],
                    answers: &mut [Val]| {
        let mut script = store.data().imports.script();
        script.asked.push(to_json(&given[0]));
        let reply = script.replies.pop_front().expect("a scripted reply");
        let Some(Type::Result(kind)) = kind.results().next() else {
            panic!("{kind:?}");
        };
        answers[0] = Val::Result(match reply.get("completion") {
            Some(reply) => Ok(Some(Box::new(to_val(&kind.ok().unwrap(), reply)))),
            None => {
                let failure = to_val(&kind.err().unwrap(), &reply["failure"]);
                Err(Some(Box::new(failure)))
            }
        });
        Ok(())
    };
    model.func_new("complete", complete).unwrap();
    let mut tools = linker.instance("threadkeep:threads/tools@0.1.0").unwrap();
    let call = |store: StoreContextMut<'_, ScenarioState>,
                kind: ComponentFunc,
                given: &[Val],
                answers: &mut [Val]| {
        let script = store.data().imports.script();
        let calls = to_json(&given[0]);
        let calls = calls.as_array().expect("calls").iter();
        let outcomes: Value = calls
            .map(|call| scripted_outcome(&script.tools, call))
            .collect();
        answers[0] = to_val(&kind.results().next().unwrap(), &outcomes);
        Ok(())
    };
    tools.func_new("call", call).unwrap();
}

/// Returns the outcome of a call by the name of its tool.
fn scripted_outcome(tools: &Value, call: &Value) -> Value {
    let mut outcome = tools[call["name"].as_str().expect("a tool's name")].clone();
    for at in ["version", "index"] {
        outcome[at] = call[at].clone();
    }
    outcome
}

/// Returns the arguments of `runner.start`.
fn start_run(thread: &Value, input: &Value, holder: &str, key: &str) -> Value {
    json!({"thread": thread, "input": input, "holder": holder, "key": key, "about": null})
}

/// Calls an export by its types; returns the case of its result and what that holds.
fn call_export(
    store: &mut Store<ScenarioState>,
    instance: &Instance,
    name: &str,
    arguments: &Value,
) -> (&'static str, Value) {
    let (interface, function) = name.split_once('.').expect("interface.function");
    let interface = format!("threadkeep:threads/{interface}@0.1.0");
    let interface = instance.get_export_index(&mut *store, None, &interface);
    let function = instance.get_export_index(&mut *store, interface.as_ref(), function);
    let function = function.and_then(|index| instance.get_func(&mut *store, index));
    let function = function.unwrap_or_else(|| panic!("there is no {name}"));
    let kind = function.ty(&*store);
    let arguments = arguments.as_object().expect("arguments by name");
    let named: Vec<&str> = kind.params().map(|(name, _)| name).collect();
    assert_eq!(named, arguments.keys().collect::<Vec<_>>(), "{name}");
    let arguments: Vec<Val> = kind
        .params()
        .map(|(name, kind)| to_val(&kind, &arguments[name]))
        .collect();
    let mut answers = [Val::Bool(false)];
    store.data_mut().meter.begin_call();
    function.call(store, &arguments, &mut answers).unwrap();
    match &answers[0] {
        Val::Result(Ok(answer)) => ("ok", answer.as_deref().map_or(Value::Null, to_json)),
        Val::Result(Err(error)) => ("err", error.as_deref().map_or(Value::Null, to_json)),
        other => panic!("{name} answers no result: {other:?}"),
    }
}

/// Returns names in pages, as a store gives them from either end.
fn pages(line: &Value) -> Value {
    let store = MemoryStore::new();
    let names = line["names"].as_array().expect("names").iter();
    let puts = names.map(|name| CommitOp::Put {
        key: RecordKey::new("blob", name.as_str().expect("a name")),
        expect: RecordExpectation::Absent,
        value: "a value".to_owned(),
    });
    store.commit(&puts.collect::<Vec<_>>(), false).unwrap();
    let limit = line["limit"].as_u64().expect("a limit") as u32;
    let walk = |reverse: bool| {
        let mut found = Vec::new();
        let mut cursor = Some(String::new());
        while let Some(at) = cursor {
            let (start, end) = if reverse { ("", &*at) } else { (&*at, "") };
            let page = store.scan("blob", start, end, limit, reverse).unwrap();
            let names = page.items.into_iter().map(|item| item.key.name);
            found.push(names.collect::<Vec<_>>());
            cursor = page.cursor;
        }
        found
    };
    json!({"forwards": walk(false), "backwards": walk(true)})
}
