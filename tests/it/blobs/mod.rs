//! Images and large results: stored as blobs, sent to models on both wires, and what may happen to
//! them.

mod faults;
pub mod images;
mod imports;
mod library;
pub mod prunes;
mod results;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use threadkeep::authority::ProjectDir;
use threadkeep::driver::{DriveError, EndedRun, EventSink, StopReceiver};
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::StorageBackend;
use threadkeep::tools::ToolSet;
use threadkeep::wit::registry::Draft;

use crate::component::project::{engine, project_dir};

/// Models of the projects here: `m` takes images, `blind` takes none.
const MODELS: &str = "providers: {s: {wire: scripted, file: s.json}}\n\
    models:\n  m: {provider: s, window: 64000, output: 100, images: true, \
    prices: {input: \"1\", output: \"1\"}}\n  blind: {provider: s, window: 64000, output: 100, \
    prices: {input: \"1\", output: \"1\"}}\ntiers: {default: m}\n";

/// Twice a round with one call of `fetch`, and a last reply.
const SCRIPT: &str = r#"[
  {"calls": [{"name": "fetch", "arguments": {}}], "usage": {"input": 100, "output": 10}},
  {"text": "Seen.", "usage": {"input": 100, "output": 10}},
  {"calls": [{"name": "fetch", "arguments": {}}], "usage": {"input": 100, "output": 10}},
  {"text": "Seen.", "usage": {"input": 100, "output": 10}}]"#;

/// Bytes that begin as a png does; `seed` makes them differ.
pub fn png(seed: u8, size: usize) -> Vec<u8> {
    let rest = (0..size).map(|n| seed.wrapping_mul(31).wrapping_add((n * 7 + n / 253) as u8));
    [b"\x89PNG\r\n\x1a\n".to_vec(), rest.collect()].concat()
}

pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A project whose chat `c` has tools of this set.
struct BlobProject {
    _temporary: tempfile::TempDir,
    project: OpenProject,
}

impl BlobProject {
    async fn new(
        tools: Arc<dyn ToolSet>,
        store: Option<Arc<dyn StorageBackend>>,
        model: &str,
    ) -> Self {
        let (temporary, dir) = project_dir(MODELS);
        dir.write(".ai/s.json", SCRIPT).unwrap();
        let options = ProjectOptions {
            tools: vec![tools],
            store,
            ..ProjectOptions::new(Policy::preset(PolicyPreset::Local))
        };
        let project = OpenProject::open(engine(), &ProjectDir::from_dir(dir), options).unwrap();
        let draft = Draft {
            id: Some("c".to_owned()),
            model: Some(model.to_owned()),
            capabilities: vec!["execute.tool.*".to_owned()],
            ..Draft::default()
        };
        project.tenant().create(draft).await.unwrap();
        Self {
            _temporary: temporary,
            project,
        }
    }

    async fn run(&self, input: &str) -> Result<EndedRun, DriveError> {
        let input = Some(input.to_owned());
        let (sink, stop) = (EventSink::none(), StopReceiver::never());
        self.project.driver().run("c", input, &sink, &stop).await
    }

    /// The stored events of this type in chat `c`.
    async fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        let page = self.project.tenant().events("c", 0, 100, None).await;
        let events = page.unwrap().events.into_iter();
        let of_kind = events.filter(|event| event.kind == kind);
        of_kind
            .map(|event| serde_json::from_str(&event.body).unwrap())
            .collect()
    }

    fn storage(&self) -> &dyn StorageBackend {
        &*self.project.tenant().context().storage
    }

    /// Returns the findings of the audit.
    fn findings(&self) -> Vec<String> {
        threadkeep_tests::auditor::audit(self.storage())
    }
}
