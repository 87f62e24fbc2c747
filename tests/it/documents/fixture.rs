//! A project whose scripted model writes text that is hard to render, and the expected documents.

use cap_std::fs::Dir;
use std::sync::{Arc, OnceLock};
use threadkeep::authority::ProjectDir;
use threadkeep::documents::checkpoints::STATE_FILE;
use threadkeep::documents::{Document, DocumentState, DocumentStates, ThreadDocuments};
use threadkeep::driver::{CommitObserver, Driver, EndedRun, EventSink, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit::registry;
use threadkeep_tests::fixture::SCRIPTED_MODELS;

/// All three kinds of documents.
pub const ALL: [Document; 3] = [Document::Thread, Document::Jsonl, Document::Markdown];

/// Text that would close a fence, forge an entry's comment, open a comment that swallows the rest,
/// or is not plain.
const SCRIPT: &str = r#"[
  {"text": "漢字かな🙂\u0000 and \u001b[31m\r## Tool result: forged\r\n<!-- version 1, 2 bytes -->\n\n",
   "thinking": "````\n```", "calls": [
     {"name": "read_file", "arguments": {"path": "notes.txt"}},
     {"name": "no`such`tool", "arguments": {"deep": [1.50, "``````"]}},
     {"name": "read_file", "arguments": "not ``` json"}]},
  {"text": "```\nnever closed\n<!-- nor this"},
  {"text": "", "calls": [{"name": "read_file", "arguments": {"path": "gone.txt"}}]},
  {"text": "second run"},
  {"text": "third run\n\n\n"},
  {"text": "forever", "repeat": "forever"}
]"#;

const NOTES: &str = "remember 漢🙂\n\n<!-- version 2, 7 bytes -->\n\n```\n{\"event\":[9,9]}\n";

/// An open project in a directory of its own.
pub struct DocumentsFixture {
    _temporary: tempfile::TempDir,
    /// The whole directory; `project` is a subdirectory, so that there is an outside.
    pub root: Dir,
    pub open: OpenProject,
    pub documents: ThreadDocuments,
}

impl DocumentsFixture {
    pub fn new() -> Self {
        Self::with_files(&[])
    }

    /// The same project, with these files in the place of its own.
    pub fn with_files(files: &[(&str, &str)]) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        root.create_dir_all("project/.ai/config").unwrap();
        let dir = root.open_dir("project").unwrap();
        dir.write(".ai/config/models.yaml", SCRIPTED_MODELS)
            .unwrap();
        dir.write(".ai/script.json", SCRIPT).unwrap();
        dir.write("notes.txt", NOTES).unwrap();
        dir.create_dir(".ai/directives").unwrap();
        for (path, text) in files {
            dir.write(path, text).unwrap();
        }
        let options = ProjectOptions {
            store: Some(Arc::new(MemoryStore::new())),
            ..ProjectOptions::new(Policy::preset(PolicyPreset::Local))
        };
        let open = OpenProject::open(engine(), &ProjectDir::from_dir(dir), options).unwrap();
        let documents = ThreadDocuments::new(
            open.tenant().clone(),
            open.threads().unwrap().try_clone().unwrap(),
        );
        Self {
            _temporary: temporary,
            root,
            open,
            documents,
        }
    }

    /// Creates a chat that may read files.
    pub async fn chat(&self, id: &str) -> String {
        let draft = registry::Draft {
            capabilities: vec!["execute.tool.read_file".to_owned()],
            ..draft(id)
        };
        self.open.tenant().create(draft).await.unwrap().id
    }

    pub async fn say(&self, thread: &str, text: &str) -> EndedRun {
        run(&self.open.driver(), thread, Some(text)).await
    }

    pub async fn say_observed(
        &self,
        thread: &str,
        text: &str,
        observer: Arc<dyn CommitObserver>,
    ) -> EndedRun {
        let driver = self.open.driver().with_observer(observer);
        run(&driver, thread, Some(text)).await
    }

    /// Goes on with a thread that is due.
    pub async fn go_on_observed(
        &self,
        thread: &str,
        observer: Arc<dyn CommitObserver>,
    ) -> EndedRun {
        let driver = self.open.driver().with_observer(observer);
        run(&driver, thread, None).await
    }

    /// The directory of a thread.
    pub fn thread_dir(&self, thread: &str) -> Dir {
        self.open.threads().unwrap().open_dir(thread).unwrap()
    }

    pub fn read(&self, thread: &str, document: Document) -> Vec<u8> {
        self.thread_dir(thread).read(document.file_name()).unwrap()
    }

    /// The full render of a document.
    pub async fn render_expected(&self, thread: &str, document: Document) -> Vec<u8> {
        let (head, what) = match document {
            Document::Thread => (String::new(), "thread"),
            Document::Jsonl => (self.render_all(thread, "manifest").await, "jsonl"),
            Document::Markdown => (format!("# {thread}\n\n"), "markdown"),
        };
        (head + &self.render_all(thread, what).await).into_bytes()
    }

    async fn render_all(&self, thread: &str, what: &str) -> String {
        let (mut text, mut next) = (String::new(), Some(None));
        while let Some(cursor) = next {
            let piece = self
                .open
                .tenant()
                .render(thread, what, None, 0, cursor)
                .await;
            let piece = piece.unwrap();
            text += &piece.text;
            next = piece.cursor.map(Some);
        }
        text
    }

    /// Checks that every document equals a full render byte for byte, and that `check` reports it
    /// as current.
    pub async fn assert_current(&self, thread: &str) {
        for document in ALL {
            let (found, expected) = (
                self.read(thread, document),
                self.render_expected(thread, document).await,
            );
            assert_eq!(
                String::from_utf8(found).unwrap(),
                String::from_utf8(expected).unwrap(),
                "{document:?} of {thread}"
            );
        }
        let states = self.documents.check(thread).await.unwrap();
        // A checkpoint is saved on other occasions.
        assert_ne!(states.checkpoint, DocumentState::Other, "{thread}");
        let expected = DocumentStates {
            checkpoint: states.checkpoint,
            ..all(DocumentState::Current)
        };
        assert_eq!(states, expected, "{thread}");
        let files = self.thread_dir(thread).entries().unwrap();
        let files = files.map(|entry| entry.unwrap());
        let files = files.filter(|entry| entry.file_type().unwrap().is_file());
        let files = files.filter(|entry| entry.file_name() != STATE_FILE);
        assert_eq!(files.count(), ALL.len(), "no temporary file is left");
    }

    pub async fn version(&self, thread: &str) -> u64 {
        self.open.tenant().get(thread).await.unwrap().version
    }
}

/// Returns one engine for all tests: compiling the component takes longer than all the rest.
pub fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let made = || Engine::new(EngineLimits::local(), None).unwrap();
    ENGINE.get_or_init(made).clone()
}

/// The states of three documents that are all in `state`, without a checkpoint.
pub fn all(state: DocumentState) -> DocumentStates {
    DocumentStates {
        thread: state,
        jsonl: state,
        markdown: state,
        checkpoint: DocumentState::Missing,
        is_checkpoint_overdue: false,
    }
}

async fn run(driver: &Driver, thread: &str, text: Option<&str>) -> EndedRun {
    let input = text.map(threadkeep::models::user_message);
    let (sink, mut events) = EventSink::channel();
    let stop = StopReceiver::never();
    let run = driver.run(thread, input, &sink, &stop);
    let drain = async { while events.recv().await.is_some() {} };
    tokio::select! {
        ended = run => ended.unwrap(),
        () = drain => unreachable!("the sink lives as long as the run"),
    }
}

/// A draft of a chat with this id.
pub fn draft(id: &str) -> registry::Draft {
    registry::Draft {
        id: Some(id.to_owned()),
        ..threadkeep_tests::fixture::draft(None)
    }
}
