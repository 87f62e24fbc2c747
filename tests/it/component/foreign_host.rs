//! A host of the component with an engine of its own, some of whose imports answer what the
//! contract does not allow, or an error.

use std::sync::{Arc, OnceLock};
use threadkeep::component::{
    CallMeter, ImportView, TenantContext, Threads, ThreadsPre, add_to_linker,
};
use threadkeep::engine::COMPONENT;
use threadkeep::limits::EngineLimits;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_tests::fixture::MapLibrary;
use wasmtime::component::{Component, Linker, Val};
use wasmtime::{Engine, Store};

/// Data of the host's store.
pub struct ForeignState {
    tenant: TenantContext,
    meter: CallMeter,
}

/// One instance of the component in a host of its own.
pub struct ForeignHost {
    pub store: Store<ForeignState>,
    pub threads: Threads,
}

fn compile_once() -> &'static (Engine, Component) {
    static COMPILED: OnceLock<(Engine, Component)> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let engine = Engine::default();
        let component = Component::new(&engine, COMPONENT).unwrap();
        (engine, component)
    })
}

impl ForeignHost {
    /// Makes a host over a store; `replace` defines imports again.
    pub fn over(
        records: &Arc<MemoryStore>,
        library: MapLibrary,
        replace: impl FnOnce(&mut Linker<ForeignState>),
    ) -> Self {
        let (engine, component) = compile_once();
        let mut linker = Linker::<ForeignState>::new(engine);
        add_to_linker(&mut linker, |host: &mut ForeignState| ImportView {
            context: &host.tenant,
            meter: &mut host.meter,
        })
        .unwrap();
        linker.allow_shadowing(true);
        replace(&mut linker);
        let pre = ThreadsPre::new(linker.instantiate_pre(component).unwrap()).unwrap();
        let storage: Arc<dyn StorageBackend> = Arc::<MemoryStore>::clone(records);
        let state = ForeignState {
            tenant: TenantContext::new(storage, Arc::new(library)),
            meter: CallMeter::new(&EngineLimits::local()),
        };
        let mut store = Store::new(engine, state);
        let threads = pre.instantiate(&mut store).unwrap();
        Self { store, threads }
    }

    /// Makes a host whose import `function` of `interface` gives this answer each time.
    pub fn answering(
        records: &Arc<MemoryStore>,
        interface: &str,
        function: &str,
        answer: Val,
    ) -> Self {
        Self::over(records, MapLibrary::small(), |linker| {
            let path = format!("threadkeep:threads/{interface}@0.1.0");
            let mut instance = linker.instance(&path).unwrap();
            let give = move |_: wasmtime::StoreContextMut<'_, ForeignState>,
                             _: wasmtime::component::types::ComponentFunc,
                             _: &[Val],
                             results: &mut [Val]| {
                results[0] = answer.clone();
                Ok(())
            };
            instance.func_new(function, give).unwrap();
        })
    }
}

/// An error of an import with a code and a message.
pub fn failure(case: &str, code: &str) -> Val {
    let text = |text: &str| Val::String(text.to_owned());
    let record = Val::Record(vec![
        ("code".to_owned(), text(code)),
        ("message".to_owned(), text("on purpose")),
    ]);
    Val::Result(Err(Some(Box::new(Val::Variant(
        case.to_owned(),
        Some(Box::new(record)),
    )))))
}

/// The answer of an import that went well.
pub fn success(value: Val) -> Val {
    Val::Result(Ok(Some(Box::new(value))))
}
