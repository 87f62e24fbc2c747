//! `cargo bench -p threadkeep-tests --bench neighbour [-- ATTACK]`: measures a tenant's calls while
//! another tenant attacks, and in quiet.
//!
//! Quiet and attack alternate in short rounds, so that other load of the machine affects both: only
//! the ratio is meaningful. The neighbour creates threads with the real component over a store in
//! memory; the attackers are the programs of `tests/programs`, as many at once as a tenant of the
//! preset `strict` may run. Nothing is asserted.

use cap_std::fs::Dir;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use threadkeep::clock::SystemClock;
use threadkeep::component::{SystemRandom, TenantContext};
use threadkeep::engine::{CodeCache, Engine};
use threadkeep::limits::EngineLimits;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep_tests::fixture::{MapLibrary, draft};
use threadkeep_tests::programs;
use tokio::runtime::Runtime;

/// Rounds of each attack, and calls of the neighbour in each half of a round.
const ROUNDS: usize = 6;
const CALLS: usize = 250;

const ATTACKS: [&str; 12] = [
    "loop",
    "fill",
    "grow",
    "table",
    "recursion",
    "asks",
    "list",
    "tells",
    "hears",
    "handles",
    "instances",
    "counts",
];

fn main() {
    // `cargo test --benches` runs this file, too: then it only proves that the bench works.
    let (rounds, calls) = match std::env::args().any(|argument| argument == "--bench") {
        true => (ROUNDS, CALLS),
        false => (1, 5),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Dir::open_ambient_dir(folder.path(), cap_std::ambient_authority());
    let cache = CodeCache::new(dir.expect("a folder"));
    println!(
        "  {:10} {:>8} {:>10} {:>10} {:>7} {:>11} {:>10} {:>7}",
        "attack", "attacks", "quiet p99", "p99", "ratio", "quiet half", "half", "ratio"
    );
    let given: Vec<String> = std::env::args().skip(1).collect();
    let named = ATTACKS
        .iter()
        .any(|attack| given.iter().any(|it| it == attack));
    for attack in ATTACKS {
        if named && !given.iter().any(|it| it == attack) {
            continue;
        }
        let mut world = NeighbourBench::new(attack, &cache);
        world.run(rounds, calls).print(attack);
    }
}

/// A neighbour and an attacker on the threads of one engine.
struct NeighbourBench {
    runtime: Runtime,
    neighbour: Tenant,
    attacker: Tenant,
    at_once: usize,
}

/// Times of the neighbour's calls.
#[derive(Default)]
struct CallTimes {
    quiet: Vec<Duration>,
    attacked: Vec<Duration>,
    attacks: u64,
}

impl NeighbourBench {
    fn new(attack: &str, cache: &CodeCache) -> Self {
        let limits = EngineLimits {
            // An attack ends soon after its round; a list of 200 MB fits in the memory.
            compute_time_max: Duration::from_millis(500),
            memory_bytes_max: 256 << 20,
            tenant_memory_bytes_max: 2 << 30,
            ..EngineLimits::strict()
        };
        let engine = Engine::new(limits, Some(cache)).expect("an engine");
        let program = programs::build_program(attack);
        let evil = engine.prepare_sibling(&program, None).expect("an engine");
        Self {
            runtime: runtime(),
            neighbour: tenant(engine),
            attacker: tenant(evil),
            at_once: limits.calls_running_max,
        }
    }

    fn run(&mut self, rounds: usize, calls: usize) -> CallTimes {
        let mut times = CallTimes::default();
        self.measure(calls, &mut Vec::new());
        for _ in 0..rounds {
            self.measure(calls, &mut times.quiet);
            times.attacks += self.measure_under_attack(calls, &mut times.attacked);
        }
        times
    }

    fn measure(&self, calls: usize, times: &mut Vec<Duration>) {
        for _ in 0..calls {
            let begun = Instant::now();
            let made = self
                .runtime
                .block_on(self.neighbour.create(draft(Some("work"))));
            times.push(begun.elapsed());
            made.expect("created");
        }
    }

    /// Measures while attackers attack, each one call after another; returns the number of attacks
    /// that ended.
    fn measure_under_attack(&self, calls: usize, times: &mut Vec<Duration>) -> u64 {
        let (over, attacks) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..self.at_once {
                scope.spawn(|| {
                    let runtime = runtime();
                    while !over.load(Ordering::Relaxed) {
                        let _ = runtime.block_on(self.attacker.get("x"));
                        attacks.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            self.measure(calls, times);
            over.store(true, Ordering::Relaxed);
        });
        attacks.load(Ordering::Relaxed)
    }
}

impl CallTimes {
    fn print(mut self, attack: &str) {
        let at = |times: &mut Vec<Duration>, percent: usize| {
            times.sort_unstable();
            times[(times.len() * percent / 100).min(times.len() - 1)].as_secs_f64() * 1e6
        };
        let (quiet, attacked) = (at(&mut self.quiet, 99), at(&mut self.attacked, 99));
        let (half_quiet, half) = (at(&mut self.quiet, 50), at(&mut self.attacked, 50));
        println!(
            "  {attack:10} {:>8} {quiet:>7.0} us {attacked:>7.0} us {:>7.2} {half_quiet:>8.0} us \
             {half:>7.0} us {:>7.2}",
            self.attacks,
            attacked / quiet,
            half / half_quiet,
        );
    }
}

fn tenant(engine: Engine) -> Tenant {
    let storage: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let large = serde_json::Value::String("x".repeat(1 << 20)).to_string();
    let context = TenantContext {
        storage,
        library: Arc::new(MapLibrary::small().with("large", "large", &large)),
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    Tenant::new(engine, context)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}
