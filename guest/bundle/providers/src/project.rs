//! The project that the host has granted as `/`: its store and its library, opened at first use.

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use threadkeep_adapters::environment::EnvironmentSnapshot;
use threadkeep_adapters::file_tools::file_tool_entries;
use threadkeep_adapters::library::LibraryFiles;
use threadkeep_adapters::library::files::FilesLibrary;
use threadkeep_adapters::policy::{Policy, PolicyPreset};
use threadkeep_storage::directory::{DescriptorTree, PreopenedDirectory};
use threadkeep_storage::files::{FilesOptions, FilesStore};
use threadkeep_storage::memory::MemoryStore;
use threadkeep_storage::{StorageBackend, StorageError};
use threadkeep_units::project_layout::{FILES_STORE, SQLITE_STORE, STORE_CHOICE};

/// The path under which the project is granted.
const ROOT: &str = "/";

/// Directories from the project's root to its store. None of them may be a link.
const STORE_PATH: [&str; 3] = [".ai", "threads", FILES_STORE];

/// The variable that names a script in place of the providers of `models.yaml`.
pub const PROVIDER_VARIABLE: &str = "THREADKEEP_PROVIDER";

/// The name of the file that the component is in.
#[cfg(feature = "http")]
pub const FILE_NAME: &str = "threadkeep.wasm";
#[cfg(not(feature = "http"))]
pub const FILE_NAME: &str = "threadkeep-offline.wasm";

/// The options of `wasmtime run` that the file needs, each with a space after it.
#[cfg(feature = "http")]
pub const FILE_OPTIONS: &str = "-S http ";
#[cfg(not(feature = "http"))]
pub const FILE_OPTIONS: &str = "";

/// Returns the problem where no directory was granted, and the command that grants one.
pub fn describe_missing_directory() -> String {
    format!(
        "no directory is granted as /: grant the project's, as in `wasmtime run \
         {FILE_OPTIONS}--dir .::/ ... {FILE_NAME}`"
    )
}

/// The store in memory of the rehearsal that is under way.
static REHEARSAL: Mutex<Option<Arc<MemoryStore>>> = Mutex::new(None);

/// Begins a rehearsal over an empty store in memory, or ends it.
pub fn set_rehearsal(rehearses: bool) {
    let store = rehearses.then(|| Arc::new(MemoryStore::new()));
    *REHEARSAL.lock().unwrap_or_else(PoisonError::into_inner) = store;
}

/// Returns the store in memory while a rehearsal is under way; else that of the project, made if
/// the project has none. A failure is not remembered.
pub fn store() -> Result<Arc<dyn StorageBackend>, StorageError> {
    static STORE: OnceLock<Arc<FilesStore>> = OnceLock::new();
    let rehearsal = REHEARSAL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = &*rehearsal {
        return Ok(Arc::<MemoryStore>::clone(store));
    }
    drop(rehearsal);
    if let Some(store) = STORE.get() {
        return Ok(Arc::<FilesStore>::clone(store));
    }
    let opened = Arc::new(open_store()?);
    Ok(Arc::<FilesStore>::clone(STORE.get_or_init(|| opened)))
}

/// Returns the library of the project; one without `.ai` has the built-in models alone.
pub fn library() -> &'static FilesLibrary {
    static LIBRARY: OnceLock<FilesLibrary> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let files = root_files().and_then(|root| root.open_directory(".ai", ".ai").unwrap_or(None));
        let policy = Policy::preset(PolicyPreset::Local);
        FilesLibrary::new(
            files,
            policy,
            file_tool_entries(),
            environment().for_providers(),
        )
    })
}

/// The project's directory, which can be read; `None` if the host grants none as [`ROOT`].
pub fn root_tree() -> Option<DescriptorTree> {
    DescriptorTree::read_only(ROOT)
}

/// The project's directory as a library reads it.
pub fn root_files() -> Option<LibraryFiles> {
    Some(LibraryFiles::new(Box::new(root_tree()?)))
}

/// The variables that the host passes.
pub fn environment() -> EnvironmentSnapshot {
    EnvironmentSnapshot::from_pairs(
        std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }),
    )
}

fn open_store() -> Result<FilesStore, StorageError> {
    if root_tree().is_none() {
        return Err(refuse("no-directory", &describe_missing_directory()));
    }
    let mut path = PathBuf::from(ROOT);
    for name in STORE_PATH {
        if name == STORE_PATH[2] {
            check_one_store(&path)?;
        }
        path.push(name);
        open_or_create(&path)?;
    }
    let mut writer = [0; 12];
    getrandom::fill(&mut writer)
        .map_err(|_| refuse("no-random", "the host gives no random bytes"))?;
    let options = FilesOptions {
        writer: writer.iter().map(|byte| format!("{byte:02x}")).collect(),
        durable: true,
        quota: None,
    };
    FilesStore::open(Box::new(PreopenedDirectory::new(path)), options)
}

/// Refuses a project whose threads are in SQLite, or whose store is being copied: a native host
/// would not see what is written to the store of files.
fn check_one_store(threads: &std::path::Path) -> Result<(), StorageError> {
    let exists = |name: &str| std::fs::symlink_metadata(threads.join(name)).is_ok();
    if exists(STORE_CHOICE) {
        let problem = "the store of this project is being copied, or a copy was broken off: try \
                       again, or run `threadkeep list` there, which says what to do";
        return Err(refuse("being-copied", problem));
    }
    if exists(SQLITE_STORE) {
        let problem = "this project keeps its threads in SQLite, which only a native host can \
                       read: move them with `threadkeep copy --to files`";
        return Err(refuse("sqlite-store", problem));
    }
    Ok(())
}

/// Makes a directory, or checks that what is there is one.
fn open_or_create(path: &std::path::Path) -> Result<(), StorageError> {
    let place = path.display();
    let failed = |error: &io::Error| match error.kind() {
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            refuse("read-only", &format!("{place} cannot be written ({error})"))
        }
        _ => StorageError::Unavailable {
            message: format!("{place}: {error}"),
        },
    };
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(failed(&error)),
        Ok(()) | Err(_) => {}
    }
    let found = std::fs::symlink_metadata(path).map_err(|error| failed(&error))?;
    match found.is_dir() {
        true => Ok(()),
        false => Err(refuse(
            "not-a-directory",
            &format!("{place} is a link or a file: put the directory itself there"),
        )),
    }
}

fn refuse(code: &'static str, message: &str) -> StorageError {
    StorageError::Other {
        code,
        message: message.to_owned(),
    }
}
