//! One candidate alone, so that a profiler shows it and not its neighbours; and two builds of the
//! component beside each other.

use super::candidates::{measure, store};
use super::direct::{self, DirectRun};
use super::figures::{micros, ratio};
use super::native::NativeRun;
use super::tenant::TenantRun;
use super::world::BenchCandidate;
use std::sync::Arc;
use threadkeep::engine::COMPONENT;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::sqlite::CommitDurability;

/// Runs `native`, `component`, `tenant` or `lent` over `memory`, `normal` or `full`, and prints its
/// median.
pub fn run(candidate: &str, kind: &str, steps: usize) {
    let durability = match kind {
        "memory" => None,
        "normal" => Some(CommitDurability::Normal),
        "full" => Some(CommitDurability::Full),
        _ => panic!("a store is memory, normal or full"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let storage = store(folder.path(), durability);
    let mut run: Box<dyn BenchCandidate> = match candidate {
        "native" => Box::new(NativeRun::start(&storage)),
        "component" => Box::new(DirectRun::start(&storage)),
        "tenant" => Box::new(TenantRun::start(&storage)),
        "lent" => Box::new(TenantRun::start_lent(&storage)),
        _ => panic!("a candidate is native, component, tenant or lent"),
    };
    let times = measure(&mut [run.as_mut()], steps / 10, steps);
    println!("{candidate} over {kind}: {}", micros(times[0]));
}

/// Compares the component with another build of it, over a store in memory.
pub fn compare_build(warm: usize, steps: usize) {
    let other = direct::other_build().expect("THREADKEEP_BENCH_BUILD names its file");
    let storage: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let mut now = DirectRun::start_build(&storage, COMPONENT);
    let mut before = DirectRun::start_build(&storage, &other);
    let times = measure(&mut [&mut before, &mut now], warm, steps);
    println!(
        "a turn's commit in memory: {} with the other build, {} with this build, ratio {}",
        micros(times[0]),
        micros(times[1]),
        ratio(times[1], times[0])
    );
}
