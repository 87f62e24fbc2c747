//! Real processes on one SQLite directory: nothing is lost, nothing is done twice, and acknowledged
//! commits survive.
//!
//! A child is this test binary again, in the test [`child`]; an environment variable names its
//! task.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::scope;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use threadkeep::storage::RecordExpectation::Any;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::storage::{CommitOutcome, StorageBackend, StorageError};

use super::concurrency::{check_count, increment};
use super::fixture::{FILE, SqliteFixture, append, commit, get, log, put_op};
use super::two_processes::{ServerPair, serve};

/// [`SERVE`], or `<what>:<name>:<directory>`; without it [`child`] does nothing.
const VARIABLE: &str = "THREADKEEP_TEST_CHILD";
/// Task of a process that answers calls of the test, on any number of stores.
const SERVE: &str = "serve";
const TEST: &str = "conformance::processes::child";
const PROCESSES: u64 = 2;
const THREADS: u64 = 4;
const ROUNDS: u64 = 50;
/// Acknowledged commits that are awaited before a process is killed.
const ACKNOWLEDGED_BEFORE_KILL: usize = 40;

/// A child process; no test by itself.
#[test]
fn child() {
    let Ok(order) = std::env::var(VARIABLE) else {
        return;
    };
    if order == SERVE {
        return serve();
    }
    let mut parts = order.splitn(3, ':');
    let [what, name, directory] = [(); 3].map(|()| parts.next().unwrap());
    let dir = Dir::open_ambient_dir(directory, ambient_authority()).unwrap();
    let store = SqliteStore::open(&dir, FILE, SqliteOptions::local()).unwrap();
    match what {
        "increment" => increment_much(&store, name),
        "forever" => commit_until_killed(&store, name),
        "full" => commit_until_full(&store, name),
        other => panic!("{other}?"),
    }
}

fn increment_much(store: &SqliteStore, name: &str) {
    scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let own = format!("{name} {thread}");
                    increment(store, &format!("{own} {round}"));
                    commit(
                        store,
                        &[
                            append("history", &own, round, &round.to_string()),
                            put_op("head", &own, Any, ""),
                        ],
                    );
                }
            });
        }
    });
}

/// Commits and prints each position when it is acknowledged.
fn commit_until_killed(store: &SqliteStore, name: &str) {
    for at in 1.. {
        commit(
            store,
            &[
                append("history", name, at, &at.to_string()),
                put_op("head", name, Any, &at.to_string()),
            ],
        );
        increment(store, name);
        say(&format!("acknowledged {at}"));
    }
}

/// Commits into a file that may not grow, and prints each acknowledged position and the final
/// error.
fn commit_until_full(store: &SqliteStore, name: &str) {
    let value = "v".repeat(3_000);
    for at in 1..2_000 {
        match store.commit(
            &[
                append("history", name, at, &value),
                put_op("head", name, Any, &at.to_string()),
            ],
            false,
        ) {
            Ok(CommitOutcome::Committed) => say(&format!("acknowledged {at}")),
            Ok(CommitOutcome::Conflict) => panic!("a conflict"),
            Err(StorageError::OutcomeUnknown { .. }) => return say("ended outcome-unknown"),
            Err(StorageError::Unavailable { .. }) => return say("ended unavailable"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{line}").unwrap();
    out.flush().unwrap();
}

fn order(what: &str, name: &str, directory: &Path) -> String {
    format!("{what}:{name}:{}", directory.display())
}

fn start(what: &str, name: &str, directory: &Path) -> Child {
    start_with(&order(what, name, directory))
}

fn start_with(order: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([TEST, "--exact", "--nocapture"])
        .env(VARIABLE, order)
        .stdin(Stdio::piped());
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// Two processes that answer calls.
pub(super) fn servers() -> Arc<ServerPair> {
    ServerPair::start(|| start_with(SERVE))
}

fn output_lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let out = BufReader::new(child.stdout.take().unwrap());
    out.lines()
        .map_while(Result::ok)
        .filter(|line| line.starts_with("acknowledged") || line.starts_with("ended"))
}

#[test]
fn processes_lose_nothing_and_do_nothing_twice() {
    let fixture = SqliteFixture::new();
    let children: Vec<_> = (0..PROCESSES)
        .map(|process| {
            start(
                "increment",
                &format!("process {process}"),
                fixture.temp.path(),
            )
        })
        .collect();
    for mut child in children {
        // The pipe is read to its end, or a full one stops the child.
        output_lines(&mut child).for_each(drop);
        assert!(child.wait().unwrap().success());
    }
    let store = fixture.open();
    let total = PROCESSES * THREADS * ROUNDS;
    check_count(&store, total);
    for own in (0..PROCESSES)
        .flat_map(|process| (0..THREADS).map(move |thread| format!("process {process} {thread}")))
    {
        assert_eq!(
            log(&store, "history", &own),
            (1..=ROUNDS)
                .map(|at| (at, at.to_string()))
                .collect::<Vec<_>>()
        );
        assert_eq!(get(&store, "head", &own).unwrap().version, ROUNDS);
    }
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    let fixture = SqliteFixture::new();
    let mut acknowledged = Vec::new();
    let mut victims: Vec<_> = ["a", "b"]
        .map(|name| start("forever", name, fixture.temp.path()))
        .into();
    let mut lines: Vec<_> = victims.iter_mut().map(output_lines).collect();
    for lines in &mut lines {
        acknowledged.push(lines.take(ACKNOWLEDGED_BEFORE_KILL).count());
    }
    // One dies at work while the other goes on, then the other. Their output until then is read
    // afterwards.
    for victim in &mut victims {
        victim.kill().unwrap();
        assert!(!victim.wait().unwrap().success());
    }
    for (count, lines) in acknowledged.iter_mut().zip(lines) {
        *count += lines.count();
    }
    let store = fixture.open();
    let mut total = 0;
    for (name, acknowledged) in ["a", "b"].into_iter().zip(acknowledged) {
        let entries = log(&store, "history", name);
        assert!(acknowledged >= ACKNOWLEDGED_BEFORE_KILL);
        let possible = acknowledged..=acknowledged + 1;
        assert!(
            possible.contains(&entries.len()),
            "{name}: {} of {acknowledged}",
            entries.len()
        );
        let head = get(&store, "head", name).unwrap();
        assert_eq!(head.version, entries.len() as u64, "half a commit");
        total += head.version;
    }
    let counter = get(&store, "chain", "counter").unwrap();
    let increments = log(&store, "history", "counter").len() as u64;
    assert_eq!(increments, counter.version);
    assert!(
        (total - 2..=total).contains(&increments),
        "{total} commits, {increments} increments"
    );
    // The lock died with its holders.
    commit(&store, &[put_op("head", "a", Any, "on")]);
}

/// A commit whose bytes could not be written is not acknowledged, and loses no acknowledged one.
#[test]
fn a_file_that_cannot_grow_keeps_what_was_acknowledged() {
    let fixture = SqliteFixture::new();
    drop(fixture.open());
    let limit = "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", limit])
        .arg(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"]);
    command
        .env(VARIABLE, order("full", "a", fixture.temp.path()))
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let said: Vec<_> = output_lines(&mut child).collect();
    assert!(child.wait().unwrap().success());
    let acknowledged = said
        .iter()
        .filter(|line| line.starts_with("acknowledged"))
        .count();
    assert!(acknowledged > 10, "{said:?}");
    let end = said.last().unwrap();
    assert!(
        end.starts_with("ended"),
        "the file could grow: {acknowledged} commits"
    );
    println!("{acknowledged} acknowledged, then {end}");
    let store = fixture.open();
    let entries = log(&store, "history", "a");
    assert!(
        (acknowledged..=acknowledged + 1).contains(&entries.len()),
        "{} of {acknowledged}",
        entries.len()
    );
    assert_eq!(
        get(&store, "head", "a").unwrap().version,
        entries.len() as u64,
        "half a commit"
    );
    commit(
        &store,
        &[append("history", "a", entries.len() as u64 + 1, "on")],
    );
}
