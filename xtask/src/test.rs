//! `cargo xtask test`: sets up, builds component and bundle, runs every test of the workspace, and
//! ends with a line of counts.
//!
//! The harness shows the output of passing tests only at the end (`--show-output`). Of that output
//! the `skipped:` lines are counted and the rest is dropped.

use crate::skips::{PREFIX, SkippedParts};
use crate::{bundle, process, process_tree};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Longest time in which no test ends. The slowest takes less than two minutes on a busy machine,
/// so one that is then still running waits for something that never comes.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// The beginning of a table row: tables that tests print for people are shown, too.
const TABLE: &str = "| ";

/// Runs all tests, or those whose names contain a filter. Other arguments are passed on to the
/// harness.
pub fn run(filters: &[String]) -> Result<()> {
    bundle::run()?;
    let mut cargo = process::locked_cargo("test");
    cargo
        .args(["--workspace", "--no-fail-fast", "--", "--show-output"])
        .args(filters);
    let (report, ended_well) = run_tests(&mut cargo, SILENCE_MAX)?;
    report.print();
    if !ended_well {
        bail!("tests failed, or did not compile or finish");
    }
    report.skips.fail_in_ci()
}

/// Runs tests and returns the number of those that passed. One that failed is an error.
pub fn run_counted(cargo: &mut Command) -> Result<usize> {
    let (report, ended_well) = run_tests(cargo, Duration::MAX)?;
    if !ended_well {
        bail!("tests failed, or did not compile or finish");
    }
    Ok(report.passed)
}

/// Starts the tests, prints their output as it comes, and counts. The flag is true if cargo ended
/// well. Once the first test has begun, a silence longer than this ends the run with the names of
/// the tests that are still running.
fn run_tests(cargo: &mut Command, silence_max: Duration) -> Result<(TestReport, bool)> {
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo test")?;
    let lines = read_lines(child.stdout.take().context("cargo test has no output")?);
    let mut report = TestReport::default();
    // The compiler may be silent for longer.
    let mut silence = Duration::MAX;
    loop {
        let line = match lines.recv_timeout(silence) {
            Ok(line) => line.context("cannot read the output of cargo test")?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let started = process_tree::list_started(child.id());
                eprintln!("{}", process_tree::describe_all(&started));
                kill_tests(&mut child, &started);
                bail!(
                    "no test ended for {} s; still running: {}",
                    silence.as_secs(),
                    report.running.join(", ")
                );
            }
        };
        silence = silence_max;
        if report.count_line(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    Ok((report, status.success()))
}

/// Reads lines on a thread of its own, so that one can wait for them with a limit.
fn read_lines(output: ChildStdout) -> mpsc::Receiver<std::io::Result<String>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map(|line| String::from_utf8_lossy(&line).into_owned());
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Kills cargo and the processes that it started.
fn kill_tests(cargo: &mut Child, started: &[u32]) {
    let _ = cargo.kill();
    for test in started {
        let _ = process::program("kill")
            .args(["-9", &test.to_string()])
            .status();
    }
    let _ = cargo.wait();
}

/// Sums over all test binaries, and the position in the output of the current one.
#[derive(Debug, Default)]
struct TestReport {
    passed: usize,
    failed: usize,
    skips: SkippedParts,
    in_successes: bool,
    test: String,
    /// Tests of which the harness has said that they take long, and which have not ended.
    running: Vec<String>,
}

impl TestReport {
    /// Reads one line of output. Returns true if it is to be shown.
    fn count_line(&mut self, line: &str) -> bool {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed");
            self.failed += number_before(result, " failed");
            self.in_successes = false;
        } else if let Some((name, said)) = line
            .strip_prefix("test ")
            .and_then(|test| test.split_once(' '))
        {
            match said.starts_with("has been running") {
                true => self.running.push(name.to_owned()),
                false => self.running.retain(|test| test != name),
            }
        } else if line == "successes:" {
            self.in_successes = true;
        } else if line == "failures:" {
            self.in_successes = false;
        } else if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.test = name.to_owned();
        } else if self.in_successes
            && let Some(what) = line.strip_prefix(PREFIX)
        {
            self.skips.add(format!("{what} ({})", self.test));
        }
        !self.in_successes || line.starts_with(TABLE)
    }

    fn print(&self) {
        self.skips.print();
        let passed = self.passed.saturating_sub(self.skips.count());
        println!(
            "{passed} passed, {} failed, {} skipped",
            self.failed,
            self.skips.count()
        );
    }
}

/// Returns the number in front of a word: 3 in `ok. 3 passed; 0 failed`, 0 if there is none.
fn number_before(text: &str, word: &str) -> usize {
    let Some(end) = text.find(word) else { return 0 };
    let start = text[..end]
        .rfind(|byte: char| !byte.is_ascii_digit())
        .map_or(0, |at| at + 1);
    text[start..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 4 tests
test four has been running for over 60 seconds
test one has been running for over 60 seconds
test one ... ok
test two ... ok

successes:

---- two stdout ----
chatter
| limit | attack |
skipped: llmock is not installed

successes:
    one
    two

failures:

---- three stdout ----
skipped: not counted, the test failed

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.00s";

    #[test]
    fn binaries_are_summed_and_skips_are_named() {
        let mut report = TestReport::default();
        let shown: Vec<&str> = OUTPUT
            .lines()
            .filter(|line| report.count_line(line))
            .collect();
        assert_eq!(
            (report.passed, report.failed, report.skips.count()),
            (12, 1, 1)
        );
        assert_eq!(report.running, ["four"]);
        assert!(!shown.contains(&"chatter"));
        assert!(shown.contains(&"| limit | attack |"), "a table is shown");
        assert!(
            shown.contains(&"---- three stdout ----"),
            "what failed is shown"
        );
        assert!(format!("{:?}", report.skips).contains("llmock is not installed (two)"));
    }

    #[test]
    fn a_run_in_which_nothing_ends_is_stopped_with_the_names() {
        let script = "echo 'test slow has been running for over 60 seconds'; exec sleep 600";
        let mut silent = Command::new("sh");
        let ran = run_tests(silent.args(["-c", script]), Duration::from_millis(200));
        let told = ran.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(told.ends_with("still running: slow"), "{told}");
    }

    #[test]
    fn numbers_are_found_before_their_word() {
        let cases = [
            ("ok. 3 passed; 14 failed;", " failed", 14),
            ("3 passed", " passed", 3),
            ("ok.", " passed", 0),
        ];
        for (text, word, number) in cases {
            assert_eq!(number_before(text, word), number, "{text}");
        }
    }
}
