//! Sixty-four runs race for one account that can afford ten attempts: in threads over either store,
//! and in processes. Any ten are admitted; the others wait for the money that those hold, and go on
//! once there is some.
//!
//! A racing process is this test binary again, in the test [`racer`]; an environment variable names
//! the store.

use super::fixture::ThreadFamily;
use crate::runner::fixture::{RunnerFixture, calls, raise, reply, says, usage};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use futures_util::future::join_all;
use threadkeep::clock::{ClockTime, ManualClock};
use threadkeep::component::{SystemRandom, TenantContext};
use threadkeep::engine::{CodeCache, Engine};
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::tenant::Tenant;
use threadkeep_component::ports::StorageError;
use threadkeep_component::service::{Error, ErrorKind, ThreadService};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{DecisionInputs, ReplyBlock, StepOutcome, StepSubmission};
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_tests::fixture::MapLibrary;
use threadkeep_tests::native::NativePorts;

const RUNS: usize = 64;
const AFFORDED: usize = 10;
const PROCESSES: usize = 8;
/// Children that one reply spawns.
const AT_ONCE: usize = 16;
/// Repeats of one start after which it counts as starved.
const REPEATS_MAX: u32 = 10_000;
const FILE: &str = "registry.db";
const VARIABLE: &str = "THREADKEEP_TEST_RACER_IN";

/// The boss's model costs next to nothing and has room for the messages about all children. The
/// children's model may write 200 tokens, fewer than
/// [`OUTPUT_TOKENS_FLOOR`](threadkeep_core::runner::OUTPUT_TOKENS_FLOOR), so no attempt is lowered
/// to fit the rest of the money.
fn library() -> MapLibrary {
    let model = |name: &str, output: u32, price: &str| {
        json!({
            "name": name, "provider": "p", "window": 200_000, "output": output,
            "prices": {"input": price, "output": price},
        })
        .to_string()
    };
    let boss = json!({
        "name": "boss", "body": "Have it done.",
        "front": {
            "model": "cheap", "capabilities": ["execute.tool.*"],
            "limits": {"spend": "1", "spawns": 100},
        },
    });
    MapLibrary::small()
        .with("model", "default", &model("default", 200, "2"))
        .with("model", "cheap", &model("cheap", 200, "0.001"))
        .with("directive", "boss", &boss.to_string())
}

/// Builds a context in which racers of other processes have the same time.
fn context(store: Arc<dyn StorageBackend>) -> TenantContext {
    let start = ClockTime {
        seconds: 1_800_000_000,
        nanos: 0,
    };
    TenantContext {
        clock: Arc::new(ManualClock::new(start)),
        random: Arc::new(SystemRandom),
        ..TenantContext::new(store, Arc::new(library()))
    }
}

/// Builds a racer's own service over the shared store.
fn service(store: &Arc<dyn StorageBackend>) -> ThreadService<NativePorts> {
    ThreadService::new(NativePorts::new(context(Arc::clone(store))))
}

/// A boss that has ended, whose account can afford ten attempts and half of one, and its children,
/// which draw on that account.
struct AdmissionRace {
    family: ThreadFamily,
    children: Vec<String>,
    /// Nano-USD that each attempt holds.
    hold: u64,
}

impl AdmissionRace {
    fn new(store: Arc<dyn StorageBackend>) -> Self {
        let mut world = RunnerFixture::over(store, library());
        let boss = world.create(Some("boss"));
        world.start(&boss, None).unwrap();
        let mut family = ThreadFamily { world, boss };
        let mut children = Vec::new();
        for _ in 0..RUNS / AT_ONCE {
            children.extend(spawn(&mut family, AT_ONCE));
        }
        // One more child shows how much an attempt holds: all attempts are alike.
        let probe = spawn(&mut family, 1).remove(0);
        family.world.start(&probe, None).unwrap();
        let hold = held_nanos(&family, &probe);
        family.world.submit(&probe, says("done")).unwrap();
        let boss = family.boss.clone();
        let spent = family.account(&boss).1;
        let caps = ThreadCaps {
            spend: Some(NanoUsd::new(spent + AFFORDED as u64 * hold + hold / 2)),
            ..ThreadCaps::NONE
        };
        let service = &family.world.service;
        service.signal(&boss, "afford", &raise(caps)).unwrap();
        family.world.submit(&boss, says("they do it")).unwrap();
        assert_eq!(family.status(&boss), "completed");
        family.world.audit();
        Self {
            family,
            children,
            hold,
        }
    }

    /// Checks that ten children have a pending call with a hold and all others wait for money;
    /// returns both groups.
    fn check_admitted(&self) -> (Vec<String>, Vec<String>) {
        let (mut admitted, mut waiting) = (Vec::new(), Vec::new());
        for child in &self.children {
            let head = self.family.load(child).head.value;
            assert_eq!(head.status, ThreadStatus::Running, "{child}");
            match head.step.clone().unwrap().kind {
                StepKind::CallLlm => {
                    assert_eq!(head.hold.unwrap().amount.get(), self.hold);
                    admitted.push(child.clone());
                }
                StepKind::Wait => {
                    let cause = head.cause.clone().unwrap();
                    let why = (cause.reason.as_str(), cause.code.as_str());
                    assert_eq!(why, ("budget", "money_held"));
                    assert_eq!(head.hold, None);
                    waiting.push(child.clone());
                }
                kind => panic!("{child} has the step {kind:?}"),
            }
        }
        assert_eq!((admitted.len(), waiting.len()), (AFFORDED, RUNS - AFFORDED));
        let (_, _, held, reserved) = self.family.account(&self.family.boss);
        assert_eq!((held, reserved), (AFFORDED as u64 * self.hold, 0));
        self.family.world.audit();
        (admitted, waiting)
    }

    /// Submits a reply to a pending call: it costs a part of its hold, and the thread ends.
    fn answer(&self, child: &str) {
        let text = "done".to_owned();
        let outcome = reply(vec![ReplyBlock::Text { text }], usage(20, 5));
        self.submit(child, outcome);
        assert_eq!(self.family.status(child), "completed");
    }

    fn submit(&self, child: &str, outcome: StepOutcome) {
        let head = self.family.load(child).head.value;
        let submission = StepSubmission {
            token: head.token,
            version: head.step.clone().unwrap().version,
            outcome,
            inputs: DecisionInputs::default(),
        };
        let service = &self.family.world.service;
        service.submit(child, &submission, head.version).unwrap();
    }

    /// Settles the ten; then the children that waited are admitted one after the other, and none is
    /// stuck.
    fn settle_and_admit(&self) {
        let (admitted, waiting) = self.check_admitted();
        admitted.iter().for_each(|child| self.answer(child));
        for child in &waiting {
            self.submit(child, StepOutcome::Waited);
            self.answer(child);
        }
        let boss = &self.family.boss;
        let (limit, spent, held, reserved) = self.family.account(boss);
        assert_eq!((held, reserved), (0, 0));
        assert!(spent <= limit, "{spent} of {limit}");
        self.family.world.audit();
    }
}

/// Spawns `count` children with replies of the boss.
fn spawn(family: &mut ThreadFamily, count: usize) -> Vec<String> {
    let boss = family.boss.clone();
    let arguments = json!({"directive": "work", "model": "default"}).to_string();
    let wanted = vec![("spawn_thread", arguments.as_str()); count];
    family.world.submit(&boss, calls(&wanted)).unwrap();
    let ids = family.results(&boss).into_iter().map(|(_, failed, text)| {
        assert!(!failed, "{text}");
        let told: Value = serde_json::from_str(&text).unwrap();
        told["thread"].as_str().unwrap().to_owned()
    });
    ids.collect()
}

fn held_nanos(family: &ThreadFamily, thread: &str) -> u64 {
    let hold = family.load(thread).head.value.hold;
    hold.expect("its attempt was admitted").amount.get()
}

/// Starts a child, again after each conflict; returns the number of repeats.
fn start(service: &ThreadService<NativePorts>, child: &str) -> u32 {
    let holder = format!("h/{child}");
    // Pauses differ, or the same two racers would conflict again.
    let own = child.bytes().map(u64::from).sum::<u64>() % 512;
    for repeats in 0..REPEATS_MAX {
        let started = service.start(child, None, &holder, &holder, None);
        match started.map_err(Error::into_kind) {
            Ok(_) => return repeats,
            Err(ErrorKind::Storage(StorageError::Unavailable(code, _))) if code == "contention" => {
                std::thread::sleep(Duration::from_micros(u64::from(repeats % 8) * 300 + own));
            }
            Err(error) => panic!("{child}: {error:?}"),
        }
    }
    panic!("{child} never got through");
}

fn in_threads(name: &str, store: Arc<dyn StorageBackend>) {
    let race = AdmissionRace::new(store);
    let (store, barrier) = (&race.family.world.store, &Barrier::new(RUNS));
    let repeats: Vec<u32> = std::thread::scope(|scope| {
        let mut racers = Vec::new();
        for child in &race.children {
            racers.push(scope.spawn(move || {
                let service = service(store);
                barrier.wait();
                start(&service, child)
            }));
        }
        let ends = racers.into_iter().map(|racer| racer.join().unwrap());
        ends.collect()
    });
    let (all, most) = (repeats.iter().sum::<u32>(), repeats.iter().max());
    let most = most.copied().unwrap_or_default();
    println!(
        "{name}: {RUNS} starts in threads repeated {all} times after contention, one at most \
         {most} times"
    );
    race.settle_and_admit();
}

#[test]
fn ten_of_sixty_four_threads_are_admitted_in_memory() {
    in_threads("memory", Arc::new(MemoryStore::new()));
}

#[test]
fn ten_of_sixty_four_threads_are_admitted_on_sqlite() {
    let temporary = tempfile::tempdir().unwrap();
    in_threads("sqlite", sqlite(temporary.path()));
}

fn sqlite(path: &Path) -> Arc<dyn StorageBackend> {
    let dir = Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    Arc::new(SqliteStore::open(&dir, FILE, SqliteOptions::local()).unwrap())
}

/// An engine whose native code all processes share.
fn engine(path: &Path) -> Engine {
    let dir = Dir::open_ambient_dir(path, ambient_authority()).unwrap();
    dir.create_dir_all("cache").unwrap();
    let cache = CodeCache::new(dir.open_dir("cache").unwrap());
    Engine::new(threadkeep::limits::EngineLimits::local(), Some(&cache)).unwrap()
}

/// A racing process; no test by itself. It reads which threads to start, and starts them on a
/// signal.
#[test]
fn racer() {
    let Ok(directory) = std::env::var(VARIABLE) else {
        return;
    };
    let path = Path::new(&directory);
    let tenant = Tenant::new(engine(path), context(sqlite(path)));
    let mut orders = std::io::stdin().lock().lines();
    let children = orders.next().unwrap().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let first = children.split(' ').next().unwrap();
    runtime.block_on(tenant.get(first)).unwrap();
    say("ready");
    assert_eq!(orders.next().unwrap().unwrap(), "go");
    let starts = children.split(' ').map(async |child| {
        let holder = format!("h/{child}");
        let said = match tenant.start(child, None, &holder, &holder, None).await {
            Ok(handle) => format!("started {child} {}", handle.step.kind),
            Err(error) => format!("failed {child} {error}"),
        };
        say(&said);
    });
    runtime.block_on(join_all(starts));
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nracer {line}").unwrap();
    out.flush().unwrap();
}

struct RacerProcess {
    process: Child,
    orders: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl RacerProcess {
    fn new(directory: &Path, children: &[String]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["children::races::racer", "--exact", "--nocapture"])
            .env(VARIABLE, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut racer = Self {
            process,
            orders,
            said,
        };
        racer.send_line(&children.join(" "));
        racer
    }

    fn send_line(&mut self, line: &str) {
        writeln!(self.orders, "{line}").unwrap();
        self.orders.flush().unwrap();
    }

    /// Returns its next line, without the lines of the test harness.
    fn next_line(&mut self) -> Option<String> {
        let lines = self.said.by_ref().map_while(Result::ok);
        lines
            .filter_map(|line| line.strip_prefix("racer ").map(str::to_owned))
            .next()
    }

    fn end(mut self) -> Vec<String> {
        let said = std::iter::from_fn(|| self.next_line()).collect();
        assert!(self.process.wait().unwrap().success());
        said
    }
}

#[test]
fn ten_of_sixty_four_in_eight_processes_are_admitted() {
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path();
    drop(engine(path));
    let race = AdmissionRace::new(sqlite(path));
    let groups = race.children.chunks(RUNS / PROCESSES);
    let mut racers: Vec<RacerProcess> =
        groups.map(|group| RacerProcess::new(path, group)).collect();
    for racer in &mut racers {
        assert_eq!(racer.next_line().as_deref(), Some("ready"));
    }
    let began = std::time::Instant::now();
    racers.iter_mut().for_each(|racer| racer.send_line("go"));
    let said: Vec<String> = racers.into_iter().flat_map(RacerProcess::end).collect();
    let took = began.elapsed();
    let failed: Vec<&String> = said
        .iter()
        .filter(|line| line.starts_with("failed"))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let calls = said
        .iter()
        .filter(|line| line.ends_with(" call-llm"))
        .count();
    assert_eq!((said.len(), calls), (RUNS, AFFORDED), "{said:#?}");
    println!("sqlite: {RUNS} starts in {PROCESSES} processes took {took:?}");
    race.settle_and_admit();
}
