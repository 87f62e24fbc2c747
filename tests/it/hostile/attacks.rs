//! Each attack ends with the name of its limit and leaves nothing, while another tenant's calls go
//! on and get correct answers.

use super::fixture::{TwoTenants, exercise_neighbour, limits};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use threadkeep::error::CallError;
use threadkeep::limits::EngineLimits;
use threadkeep_tests::fixture::draft;

struct LimitAttack {
    limit: &'static str,
    program: &'static str,
    what: &'static str,
    limits: EngineLimits,
}

/// Limits that other tests cover: an attack cannot, because no caller is stopped by them.
const ELSEWHERE: [&str; 6] = [
    "calls_running_max",  // neighbour.rs
    "calls_queued_max",   // neighbour.rs
    "call_threads_max",   // host/src/engine/pool_tests.rs
    "instance_calls_max", // reuse.rs
    "instances_warm_max", // reuse.rs
    "instance_idle_max",  // reuse.rs
];

fn attacks() -> Vec<LimitAttack> {
    let usual = EngineLimits {
        tenant_memory_bytes_max: 2 << 30,
        ..limits()
    };
    let attack = |limit, program, what| LimitAttack {
        limit,
        program,
        what,
        limits: usual,
    };
    let roomy = EngineLimits {
        memory_bytes_max: 256 << 20,
        ..usual
    };
    vec![
        attack("compute_time_max", "loop", "an endless loop"),
        attack(
            "compute_time_max",
            "fill",
            "48 MiB filled at a stroke, for ever",
        ),
        LimitAttack {
            limits: EngineLimits {
                wall_time_max: Duration::from_secs(1),
                ..usual
            },
            ..attack("wall_time_max", "sleeps", "an import that sleeps")
        },
        attack("memory_bytes_max", "grow", "memory that grows"),
        LimitAttack {
            limits: EngineLimits {
                tenant_memory_bytes_max: 48 << 20,
                ..usual
            },
            ..attack("tenant_memory_bytes_max", "grow", "four that grow together")
        },
        attack("table_elements_max", "table", "a table that grows"),
        attack("tables_max", "tables", "fifty tables"),
        attack("memories_max", "memories", "ten memories"),
        attack(
            "core_instances_max",
            "instances",
            "a hundred core instances",
        ),
        attack("handles_max", "handles", "a million handles"),
        attack("stack_bytes_max", "recursion", "recursion without end"),
        attack("host_calls_max", "asks", "100,000 imports"),
        LimitAttack {
            limits: roomy,
            ..attack("host_call_bytes_max", "list", "a list of 200 MB")
        },
        attack("host_bytes_max", "tells", "a megabyte told again and again"),
        attack(
            "answer_bytes_max",
            "hears",
            "a megabyte asked for again and again",
        ),
    ]
}

#[tokio::test]
async fn each_attack_ends_with_its_limit_and_the_neighbour_lives_on() {
    println!("| limit | attack | observed end | time | the neighbour's answers meanwhile |");
    for attack in attacks() {
        let (time, meanwhile) = run(&attack).await;
        let LimitAttack { limit, what, .. } = attack;
        println!(
            "| `{limit}` | {what} | stopped by `{limit}` | {} ms | {meanwhile} |",
            time.as_millis()
        );
    }
}

/// On a thread that its caller lends, an attack ends with the same limit. A call that waits in an
/// import is not among them: there nobody but the import ends it.
#[test]
fn each_attack_on_a_lent_thread_ends_with_its_limit() {
    let lent = std::thread::Builder::new().stack_size(8 << 20).spawn(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        for attack in attacks().iter().filter(|attack| attack.program != "sleeps") {
            let LimitAttack { limit, program, .. } = attack;
            let world = TwoTenants::new(program, attack.limits);
            let hostile = world.hostile.on_calling_thread();
            // A second attack at once is the tenant's own: it is what some limits count.
            let ends =
                runtime.block_on(async { tokio::join!(hostile.get("x"), world.hostile.get("x")) });
            for end in [ends.0, ends.1] {
                let end = end.expect_err("an attack has no answer");
                assert!(
                    matches!(end, CallError::Limit(name) if name == *limit),
                    "{program}: {end}"
                );
            }
            let neighbour = world.neighbour.on_calling_thread();
            let made = runtime
                .block_on(neighbour.create(draft(Some("work"))))
                .unwrap();
            assert_eq!(made.status, "created", "{program}");
        }
    });
    lent.unwrap().join().unwrap();
}

/// Runs as many attackers as may run at once, all stopped by the limit. Returns the time and the
/// number of the neighbour's calls meanwhile.
async fn run(attack: &LimitAttack) -> (Duration, usize) {
    let LimitAttack { limit, program, .. } = attack;
    let world = TwoTenants::new(program, attack.limits);
    let done = AtomicBool::new(false);
    let begun = Instant::now();
    let attackers = async {
        let calls = (0..attack.limits.calls_running_max).map(|_| world.hostile.get("x"));
        let ends = futures_util::future::join_all(calls).await;
        done.store(true, Ordering::Relaxed);
        (ends, begun.elapsed())
    };
    let ((ends, time), meanwhile) =
        tokio::join!(attackers, exercise_neighbour(&world.neighbour, &done));
    for end in ends {
        let end = end.expect_err("an attack has no answer");
        assert!(
            matches!(end, CallError::Limit(name) if name == *limit),
            "{program}: {end}"
        );
    }
    if time >= Duration::from_secs(1) {
        assert!(meanwhile > 0, "{program}: the neighbour had to wait");
    }
    world.gate.open();
    while world.hostile.memory_bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(world.hostile.instances_warm(), 0, "{program}");
    (time, meanwhile)
}

/// The table of limits in ARCHITECTURE.md has the values of the presets.
#[test]
fn the_table_of_limits_is_true() {
    let page = include_str!("../../../ARCHITECTURE.md");
    for ((name, local), (_, strict)) in EngineLimits::local()
        .named_values()
        .into_iter()
        .zip(EngineLimits::strict().named_values())
    {
        let row = format!("| `{name}` | {local} | {strict} | ");
        assert!(page.contains(&row), "ARCHITECTURE.md lacks {row:?}");
    }
}

#[test]
fn no_limit_is_without_an_attack() {
    let mut shown: BTreeSet<&str> = attacks().iter().map(|attack| attack.limit).collect();
    shown.extend(ELSEWHERE);
    let all: BTreeSet<&str> = EngineLimits::strict()
        .named_values()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(shown, all);
}
