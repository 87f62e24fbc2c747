//! The corpus through every export of the component that takes a name, and the directories that
//! these names make.

use super::fixture::{GuardedProject, chat, judge};
use std::collections::BTreeSet;
use threadkeep::documents::{DocumentError, ThreadDocuments};
use threadkeep::project::OpenProject;
use threadkeep::wit::{registry, runner};
use threadkeep_tests::corpus::{NameTally, assert_message, format_tallies, may_be_an_id};
use threadkeep_tests::fixture::draft;

/// Calls an entry that takes a thread's name: an accepted name must be one.
async fn call_with_thread_name(open: &OpenProject, entry: &str, name: &str) -> bool {
    let tenant = open.tenant();
    let what = format!("{entry} {name:.40?}");
    match entry {
        "registry.get" => judge(&what, &tenant.get(name).await),
        "registry.set-title" => judge(&what, &tenant.set_title(name, None).await),
        "history.load" => judge(&what, &tenant.load(name, None).await),
        "history.entries" => judge(&what, &tenant.entries(name, 0, 10, None).await),
        "transcript.events" => judge(&what, &tenant.events(name, 0, 10, None).await),
        "transcript.messages" => judge(&what, &tenant.messages(name, 0, Some(10), None).await),
        "transcript.render" => judge(&what, &tenant.render(name, "jsonl", None, 0, None).await),
        "runner.submit" => {
            let answer = tenant.submit(name, 1, 1, runner::Outcome::Waited, 0).await;
            judge(&what, &answer)
        }
        "runner.progress" => judge(&what, &tenant.progress(name, 1, None).await),
        "runner.claim" => judge(
            &what,
            &tenant.claim(name, "native-1/1", runner::Proof::Dead).await,
        ),
        "runner.signal" => {
            let message = runner::SignalKind::Message(MESSAGE.to_owned());
            judge(&what, &tenant.signal(name, "1", message).await)
        }
        "runner.start" => judge(
            &what,
            &tenant.start(name, None, "native-1/1", "k", None).await,
        ),
        other => panic!("{other}?"),
    }
}

const MESSAGE: &str = r#"{"role": "user", "content": [{"type": "text", "text": "hello"}]}"#;

/// Entries, in an order in which none takes away what a later one needs.
const OF_THREAD: [&str; 12] = [
    "registry.get",
    "registry.set-title",
    "history.load",
    "history.entries",
    "transcript.events",
    "transcript.messages",
    "transcript.render",
    "runner.submit",
    "runner.progress",
    "runner.claim",
    "runner.signal",
    "runner.start",
];

/// A draft of a thread with this name in one of its fields.
fn draft_with(entry: &str, name: &str) -> Option<registry::Draft> {
    let some = || Some(name.to_owned());
    let chat = draft(None);
    Some(match entry {
        "create directive" => draft(Some(name)),
        "create model" => registry::Draft {
            model: some(),
            ..chat
        },
        "create title" => registry::Draft {
            title: some(),
            ..chat
        },
        "create agent" => registry::Draft {
            agent: some(),
            ..chat
        },
        "create task" => registry::Draft {
            task: some(),
            ..chat
        },
        "create capability" => registry::Draft {
            capabilities: vec![format!("execute.tool.{name}"), name.to_owned()],
            ..chat
        },
        "create input" => registry::Draft {
            inputs: Some(serde_json::json!({name: "x"}).to_string()),
            ..draft(Some("x"))
        },
        _ => return None,
    })
}

/// A filter of a list with this name in one of its fields.
fn filter_with(entry: &str, name: &str) -> Option<registry::Filter> {
    let name = name.to_owned();
    Some(match entry {
        "list parent" => registry::Filter::Parent(name),
        "list chain" => registry::Filter::Chain(name),
        "list directive" => registry::Filter::Directive(name),
        "list status" => registry::Filter::Status(name),
        _ => return None,
    })
}

/// Calls an entry in which the name is a value of a thread or of a call and names no thread.
async fn call_with_value(open: &OpenProject, entry: &str, name: &str) -> bool {
    let tenant = open.tenant();
    let what = format!("{entry} {name:.40?}");
    let some = || Some(name.to_owned());
    if let Some(draft) = draft_with(entry, name) {
        return judge(&what, &tenant.create(draft).await);
    }
    if let Some(filter) = filter_with(entry, name) {
        return judge(&what, &tenant.list(filter, 10, None).await);
    }
    match entry {
        "set-title title" => judge(&what, &tenant.set_title("Twin", some()).await),
        "render what" => judge(&what, &tenant.render("Twin", name, None, 0, None).await),
        "start holder" => judge(&what, &tenant.start("held", None, name, "k", None).await),
        "signal id" => {
            let message = runner::SignalKind::Message(MESSAGE.to_owned());
            judge(&what, &tenant.signal("Twin", name, message).await)
        }
        "ready under" => judge(&what, &tenant.ready(10, None, some()).await),
        "ready cursor" => judge(&what, &tenant.ready(10, some(), None).await),
        "list cursor" => {
            let all = registry::Filter::default();
            judge(&what, &tenant.list(all, 10, some()).await)
        }
        "recover dead" => judge(&what, &tenant.recover(vec![name.to_owned()], None).await),
        "recover cursor" => judge(&what, &tenant.recover(vec![], some()).await),
        "stats cursor" => judge(&what, &tenant.stats(some()).await),
        other => panic!("{other}?"),
    }
}

const OF_VALUE: [&str; 21] = [
    "create directive",
    "create model",
    "create title",
    "create agent",
    "create task",
    "create capability",
    "create input",
    "set-title title",
    "render what",
    "start holder",
    "signal id",
    "ready under",
    "ready cursor",
    "list parent",
    "list chain",
    "list directive",
    "list status",
    "list cursor",
    "recover dead",
    "recover cursor",
    "stats cursor",
];

/// Tries every name as an id: an accepted one is a valid id, once in any case.
async fn create_all(
    open: &OpenProject,
    names: &[String],
    tallies: &mut Vec<NameTally>,
) -> Vec<String> {
    let (mut tally, mut created) = (
        NameTally::for_entry("registry.create"),
        Vec::<String>::new(),
    );
    for name in names {
        let answer = open.tenant().create(chat(name)).await;
        let given = judge(&format!("create {name:.40?}"), &answer);
        let twin = created.iter().any(|known| known.eq_ignore_ascii_case(name));
        assert_eq!(given, may_be_an_id(name) && !twin, "{name:.40?}");
        if twin {
            let message = format!("{}", answer.unwrap_err());
            assert!(message.contains("exists"), "{message}");
        }
        if given {
            created.push(name.clone());
        }
        tally.count(given);
    }
    assert!(tally.accepted_count() >= 4, "{tally:?}");
    tallies.push(tally);
    created
}

/// Checks the documents of every name: only threads get them, each in its own directory.
async fn documents(
    world: &GuardedProject,
    open: &OpenProject,
    names: &[String],
    created: &[String],
) -> NameTally {
    let threads = open.threads().unwrap().try_clone().unwrap();
    let documents = ThreadDocuments::new(open.tenant().clone(), threads);
    let mut tally = NameTally::for_entry("documents");
    for name in names {
        let answers = [
            documents.refresh(name).await.map(drop),
            documents.repair(name).await.map(drop),
            documents.check(name).await.map(drop),
        ];
        let known = created.iter().any(|known| known.eq_ignore_ascii_case(name));
        for answer in answers {
            assert_eq!(answer.is_ok(), known, "{name:.40?}: {answer:?}");
            match answer {
                Ok(()) => {}
                Err(DocumentError::Call(error)) => {
                    judge::<()>(&format!("documents {name:.40?}"), &Err(error));
                }
                Err(error) => assert_message("documents", &error.to_string()),
            }
        }
        tally.count(known);
    }
    // Threads whose names are segments of others share a path, and never a directory with documents
    // in it.
    let mut directories = BTreeSet::new();
    for id in created {
        let directory = world.path.join(".ai/threads").join(id);
        let own = std::fs::read_to_string(directory.join("thread.json")).unwrap();
        assert!(own.contains(&format!("\"{id}\"")), "{id}: {own}");
        assert!(
            directories.insert(directory.canonicalize().unwrap()),
            "{id} collides"
        );
    }
    tally
}

#[tokio::test(flavor = "multi_thread")]
async fn names_through_every_export() {
    let world = GuardedProject::new();
    let (open, names) = (world.open(false).unwrap(), world.names());
    let mut tallies = Vec::new();
    let created = create_all(&open, &names, &mut tallies).await;
    for entry in OF_THREAD {
        let mut tally = NameTally::for_entry(entry);
        for name in &names {
            let given = call_with_thread_name(&open, entry, name).await;
            let known = created.iter().any(|known| known.eq_ignore_ascii_case(name));
            assert!(!given || known, "{entry} accepts {name:.40?}");
            tally.count(given);
        }
        tallies.push(tally);
    }
    open.tenant().create(chat("held")).await.unwrap();
    for entry in OF_VALUE {
        let mut tally = NameTally::for_entry(entry);
        for name in &names {
            tally.count(call_with_value(&open, entry, name).await);
        }
        tallies.push(tally);
    }
    tallies.push(documents(&world, &open, &names, &created).await);
    world.outside.assert_untouched("every export");
    print!("{}", format_tallies(&tallies));
}
