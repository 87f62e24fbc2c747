//! The parts of an import that an earlier process has made: one that was killed is sent again and
//! goes on with the same thread, and one that was done is known as done.
//!
//! The rehearsal has the whole history in memory. The thread is of this import if its directive and
//! bounds are those of the rehearsal, and its events are the first of the same, to the end of a
//! part.

use super::convert::ConvertRecord;
use super::fault;
use super::session::CommandProject;
use serde_json::Value;
use threadkeep::wit;
use threadkeep::wit::transcript::Event;
use threadkeep_cli::command::run;
use threadkeep_cli::exit::CommandFault;
use threadkeep_cli::screen::OutputScreen;

/// Entries of one page of events.
const PAGE_ENTRIES: u32 = 100;

/// The kinds of events that an import appends. Others tell of leases and their ends.
const IMPORTED_KINDS: [&str; 7] = [
    "message",
    "assistant_text",
    "thinking",
    "tool_use",
    "tool_result",
    "partial",
    "note",
];

/// The import that made a thread.
pub enum BegunImport {
    /// There is no thread of this id.
    None,
    /// The thread has this number of parts of the history.
    Parts(String, usize),
    /// The thread has the whole history.
    Whole(String),
}

/// An import as its rehearsal has made it.
pub struct ImportedParts<'a> {
    /// The project in memory.
    pub rehearsal: &'a CommandProject,
    /// The thread in it.
    pub tried: &'a str,
    /// The events of each part.
    pub batches: &'a [Vec<String>],
}

/// An event without its place, which is another after an interruption.
#[derive(PartialEq, Eq)]
struct ImportedEvent {
    kind: String,
    /// Of calls and results nothing: they name their places.
    body: String,
}

impl ImportedParts<'_> {
    /// Looks for a thread that the same import has begun under this id. A holder that is dead is
    /// closed.
    ///
    /// # Errors
    /// `exists` if the thread is another one.
    pub async fn find_begun(
        &self,
        opened: &CommandProject,
        id: Option<&str>,
        screen: &mut OutputScreen,
    ) -> Result<BegunImport, CommandFault> {
        let Some(id) = id else {
            return Ok(BegunImport::None);
        };
        let thread = match opened.tenant().get(id).await {
            Ok(thread) => thread,
            // The creation tells of any other error.
            Err(_) => return Ok(BegunImport::None),
        };
        let expected = self.rehearsal.tenant().get(self.tried).await;
        let expected = expected.map_err(|error| fault::from_call(&error))?;
        if let Some(field) = find_difference(&expected, &thread) {
            return Err(another_thread(&thread, &format!("its {field} is another")));
        }
        run::recover_from_dead_holder(opened, thread.clone().convert(), screen).await?;
        let wanted = read_events(self.rehearsal, self.tried).await?;
        let found = read_events(opened, &thread.id).await?;
        let same = wanted
            .iter()
            .zip(&found)
            .take_while(|(one, two)| one == two);
        let same = same.count();
        let incomplete = is_incomplete(&thread);
        if !incomplete && same == wanted.len() {
            return Ok(BegunImport::Whole(thread.id));
        }
        let mut events = 0;
        let lengths = self.batches.iter().map(|batch| {
            events += batch.len();
            events
        });
        let parts = std::iter::once(0)
            .chain(lengths)
            .position(|sum| sum == found.len());
        match parts.filter(|_| incomplete && same == found.len()) {
            Some(parts) => Ok(BegunImport::Parts(thread.id, parts)),
            None if incomplete => {
                let problem = "it was begun by the import of another file";
                Err(another_thread(&thread, problem))
            }
            None => Err(another_thread(&thread, "its history is another")),
        }
    }
}

/// Returns the first of the fields that an import sets and nothing changes before it is done, in
/// which the threads differ.
fn find_difference(expected: &wit::Thread, found: &wit::Thread) -> Option<&'static str> {
    let limits = |thread: &wit::Thread| format!("{:?}", thread.limits);
    let is_incomplete = is_incomplete(found);
    [
        ("directive", expected.directive == found.directive),
        ("agent", expected.agent == found.agent),
        ("task", expected.task == found.task),
        ("inputs", expected.inputs == found.inputs),
        ("capabilities", expected.capabilities == found.capabilities),
        ("caps", !is_incomplete || limits(expected) == limits(found)),
    ]
    .into_iter()
    .find_map(|(field, is_same)| (!is_same).then_some(field))
}

fn is_incomplete(thread: &wit::Thread) -> bool {
    let more: Value = serde_json::from_str(&thread.more).unwrap_or_default();
    more["incomplete"] == true
}

fn another_thread(thread: &wit::Thread, problem: &str) -> CommandFault {
    let id = &thread.id;
    CommandFault::new("exists", format!("there is a thread {id}, and {problem}"))
        .with_hint("import under another id: --id NAME")
}

/// Reads the events of the kinds that an import appends.
async fn read_events(
    opened: &CommandProject,
    thread: &str,
) -> Result<Vec<ImportedEvent>, CommandFault> {
    let (mut events, mut cursor) = (Vec::new(), None);
    loop {
        let page = opened.tenant().events(thread, 0, PAGE_ENTRIES, cursor);
        let page = page.await;
        let page = page.map_err(|error| fault::from_thread_call(opened, thread, &error))?;
        events.extend(page.events.into_iter().filter_map(imported_event));
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(events);
        }
    }
}

fn imported_event(event: Event) -> Option<ImportedEvent> {
    IMPORTED_KINDS.contains(&event.kind.as_str()).then(|| {
        let names_places = event.kind.starts_with("tool_");
        ImportedEvent {
            kind: event.kind,
            body: if names_places {
                String::new()
            } else {
                event.body
            },
        }
    })
}
