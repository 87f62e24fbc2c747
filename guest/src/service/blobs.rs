//! Blobs that callers name: each must be stored under the chain of the thread.

use super::{Error, ThreadService};
use crate::ports::HostPorts;
use crate::service::store::{find_item, parse_record};
use threadkeep_core::history::{AppendedEvent, BlobRecord, Event, Message, StoredBlob};
use threadkeep_core::key;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::StepOutcome;

/// Most records of blobs that are read at once.
const BLOBS_READ_MAX: usize = 100;

/// Blobs of a caller's argument, each with its place in it.
#[derive(Debug, Default)]
pub(super) struct NamedBlobs<'a>(Vec<(String, &'a StoredBlob)>);

impl<'a> NamedBlobs<'a> {
    /// Takes the images of a message.
    pub fn of_message(message: Option<&'a Message>) -> Self {
        let mut named = Self::default();
        if let Some(message) = message {
            named.add("input", message.images());
        }
        named
    }

    /// Takes the blobs of a round's results.
    pub fn of_outcome(outcome: &'a StepOutcome) -> Self {
        let mut named = Self::default();
        if let StepOutcome::ToolOutcomes(outcomes) = outcome {
            for (place, outcome) in outcomes.iter().enumerate() {
                named.add(&format!("outcomes[{place}]"), outcome.blocks.iter());
            }
        }
        named
    }

    /// Takes the blobs of events that are to be appended.
    pub fn of_events(events: &'a [AppendedEvent]) -> Self {
        let mut named = Self::default();
        for (n, event) in events.iter().enumerate() {
            let place = format!("events[{n}]");
            match event {
                AppendedEvent::Event(Event::Message(message)) => {
                    named.add(&place, message.images());
                }
                AppendedEvent::Result(result) => named.add(&place, result.blocks.iter()),
                AppendedEvent::Event(_) => {}
            }
        }
        named
    }

    fn add(&mut self, place: &str, blobs: impl Iterator<Item = &'a StoredBlob>) {
        self.0.extend(blobs.map(|blob| (place.to_owned(), blob)));
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Refuses blobs that are not stored under the chain of a thread, or not wholly.
    pub(super) fn check_blobs(
        &self,
        loaded: &LoadedThread,
        named: &NamedBlobs<'_>,
    ) -> Result<(), Error> {
        let root = &loaded.thread.value.chain;
        for some in named.0.chunks(BLOBS_READ_MAX) {
            let names: Vec<String> = some.iter().map(|(_, blob)| blob.key(root)).collect();
            let keys: Vec<_> = names
                .iter()
                .map(|name| (key::BLOB, name.as_str()))
                .collect();
            let found = self.ports.get(&keys)?;
            for ((place, blob), name) in some.iter().zip(&names) {
                let item = find_item(&found, key::BLOB, name);
                let record = item.map(parse_record::<BlobRecord>).transpose()?;
                blob.check_record(place, record.as_ref())?;
            }
        }
        Ok(())
    }
}
