//! Two bundles and a native process append to one store at once, one of them stopped and continued
//! at random: each acknowledged commit is there once, and the documents are those of the newest.

#![cfg(unix)]

use super::documents::left_behind;
use super::stock_command::BundleProject;
use crate::crash::kills::open;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use threadkeep::documents::{DocumentState, ThreadDocuments};
use threadkeep::wit::history::{ChangeSet, Expected};
use threadkeep_tests::soak::repetitions;
use threadkeep_tests::stock_wasmtime::PrecompiledBundle;

/// Appends of each writer.
const APPENDS: usize = 200;
/// Rounds: `THREADKEEP_SOAK` is their factor.
const ROUNDS: u32 = 2;
/// Most times that a writer is told that others were faster.
const TRIES_MAX: u32 = 100;
/// Variables of the native writer: its directory, and its thread.
const VARIABLES: [&str; 2] = ["THREADKEEP_TEST_APPENDS_IN", "THREADKEEP_TEST_APPENDS_TO"];

fn note(name: &str) -> String {
    format!("{{\"type\":\"note\",\"name\":\"{name}\",\"body\":1}}")
}

/// The native writer; no test by itself. It prints each append that was acknowledged.
#[tokio::test]
async fn native_writer() {
    let [Ok(directory), Ok(thread)] = VARIABLES.map(std::env::var) else {
        return;
    };
    let project = open(Path::new(&directory));
    let threads = project.threads().unwrap().try_clone().unwrap();
    let documents = ThreadDocuments::new(project.tenant().clone(), threads);
    for n in 0..APPENDS {
        let change = ChangeSet {
            events: vec![note(&format!("native{n}"))],
            patches: Vec::new(),
            operations: Vec::new(),
            snapshot: None,
            request: Some(format!("native-{n}")),
        };
        let tenant = project.tenant();
        let mut tries = 0;
        while let Err(error) = tenant
            .append_change(&thread, None, Expected::Any, change.clone())
            .await
        {
            tries += 1;
            assert!(tries < TRIES_MAX, "{n}: {error}");
        }
        documents.refresh(&thread).await.unwrap();
        println!("\nack native{n}");
    }
}

/// A process that the test stops and continues while another of its threads waits for it.
#[derive(Default)]
struct StoppableProcess(Mutex<Option<Child>>);

impl StoppableProcess {
    fn set(&self, child: Child) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// Waits for the end of the process and returns it.
    fn await_end(&self) -> Child {
        loop {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(child) = slot.as_mut()
                && child.try_wait().unwrap().is_some()
            {
                return slot.take().unwrap();
            }
            drop(slot);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops the process for a time. It has not been waited for: its number is nobody else's.
    fn stop_for(&self, time: Duration) -> bool {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = &*slot else {
            return false;
        };
        for (signal, then) in [("-STOP", time), ("-CONT", Duration::ZERO)] {
            let mut kill = Command::new("kill");
            kill.args([signal, &child.id().to_string()]);
            // It may have ended by itself.
            let _ = kill.stderr(Stdio::null()).status().unwrap();
            std::thread::sleep(then);
        }
        true
    }
}

/// Ends the thread that stops processes, also where the test has failed.
struct DoneOnDrop<'a>(&'a AtomicBool);

impl Drop for DoneOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Appends by processes of the bundle, one after the other. Returns the tries that others came
/// before.
fn append_by_bundles(
    bundle: &PrecompiledBundle,
    project: &Path,
    thread: &str,
    writer: (&str, &StoppableProcess),
) -> u32 {
    let mut beaten = 0;
    for n in 0..APPENDS {
        let line = note(&format!("{}{n}", writer.0));
        for tries in 1.. {
            let mut command = bundle.command(project);
            command.args(["append", thread]).stdin(Stdio::piped());
            command.stdout(Stdio::null()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            writeln!(child.stdin.take().unwrap(), "{line}").unwrap();
            writer.1.set(child);
            let output = writer.1.await_end().wait_with_output().unwrap();
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                assert!(!problem.contains("warning"), "{problem}");
                break;
            }
            assert!(
                problem.contains("conflict") && tries < TRIES_MAX,
                "{line}: {problem}"
            );
            beaten += 1;
        }
    }
    beaten
}

fn start_native(project: &Path, thread: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "bundle::writers_at_once::native_writer";
    command
        .args(["--exact", test, "--nocapture"])
        .env(VARIABLES[0], project)
        .env(VARIABLES[1], thread)
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

fn append_at_once(bundle: &BundleProject, precompiled: &PrecompiledBundle, threads: [&str; 3]) {
    let project = bundle.project.path();
    let mut created: Vec<&str> = threads.to_vec();
    created.dedup();
    for thread in &created {
        bundle.create(thread);
    }
    let processes: [StoppableProcess; 3] = Default::default();
    let (are_done, stops) = (AtomicBool::new(false), AtomicU32::new(0));
    let (mut native_acknowledged, mut beaten) = (0, 0);
    std::thread::scope(|scope| {
        let done = DoneOnDrop(&are_done);
        scope.spawn(|| {
            let mut random = 16_u64;
            while !are_done.load(Ordering::Relaxed) {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let (at, time) = ((random >> 33) % 3, (random >> 40) % 80);
                if processes[at as usize].stop_for(Duration::from_millis(time)) {
                    stops.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis((random >> 50) % 20));
            }
        });
        let mut native = start_native(project, threads[2]);
        let output = BufReader::new(native.stdout.take().unwrap());
        processes[2].set(native);
        let writers = ["a", "b"].into_iter().enumerate().map(|(at, name)| {
            let (process, thread) = (&processes[at], threads[at]);
            scope.spawn(move || append_by_bundles(precompiled, project, thread, (name, process)))
        });
        let writers: Vec<_> = writers.collect();
        let lines = output.lines().map_while(Result::ok);
        native_acknowledged = lines.filter(|line| line.starts_with("ack ")).count();
        assert!(processes[2].await_end().wait().unwrap().success());
        beaten = writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum();
        drop(done);
    });
    assert_eq!(native_acknowledged, APPENDS);
    check_threads(bundle, &threads, &created);
    println!(
        "{0} of {0} on {1} threads; {2} stops, {beaten} tries that others came before",
        3 * APPENDS,
        created.len(),
        stops.load(Ordering::Relaxed)
    );
}

/// Checks that each append is there once, and that the documents are those of the newest version.
fn check_threads(bundle: &BundleProject, threads: &[&str; 3], created: &[&str]) {
    let mut expected: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (writer, thread) in ["a", "b", "native"].into_iter().zip(threads) {
        let names = (0..APPENDS).map(|n| format!("\"name\":\"{writer}{n}\""));
        expected.entry(*thread).or_default().extend(names);
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let project = open(bundle.project.path());
    let documents = ThreadDocuments::new(
        project.tenant().clone(),
        project.threads().unwrap().try_clone().unwrap(),
    );
    for thread in created {
        let file = format!(".ai/threads/{thread}/transcript.jsonl");
        let transcript = std::fs::read_to_string(bundle.project.path().join(file)).unwrap();
        let names = &expected[thread];
        for name in names {
            assert_eq!(
                transcript.matches(name.as_str()).count(),
                1,
                "{thread}: {name}"
            );
        }
        assert_eq!(transcript.matches("\"name\":").count(), names.len());
        let states = runtime.block_on(documents.check(thread)).unwrap();
        for state in [states.thread, states.jsonl, states.markdown] {
            assert_eq!(state, DocumentState::Current, "{thread}: {states:?}");
        }
    }
    assert_eq!(left_behind(bundle), Vec::<String>::new());
    bundle.assert_sound();
}

#[test]
fn writers_of_both_kinds_lose_and_double_nothing() {
    if BundleProject::new().is_none() {
        return;
    }
    let precompiled = PrecompiledBundle::compile();
    for _ in 0..repetitions(ROUNDS) {
        let bundle = BundleProject::new().expect("it was there");
        append_at_once(&bundle, &precompiled, ["one"; 3]);
        append_at_once(&bundle, &precompiled, ["x", "y", "z"]);
        let store = bundle.project.path().join(".ai/threads/store.d");
        let packed = std::fs::read_dir(store).unwrap().filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with(".segment")
        });
        assert!(packed.count() >= 2, "commits were packed meanwhile");
    }
}
