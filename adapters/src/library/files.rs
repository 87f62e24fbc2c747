//! The library in a project's `.ai` directory, restricted by the operator's policy.
//!
//! Every call reads the files again. A thread pins its settings at its first run, so an edit
//! affects the next thread and no other. Nothing is opened outside `.ai/directives`,
//! `.ai/knowledge` and `.ai/config`, whatever a name contains. The guest decides which fields a
//! directive or a setting may have.

mod names;

use super::models::ModelTable;
use super::{
    LibraryError, LibraryFiles, NAMES_MAX, TenantLibrary, front_matter, tool_document, yaml,
};
use crate::ToolEntry;
use crate::environment::EnvironmentSnapshot;
pub use crate::policy::Policy;
pub use names::{NAME_BYTES_MAX, is_document_name};
use serde_json::{Value, json};

/// Largest directive or knowledge file. It becomes part of a record of at most 1 MiB, beside other
/// data.
pub const DOCUMENT_BYTES_MAX: u64 = 512 << 10;

/// Largest file of scripted answers.
pub const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Most directory entries that one call looks at. A project has hundreds of directives. In a
/// directory with more files than this, a file is still found by its name, but the listing is not
/// complete.
pub const ENTRIES_MAX: usize = 10_000;

/// Most levels below `directives` or `knowledge` that a listing searches.
pub const DEPTH_MAX: usize = 16;

/// Files in `.ai/config` that may hold the settings of coordination.
const COORDINATION_FILES: [&str; 2] = ["coordination.yaml", "agent/coordination.yaml"];

/// Names of the kind `settings`.
const SETTINGS: [&str; 4] = ["coordination", "policy", "preset", "state_persistence"];

/// File in `.ai/config` that holds the settings of state persistence.
const STATE_FILE: &str = "state_persistence.yaml";

/// The library of one tenant.
#[derive(Debug)]
pub struct FilesLibrary {
    ai: Option<LibraryFiles>,
    policy: Policy,
    catalog: Vec<ToolEntry>,
    environment: EnvironmentSnapshot,
    /// [`ENTRIES_MAX`], less in tests.
    entries_max: usize,
}

impl FilesLibrary {
    /// Makes a library over `.ai` (`None` for a project without it, which has only the built-in
    /// models). `catalog` has the tools that the tenant was granted, `environment` the variables
    /// that a provider's address and key may use.
    pub fn new(
        ai: Option<LibraryFiles>,
        policy: Policy,
        catalog: Vec<ToolEntry>,
        environment: EnvironmentSnapshot,
    ) -> Self {
        Self {
            ai,
            policy,
            catalog,
            environment,
            entries_max: ENTRIES_MAX,
        }
    }

    /// Bounds the directory entries that one call looks at to less than [`ENTRIES_MAX`].
    #[must_use]
    pub fn with_entries_max(mut self, entries_max: usize) -> Self {
        self.entries_max = entries_max.min(ENTRIES_MAX);
        self
    }

    /// Reads the models and providers that the tenant may use.
    pub fn models(&self) -> Result<ModelTable, LibraryError> {
        Ok(self.unrestricted_models()?.restrict_to_policy(&self.policy))
    }

    /// Reads the models and providers that the tenant's file asks for, without the policy.
    fn unrestricted_models(&self) -> Result<ModelTable, LibraryError> {
        let text = self.config("models.yaml")?;
        ModelTable::load(text.as_deref(), self.environment.clone())
    }

    /// Returns the operator's policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the file that holds the settings of checkpoints on disk, if there is one.
    pub fn find_persistence_file(&self) -> Result<Option<String>, LibraryError> {
        let text = self.config(STATE_FILE)?;
        Ok(text.map(|_| format!(".ai/config/{STATE_FILE}")))
    }

    /// Returns the file that holds the settings of coordination, if there is one.
    pub fn find_coordination_file(&self) -> Result<Option<String>, LibraryError> {
        for file in COORDINATION_FILES {
            if self.config(file)?.is_some() {
                return Ok(Some(format!(".ai/config/{file}")));
            }
        }
        Ok(None)
    }

    /// Reads the answers of a scripted provider; `file` is relative to `.ai`.
    pub fn read_script(&self, file: &str) -> Result<String, LibraryError> {
        let shown = names::printable_name(file);
        let place = format!(".ai/{shown}");
        let missing = || {
            let problem = "there is no such file; it is named relative to .ai";
            LibraryError::invalid(&place, &shown, problem)
        };
        let ai = self.ai.as_ref().ok_or_else(missing)?;
        read_text(ai, file, &place, SCRIPT_BYTES_MAX)?.ok_or_else(missing)
    }

    fn directive(&self, name: &str) -> Result<Option<String>, LibraryError> {
        let Some((place, bytes)) = self.find_document("directives", name)? else {
            return Ok(None);
        };
        let document = parse_document(&place, &bytes)?;
        let json = json!({"name": name, "body": document.body, "front": document.front});
        Ok(Some(json.to_string()))
    }

    fn knowledge(&self, name: &str) -> Result<Option<String>, LibraryError> {
        let Some((place, bytes)) = self.find_document("knowledge", name)? else {
            return Ok(None);
        };
        let json = json!({"name": name, "body": parse_document(&place, &bytes)?.body});
        Ok(Some(json.to_string()))
    }

    fn model(&self, name: &str) -> Result<Option<String>, LibraryError> {
        match self.models()?.resolve(name) {
            Some(model) => Ok(Some(model.to_document().to_string())),
            // The model exists but is not granted. The error says so, because the tenant would
            // otherwise look for a typing error.
            None => match self.unrestricted_models()?.resolve(name) {
                Some(own) => Err(self.policy.model_refusal(own)),
                None => Ok(None),
            },
        }
    }

    fn tool(&self, name: &str) -> Result<Option<String>, LibraryError> {
        let tool = self.catalog.iter().find(|tool| tool.name == name);
        tool.map(tool_document).transpose()
    }

    fn setting(&self, name: &str) -> Result<Option<String>, LibraryError> {
        let value = match name {
            "preset" => Some(json!({"name": self.policy.preset.as_str()})),
            "policy" => Some(self.policy.to_guest_document()),
            "coordination" => self.coordination()?,
            "state_persistence" => self.read_config(STATE_FILE)?,
            _ => None,
        };
        Ok(value.map(|value| value.to_string()))
    }

    /// Reads the settings of coordination from one of their two files. A file at both places is an
    /// error, because nothing says which one holds.
    fn coordination(&self) -> Result<Option<Value>, LibraryError> {
        let [one, other] = COORDINATION_FILES;
        match (self.read_config(one)?, self.read_config(other)?) {
            (Some(_), Some(_)) => {
                let problem = format!(".ai/config/{other} is there too; keep one of them");
                Err(LibraryError::invalid(
                    format!(".ai/config/{one}"),
                    "",
                    problem,
                ))
            }
            (one, other) => Ok(one.or(other)),
        }
    }

    fn read_config(&self, file: &str) -> Result<Option<Value>, LibraryError> {
        let Some(text) = self.config(file)? else {
            return Ok(None);
        };
        let place = |line: usize| format!(".ai/config/{file}:{line}");
        match yaml::parse(&text, 1) {
            Ok(Value::Null) => Ok(Some(json!({}))),
            Ok(value @ Value::Object(_)) => Ok(Some(value)),
            Ok(other) => {
                let problem = format!(
                    "settings are keys with values, and not {}",
                    front_matter::value_noun(&other)
                );
                Err(LibraryError::invalid(place(1), "", problem))
            }
            Err(error) => Err(LibraryError::invalid(
                place(error.line),
                "",
                format!("column {}: {}", error.column, error.problem),
            )),
        }
    }

    fn config(&self, file: &str) -> Result<Option<String>, LibraryError> {
        let Some(root) = self.open_subdirectory("config")? else {
            return Ok(None);
        };
        read_text(
            &root,
            file,
            &format!(".ai/config/{file}"),
            yaml::TEXT_BYTES_MAX as u64,
        )
    }

    /// Reads a Markdown file by name; returns its place for errors, and its bytes.
    fn find_document(
        &self,
        room: &str,
        name: &str,
    ) -> Result<Option<(String, Vec<u8>)>, LibraryError> {
        names::check_name(name).map_err(|problem| {
            let shown = names::printable_name(name);
            LibraryError::invalid(format!(".ai/{room}"), shown, problem)
        })?;
        let place = format!(".ai/{room}/{name}.md");
        let Some(root) = self.open_subdirectory(room)? else {
            return Ok(None);
        };
        match names::find_file(&root, name, &place, self.entries_max)? {
            names::FoundFile::Nothing => Ok(None),
            names::FoundFile::DiffersInCase(twin) => {
                let problem = format!(
                    "{twin} differs from it in upper and lower case only; rename one of them"
                );
                Err(LibraryError::invalid(&place, name, problem))
            }
            names::FoundFile::File(path) => {
                let bytes = root.read(&path, &place, DOCUMENT_BYTES_MAX)?;
                Ok(bytes.map(|bytes| (place, bytes)))
            }
        }
    }

    fn list_names(&self, room: &str) -> Result<Vec<String>, LibraryError> {
        match self.open_subdirectory(room)? {
            Some(root) => names::list_names(&root, &format!(".ai/{room}"), self.entries_max),
            None => Ok(Vec::new()),
        }
    }

    /// Opens a directory directly below `.ai`; `None` if it does not exist.
    fn open_subdirectory(&self, room: &str) -> Result<Option<LibraryFiles>, LibraryError> {
        match &self.ai {
            Some(ai) => ai.open_directory(room, &format!(".ai/{room}")),
            None => Ok(None),
        }
    }
}

impl TenantLibrary for FilesLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        match kind {
            "directive" => self.directive(name),
            "knowledge" => self.knowledge(name),
            "model" => self.model(name),
            "tool" => self.tool(name),
            "settings" => self.setting(name),
            _ => Err(unknown_kind()),
        }
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        let mut names: Vec<String> = match kind {
            "directive" => self.list_names("directives")?,
            "knowledge" => self.list_names("knowledge")?,
            "model" => {
                let table = self.models()?;
                table.names().into_iter().map(str::to_owned).collect()
            }
            "tool" => self.catalog.iter().map(|tool| tool.name.clone()).collect(),
            "settings" => SETTINGS.map(str::to_owned).to_vec(),
            _ => return Err(unknown_kind()),
        };
        names.truncate(NAMES_MAX);
        Ok(names)
    }
}

fn unknown_kind() -> LibraryError {
    LibraryError::Other {
        code: "unknown_kind",
        message: "the library has directives, models, tools, settings and knowledge".to_owned(),
    }
}

fn parse_document(place: &str, bytes: &[u8]) -> Result<front_matter::MarkdownFile, LibraryError> {
    front_matter::parse(bytes).map_err(|error| at_line(place, error.line(), error.problem()))
}

fn read_text(
    files: &LibraryFiles,
    path: &str,
    place: &str,
    bytes_max: u64,
) -> Result<Option<String>, LibraryError> {
    let Some(bytes) = files.read(path, place, bytes_max)? else {
        return Ok(None);
    };
    let text = front_matter::decode_utf8(&bytes)
        .map_err(|error| at_line(place, error.line(), error.problem()))?;
    Ok(Some(text.to_owned()))
}

fn at_line(place: &str, line: usize, problem: String) -> LibraryError {
    LibraryError::invalid(format!("{place}:{line}"), "", problem)
}
