//! `cargo bench -p threadkeep-tests --bench turn`: measures a turn's commit and a call of the
//! component, each compared with its baseline.
//!
//! Every candidate does the same step before any does the next one, and the order changes with each
//! step: only ratios of one run are meaningful. A harness that measures one candidate after the
//! other cannot do that, so this one is our own. Nothing is asserted. One step is one commit of
//! three operations: head, chain, entry. Steps alternate between a reply of about 2 KB that calls
//! one tool and the tool's result of the same size. Arguments choose a part:
//! - `places`: a turn in a root, in a child and in a third link;
//! - `bundle`: the bundle under the stock command `wasmtime`;
//! - `counts`: where a turn goes, in figures that no other load of the machine changes;
//! - `only CANDIDATE STORE`: one candidate alone, for a profiler (`only tenant normal`);
//! - `other-build`: the component beside the build that `THREADKEEP_BENCH_BUILD` names, in turn.
//!
//! Where the guest's time goes: `cargo xtask component --names FILE`, then with
//! `THREADKEEP_BENCH_BUILD=FILE` and `THREADKEEP_BENCH_PERFMAP=1` in the environment
//! `perf record -- BENCH --bench only component memory`. System calls: `strace -fc -- BENCH ...`.

#[path = "turn/budget.rs"]
mod budget;
#[path = "turn/calls.rs"]
mod calls;
#[path = "turn/candidates.rs"]
mod candidates;
#[path = "turn/counts.rs"]
mod counts;
#[path = "turn/direct.rs"]
mod direct;
#[path = "turn/figures.rs"]
mod figures;
#[path = "turn/native.rs"]
mod native;
#[path = "turn/only.rs"]
mod only;
#[path = "turn/raw.rs"]
mod raw;
#[path = "turn/stock_command.rs"]
mod stock_command;
#[path = "turn/tenant.rs"]
mod tenant;
#[path = "turn/world.rs"]
mod world;

use candidates::BenchStore;
use threadkeep::storage::sqlite::CommitDurability;

/// Steps of each candidate before measuring begins: they warm caches, statements and code.
const WARM_STEPS: usize = 40;
/// Steps of each candidate that count.
const STEPS: usize = 600;
/// Steps that count where each waits for the disk.
const STEPS_DURABLE: usize = 200;

/// Steps of a candidate that runs alone: as many as fit below the byte ceiling of a window, where
/// the thread is handed off.
const STEPS_ALONE: usize = 3_000;
/// Steps that are counted: each counts the same.
const STEPS_COUNTED: usize = 40;

/// Returns the arguments behind a word, if it is given.
fn arguments_after<const N: usize>(word: &str) -> Option<[String; N]> {
    let mut given = std::env::args().skip_while(|argument| argument != word);
    given.next()?;
    let behind: Vec<String> = given.take(N).collect();
    Some(behind.try_into().expect("each argument is given"))
}

fn main() {
    let asked = |word: &str| std::env::args().any(|argument| argument == word);
    // `cargo test --benches` runs this file, too: then it only proves that the bench works.
    let steps = match asked("--bench") {
        true => |steps| steps,
        false => |_| 4,
    };
    if asked("places") {
        print_places(&steps);
        return;
    }
    if asked("bundle") {
        stock_command::print(&steps);
        return;
    }
    if asked("counts") {
        counts::print(steps(STEPS_COUNTED));
        return;
    }
    if let Some([candidate, store]) = arguments_after("only") {
        only::run(&candidate, &store, steps(STEPS_ALONE));
        return;
    }
    if asked("other-build") {
        only::compare_build(WARM_STEPS, steps(STEPS));
        return;
    }
    println!("a turn's commit, median of each; native is the same core compiled for this machine");
    println!(
        "  {:14} {:>9} {:>10} {:>9} {:>9} {:>9} {:>5} {:>9} {:>9} {:>11} {:>5}",
        "store",
        "native",
        "component",
        "lent",
        "raw SQL",
        "nat/comp",
        "goal",
        "lent/raw",
        "pooled",
        "pooled/raw",
        "goal"
    );
    for (name, durability, steps, goals) in [
        ("memory", None, steps(STEPS), ["0.60", ""]),
        (
            "sqlite NORMAL",
            Some(CommitDurability::Normal),
            steps(STEPS),
            ["0.80", "4.6"],
        ),
        (
            "sqlite FULL",
            Some(CommitDurability::Full),
            steps(STEPS_DURABLE),
            ["0.95", "1.7"],
        ),
    ] {
        candidates::compare(durability, WARM_STEPS.min(steps), steps).print(name, goals);
    }
    println!(
        "`component`: an export, called on this thread. `lent`: `Tenant::submit` with \
         `on_calling_thread`. `pooled`: over the engine's pool of threads, beside raw SQL alone."
    );
    counts::print(steps(STEPS_COUNTED));
    print_budgets(&steps);
    print_places(&steps);
    calls::compare(steps(STEPS));
    stock_command::print(&steps);
}

/// Prints a turn with and without a budget.
fn print_budgets(steps: &dyn Fn(usize) -> usize) {
    println!(
        "the same without a budget (a model that costs nothing) and with one, native; each is one \
         commit"
    );
    println!(
        "  {:16} {:>9} {:>9} {:>12} {:>14} {:>9} {:>9}",
        "store", "none", "root", "own account", "above's account", "root/none", "own/none"
    );
    for (name, durability, steps) in [
        ("memory", None, steps(STEPS)),
        (
            "sqlite NORMAL",
            Some(CommitDurability::Normal),
            steps(STEPS),
        ),
        (
            "sqlite FULL",
            Some(CommitDurability::Full),
            steps(STEPS_DURABLE),
        ),
    ] {
        let [none, root, own, shared] =
            candidates::compare_budgets(durability, WARM_STEPS.min(steps), steps);
        let [shown_none, shown_root, shown_own, shown_shared] =
            [none, root, own, shared].map(figures::micros);
        println!(
            "  {name:16} {shown_none:>9} {shown_root:>9} {shown_own:>12} {shown_shared:>14} {:>9} \
             {:>9}",
            figures::ratio(root, none),
            figures::ratio(own, none),
        );
    }
}

/// Prints a turn in a root, in a child and in the third link of a chain.
fn print_places(steps: &dyn Fn(usize) -> usize) {
    println!("the same in a root, in a child and in the third link of a chain, native");
    println!(
        "  {:16} {:>9} {:>9} {:>9} {:>10} {:>9} {:>7}",
        "store", "root", "child", "link", "root/child", "root/link", "goal"
    );
    let stores = [
        ("memory", BenchStore::Memory, STEPS),
        (
            "sqlite NORMAL",
            BenchStore::Sqlite(CommitDurability::Normal),
            STEPS,
        ),
        (
            "files, no sync",
            BenchStore::Files { durable: false },
            STEPS,
        ),
        (
            "sqlite FULL",
            BenchStore::Sqlite(CommitDurability::Full),
            STEPS_DURABLE,
        ),
        ("files", BenchStore::Files { durable: true }, STEPS_DURABLE),
    ];
    for (name, store, count) in stores {
        let steps = steps(count);
        let [root, child, link] = candidates::compare_places(store, WARM_STEPS.min(steps), steps);
        let [shown_root, shown_child, shown_link] = [root, child, link].map(figures::micros);
        println!(
            "  {name:16} {shown_root:>9} {shown_child:>9} {shown_link:>9} {:>10} {:>9} {:>7}",
            figures::ratio(root, child),
            figures::ratio(root, link),
            "0.90",
        );
    }
}
