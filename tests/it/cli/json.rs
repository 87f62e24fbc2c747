//! docs/json.md against the documents of every command: each command is run, and the names of all
//! fields are compared, both ways.

use super::fixture::{CliProject, MODELS};
use crate::blobs::prunes::plant_old_blob;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use threadkeep_tests::binary;

const PAGE: &str = include_str!("../../../docs/json.md");

/// Fields with their types, by shape and command.
type FieldTables = BTreeMap<String, Vec<(String, String)>>;

fn tables() -> FieldTables {
    let mut tables = FieldTables::new();
    let mut names: Vec<String> = Vec::new();
    for line in PAGE.lines() {
        if let Some(title) = line
            .trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with("##"))
        {
            names = title
                .split(", ")
                .map(|name| name.trim_matches('`').to_owned())
                .collect();
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, field, kind, ..] = cells[..] else {
            continue;
        };
        if field == "field" || field.starts_with("---") {
            continue;
        }
        for name in &names {
            let row = (field.trim_matches('`').to_owned(), kind.to_owned());
            tables.entry(name.clone()).or_default().push(row);
        }
    }
    tables
}

/// The paths of all documented fields; adds those whose inside is not described to `opaque`.
fn paths(
    tables: &FieldTables,
    name: &str,
    at: &str,
    opaque: &mut BTreeSet<String>,
) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (field, kind) in &tables[name] {
        let path = match field.as_str() {
            "(the document)" => at.to_owned(),
            field => format!("{at}{field}"),
        };
        if tables.contains_key(kind) && !kind.is_empty() {
            let inside = if path == at {
                path.clone()
            } else {
                format!("{path}.")
            };
            found.extend(paths(tables, kind, &inside, opaque));
            continue;
        }
        if kind == "JSON" || kind.starts_with("list") {
            opaque.insert(path.clone());
        }
        found.insert(path);
    }
    found
}

/// The paths of a document's fields. A null, or an empty list of objects, has none inside.
fn flatten(value: &Value, at: &str, opaque: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    if opaque.contains(at) {
        found.insert(at.to_owned());
        return;
    }
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let path = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                flatten(value, &path, opaque, found);
            }
        }
        Value::Array(list) => list
            .iter()
            .for_each(|value| flatten(value, &format!("{at}[]"), opaque, found)),
        _ => drop(found.insert(at.to_owned())),
    }
}

/// Documents of commands, by the commands' names.
type CommandDocuments = Vec<(&'static str, Vec<Value>)>;

/// Documents of runs, with and without the fields that may be null.
fn run_documents(project: &CliProject) -> CommandDocuments {
    let run = |id: &str, turns: &str| {
        let input = ["--input", "file=notes.txt", "--id", id, "--turns", turns];
        project.json(&[&["run", "describe"], &input[..]].concat())
    };
    let runs = vec![run("done", "5"), run("capped", "1")];
    let at = project.json(&["show", "done", "--at", "2"]);
    let shown = vec![project.json(&["show", "capped"]), at];
    let forked = project.json(&["fork", "done", "--at", "2"]);
    let raised = project.json(&["raise", "capped", "--turns", "4"]);
    let resumed = vec![
        project.json(&["resume", "capped"]),
        project.json(&["resume", "done", "Tell me more."]),
    ];
    let runs = [
        runs,
        vec![run("again", "1")],
        vec![family_document(project), run("last", "1")],
    ]
    .concat();
    vec![
        ("run", runs),
        ("show", shown),
        ("fork", vec![forked]),
        (
            "checkpoints",
            vec![project.json(&["checkpoints", "done", "--limit", "2"])],
        ),
        ("raise", vec![raised]),
        ("resume", resumed),
        ("transcript", vec![project.json(&["transcript", "done"])]),
        (
            "usage",
            vec![project.json(&["usage", "--by", "day,model,directive,agent"])],
        ),
        (
            "export html",
            vec![project.json(&["export", "html", "done"])],
        ),
        ("Errors", vec![project.json(&["show", "nothing"])]),
    ]
}

/// The document of a run at whose end a child is suspended.
fn family_document(project: &CliProject) -> Value {
    project.add_family(1);
    project.json(&["run", "parent", "--id", "parent"])
}

/// Documents about a chain of two links, of which the first is named.
fn chain_documents(project: &CliProject) -> CommandDocuments {
    project.finish_thread("first");
    project.continue_thread("first", "second");
    vec![
        ("chain", vec![project.json(&["chain", "first"])]),
        ("show", vec![project.json(&["show", "first"])]),
        ("transcript", vec![project.json(&["transcript", "first"])]),
        ("message", vec![project.json(&["message", "first", "And?"])]),
        ("title", vec![project.json(&["title", "first", "A chain"])]),
    ]
}

/// Documents of decisions about calls: of the answers that are no runs.
fn decision_documents() -> CommandDocuments {
    let project = crate::approvals::commands::asking_project();
    for id in ["t", "u"] {
        project.json(&["run", "look", "--id", id]);
    }
    let decide = |arguments: &[&str]| project.json(&[arguments, &["--no-run"]].concat());
    vec![
        ("approve", vec![decide(&["approve", "t", "call_2_1"])]),
        ("deny", vec![decide(&["deny", "t"])]),
        (
            "answer",
            vec![decide(&["answer", "u", "call_2_1", "Milk."])],
        ),
    ]
}

fn chat_documents(project: &CliProject) -> CommandDocuments {
    let created = project.json(&["create", "--id", "chat"]);
    let titled = project.json(&["title", "chat", "A chat"]);
    let opened = project.json(&["open", "chat"]);
    let token = opened["token"].as_str().expect("a text").to_owned();
    let hello = r#"{"type":"message","role":"user","content":"Hello."}"#;
    let appended = run_with_input(project, &["append", "chat", "--token", &token], hello);
    let count = r#"{"scope":"thread","op":"add","path":"/n","value":1}"#;
    let counted = run_with_input(project, &["append", "chat", "--token", &token], count);
    let budgets = budget_documents(project, &token);
    let closed = project.json(&["close", "chat", "idle", "--token", &token]);
    let message = project.json(&["message", "chat", "Hello."]);
    let cancelled = project.json(&["cancel", "chat"]);
    project.json(&["create", "--id", "killed"]);
    let killed = project.json(&["kill", "killed"]);
    let capped = run_with_input(project, &["chat", "--turns", "0"], "Hello.");
    vec![
        ("create", vec![created]),
        ("title", vec![titled]),
        ("open", vec![opened]),
        ("append", vec![appended, counted]),
        ("state", vec![project.json(&["state", "chat"])]),
        ("show", vec![project.json(&["show", "chat"])]),
        ("close", vec![closed]),
        ("message", vec![message]),
        ("cancel", vec![cancelled]),
        ("kill", vec![killed]),
        (
            "chat",
            vec![run_with_input(project, &["chat"], "Hello."), capped],
        ),
    ]
    .into_iter()
    .chain(budgets)
    .collect()
}

fn budget_documents(project: &CliProject, token: &str) -> CommandDocuments {
    let budget = |rest: &[&str]| project.json(&[&["budget"], rest].concat());
    let hold = |key: &str, rest: &[&str]| {
        budget(&[&["hold", "chat", key, "--token", token], rest].concat())
    };
    let money = hold("a", &["--amount", "0.1"]);
    let tokens = hold("b", &["--model", "tiny", "--input", "1", "--output", "1"]);
    let call = |held: &Value| held["call"].to_string();
    let settled = budget(&["settle", "chat", &call(&money), "--amount", "0.1"]);
    let released = budget(&["release", "chat", &call(&tokens)]);
    vec![
        ("budget show", vec![budget(&["show", "chat"])]),
        ("budget hold", vec![money, tokens]),
        ("budget settle", vec![settled]),
        ("budget release", vec![released]),
    ]
}

fn upkeep_documents(project: &CliProject) -> CommandDocuments {
    project.json(&["create", "--id", "held"]);
    let held = project.json(&["open", "held"]);
    let running = project.start_unending("died");
    running.kill();
    running.wait_for_end();
    let list = project.json(&["list"]);
    let recovered = project.json(&["recover"]);
    let repaired = project.json(&["repair"]);
    let (pruned, imported) = state_file_documents(project);
    let clean = project.json(&["audit"]);
    // A store of plain files in which a thread is held is not moved.
    let holder = held["holder"].as_str().expect("a holder");
    project.json(&["recover", "--dead", holder]);
    let copied = project.json(&["copy", "--to", "files"]);
    assert_eq!(project.json(&["copy", "--to", "sqlite"])["exit"], 0);
    let well = project.json(&["doctor"]);
    let probed = project.json(&["doctor", "--probe", "local"]);
    let store = rusqlite::Connection::open(project.path().join(".ai/threads/registry.db"));
    let store = store.unwrap();
    let (tree, killed_above) = kill_above_unreadable_child(project, &store);
    let models = MODELS.replace("script.json", "gone.json");
    project.write(".ai/config/models.yaml", &models);
    let ill = project.json(&["doctor"]);
    let broken = "UPDATE record_head SET value = '{' WHERE name = 'done'";
    assert_eq!(store.execute(broken, []), Ok(1));
    // A child, and a run, of which only an index entry is left.
    for place in [
        "'parent' || char(1) || 'chat'",
        "'status' || char(1) || 'running'",
    ] {
        let entry = format!("{place} || char(1) || '0' || char(1) || 'gone'");
        let insert =
            format!("INSERT INTO record_index (name, version, value) VALUES ({entry}, 1, '')");
        assert_eq!(store.execute(&insert, []), Ok(1));
    }
    let half_recovered = project.json(&["recover"]);
    let half = project.json(&["list"]);
    let unclean = project.json(&["audit"]);
    vec![
        ("list", vec![list, half]),
        ("recover", vec![recovered, half_recovered]),
        ("kill", vec![killed_above]),
        ("tree", vec![tree]),
        ("repair", vec![repaired]),
        ("prune", vec![pruned]),
        ("import", vec![imported]),
        ("copy", vec![copied]),
        ("audit", vec![clean, unclean]),
        ("doctor", vec![well, ill]),
        ("doctor --probe", vec![probed]),
        ("init", vec![CliProject::empty().json(&["init"])]),
        ("demo", vec![CliProject::empty().json(&["demo"])]),
        ("man", vec![project.json(&["man", "budget", "hold"])]),
        ("completions", vec![project.json(&["completions", "bash"])]),
    ]
}

/// Documents about checkpoints: of a pruning that finds something, and of an import.
fn state_file_documents(project: &CliProject) -> (Value, Value) {
    project.write(".ai/threads/again/state.json.new", "");
    plant_old_blob(project, "again", b"loose");
    let pruned = project.json(&["prune"]);
    let file = project.path().join(".ai/threads/again/state.json");
    let imported = project.json(&["import", "--state", &file.display().to_string()]);
    (pruned, imported)
}

/// A script whose parent waits for a child, which answers after ten minutes.
const WAITS: &str = r#"[
  {"for": "Have it done", "calls": [{"name": "spawn_thread", "arguments": {"directive": "part"}},
      {"name": "wait_threads", "arguments": {}}]},
  {"for": "Do your part", "text": "Late.", "delay_ms": 590000}
]"#;

/// The document of a kill that does not reach a child, whose head cannot be read.
fn kill_above_unreadable_child(
    project: &CliProject,
    store: &rusqlite::Connection,
) -> (Value, Value) {
    project.write("waits.json", WAITS);
    let provider = ["--provider", "scripted:waits.json", "--id", "above"];
    let mut running = project.start(&[&["run", "parent"], &provider[..]].concat());
    let child = loop {
        assert!(running.is_alive(), "it ended before its child ran");
        let tree = project.json(&["tree", "above"]);
        if tree["threads"][0]["status"] == "waiting" && tree["threads"][1]["status"] == "running" {
            break tree["threads"][1]["thread_id"].as_str().unwrap().to_owned();
        }
    };
    running.kill();
    running.wait_for_end();
    let broken = "UPDATE record_head SET value = '{' WHERE name = ?1";
    assert_eq!(store.execute(broken, [child]), Ok(1));
    let tree = project.json(&["tree", "above"]);
    (tree, project.json(&["kill", "above"]))
}

/// Runs the command with this standard input; returns its one document.
fn run_with_input(project: &CliProject, arguments: &[&str], input: &str) -> Value {
    let mut command = project.command(arguments);
    command.arg("--json");
    binary::run_with_input(command, input).json()
}

/// All documents of a command in one list.
fn merge_documents(documents: CommandDocuments) -> CommandDocuments {
    let mut merged: CommandDocuments = Vec::new();
    for (name, more) in documents {
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.extend(more),
            None => merged.push((name, more)),
        }
    }
    merged
}

/// Fields that the page documents and these documents may lack: a cause is null until something is
/// wrong, only a `fork` is one, only a thread that is shown has a state, only a `run` here has
/// children, only a `recover` follows a death, and only a `kill` has a child that it cannot reach.
fn may_be_absent(name: &str, path: &str) -> bool {
    path.contains("cause")
        || path.contains("suspended[]")
        || path.contains("left_alone[]")
        || path.contains("forked_from") && name != "fork"
        || path.contains("state.") && name != "show"
        || path.contains("charged[]") && name != "recover"
        || ["raise", "message", "cancel"].contains(&name) && path.starts_with("unreadable[]")
}

#[test]
fn every_document_has_the_fields_that_the_page_names() {
    let tables = tables();
    let project = CliProject::new();
    let mut documents = decision_documents();
    documents.extend(run_documents(&project));
    documents.extend(chat_documents(&project));
    documents.extend(chain_documents(&project));
    documents.extend(upkeep_documents(&project));
    let documents = merge_documents(documents);
    for (name, documents) in &documents {
        let mut opaque = BTreeSet::new();
        let said = paths(&tables, name, "", &mut opaque);
        let mut found = BTreeSet::new();
        for document in documents {
            assert!(document["exit"].is_u64(), "{name}: {document}");
            assert_eq!(
                document["error"].is_null(),
                *name != "Errors",
                "{name}: {document}"
            );
            flatten(document, "", &opaque, &mut found);
        }
        // A null where the page names an object.
        found.retain(|path| {
            !said
                .iter()
                .any(|said| said.starts_with(&format!("{path}.")))
        });
        let missing: Vec<_> = said
            .difference(&found)
            .filter(|path| !may_be_absent(name, path))
            .collect();
        let unsaid: Vec<_> = found.difference(&said).collect();
        assert!(
            missing.is_empty() && unsaid.is_empty(),
            "{name}: the page alone has {missing:?}, the document alone {unsaid:?}"
        );
    }
    let help = CliProject::empty().json(&["--help"])["help"]
        .as_str()
        .unwrap()
        .to_owned();
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let (commands, _) = rest.split_once("\n\n").unwrap();
    let names = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()) {
        let tried = documents
            .iter()
            .any(|(tried, _)| tried.split(' ').next() == Some(name));
        assert!(
            // `top` is for a terminal, and refuses `--json`.
            tried || ["help", "top"].contains(&name),
            "{name} is not compared with docs/json.md"
        );
    }
    let (_, runs) = documents.iter().find(|(name, _)| *name == "run").unwrap();
    let named = |run: &Value| run["suspended"][0]["cause"]["code"] == "turns_exceeded";
    assert!(
        runs.iter().any(named),
        "a child that is suspended: {runs:?}"
    );
    let causes = documents.iter().flat_map(|(_, documents)| documents);
    assert!(
        causes
            .into_iter()
            .any(|document| document["cause"]["code"].is_string())
    );
}
