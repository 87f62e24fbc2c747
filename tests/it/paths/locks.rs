//! Lock files that another process holds: every command ends, names the lock and says what to do.
//!
//! The other process is this test binary again, in the test [`child`]; an environment variable
//! names the lock to take.

use super::fixture::GuardedProject;
use crate::cli::fixture::CliProject;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use threadkeep_tests::binary::{self, ProcessOutput};

/// `<kind>:<path>`; without it [`child`] does nothing.
const VARIABLE: &str = "THREADKEEP_TEST_LOCKER";
const TEST: &str = "paths::locks::child";
/// A model that begins an answer and never finishes it.
const SLOW: &str = r#"[{"text": "Begun, and never done.", "chunk": 6, "pause_ms": 590000}]"#;
/// Line that the child prints once it has the lock.
const HELD: &str = "the lock is held";

/// The child process; no test by itself. It holds a lock until its standard input ends.
#[test]
fn child() {
    let Ok(order) = std::env::var(VARIABLE) else {
        return;
    };
    let (kind, path) = order.split_once(':').unwrap();
    let held: Box<dyn std::any::Any> = match kind {
        "file" => {
            let file = File::open(path).unwrap();
            file.lock().unwrap();
            Box::new(file)
        }
        "database" => {
            let database = rusqlite::Connection::open(path).unwrap();
            database
                .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;")
                .unwrap();
            Box::new(database)
        }
        other => panic!("{other}?"),
    };
    println!("{HELD}");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    drop(held);
}

/// Another process that holds a lock as long as this value lives.
struct LockHolder {
    child: Child,
    /// Kept open to the end: the other process writes its report there.
    out: BufReader<ChildStdout>,
}

impl LockHolder {
    fn hold(kind: &str, path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(VARIABLE, format!("{kind}:{}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut lines = out.by_ref().lines().map_while(Result::ok);
        let held = lines.any(|line| line.contains(HELD));
        assert!(held, "the other process has no lock");
        Self { child, out }
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.out.read_to_end(&mut Vec::new()).unwrap();
        self.child.wait().unwrap();
    }
}

fn run(world: &GuardedProject, arguments: &[&str]) -> ProcessOutput {
    let mut command = binary::command(&world.path);
    command.args(arguments);
    binary::run_to_end(command)
}

/// A project with a finished thread `t` and an idle chat `c`.
fn world() -> GuardedProject {
    let world = GuardedProject::new();
    for arguments in [&["run", "x", "--id", "t"][..], &["create", "--id", "c"]] {
        let ran = run(&world, arguments);
        assert_eq!(ran.code, Some(0), "{ran:#?}");
    }
    world
}

/// Checks that a refusal contains the name of the lock, and a remedy.
fn assert_named(what: &str, ran: &ProcessOutput, lock: &str) {
    assert_ne!(ran.code, Some(0), "{what}: {ran:#?}");
    for word in [lock, "end that process"] {
        assert!(ran.err.contains(word), "{what}: {word:?} in {}", ran.err);
    }
}

/// Checks that each of these commands is refused with the name of the lock. They wait side by side.
fn assert_each_named(world: &GuardedProject, commands: &[&[&str]], lock: &str) {
    std::thread::scope(|scope| {
        for arguments in commands {
            scope.spawn(move || {
                let ran = run(world, arguments);
                assert_named(&format!("{arguments:?}"), &ran, lock);
            });
        }
    });
}

/// Commands that write and commands that read.
const COMMANDS: &[&[&str]] = &[
    &["run", "x", "--id", "new"],
    &["create", "--id", "other"],
    &["open", "c"],
    &["title", "t", "A title"],
    &["kill", "c"],
    &["list"],
    &["show", "t"],
    &["budget", "show", "t"],
];

/// The lock of the writers' queue, which each command takes to open the store.
#[test]
fn a_held_queue_of_writers_ends_each_command_with_its_name() {
    let world = world();
    let lock = world.path.join(".ai/threads/registry.db.lock");
    let locker = LockHolder::hold("file", &lock);
    assert_each_named(&world, COMMANDS, "registry.db.lock");
    drop(locker);
    let ran = run(&world, &["run", "x", "--id", "new"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
}

/// The store itself, held by a program that opened it as SQLite's command line does.
#[test]
fn a_held_store_ends_each_command_with_its_name() {
    let world = world();
    let locker = LockHolder::hold("database", &world.path.join(".ai/threads/registry.db"));
    assert_each_named(&world, COMMANDS, "registry.db");
    drop(locker);
    let ran = run(&world, &["list"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
}

/// The directory of a thread's documents: the run is done, and reports the documents that are left
/// to write.
#[test]
fn a_held_directory_of_documents_is_named_and_the_run_is_done() {
    let world = world();
    let directory = world.path.join(".ai/threads/n");
    std::fs::create_dir(&directory).unwrap();
    let locker = LockHolder::hold("file", &directory);
    let ran = run(&world, &["run", "x", "--id", "n"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    for word in [".ai/threads/n", "end that process", "threadkeep repair"] {
        assert!(ran.err.contains(word), "{word:?} in {ran:#?}");
    }
    let repair = run(&world, &["repair"]);
    assert_named("repair", &repair, ".ai/threads/n");
    drop(locker);
    let repair = run(&world, &["repair"]);
    assert_eq!(repair.code, Some(0), "{repair:#?}");
}

/// The book of a policy: the run is suspended, and its cause names the lock.
#[test]
fn a_held_book_suspends_a_run_and_is_named() {
    let world = world();
    let policy = world.path.with_file_name("policy.yaml");
    let book = world.path.with_file_name("used.json.lock");
    std::fs::write(&policy, "preset: local\nbook: used.json\n").unwrap();
    std::fs::write(&book, "").unwrap();
    let locker = LockHolder::hold("file", &book);
    let path = policy.to_str().unwrap();
    let ran = run(&world, &["run", "x", "--id", "b", "--policy", path]);
    assert_eq!(ran.code, Some(3), "{ran:#?}");
    for word in ["used.json.lock", "end that process"] {
        assert!(ran.err.contains(word), "{word:?} in {ran:#?}");
    }
    drop(locker);
    let ran = run(&world, &["resume", "b", "--policy", path]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
}

/// Symptom: a thread of a dead process stayed `busy` for ever while another process held the dead
/// one's lock file, and no message named that file. Fix: the refusal names it, and the command that
/// does not ask the lock.
#[test]
fn a_held_lock_of_a_dead_holder_is_named_with_the_way_around_it() {
    let world = world();
    world.write("slow.json", SLOW);
    let mut command = binary::command(&world.path);
    command.args(["run", "x", "--id", "d", "--provider", "scripted:slow.json"]);
    let running = binary::start(command);
    running.await_err("a reply is under way");
    running.kill();
    running.wait_for_end();
    let shown = run(&world, &["show", "d", "--json"]);
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let holder = shown["thread"]["run"]["holder"].as_str();
    let holder = holder.expect("it is held").to_owned();
    let nonce = holder.split('/').next().unwrap();
    let name = format!(".ai/threads/locks.d/{nonce}.lock");
    let lock = world.path.join(&name);
    let locker = LockHolder::hold("file", &lock);
    let refused = run(&world, &["resume", "d"]);
    assert_eq!(refused.code, Some(4), "{refused:#?}");
    let around = format!("threadkeep recover --dead {holder}");
    for word in [name.as_str(), around.as_str()] {
        assert!(refused.err.contains(word), "{word:?} in {}", refused.err);
    }
    let recovered = run(&world, &["recover"]);
    assert_eq!(recovered.code, Some(0), "{recovered:#?}");
    for word in [name.as_str(), around.as_str()] {
        assert!(
            recovered.err.contains(word),
            "{word:?} in {}",
            recovered.err
        );
    }
    let recovered = run(&world, &["recover", "--dead", &holder]);
    assert_eq!(recovered.code, Some(0), "{recovered:#?}");
    let resumed = run(&world, &["resume", "d"]);
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    drop(locker);
}

/// Symptom: `resume` of a parent waited in silence for a child whose holder had died, while a
/// stranger held its lock. Fix: the child is named with its lock, and the way that does not ask it.
#[test]
fn a_held_lock_of_a_child_is_named_while_its_parent_waits() {
    let project = CliProject::new();
    project.add_family(5);
    project.write(".ai/script.json", SLOW);
    let running = project.start(&["run", "parent", "--id", "p"]);
    let locks = project.path().join(".ai/threads/locks.d");
    running.await_err("started");
    let child = || {
        let list = project.json(&["list", "--status", "running"]);
        list["threads"]
            .as_array()
            .is_some_and(|threads| !threads.is_empty())
            && project.status("p") == "waiting"
    };
    let until = Instant::now() + Duration::from_secs(60);
    while !child() {
        assert!(Instant::now() < until, "no child runs");
        std::thread::sleep(Duration::from_millis(50));
    }
    running.kill();
    running.wait_for_end();
    let lock = std::fs::read_dir(locks).unwrap().flatten().next().unwrap();
    let locker = LockHolder::hold("file", &lock.path());
    let name = lock.file_name().into_string().unwrap();
    for _ in 0..2 {
        let resumed = project.start(&["resume", "p"]);
        resumed.await_err(&name);
        resumed.await_err("threadkeep recover --dead");
        resumed.kill();
        resumed.wait_for_end();
    }
    drop(locker);
}
