//! The corpus through every entry of the host that takes a name: library, scripts, tools, stores,
//! locks, grants.

use super::fixture::{GuardedProject, OWN, open_dir};
use std::collections::BTreeSet;
use threadkeep::authority::{HolderState, ProjectDir, holder_state};
use threadkeep::library::{LibraryError, TenantLibrary};
use threadkeep::project::OpenProject;
use threadkeep::storage::StorageError;
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::tools::{ToolSet, files::FilesTools};
use threadkeep_tests::corpus::{
    NameTally, assert_clean, assert_message, format_tallies, may_be_an_id,
};
use threadkeep_tests::fixture::SCRIPTED_MODELS;

/// Judges an answer of the library: a refusal is typed and says where.
fn judge(what: &str, answer: &Result<Option<String>, LibraryError>) -> bool {
    match answer {
        Ok(found) => {
            assert_clean(what, &format!("{found:?}"));
            found.is_some()
        }
        Err(error) => {
            match error {
                LibraryError::Invalid { place, .. } => {
                    assert!(place.starts_with(".ai/"), "{what}: {place}");
                }
                LibraryError::Unavailable { .. } | LibraryError::Other { .. } => {}
            }
            assert_message(what, &error.to_string());
            false
        }
    }
}

fn library(open: &OpenProject, names: &[String], tallies: &mut Vec<NameTally>) {
    for kind in ["directive", "knowledge", "model", "tool", "settings"] {
        let mut tally = NameTally::for_entry(&format!("library {kind}"));
        for name in names.iter().filter(|name| !name.is_empty()) {
            let given = judge(
                &format!("{kind} {name:.40?}"),
                &open.library().document(kind, name),
            );
            assert!(!given || name == "x", "{kind} {name:.40?} is there");
            tally.count(given);
        }
        tallies.push(tally);
    }
    let mut tally = NameTally::for_entry("library kind");
    for name in names {
        tally.count(judge(
            &format!("kind {name:.40?}"),
            &open.library().document(name, "x"),
        ));
    }
    tallies.push(tally);
}

/// Tries `file:` of a scripted provider, by itself and through `models.yaml`.
fn scripts(
    world: &GuardedProject,
    open: &OpenProject,
    names: &[String],
    tallies: &mut Vec<NameTally>,
) {
    let (mut direct, mut table) = (
        NameTally::for_entry("provider file"),
        NameTally::for_entry("provider file, by models.yaml"),
    );
    for name in names {
        let what = format!("script {name:.40?}");
        let found = open.library().read_script(name).map(Some);
        assert!(!judge(&what, &found), "{what} is there");
        direct.count(false);
        let quoted = serde_json::to_string(name).unwrap();
        let models = SCRIPTED_MODELS.replace("script.json", &quoted);
        world.write(".ai/config/models.yaml", &models);
        match world.open(false).unwrap().check_model("tiny") {
            Ok(()) => panic!("{what} is a script"),
            Err(failure) => assert_message(&what, &failure.message),
        }
        table.count(false);
    }
    world.write(".ai/config/models.yaml", SCRIPTED_MODELS);
    tallies.extend([direct, table]);
}

/// Tries the names as arguments of the file tools, and as names of tools.
async fn tools(world: &GuardedProject, names: &[String], tallies: &mut Vec<NameTally>) {
    let tools = FilesTools::new(world.dir());
    for tool in ["read_file", "list_files", "search_files", "a tool's name"] {
        let mut tally = NameTally::for_entry(tool);
        for name in names {
            let what = format!("{tool} {name:.40?}");
            let arguments = match tool {
                "search_files" => serde_json::json!({"path": name, "pattern": "canary"}),
                _ => serde_json::json!({"path": name}),
            };
            let arguments = arguments.to_string();
            let result = match tool {
                "a tool's name" => tools.call(name, &arguments).await,
                tool => tools.call(tool, &arguments).await,
            };
            assert_clean(&what, &result.content);
            let root = name.split('/').all(|part| part.is_empty() || part == ".");
            let root = root && !name.starts_with('/') && tool != "read_file";
            assert!(result.failed || root, "{what}: {}", result.content);
            tally.count(!result.failed);
        }
        tallies.push(tally);
    }
    let found = tools.call("search_files", r#"{"pattern": "canary"}"#).await;
    assert_eq!(found.content, "[nothing was found]");
}

/// Checks names that differ in case or form: they are two files, where the file system has both,
/// and each is read by its own name.
async fn check_similar_names(world: &GuardedProject) {
    let twins = [
        "twin.txt",
        "TWIN.txt",
        "é.txt",
        "e\u{301}.txt",
        "ｘ.txt",
        "x.txt",
    ];
    for name in twins {
        world.write(&format!("twins/{name}"), name);
    }
    let tools = FilesTools::new(world.dir());
    let count = std::fs::read_dir(world.path.join("twins")).unwrap().count();
    for name in twins {
        let arguments = serde_json::json!({"path": format!("twins/{name}")}).to_string();
        let result = tools.call("read_file", &arguments).await;
        assert!(
            result.content == name || count < twins.len(),
            "{name}: {}",
            result.content
        );
    }
    for (kind, room) in [("directive", "directives"), ("knowledge", "knowledge")] {
        world.write(&format!(".ai/{room}/Twin.md"), OWN);
        world.write(&format!(".ai/{room}/twin.md"), OWN);
        let open = world.open(false).unwrap();
        let both = std::fs::read_dir(world.path.join(".ai").join(room))
            .unwrap()
            .count()
            == 3;
        for name in ["Twin", "twin"] {
            let answer = open.library().document(kind, name);
            if both {
                let message = answer.unwrap_err().to_string();
                let place = format!(".ai/{room}/{name}.md");
                assert!(
                    message.contains(&place) && message.contains("rename one"),
                    "{message}"
                );
            }
        }
    }
}

/// Tries names of stores: an accepted one makes its own files in its directory and nothing anywhere
/// else.
fn stores(world: &GuardedProject, names: &[String]) -> NameTally {
    let path = world.path.join("stores");
    std::fs::create_dir(&path).unwrap();
    let (dir, mut tally, mut expected) = (
        open_dir(&path),
        NameTally::for_entry("store name"),
        BTreeSet::new(),
    );
    let with_extension = names.iter().map(|name| format!("{name}.db"));
    for name in names.iter().cloned().chain(with_extension) {
        let opened = SqliteStore::open(&dir, &name, SqliteOptions::local()).map(drop);
        match &opened {
            Ok(()) => {
                expected.insert(name.clone());
            }
            Err(StorageError::Other { code, message }) => {
                assert_message(&format!("store {name:.40?}"), message);
                assert_eq!(*code, "bad-name", "{name:.40?}");
            }
            Err(error) => panic!("store {name:.40?}: {error}"),
        }
        tally.count(opened.is_ok());
    }
    let found = std::fs::read_dir(path).unwrap();
    let found = found.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stores: BTreeSet<String> = found.filter(|name| !name.ends_with(".lock")).collect();
    assert_eq!(stores, expected);
    tally
}

/// Tries names of holders, whose lock files are looked for, and of directories granted to tools.
fn holders_and_grants(
    world: &GuardedProject,
    open: &OpenProject,
    names: &[String],
) -> [NameTally; 2] {
    let (mut holders, mut grants) = (
        NameTally::for_entry("holder"),
        NameTally::for_entry("tool grant"),
    );
    let project = ProjectDir::from_dir(world.dir());
    for name in names {
        for holder in [name.clone(), format!("native-{name}"), format!("{name}/1")] {
            let known = holder_state(open.threads().unwrap(), &holder).unwrap();
            assert_eq!(
                known,
                HolderState::Unknown,
                "{holder:?} is nobody we know of"
            );
        }
        holders.count(false);
        let granted = project.tool_grant(name);
        let root = name.split('/').all(|part| part.is_empty() || part == ".");
        match &granted {
            Ok(_) => assert!(root, "{name:.40?} is granted"),
            Err(error) => assert_clean("a grant", &error.to_string()),
        }
        grants.count(granted.is_ok());
    }
    [holders, grants]
}

#[tokio::test(flavor = "multi_thread")]
async fn names_through_the_host() {
    let world = GuardedProject::new();
    let (open, names) = (world.open(false).unwrap(), world.names());
    assert!(names.len() >= 100 && names.iter().filter(|name| may_be_an_id(name)).count() >= 5);
    let mut tallies = Vec::new();
    library(&open, &names, &mut tallies);
    scripts(&world, &open, &names, &mut tallies);
    tools(&world, &names, &mut tallies).await;
    tallies.extend(holders_and_grants(&world, &open, &names));
    tallies.push(stores(&world, &names));
    check_similar_names(&world).await;
    world.outside.assert_untouched("every entry");
    print!("{}", format_tallies(&tallies));
}
