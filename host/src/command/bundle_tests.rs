//! The entry of hosts whose calls block, over the native host: each command's exit code and the
//! words of its answer.

use super::session::CommandSession;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use threadkeep::authority::{EnvironmentSnapshot, ProjectDir};
use threadkeep_cli::bundle::{self, OutputStreams};

const MODELS: &str = "providers: {script: {wire: scripted, file: script.json}}\n\
                      models:\n  \
                      tiny: {provider: script, window: 32000, output: 1000, prices: {input: \
                      \"1.00\", output: \"2.00\"}}\n\
                      tiers: {default: tiny}\n";

/// The bytes written to one stream.
#[derive(Clone, Default)]
struct WrittenOutput(Arc<Mutex<Vec<u8>>>);

impl Write for WrittenOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl WrittenOutput {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Runs a command line in a project; returns the exit code and what both streams got.
fn run_command(project: &Path, cache: &Path, line: &str) -> (u8, String) {
    let (out, err) = (WrittenOutput::default(), WrittenOutput::default());
    let streams = OutputStreams {
        out: Box::new(out.clone()),
        err: Box::new(err.clone()),
        terminals: [false; 3],
    };
    let mut words = vec![OsString::from("threadkeep")];
    words.extend(line.split(' ').map(OsString::from));
    words.extend(["--project".into(), project.as_os_str().to_owned()]);
    let variable = ("THREADKEEP_CACHE".to_owned(), cache.display().to_string());
    let exit = bundle::run(&words, streams, |common| {
        let environment = EnvironmentSnapshot::from_pairs([variable]);
        Ok(CommandSession::new(common, environment))
    });
    let mut both = out.text();
    both.write_str(&err.text()).unwrap();
    (exit, both)
}

#[test]
fn every_exit_code_is_that_of_its_command() {
    let scratch = tempfile::tempdir().unwrap();
    let (project, cache) = (scratch.path().join("project"), scratch.path().join("cache"));
    for (file, text) in [
        (".ai/config/models.yaml", MODELS),
        (
            ".ai/directives/greet.md",
            "---\nlimits: {turns: 5}\n---\nGreet the reader.\n",
        ),
        (".ai/script.json", r#"[{"text": "Good morning."}]"#),
    ] {
        write_file(scratch.path(), &format!("project/{file}"), text);
    }
    // The calls of the native host wait on a runtime; that of the bundle has none.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _within = runtime.enter();
    for (line, code, words) in [
        ("list", 0, "there is no store yet"),
        ("run greet --id a", 0, "Good morning."),
        ("list --json", 0, r#""thread_id":"a""#),
        ("show a", 0, "completed"),
        ("show b", 1, "`threadkeep list` shows"),
        ("create greet --id a", 4, "choose another id"),
        ("lst", 2, "list"),
        ("create greet --id c --turns 0", 0, "c"),
        ("resume c", 3, "threadkeep raise c --turns N"),
        ("raise c --turns 0", 2, "too low"),
        ("title c Short", 0, "Short"),
        ("transcript a", 0, "Good morning."),
        ("chain a", 0, "a"),
        ("checkpoints a", 0, "run-finished"),
        ("fork a", 0, "it begins as a was"),
        ("budget show a", 0, "spent"),
        ("tree a", 0, "a"),
        ("cancel c", 0, "cancelled"),
        ("recover", 0, ""),
        ("doctor", 2, "the native program has it"),
        ("chat", 2, "run DIRECTIVE"),
        ("audit --json", 2, r#""exit":2"#),
    ] {
        let (exit, said) = run_command(&project, &cache, line);
        assert_eq!(exit, code, "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
    }
}

fn write_file(base: &Path, path: &str, text: &str) {
    let parent = Path::new(path).parent().unwrap();
    let project = ProjectDir::open_ambient(base).unwrap();
    let dir = project.tool_grant(".").unwrap();
    dir.create_dir_all(parent).unwrap();
    dir.write(path, text).unwrap();
}
