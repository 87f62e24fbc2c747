//! The cache of `usage`: whatever happens to the threads and to the file, the answer is the one
//! without it.

use super::fixture::CliProject;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const CACHE: &str = ".ai/threads/usage-cache.jsonl";

/// Two models, and a reply of each with a call.
const MODELS: &str = r#"
providers: {local: {wire: scripted, file: script.json}}
models:
  tiny: {provider: local, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
  boss: {provider: local, window: 32000, output: 1000, prices: {input: "3.00", output: "5.00"}}
tiers: {default: tiny}
"#;

const SEED: u64 = 18;
const STEPS: usize = 18;

/// Numbers that look random, the same for a seed.
struct NumberSource(u64);

impl NumberSource {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % end
    }
}

fn project() -> CliProject {
    let project = CliProject::new();
    project.write(".ai/config/models.yaml", MODELS);
    project
}

fn cache_of(project: &CliProject) -> Option<Vec<u8>> {
    std::fs::read(project.path().join(CACHE)).ok()
}

fn put_cache(project: &CliProject, content: Option<&[u8]>) {
    let path = project.path().join(CACHE);
    match content {
        Some(content) => std::fs::write(path, content).expect("written"),
        None => drop(std::fs::remove_file(path)),
    }
}

/// Asks with the cache and without it; both answers must be equal to the byte. The cache stays as
/// it was after the first.
fn ask(project: &CliProject, arguments: &[&str]) -> String {
    let arguments = [&["usage", "--json"], arguments].concat();
    let with = project.run(&arguments);
    let kept = cache_of(project);
    put_cache(project, None);
    let without = project.run(&arguments);
    put_cache(project, kept.as_deref());
    assert_eq!((with.code, &with.err), (without.code, &without.err));
    assert_eq!(with.out, without.out);
    with.out
}

fn total(answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    answer["total"]["spend"].as_str().expect("text").to_owned()
}

/// A project whose threads and cache change at random.
struct ChangingProject {
    project: CliProject,
    numbers: NumberSource,
    made: Vec<String>,
    backup: Option<(tempfile::TempDir, Vec<String>)>,
}

impl ChangingProject {
    fn pick(&mut self) -> Option<String> {
        let place = self.numbers.below(self.made.len().max(1));
        self.made.get(place).cloned()
    }

    /// Changes something; the names say what.
    fn change(&mut self, step: usize) -> &'static str {
        let id = format!("t{step}");
        let model = ["tiny", "boss"][self.numbers.below(2)];
        match self.numbers.below(8) {
            0 | 1 => {
                let run = ["run", "describe", "--input", "file=notes.txt", "--id", &id];
                let owner = [None, Some("ann")][self.numbers.below(2)];
                let owner = owner.map_or(vec![], |owner| vec!["--agent", owner]);
                self.project
                    .json(&[&run[..], &["--model", model], &owner].concat());
                self.made.push(id);
                "run"
            }
            2 => {
                match self.pick() {
                    Some(known) => self.project.json(&["resume", &known, "And now?"]),
                    None => self.project.json(&["create", "--id", &id]),
                };
                "resume"
            }
            3 => {
                if let Some(known) = self.pick() {
                    self.project.json(&["fork", &known, "--at", "2"]);
                }
                "fork"
            }
            4 => {
                self.charge_and_correct(&id);
                "correction"
            }
            5 => {
                let folder = tempfile::tempdir().expect("a folder");
                copy_files(&self.threads(), folder.path());
                self.backup = Some((folder, self.made.clone()));
                "backup"
            }
            6 => {
                if let Some((folder, made)) = &self.backup {
                    let cache = cache_of(&self.project);
                    let threads = self.project.path().join(".ai/threads");
                    std::fs::remove_dir_all(&threads).expect("removed");
                    copy_files(folder.path(), &threads);
                    self.made.clone_from(made);
                    put_cache(&self.project, cache.as_deref());
                }
                "restored"
            }
            _ => {
                self.edit_cache();
                "edited"
            }
        }
    }

    fn threads(&self) -> std::path::PathBuf {
        self.project.path().join(".ai/threads")
    }

    /// A loop of one's own whose call is charged by estimate when it ends, and corrected later.
    fn charge_and_correct(&mut self, id: &str) {
        let project = &self.project;
        project.json(&["create", "--id", id]);
        let opened = project.json(&["open", id]);
        let token = opened["token"].as_str().expect("a token").to_owned();
        let hold = ["budget", "hold", id, "one", "--token", &token];
        let held = project.json(&[&hold[..], &["--amount", "0.25"]].concat());
        let call = held["call"].to_string();
        let closed = project.json(&["close", id, "--token", &token]);
        assert_eq!(closed["exit"], 0, "{closed}");
        let charged = ask(project, &["--by", "day,model,directive,agent"]);
        let settled = project.json(&["budget", "settle", id, &call, "--amount", "0.03"]);
        assert_eq!(settled["exit"], 0, "{settled}");
        let corrected = ask(project, &["--by", "day,model,directive,agent"]);
        assert_ne!(total(&charged), total(&corrected));
    }

    /// Cuts the cache, changes a letter of it, or repeats a line.
    fn edit_cache(&mut self) {
        let Some(mut content) = cache_of(&self.project) else {
            return;
        };
        let place = self.numbers.below(content.len());
        match self.numbers.below(3) {
            0 => content.truncate(place),
            1 => content[place] = b'7',
            _ => content.extend_from_within(place..),
        }
        put_cache(&self.project, Some(&content));
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("made");
    for entry in std::fs::read_dir(from).expect("read") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_files(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("copied")),
        }
    }
}

#[test]
fn answers_are_those_without_the_cache_whatever_happens() {
    let mut changing = ChangingProject {
        project: project(),
        numbers: NumberSource(SEED),
        made: Vec::new(),
        backup: None,
    };
    let mut kinds = std::collections::BTreeSet::new();
    for step in 0..STEPS {
        kinds.insert(changing.change(step));
        let project = &changing.project;
        ask(project, &["--by", "day,model,directive,agent"]);
        if step % 3 == 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let seconds = now.expect("after 1970").as_secs() as i64 - 2;
            let since = threadkeep_units::time::rfc3339_seconds(seconds);
            ask(project, &["--since", &since]);
            ask(project, &["--agent", "ann", "--by", "model"]);
        }
    }
    assert!(kinds.len() >= 6, "{kinds:?}");
}

/// A thread that cannot be read is named, and the others are known as before.
#[test]
fn a_head_that_cannot_be_read_takes_its_own_thread_alone() {
    use crate::audit::fixture::open;
    use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey};
    let project = project();
    for id in ["one", "two"] {
        project.finish_thread(id);
    }
    let whole = ask(&project, &[]);
    let store = open(&project.path().join(".ai/threads"));
    let key = RecordKey::new("head", "two");
    let sound = store.get(std::slice::from_ref(&key)).expect("read");
    let put = |value: &str| {
        let put = CommitOp::Put {
            key: key.clone(),
            expect: RecordExpectation::Any,
            value: value.to_owned(),
        };
        store.commit(&[put], false).expect("written");
    };
    put("no JSON");
    let lacking = ask(&project, &[]);
    let named: Value = serde_json::from_str(&lacking).expect("JSON");
    assert_eq!(named["unreadable"], serde_json::json!(["two"]));
    assert_ne!(total(&lacking), total(&whole));
    put(&sound[0].value);
    assert_eq!(ask(&project, &[]), whole);
    // A head without the record of its thread is no sum of its own either.
    let record = RecordKey::new("thread", "two");
    let delete = CommitOp::Delete { key: record };
    store.commit(&[delete], false).expect("written");
    put(&format!("{} ", sound[0].value));
    let lacking = ask(&project, &[]);
    let named: Value = serde_json::from_str(&lacking).expect("JSON");
    assert_eq!(named["unreadable"], serde_json::json!(["two"]));
}

/// Symptom: a history with a gap was counted twice, or not at all, and nobody was told. Cause: the
/// next page was read from the number of entries, and an end of the entries was one of the history.
/// Fix: a missing entry, and a missing head, make a thread one that cannot be read.
#[test]
fn a_history_with_gaps_is_told() {
    let project = project();
    for id in ["one", "two"] {
        project.finish_thread(id);
    }
    let one = {
        let threads = ask(&project, &["--by", "model"]);
        total(&threads).parse::<f64>().expect("a number") / 2.0
    };
    let path = project.path().join(".ai/threads/registry.db");
    let saved = std::fs::read(&path).expect("read");
    let entry = "(SELECT id << 32 FROM partition WHERE log = 'history' AND name = 'two')";
    for sql in [
        format!("DELETE FROM entry WHERE id = {entry} + 1"),
        format!("DELETE FROM entry WHERE id = {entry} + 2"),
        format!("DELETE FROM entry WHERE id > {entry} AND id < {entry} + 1000"),
        "DELETE FROM record_head WHERE name = 'two'".to_owned(),
    ] {
        put_cache(&project, None);
        let shell = rusqlite::Connection::open(&path).expect("opened");
        assert!(shell.execute(&sql, []).expect("run") > 0, "{sql}");
        drop(shell);
        let lacking = ask(&project, &[]);
        let named: Value = serde_json::from_str(&lacking).expect("JSON");
        assert_eq!(named["unreadable"], serde_json::json!(["two"]), "{sql}");
        let spend: f64 = total(&lacking).parse().expect("a number");
        assert!((spend - one).abs() < 1e-9, "{sql}: {spend} of {one}");
        std::fs::write(&path, &saved).expect("written");
    }
}

/// The file is of use: it is written once, read again, and replaced when a thread goes on.
#[test]
fn the_file_changes_with_the_threads_alone() {
    let project = project();
    project.finish_thread("one");
    project.run(&["usage"]);
    let first = cache_of(&project).expect("written");
    project.run(&["usage", "--by", "model"]);
    assert_eq!(cache_of(&project), Some(first.clone()));
    // Sums of another hand are believed where their digest fits: so the file is what is read.
    let lines = String::from_utf8(first.clone()).expect("text");
    let (_, lines) = lines.split_once('\n').expect("a header");
    let lines = lines.replace("tiny", "timy");
    let digest: String = Sha256::digest(&lines)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let forged = format!("{{\"usage_cache\":2,\"sha256\":\"{digest}\"}}\n{lines}");
    put_cache(&project, Some(forged.as_bytes()));
    let shown = project.run(&["usage", "--by", "model"]).out;
    assert!(shown.contains("timy"), "{shown}");
    put_cache(&project, Some(&first));
    project.json(&["resume", "one", "And now?"]);
    project.run(&["usage"]);
    assert_ne!(cache_of(&project), Some(first));
}
