//! Runs the `threadkeep` command as a process: built once, started in a clean environment, read to
//! its end or watched.
//!
//! cargo gives the path of a binary only to the tests of its own package, so it is looked for
//! beside this test binary. cargo builds it first, with the features of the test run, so that it is
//! never an old one.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time to wait for a process's output or end: the machine may be busy.
const WAIT_TIME_MAX: Duration = Duration::from_secs(120);

const NAME: &str = "threadkeep";

/// The path of the command.
///
/// # Panics
/// If it cannot be found and cannot be built.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let folder = profile_folder();
        let binary = folder.join(format!("{NAME}{}", std::env::consts::EXE_SUFFIX));
        let built = build(&folder);
        assert!(
            built || binary.is_file(),
            "{} is not there and cannot be built: cargo build --package threadkeep --bin \
             threadkeep",
            binary.display()
        );
        binary
    })
}

/// Returns `<target>/<profile>`, whose `deps` holds the tests.
fn profile_folder() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let deps = test.parent().expect("a file is in a folder");
    match deps.ends_with("deps") {
        true => deps.parent().expect("deps is in a folder").to_path_buf(),
        false => deps.to_path_buf(),
    }
}

/// Builds the command. Returns false without cargo: then a test binary runs by itself.
fn build(folder: &Path) -> bool {
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        // The workspace has no examples: `--examples` only selects the features of the tests, so
        // that nothing is compiled twice.
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--bin",
            NAME,
            "--examples",
            "--profile",
            profile,
        ])
        .arg("--target-dir")
        .arg(folder.parent().unwrap_or(folder));
    // Crates with C code ask of which package cargo was started, and would be built anew.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    match cargo.status() {
        Ok(status) => {
            assert!(status.success(), "cargo cannot build {NAME}");
            true
        }
        Err(_) => false,
    }
}

/// Prepares the command in a project, with only the environment variables that a process needs, and
/// a cache of native code that all tests share.
pub fn command(project: &Path) -> Command {
    let mut command = Command::new(path());
    command
        .current_dir(project)
        .env_clear()
        .env(
            "THREADKEEP_CACHE",
            profile_folder().join("native-code-of-tests"),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The result of a process that has ended.
#[derive(Debug)]
pub struct ProcessOutput {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl ProcessOutput {
    /// Returns the one JSON document on standard output, whose `exit` is the exit code.
    ///
    /// # Panics
    /// If there is any other output, or the codes differ.
    pub fn json(&self) -> Value {
        assert_eq!(self.out.lines().count(), 1, "one document: {self:#?}");
        let document: Value =
            serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
        assert_eq!(
            document["exit"].as_i64(),
            self.code.map(i64::from),
            "{self:#?}"
        );
        document
    }
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started.
pub fn run_to_end(mut command: Command) -> ProcessOutput {
    let output = command.output().expect("the command starts");
    ProcessOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        err: String::from_utf8(output.stderr).expect("standard error is UTF-8"),
    }
}

/// Runs a command to its end with this text on standard input.
///
/// # Panics
/// If it cannot be started.
pub fn run_with_input(command: Command, input: &str) -> ProcessOutput {
    start_with_input(command, input).wait_for_end()
}

/// Starts a command with this text on standard input, and watches it.
///
/// # Panics
/// If it cannot be started.
pub fn start_with_input(mut command: Command, input: &str) -> RunningProcess {
    command.stdin(Stdio::piped());
    let mut running = start(command);
    if let Some(mut end) = running.child.stdin.take() {
        // A command that refuses its arguments reads nothing.
        let _ = end.write_all(input.as_bytes());
    }
    running
}

/// A process that is watched while it runs; killed when dropped.
#[derive(Debug)]
pub struct RunningProcess {
    child: Child,
    out: StreamReader,
    err: StreamReader,
}

/// Starts a command and watches it.
///
/// # Panics
/// If it cannot be started.
pub fn start(mut command: Command) -> RunningProcess {
    let mut child = command.spawn().expect("the command starts");
    let out = StreamReader::new(child.stdout.take().expect("standard output is a pipe"));
    let err = StreamReader::new(child.stderr.take().expect("standard error is a pipe"));
    RunningProcess { child, out, err }
}

impl RunningProcess {
    /// Waits until standard error holds this text.
    ///
    /// # Panics
    /// If the text does not come in time.
    pub fn await_err(&self, text: &str) {
        self.err.wait_for(text);
    }

    /// Waits until standard output holds this text.
    ///
    /// # Panics
    /// If the text does not come in time.
    pub fn await_out(&self, text: &str) {
        self.out.wait_for(text);
    }

    /// Takes standard input, which the command was given as a pipe.
    ///
    /// # Panics
    /// If it is no pipe, or taken already.
    pub fn take_input(&mut self) -> ChildStdin {
        self.child.stdin.take().expect("standard input is a pipe")
    }

    /// Returns true if the process has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("a child can be asked")
            .is_none()
    }

    /// Sends SIGINT, as a terminal does for Ctrl-C.
    pub fn interrupt(&self) {
        self.signal("-INT");
    }

    /// Sends SIGTERM, which asks a process to end.
    pub fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Sends SIGHUP, as a terminal does that closes.
    pub fn hang_up(&self) {
        self.signal("-HUP");
    }

    /// Sends SIGKILL, which no process can catch.
    pub fn kill(&self) {
        self.signal("-KILL");
    }

    fn signal(&self, which: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([which, &pid]).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "kill {which} {pid}"
        );
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// If the process does not end in time.
    pub fn wait_for_end(mut self) -> ProcessOutput {
        let status = self.wait_for_exit();
        ProcessOutput {
            code: status.code(),
            out: self.out.join_and_read(),
            err: self.err.join_and_read(),
        }
    }

    fn wait_for_exit(&mut self) -> ExitStatus {
        let began = Instant::now();
        while began.elapsed() < WAIT_TIME_MAX {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the command does not end: {:?} {:?}", self.out, self.err);
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads an output stream as it comes.
#[derive(Debug)]
struct StreamReader {
    shared: Arc<(Mutex<Vec<u8>>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl StreamReader {
    fn new(end: impl Read + Send + 'static) -> Self {
        let shared = Arc::<(Mutex<Vec<u8>>, Condvar)>::default();
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            let mut end = BufReader::new(end);
            loop {
                let bytes = end.fill_buf().unwrap_or_default().to_vec();
                if bytes.is_empty() {
                    return;
                }
                end.consume(bytes.len());
                own.0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(bytes);
                own.1.notify_all();
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    fn wait_for(&self, text: &str) {
        let bytes = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |bytes: &mut Vec<u8>| !String::from_utf8_lossy(bytes).contains(text);
        let waited = self
            .shared
            .1
            .wait_timeout_while(bytes, WAIT_TIME_MAX, missing);
        let (bytes, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(
            !timeout.timed_out(),
            "{text:?} does not come: {}",
            String::from_utf8_lossy(&bytes)
        );
    }

    fn join_and_read(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let bytes = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// Wraps a command so that it runs in a terminal, which `script` of util-linux makes; its input and
/// output pass through. `None`, with a printed line, where there is no such program; in CI the test
/// fails instead.
///
/// # Panics
/// In CI, if there is no `script`.
pub fn in_terminal(command: &Command) -> Option<Command> {
    in_terminal_after("", command)
}

/// Wraps a command in a script of `sh`, in which `"$0" "$@"` is the command.
#[must_use]
pub fn in_shell(command: &Command, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script])
        .arg(command.get_program())
        .args(command.get_args())
        .env_clear();
    for (name, value) in command.get_envs() {
        value.map(|value| shell.env(name, value));
    }
    if let Some(folder) = command.get_current_dir() {
        shell.current_dir(folder);
    }
    shell
}

/// As [`in_terminal`], with words of a shell before the command.
///
/// # Panics
/// In CI, if there is no `script`.
pub fn in_terminal_after(before: &str, command: &Command) -> Option<Command> {
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy());
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(quoted).collect();
    let mut wrapped = Command::new("script");
    wrapped
        .args(["-q", "-e", "-c"])
        .arg(format!("{before}{}", words.join(" ")))
        .arg("/dev/null")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, value) in command.get_envs() {
        value.map(|value| wrapped.env(name, value));
    }
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    let there = Command::new("script").arg("--version").output().is_ok();
    if !there {
        assert!(std::env::var_os("CI").is_none(), "script is not installed");
        println!("skipped: script is not installed");
    }
    there.then_some(wrapped)
}
