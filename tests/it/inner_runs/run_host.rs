//! A host without a driver: it links `llm` and `tools`, and calls `runner.run`.

use crate::component::fixture::CountingTools;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, OnceLock};
use threadkeep::clock::{ClockTime, ManualClock};
use threadkeep::component::{CallMeter, ImportView, TenantContext, Threads, add_to_linker};
use threadkeep::engine::COMPONENT;
use threadkeep::limits::EngineLimits;
use threadkeep::models::{
    CompletionRequest, ModelFailure, ModelProvider, ReplyBlock, ToolSpec, Usage,
};
use threadkeep::storage::StorageBackend;
use threadkeep::tools::ToolSet;
use threadkeep::wit::{self, llm, runner};
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::native::CountingRandom;
use wasmtime::component::{Component, Linker};
use wasmtime::{Engine, Store, StoreContextMut};

/// The time at which the clocks of these tests stand.
const BEGINNING: ClockTime = ClockTime {
    seconds: 1_700_000_000,
    nanos: 0,
};

/// The resources that the imports of a call are served with.
struct RunState {
    context: TenantContext,
    meter: CallMeter,
    model: Arc<dyn ModelProvider>,
    tools: Arc<CountingTools>,
    asked: Arc<Mutex<Vec<llm::Request>>>,
    traps_at: Option<usize>,
}

/// A world: a store, a clock, and the context over them.
pub struct RunWorld {
    pub store: Arc<dyn StorageBackend>,
    pub clock: Arc<ManualClock>,
    pub context: TenantContext,
}

impl RunWorld {
    pub fn new(store: Arc<dyn StorageBackend>, library: MapLibrary) -> Self {
        let clock = Arc::new(ManualClock::new(BEGINNING));
        let context = TenantContext {
            clock: clock.clone(),
            random: Arc::new(CountingRandom::default()),
            ..TenantContext::new(store.clone(), Arc::new(library))
        };
        Self {
            store,
            clock,
            context,
        }
    }
}

/// A host that calls `runner.run`.
pub struct RunHost {
    context: TenantContext,
    model: Arc<dyn ModelProvider>,
    pub tools: Arc<CountingTools>,
    /// The requests that the model was sent.
    pub asked: Arc<Mutex<Vec<llm::Request>>>,
    /// The request, counted from 1, that ends its call by a trap.
    pub traps_at: Option<usize>,
}

/// Returns the component, compiled once for all hosts, and the imports.
fn compile_component() -> &'static (Engine, Component, Linker<RunState>) {
    static COMPILED: OnceLock<(Engine, Component, Linker<RunState>)> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let engine = Engine::default();
        let mut linker = Linker::<RunState>::new(&engine);
        add_to_linker(&mut linker, |state: &mut RunState| ImportView {
            context: &state.context,
            meter: &mut state.meter,
        })
        .unwrap();
        linker.allow_shadowing(true);
        let mut model = linker.instance("threadkeep:threads/llm@0.1.0").unwrap();
        model.func_wrap("complete", complete).unwrap();
        let mut tools = linker.instance("threadkeep:threads/tools@0.1.0").unwrap();
        tools.func_wrap("call", call_tools).unwrap();
        let component = Component::new(&engine, COMPONENT).unwrap();
        (engine, component, linker)
    })
}

impl RunHost {
    pub fn new(world: &RunWorld, model: Arc<dyn ModelProvider>) -> Self {
        Self {
            context: world.context.clone(),
            model,
            tools: Arc::default(),
            asked: Arc::default(),
            traps_at: None,
        }
    }

    /// Makes an instance of its own.
    fn instantiate(&self) -> (Store<RunState>, Threads) {
        let (engine, component, linker) = compile_component();
        let state = RunState {
            context: self.context.clone(),
            meter: CallMeter::new(&EngineLimits::strict()),
            model: self.model.clone(),
            tools: self.tools.clone(),
            asked: self.asked.clone(),
            traps_at: self.traps_at,
        };
        let mut store = Store::new(engine, state);
        let threads = Threads::instantiate(&mut store, component, linker).unwrap();
        (store, threads)
    }

    /// Calls `runner.run` in a new instance; the error is `None` for a trap.
    pub fn run(
        &self,
        thread: &str,
        input: Option<&str>,
        holder: &str,
        steps: u32,
    ) -> Result<Value, Option<wit::ErrorRecord>> {
        let (mut store, threads) = self.instantiate();
        let runner = threads.threadkeep_threads_runner();
        match runner.call_run(&mut store, thread, input, holder, holder, steps) {
            Ok(Ok(answer)) => Ok(serde_json::from_str(&answer).unwrap()),
            Ok(Err(error)) => Err(Some(error)),
            Err(_) => Err(None),
        }
    }

    /// Claims a thread whose holder is known to be dead.
    pub fn claim_from_dead(&self, thread: &str, holder: &str) -> runner::Handle {
        let (mut store, threads) = self.instantiate();
        let runner = threads.threadkeep_threads_runner();
        let claimed = runner.call_claim(&mut store, thread, holder, &runner::Proof::Dead);
        claimed.unwrap().unwrap()
    }
}

/// Waits for a future where a synchronous import needs its answer.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().unwrap().block_on(future)
}

fn complete(
    store: StoreContextMut<'_, RunState>,
    (request,): (llm::Request,),
) -> wasmtime::Result<(Result<llm::Completion, llm::LlmError>,)> {
    let state = store.data();
    let count = {
        let mut asked = state.asked.lock().unwrap();
        asked.push(request.clone());
        asked.len()
    };
    if state.traps_at == Some(count) {
        wasmtime::bail!("the host stopped the call");
    }
    assert_eq!(request.since, 0, "a request of the loop is whole");
    let tools = request.tools.into_iter().map(|tool| ToolSpec {
        name: tool.name,
        description: tool.description,
        schema: tool.schema,
    });
    let request = CompletionRequest {
        model: request.model,
        system: request.system,
        tools: tools.collect(),
        messages: request.messages,
        output_max: request.output,
        session: request.session,
        ..CompletionRequest::default()
    };
    let answer = block_on(state.model.complete(&request, &|_| {}));
    Ok((answer
        .map_err(|failure| failure_to_wit(&failure))
        .map(|answer| llm::Completion {
            blocks: answer
                .blocks
                .iter()
                .map(block_to_json)
                .collect::<Value>()
                .to_string(),
            finish: answer.finish,
            usage: answer.usage.map(usage_to_wit),
            session: answer.session,
            id: answer.id,
            model: answer.model,
        }),))
}

fn call_tools(
    store: StoreContextMut<'_, RunState>,
    (calls,): (Vec<wit::ToolCall>,),
) -> wasmtime::Result<(Vec<wit::ToolOutcome>,)> {
    let tools = &store.data().tools;
    let outcome = |call: &wit::ToolCall| {
        let result = block_on(tools.call(&call.name, &call.arguments));
        wit::ToolOutcome {
            version: call.version,
            index: call.index,
            state: "done".to_owned(),
            failed: result.failed,
            content: wit::text_content(&result.content),
            patches: String::new(),
            operations: String::new(),
            cost: 0,
        }
    };
    Ok((calls.iter().map(outcome).collect(),))
}

fn usage_to_wit(usage: Usage) -> wit::Usage {
    wit::Usage {
        input: usage.input,
        output: usage.output,
        read: usage.read,
        write: usage.write,
        reasoning: usage.reasoning,
    }
}

fn failure_to_wit(failure: &ModelFailure) -> llm::LlmError {
    llm::LlmError {
        kind: failure.kind.as_str().to_owned(),
        code: failure.code.clone(),
        message: failure.message.clone(),
        retry: failure.retry_after.map(|after| after.as_millis() as u64),
        sent: failure.sent,
        refused: failure.refused,
        usage: failure.usage.map(usage_to_wit),
        partial: failure.partial.clone(),
    }
}

fn block_to_json(block: &ReplyBlock) -> Value {
    match block {
        ReplyBlock::Text { text } => json!({"type": "text", "text": text}),
        ReplyBlock::Thinking { text, raw } => {
            json!({"type": "thinking", "text": text, "raw": raw})
        }
        ReplyBlock::ToolUse {
            id,
            name,
            arguments,
            raw,
        } => json!({"type": "tool_use", "id": id, "name": name, "arguments": arguments,
            "raw": raw}),
    }
}
