//! Objects planted in a project: links of every kind, pipes, sockets, second names. Nothing outside
//! is read, written or removed, whatever a host does, and a refusal names the place.

use super::fixture::{GuardedProject, OWN, chat};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;
use threadkeep::authority::{dead_processes, holder_state, remove_lock_files};
use threadkeep::documents::ThreadDocuments;
use threadkeep::library::TenantLibrary;
use threadkeep::project::OpenProject;
use threadkeep::tools::{ToolSet, files::FilesTools};
use threadkeep_tests::corpus::assert_clean;

/// The kind of the planted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlantedObject {
    LinkToFile,
    LinkToDirectory,
    Dangling,
    Loop,
    Pipe,
    Socket,
    HardLink,
    Directory,
    Unreadable,
}

const PLANTS: [PlantedObject; 9] = [
    PlantedObject::LinkToFile,
    PlantedObject::LinkToDirectory,
    PlantedObject::Dangling,
    PlantedObject::Loop,
    PlantedObject::Pipe,
    PlantedObject::Socket,
    PlantedObject::HardLink,
    PlantedObject::Directory,
    PlantedObject::Unreadable,
];

/// A place, whether a directory belongs there, and the host's operation that meets it first.
const PLACES: [(&str, bool, &str); 16] = [
    (".ai", true, "open"),
    (".ai/threads", true, "open"),
    (".ai/threads/a", true, "documents"),
    (".ai/threads/a/b", true, "documents"),
    (".ai/threads/a/b/thread.json", false, "documents"),
    (".ai/threads/a/b/transcript.jsonl", false, "documents"),
    (".ai/threads/a/b/transcript.md", false, "documents"),
    (".ai/threads/locks.d", true, "open"),
    (
        ".ai/threads/locks.d/native-00000000000000ff.lock",
        false,
        "locks",
    ),
    (".ai/directives", true, "directive"),
    (".ai/directives/x.md", false, "directive"),
    (".ai/knowledge", true, "knowledge"),
    (".ai/knowledge/x.md", false, "knowledge"),
    (".ai/config", true, "models"),
    (".ai/config/models.yaml", false, "models"),
    (".ai/script.json", false, "script"),
];

fn plant(world: &GuardedProject, plant: PlantedObject, place: &str) {
    let (at, outside) = (world.path.join(place), world.outside.path());
    match std::fs::symlink_metadata(&at) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(&at).unwrap(),
        Ok(_) => std::fs::remove_file(&at).unwrap(),
        Err(_) => std::fs::create_dir_all(at.parent().unwrap()).unwrap(),
    }
    match plant {
        PlantedObject::LinkToFile => symlink(outside.join("canary"), &at).unwrap(),
        PlantedObject::LinkToDirectory => symlink(outside, &at).unwrap(),
        PlantedObject::Dangling => symlink(outside.join("none"), &at).unwrap(),
        PlantedObject::Loop => symlink(at.file_name().unwrap(), &at).unwrap(),
        PlantedObject::Pipe => make_pipe(&at),
        // A socket's path has at most 108 bytes, and a temporary directory may be deep.
        PlantedObject::Socket => {
            let short = tempfile::tempdir().unwrap();
            drop(UnixListener::bind(short.path().join("s")).unwrap());
            if std::fs::rename(short.path().join("s"), &at).is_err() {
                make_pipe(&at);
            }
        }
        PlantedObject::HardLink => std::fs::hard_link(outside.join("canary"), &at).unwrap(),
        PlantedObject::Directory => std::fs::create_dir(&at).unwrap(),
        PlantedObject::Unreadable => {
            std::fs::write(&at, OWN).unwrap();
            std::fs::set_permissions(&at, PermissionsExt::from_mode(0o0)).unwrap();
        }
    }
}

fn make_pipe(at: &Path) {
    let made = std::process::Command::new("mkfifo").arg(at).status();
    assert!(made.unwrap().success(), "mkfifo is there");
}

/// Answers of a host, by operation.
#[derive(Default)]
struct HostAnswers(Vec<(&'static str, Result<String, String>)>);

impl HostAnswers {
    fn note<T: std::fmt::Debug, E: std::fmt::Display>(
        &mut self,
        did: &'static str,
        answer: Result<T, E>,
    ) {
        let answer = answer.map(|given| format!("{given:?}"));
        self.0
            .push((did, answer.map_err(|error| error.to_string())));
    }

    /// The refusals of one operation.
    fn refusals(&self, did: &str) -> Vec<&str> {
        let refused = |(what, answer): &'_ (&'static str, Result<String, String>)| {
            *what == did && answer.is_err()
        };
        let said = self.0.iter().filter(|said| refused(said));
        said.filter_map(|(_, answer)| answer.as_ref().err().map(String::as_str))
            .collect()
    }
}

/// Does everything that a host does with the files of a project.
async fn exercise_host(world: &GuardedProject, sqlite: bool) -> HostAnswers {
    let mut said = HostAnswers::default();
    let open = match world.open(sqlite) {
        Ok(open) => open,
        Err(error) => {
            said.note("open", Err::<(), _>(error));
            return said;
        }
    };
    said.note("open", Ok::<_, String>(()));
    for kind in ["directive", "knowledge", "model", "settings"] {
        said.note("list", open.library().names(kind));
    }
    said.note("directive", open.library().document("directive", "x"));
    said.note("knowledge", open.library().document("knowledge", "x"));
    said.note(
        "models",
        open.library().models().map(|table| table.names().len()),
    );
    said.note("script", open.library().read_script("script.json"));
    said.note("settings", open.check_settings());
    said.note(
        "provider",
        open.check_model("tiny").map_err(|failure| failure.message),
    );
    let threads = open.threads().expect("it was opened for writing");
    said.note("locks", dead_processes(threads));
    let nonce = "native-00000000000000ff";
    said.note("locks", remove_lock_files(threads, &[nonce.to_owned()]));
    said.note("locks", holder_state(threads, nonce));
    said.note("recover", open.recover(&[]).await);
    documents(&open, &mut said).await;
    let tools = FilesTools::new(world.dir());
    for (tool, arguments) in [
        ("list_files", r#"{"depth": 8}"#),
        ("search_files", r#"{"pattern": "canary"}"#),
        ("search_files", r#"{"pattern": "own"}"#),
        ("read_file", r#"{"path": "notes.txt"}"#),
        ("read_file", r#"{"path": "sub/notes.txt"}"#),
        ("list_files", r#"{"path": "sub"}"#),
    ] {
        let result = tools.call(tool, arguments).await;
        match result.failed {
            true => said.note("tools", Err::<(), _>(result.content)),
            false => said.note("tools", Ok::<_, String>(result.content)),
        }
    }
    said
}

async fn documents(open: &OpenProject, said: &mut HostAnswers) {
    let created = open.tenant().create(chat("a/b")).await;
    said.note("create", created);
    let threads = open.threads().expect("it was opened for writing");
    let documents = ThreadDocuments::new(open.tenant().clone(), threads.try_clone().unwrap());
    said.note("documents", documents.check("a/b").await);
    said.note("documents", documents.refresh("a/b").await);
    said.note("documents", documents.check("a/b").await);
    said.note("documents", documents.repair("a/b").await);
    said.note(
        "documents",
        documents.repair_all().await.map(|done| done.threads),
    );
}

/// Plants an object, exercises the host, and checks the outside and the answers.
async fn check(what: PlantedObject, place: &str, sqlite: bool) -> (GuardedProject, HostAnswers) {
    let world = GuardedProject::new();
    plant(&world, what, place);
    let limit = Duration::from_secs(120);
    let Ok(said) = tokio::time::timeout(limit, exercise_host(&world, sqlite)).await else {
        panic!("{what:?} at {place}: something waits for ever");
    };
    world
        .outside
        .assert_untouched(&format!("{what:?} at {place}"));
    for (did, answer) in &said.0 {
        let text = answer.as_ref().unwrap_or_else(|refused| refused);
        assert_clean(&format!("{did}, {what:?} at {place}"), text);
    }
    (world, said)
}

/// Returns true if the planted object belongs there, or can be replaced harmlessly.
fn is_allowed_at(what: PlantedObject, place: &str, directory: bool) -> bool {
    let document =
        place.ends_with(".json") && place.contains("threads") || place.contains("transcript");
    match what {
        PlantedObject::Directory => directory,
        // Root reads everything; for other users it is an error of the system.
        PlantedObject::Unreadable => !directory,
        // A document with a second name is replaced by one without; a lock is neither read nor
        // written.
        PlantedObject::HardLink => document || place.ends_with(".lock"),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_objects_at_every_project_path() {
    let (mut refused, mut fitting) = (0, 0);
    for (place, directory, meets) in PLACES {
        for what in PLANTS {
            let (_world, said) = check(what, place, false).await;
            let refusals = said.refusals(meets);
            if is_allowed_at(what, place, directory) {
                fitting += 1;
                continue;
            }
            refused += 1;
            assert!(
                !refusals.is_empty(),
                "{what:?} at {place} is taken by {meets}"
            );
            let named = refusals.iter().all(|message| message.contains(place));
            assert!(named, "{what:?} at {place}: {refusals:#?}");
        }
    }
    println!("{refused} plants refused with their place named, {fitting} harmless");
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_objects_at_store_files() {
    let files = [
        "registry.db",
        "registry.db-wal",
        "registry.db-shm",
        "registry.db-journal",
        "registry.db.lock",
    ];
    for file in files {
        for what in PLANTS {
            let place = format!(".ai/threads/{file}");
            let (_world, said) = check(what, &place, true).await;
            if what == PlantedObject::Unreadable {
                continue;
            }
            let refusals = said.refusals("open");
            assert_eq!(refusals.len(), 1, "{what:?} at {place}");
            assert!(
                refusals[0].contains(file),
                "{what:?} at {place}: {refusals:?}"
            );
        }
    }
}

/// In the directory that tools may read.
#[tokio::test(flavor = "multi_thread")]
async fn planted_objects_in_the_granted_directory() {
    for place in ["notes.txt", "sub", "sub/notes.txt"] {
        for what in PLANTS {
            let (_world, said) = check(what, place, false).await;
            let told = said.refusals("tools");
            let fits = matches!(
                (what, place),
                (PlantedObject::Directory, "sub") | (PlantedObject::Unreadable, _)
            );
            assert!(fits || !told.is_empty(), "{what:?} at {place} is read");
            assert!(
                told.iter()
                    .all(|message| message.contains(place) || message.contains("sub")),
                "{told:?}"
            );
        }
    }
}

/// Tools do not read a file of `.ai` under a second name outside it.
#[tokio::test(flavor = "multi_thread")]
async fn hard_links_to_own_files_are_not_read() {
    let world = GuardedProject::new();
    let secret = "of the tenant";
    for (name, place) in [
        ("a.md", ".ai/directives/a.md"),
        ("b.md", ".ai/threads/b.md"),
    ] {
        world.write(place, secret);
        std::fs::hard_link(world.path.join(place), world.path.join(name)).unwrap();
    }
    let tools = FilesTools::new(world.dir());
    for (tool, arguments) in [
        ("read_file", r#"{"path": "a.md"}"#),
        ("read_file", r#"{"path": "b.md"}"#),
        ("search_files", r#"{"pattern": "tenant"}"#),
        ("search_files", r#"{"pattern": "tenant", "path": "a.md"}"#),
    ] {
        let result = tools.call(tool, arguments).await;
        assert!(
            !result.content.contains(secret),
            "{tool} {arguments}: {}",
            result.content
        );
        assert!(
            result.content.contains("hard link"),
            "{tool} {arguments}: {}",
            result.content
        );
    }
    // The directive itself has two names now, too, so it could belong to another owner.
    let error = world
        .open(false)
        .unwrap()
        .library()
        .document("directive", "a")
        .unwrap_err();
    assert!(
        error.to_string().contains(".ai/directives/a.md")
            && error.to_string().contains("hard link"),
        "{error}"
    );
}
