//! A fresh instance and a warm call, compared with those of a component that does nothing.

use super::direct::{HostStoreData, engine, pooled_engine, prepare, store};
use super::figures::{median, micros};
use super::tenant::{runtime, tenant};
use super::world;
use std::sync::Arc;
use std::time::{Duration, Instant};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit::{self, registry};
use wasmtime::component::{Component, Linker, TypedFunc};

/// `(component (core module (func (export "f"))) (func (export "f") (canon lift ...)))`, as bytes:
/// its text would need a parser for one test.
const NOTHING: &[u8] = &[
    0x00, 0x61, 0x73, 0x6d, 0x0d, 0x00, 0x01, 0x00, // a component
    0x01, 0x1f, 0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00, // a core module
    0x01, 0x04, 0x01, 0x60, 0x00, 0x00, 0x03, 0x02, 0x01,
    0x00, // one function, of no arguments
    0x07, 0x05, 0x01, 0x01, 0x66, 0x00, 0x00, // exported as "f"
    0x0a, 0x04, 0x01, 0x02, 0x00, 0x0b, // that ends at once
    0x02, 0x04, 0x01, 0x00, 0x00, 0x00, // its instance
    0x07, 0x05, 0x01, 0x40, 0x00, 0x01, 0x00, // the type of "f" of the component
    0x06, 0x07, 0x01, 0x00, 0x00, 0x01, 0x00, 0x01, 0x66, // "f" of the instance
    0x08, 0x06, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, // lifted
    0x0b, 0x07, 0x01, 0x00, 0x01, 0x66, 0x01, 0x00, 0x00, // and exported
];

type ListFunction = TypedFunc<
    (registry::Filter, u32, Option<String>),
    (Result<registry::RowPage, wit::ErrorRecord>,),
>;

/// Prints the medians of `steps` measurements each.
pub fn compare(steps: usize) {
    let storage: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let engine = engine();
    let (ours, nothing) = (
        prepare(&engine),
        Component::new(&engine, NOTHING).expect("it compiles"),
    );
    let bare = Linker::<()>::new(&engine)
        .instantiate_pre(&nothing)
        .expect("it is linked");

    let pool = pooled_engine().map(|engine| (prepare(&engine), engine));
    let (mut fresh, mut fresh_bare, mut fresh_pooled) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..steps {
        let context = world::context(&storage);
        fresh.push(time(|| {
            ours.instantiate(store(&engine, HostStoreData::new(context)))
                .expect("an instance");
        }));
        if let Some((ours, engine)) = &pool {
            let context = world::context(&storage);
            fresh_pooled.push(time(|| {
                ours.instantiate(store(engine, HostStoreData::new(context)))
                    .expect("an instance");
            }));
        }
        fresh_bare.push(time(|| {
            bare.instantiate(store(&engine, ())).expect("an instance");
        }));
    }

    if !fresh_pooled.is_empty() {
        println!(
            "a fresh instance from wasmtime's pool: {}",
            micros(median(&mut fresh_pooled))
        );
    }

    let mut bare_store = store(&engine, ());
    let instance = bare.instantiate(&mut bare_store).expect("an instance");
    let f: TypedFunc<(), ()> = instance.get_typed_func(&mut bare_store, "f").expect("f");
    let mut our_store = store(&engine, HostStoreData::new(world::context(&storage)));
    let instance = ours.instantiate(&mut our_store).expect("an instance");
    let registry =
        instance.get_export_index(&mut our_store, None, "threadkeep:threads/registry@0.1.0");
    let place = instance.get_export_index(&mut our_store, registry.as_ref(), "list");
    let list = instance
        .get_func(&mut our_store, place.expect("exported"))
        .expect("a function");
    let list: ListFunction = list.typed(&our_store).expect("its type");
    let (runtime, tenant) = (runtime(), tenant(&storage));

    let (mut warm, mut warm_bare, mut warm_tenant) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..steps {
        // A limit of 0 is refused before any read: the call itself is measured.
        warm.push(time(|| {
            let (refused,) = list
                .call(&mut our_store, (registry::Filter::default(), 0, None))
                .expect("no trap");
            assert!(refused.is_err());
        }));
        warm_bare.push(time(|| f.call(&mut bare_store, ()).expect("no trap")));
        warm_tenant.push(time(|| {
            let refused = runtime.block_on(tenant.list(registry::Filter::default(), 0, None));
            assert!(refused.is_err());
        }));
    }

    print(fresh, fresh_bare, warm, warm_bare, warm_tenant);
}

/// Prints the table.
fn print(
    mut fresh: Vec<Duration>,
    mut fresh_bare: Vec<Duration>,
    mut warm: Vec<Duration>,
    mut warm_bare: Vec<Duration>,
    mut warm_tenant: Vec<Duration>,
) {
    let hop = median(&mut warm_tenant).saturating_sub(median(&mut warm));
    println!("calls, median of each; bare is a component that does nothing, in the same engine");
    println!(
        "  {:16} {:>9}   bare {:>9}",
        "fresh instance",
        micros(median(&mut fresh)),
        micros(median(&mut fresh_bare))
    );
    println!(
        "  {:16} {:>9}   bare {:>9}",
        "warm call",
        micros(median(&mut warm)),
        micros(median(&mut warm_bare))
    );
    println!(
        "  {:16} {:>9}   more than the warm call: to the pool's thread and back",
        "tenant's pool",
        micros(hop)
    );
}

fn time(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}
