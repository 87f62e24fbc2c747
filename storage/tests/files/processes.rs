//! Real processes on one directory: several that append at once, one of them stopped and continued
//! at random, and one that is killed again and again. A process is this test binary once more.

#![cfg(unix)]

use super::random_numbers::RandomNumbers;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use threadkeep_storage::directory::PreopenedDirectory;
use threadkeep_storage::files::{FilesOptions, FilesStore, SegmentLayout};
use threadkeep_storage::{
    CommitOp, CommitOutcome, RecordExpectation, RecordKey, StorageBackend, StorageError,
};

/// Packs so often that a process which is stopped finds what it read packed and deleted.
const LAYOUT: SegmentLayout = SegmentLayout {
    commits: 16,
    bytes: 1 << 20,
    snapshot_bytes: 4_000,
};
const PROCESSES: u64 = 3;
/// Appends of each process.
const APPENDS: u64 = 200;
/// Rounds of appends at once; `THREADKEEP_SOAK` is their factor, as for the other tests.
const ROUNDS: u64 = 2;
const KILLS: u64 = 10;
/// Variables of a process that appends: directory, its name, the log, and the number of appends.
const VARIABLES: [&str; 4] = [
    "THREADKEEP_TEST_DIRECTORY",
    "THREADKEEP_TEST_NAME",
    "THREADKEEP_TEST_LOG",
    "THREADKEEP_TEST_APPENDS",
];

fn repetitions(usual: u64) -> u64 {
    let factor = std::env::var("THREADKEEP_SOAK").ok();
    let factor: Option<u64> = factor.and_then(|text| text.parse().ok());
    usual * factor.unwrap_or(1).max(1)
}

fn open(place: &Path, writer: &str) -> FilesStore {
    let options = FilesOptions {
        writer: writer.to_owned(),
        durable: true,
        quota: None,
    };
    let directory = Box::new(PreopenedDirectory::new(place));
    FilesStore::open_with_layout(directory, options, LAYOUT, None).unwrap()
}

/// Appends a value to a log behind what others have appended. A commit whose outcome is unknown is
/// looked for, as the component does.
fn append(store: &FilesStore, log: &str, value: &str) {
    let head = RecordKey::new("head", log);
    loop {
        let found = store.get(std::slice::from_ref(&head)).unwrap();
        let version = found.first().map_or(0, |record| record.version);
        let expect = match version {
            0 => RecordExpectation::Absent,
            version => RecordExpectation::Version(version),
        };
        let ops = [
            CommitOp::Put {
                key: head.clone(),
                expect,
                value: value.to_owned(),
            },
            CommitOp::Append {
                log: "history".to_owned(),
                partition: log.to_owned(),
                at: version + 1,
                value: value.to_owned(),
            },
        ];
        match store.commit(&ops, false) {
            Ok(CommitOutcome::Committed) => return,
            Ok(CommitOutcome::Conflict) | Err(StorageError::Unavailable { .. }) => {}
            Err(StorageError::OutcomeUnknown { .. }) => {
                let entries = store.read_log("history", log, version + 1, 1, false);
                if entries.unwrap().first().is_some_and(|it| it.value == value) {
                    return;
                }
            }
            Err(error) => panic!("{value}: {error}"),
        }
    }
}

/// The process of the tests below; no test by itself. It prints each value that is acknowledged.
#[test]
fn appending_process() {
    let Ok(directory) = std::env::var(VARIABLES[0]) else {
        return;
    };
    let [name, log, appends] = [1, 2, 3].map(|at| std::env::var(VARIABLES[at]).unwrap());
    let store = open(Path::new(&directory), &name);
    for n in 0..appends.parse().unwrap() {
        let value = format!("{name}-{n}");
        append(&store, &log, &value);
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nack {value}").unwrap();
        out.flush().unwrap();
    }
    assert_eq!(store.packing_failure(), None);
}

fn start(place: &Path, name: &str, log: &str, appends: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "processes::appending_process", "--nocapture"])
        .env(VARIABLES[0], place)
        .env(VARIABLES[1], name)
        .env(VARIABLES[2], log)
        .env(VARIABLES[3], appends.to_string())
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// The values that a process acknowledged, until its output ends.
fn read_acknowledged(output: impl std::io::Read) -> Vec<String> {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    let values = lines.filter_map(|line| line.strip_prefix("ack ").map(str::to_owned));
    values.collect()
}

fn send_signal(process: &Child, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &process.id().to_string()])
        .status();
    assert!(status.unwrap().success(), "kill {signal}");
}

/// The values of all logs, each with the number of times that it is there.
fn count_values(place: &Path, logs: &[String]) -> BTreeMap<String, u32> {
    let store = open(place, "reader");
    let mut counts = BTreeMap::new();
    for log in logs {
        let mut next = 1;
        loop {
            let page = store.read_log("history", log, next, 500, false).unwrap();
            let Some(last) = page.last() else { break };
            next = last.position + 1;
            for entry in page {
                *counts.entry(entry.value).or_default() += 1;
            }
        }
        let head = store.get(&[RecordKey::new("head", log)]).unwrap();
        assert_eq!(
            head.first().map_or(0, |head| head.version),
            next - 1,
            "{log}"
        );
    }
    counts
}

/// Three processes append at once; one of them at a time is stopped for a moment, and continued.
fn append_at_once(logs: &[String], random: &mut RandomNumbers) -> u64 {
    let place = tempfile::tempdir().unwrap();
    let mut processes: Vec<Child> = (0..PROCESSES)
        .map(|n| {
            let log = &logs[(n % logs.len() as u64) as usize];
            start(place.path(), &format!("p{n}"), log, APPENDS)
        })
        .collect();
    let outputs: Vec<_> = processes
        .iter_mut()
        .map(|process| process.stdout.take().unwrap())
        .collect();
    let readers: Vec<_> = outputs
        .into_iter()
        .map(|output| std::thread::spawn(move || read_acknowledged(output)))
        .collect();
    let mut stops = 0;
    loop {
        let mut alive = Vec::new();
        for process in &mut processes {
            match process.try_wait().unwrap() {
                None => alive.push(process),
                Some(status) => assert!(status.success(), "{status}"),
            }
        }
        if alive.is_empty() {
            break;
        }
        let at = random.below(alive.len() as u64) as usize;
        let stopped = &*alive[at];
        // Ours, and not waited for yet: its number is nobody else's.
        send_signal(stopped, "-STOP");
        std::thread::sleep(Duration::from_millis(random.below(80)));
        send_signal(stopped, "-CONT");
        stops += 1;
        std::thread::sleep(Duration::from_millis(random.below(20)));
    }
    let acknowledged: Vec<String> = readers
        .into_iter()
        .flat_map(|reader| reader.join().unwrap())
        .collect();
    assert_eq!(acknowledged.len() as u64, PROCESSES * APPENDS);
    let counts = count_values(place.path(), logs);
    assert_eq!(counts.len(), acknowledged.len());
    for value in &acknowledged {
        assert_eq!(counts.get(value), Some(&1), "{value}");
    }
    stops
}

#[test]
fn processes_that_append_at_once_lose_and_double_nothing() {
    let mut random = RandomNumbers::new(16);
    for round in 0..repetitions(ROUNDS) {
        let logs: Vec<String> = (0..PROCESSES).map(|n| format!("thread {n}")).collect();
        let on_one = append_at_once(&logs[..1], &mut random);
        let on_three = append_at_once(&logs, &mut random);
        println!(
            "round {round}: {0} of {0} on one thread, {on_one} stops; {0} of {0} on three, \
             {on_three} stops",
            PROCESSES * APPENDS
        );
    }
}

#[test]
fn a_process_that_is_killed_again_and_again_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let mut random = RandomNumbers::new(9);
    let mut acknowledged = Vec::new();
    let log = ["thread".to_owned()];
    for kill in 0..repetitions(KILLS) {
        let mut process = start(place.path(), &format!("k{kill}"), &log[0], 1_000_000);
        let output = process.stdout.take().unwrap();
        let reader = std::thread::spawn(move || read_acknowledged(output));
        std::thread::sleep(Duration::from_millis(100 + random.below(200)));
        process.kill().unwrap();
        process.wait().unwrap();
        acknowledged.extend(reader.join().unwrap());
        let counts = count_values(place.path(), &log);
        for value in &acknowledged {
            assert_eq!(counts.get(value), Some(&1), "kill {kill}: {value}");
        }
        // One commit of each process may be there of which nobody was told.
        assert!(counts.len() as u64 <= acknowledged.len() as u64 + kill + 1);
    }
    assert!(
        acknowledged.len() as u64 > repetitions(KILLS),
        "{acknowledged:?}"
    );
    println!("{} commits acknowledged", acknowledged.len());
}
