//! The host of commands: the directory that is granted as `/`, and what the process was given.

use crate::calls::bundle_host::{self, FileUse};
use crate::granted_project::GrantedProject;
use std::fs;
use std::io::{self, BufRead, ErrorKind, Read as _, stdin};
use std::path::Path;
use threadkeep_cli::args::{CommonArgs, StoreKind};
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::threads::CommandHost;
use threadkeep_storage::directory::AuthorityError;

/// The directory of the project.
const ROOT: &str = "/";

/// The codes of WASI for a path that leads out of the granted directories: `EPERM` of the host, and
/// `ENOTCAPABLE` of its C library.
const LEAVES_GRANT: [i32; 2] = [63, 76];

/// The host of one command.
pub struct BundleHost {
    file: FileUse,
    /// True if the store of plain files is named as the one that counts.
    names_files: bool,
}

impl BundleHost {
    /// Makes the host. Refuses options that need a native host, and a process without a directory.
    ///
    /// # Errors
    /// A fault that names the option, or shows how to grant a directory.
    pub fn new(common: CommonArgs) -> Result<Self, CommandFault> {
        let names_files = matches!(common.store, Some(StoreKind::Files));
        let host = Self {
            file: bundle_host::begin_command(names_files),
            names_files,
        };
        let grant = host.command_line("", "DIR", "COMMAND");
        let provider = "--env THREADKEEP_PROVIDER=scripted:FILE ";
        let provider = host.command_line(provider, "DIR", "COMMAND");
        for (given, option, instead) in [
            (common.project.is_some(), "--project", grant.as_str()),
            (
                matches!(common.store, Some(StoreKind::Sqlite | StoreKind::Memory)),
                "--store",
                "leave it out: the bundle keeps threads in plain files, .ai/threads/store.d",
            ),
            (
                common.policy.is_some(),
                "--policy",
                "leave it out: the bundle has the caps of the preset local; the native program \
                 takes a policy",
            ),
            (common.provider.is_some(), "--provider", provider.as_str()),
        ] {
            if given {
                let message = format!("this build of threadkeep does not take {option}");
                return Err(CommandFault::usage(message).with_hint(instead));
            }
        }
        match fs::metadata(ROOT) {
            Ok(_) => Ok(host),
            Err(_) => Err(
                CommandFault::new("no-directory", "no directory is granted as /").with_hint(grant),
            ),
        }
    }

    /// Returns the command line that grants a directory and runs a command in it; `options` are
    /// further ones of `wasmtime run`, each with a space after it.
    fn command_line(&self, options: &str, directory: &str, command: &str) -> String {
        let FileUse {
            options: needed,
            file,
        } = &self.file;
        format!("wasmtime run {needed}{options}--dir {directory}::/ {file} {command}")
    }

    /// Opens the project. Refuses a directory without `.ai`.
    fn open_project(&self, creates: bool) -> Result<GrantedProject, CommandFault> {
        let ai = Path::new(ROOT).join(".ai");
        match fs::symlink_metadata(&ai) {
            Ok(found) if found.is_dir() => {
                GrantedProject::open(Path::new(ROOT), creates, self.names_files)
            }
            Ok(_) => Err(CommandFault::new("no-project", "/.ai is no directory")
                .with_hint("put the directory itself there")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let message = "the granted directory is no project: it has no directory .ai";
                let grant = self.command_line("", "DIR", "COMMAND");
                Err(CommandFault::new("no-project", message).with_hint(format!(
                    "write .ai/directives/NAME.md there, or grant another directory: {grant}; the \
                     command demo makes one"
                )))
            }
            Err(error) => Err(CommandFault::new("io", format!("/.ai: {error}"))),
        }
    }
}

impl CommandHost for BundleHost {
    type OpenProject = GrantedProject;
    type DemoDirectory = ();

    fn open(&self) -> Result<GrantedProject, CommandFault> {
        self.open_project(false)
    }

    fn open_to_read(&self, _: &mut OutputScreen) -> Result<GrantedProject, CommandFault> {
        self.open_project(false)
    }

    fn open_or_create(&self) -> Result<GrantedProject, CommandFault> {
        self.open_project(true)
    }

    fn open_rehearsal(&self) -> Result<Option<GrantedProject>, CommandFault> {
        // What is wrong with the place of the store comes before anything is tried.
        self.open_project(false)?;
        Ok(Some(GrantedProject::rehearse(Path::new(ROOT))))
    }

    fn read_file(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, CommandFault> {
        let place = path.display().to_string();
        read_granted_file(path, &place, bytes_max).map_err(|error| match &error {
            AuthorityError::Missing { .. } | AuthorityError::Leaves { .. } => {
                let grant = self.command_line("", "DIR", "COMMAND");
                CommandFault::new("missing", error.to_string()).with_hint(format!(
                    "only files below the granted directory can be read: put a copy there, or \
                     grant another one: {grant}"
                ))
            }
            AuthorityError::Io { source, .. } => {
                CommandFault::new("io", format!("{error}: {source}"))
            }
            _ => CommandFault::new("io", error.to_string()),
        })
    }

    /// Writes the files into the granted directory; those of an earlier demo are left.
    fn create_demo(&self, files: &[(&str, &str)]) -> Result<(), CommandFault> {
        let root = Path::new(ROOT);
        for (path, text) in files {
            let found = fs::read(root.join(path));
            if found.is_ok_and(|bytes| bytes != text.as_bytes()) {
                let message = format!("{path} is there already, and is not the demo's");
                let grant = self.command_line("", "SCRATCH", "demo");
                return Err(CommandFault::usage(message)
                    .with_hint(format!("grant an empty directory: {grant}")));
            }
        }
        for (path, text) in files {
            write_file(&root.join(path), text).map_err(|error| {
                CommandFault::new("io", format!("{path} cannot be written: {error}"))
                    .with_hint("grant a directory that can be written")
            })?;
        }
        Ok(())
    }

    fn describe_demo(&self, (): &()) -> String {
        "the directory that was granted, and stays there: the command list shows its threads."
            .to_owned()
    }

    fn open_demo(&self, (): &()) -> Result<GrantedProject, CommandFault> {
        self.open_or_create()
    }

    fn remove_demo(&self, (): (), _: &mut OutputScreen) {}

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn input(&self) -> Box<dyn BufRead> {
        Box::new(stdin().lock())
    }
}

/// Reads a file below the granted directory. Links are followed as far as the host lets them lead.
fn read_granted_file(path: &Path, place: &str, bytes_max: u64) -> Result<Vec<u8>, AuthorityError> {
    let failed = |source: io::Error| match source.raw_os_error() {
        Some(code) if LEAVES_GRANT.contains(&code) => AuthorityError::Leaves {
            place: place.to_owned(),
        },
        _ => AuthorityError::from_io(place, source),
    };
    let place = place.to_owned();
    // Opening a device or a pipe can have an effect; reading its metadata has none.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(AuthorityError::NotRegular { place });
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    let mut file = file.take(bytes_max.saturating_add(1));
    file.read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > bytes_max {
        true => Err(AuthorityError::TooLarge { place, bytes_max }),
        false => Ok(bytes),
    }
}

fn write_file(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, text)
}
