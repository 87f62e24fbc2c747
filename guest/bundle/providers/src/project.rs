//! The project that the host has granted as `/`: its store and its library, opened at first use.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use threadkeep_adapters::environment::EnvironmentSnapshot;
use threadkeep_adapters::file_tools::file_tool_entries;
use threadkeep_adapters::library::LibraryFiles;
use threadkeep_adapters::library::files::FilesLibrary;
use threadkeep_adapters::policy::{Policy, PolicyPreset};
use threadkeep_storage::directory::{
    AuthorityError, DescriptorTree, DirectoryTree, open_or_create_tree,
};
use threadkeep_storage::files::{FilesOptions, FilesStore};
use threadkeep_storage::memory::MemoryStore;
use threadkeep_storage::{StorageBackend, StorageError};
use threadkeep_units::project_layout::{FILES_STORE, FoundStores, STORE_CHOICE, TWO_STORES};

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

/// True if the command was told that the store of plain files is the one that counts.
static NAMES_FILES: AtomicBool = AtomicBool::new(false);

/// Keeps that the store of plain files is the one that counts.
pub fn name_files_store() {
    NAMES_FILES.store(true, Ordering::Relaxed);
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
    let Some(root) = DescriptorTree::writable(ROOT) else {
        return Err(refuse("no-directory", &describe_missing_directory()));
    };
    let (mut directory, mut place): (Box<dyn DirectoryTree>, _) = (Box::new(root), String::new());
    for name in STORE_PATH {
        if name == FILES_STORE {
            check_one_store(&*directory)?;
        }
        place = format!("{place}/{name}");
        let opened = open_or_create_tree(&*directory, name);
        directory = opened.map_err(|error| open_fault(&place, error))?;
    }
    let mut writer = [0; 12];
    getrandom::fill(&mut writer)
        .map_err(|_| refuse("no-random", "the host gives no random bytes"))?;
    let options = FilesOptions {
        writer: writer.iter().map(|byte| format!("{byte:02x}")).collect(),
        durable: true,
        quota: None,
    };
    FilesStore::open(directory, options)
}

/// Refuses a project whose threads are in SQLite, or whose store is being copied: a native host
/// would not see what is written to the store of files.
fn check_one_store(threads: &dyn DirectoryTree) -> Result<(), StorageError> {
    let exists = |name: &str| threads.details(name).is_ok();
    if exists(STORE_CHOICE) {
        let problem = "the store of this project is being copied, or a copy was interrupted: try \
                       again; if none runs, `threadkeep copy --to files` of the native program \
                       ends it";
        return Err(refuse("being-copied", problem));
    }
    match FoundStores::look(exists) {
        FoundStores::Nothing | FoundStores::Files => Ok(()),
        FoundStores::Both if NAMES_FILES.load(Ordering::Relaxed) => Ok(()),
        FoundStores::Both => Err(refuse("two-stores", TWO_STORES)),
        FoundStores::Sqlite => {
            let problem = "this project keeps its threads in SQLite, which only a native host can \
                           read: move them with `threadkeep copy --to files`";
            Err(refuse("sqlite-store", problem))
        }
    }
}

/// The fault of a directory on the way to the store, which is missing or is to be one.
fn open_fault(place: &str, error: AuthorityError) -> StorageError {
    let denied = |reason: &str| refuse("read-only", &format!("{place} cannot be written{reason}"));
    match &error {
        AuthorityError::Link { .. } | AuthorityError::NotDirectory { .. } => refuse(
            "not-a-directory",
            &format!("{place} is a link or a file: put the directory itself there"),
        ),
        // The host lets nothing be changed.
        AuthorityError::Leaves { .. } => denied(""),
        AuthorityError::Io { source, .. } => match source.kind() {
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                denied(&format!(" ({source})"))
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StorageError::Unavailable {
                message: format!("the disk is full: free space on it ({place})"),
            },
            _ => StorageError::Unavailable {
                message: format!("{place}: {source}"),
            },
        },
        _ => StorageError::Unavailable {
            message: error.with_place(place).to_string(),
        },
    }
}

fn refuse(code: &'static str, message: &str) -> StorageError {
    StorageError::Other {
        code,
        message: message.to_owned(),
    }
}
