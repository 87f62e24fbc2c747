//! Look-ups of messages that a chain has taken, by the ids that their callers gave them.

use super::resume::RunRequest;
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::history::{AppendedEvent, Event, Message};
use threadkeep_core::key;
use threadkeep_core::ordered_names::OrderedNames;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{self, KnownMessage};

impl<P: HostPorts> ThreadService<P> {
    /// Returns the messages that a chain has taken of those whose ids these events name.
    pub(super) fn known_messages(
        &self,
        loaded: &LoadedThread,
        events: &[AppendedEvent],
    ) -> Result<Vec<KnownMessage>, Error> {
        let ids = events.iter().filter_map(|event| match event {
            AppendedEvent::Event(Event::Message(message)) => message.id.clone(),
            _ => None,
        });
        self.find_messages(loaded, ids.collect())
    }

    /// Tells whether a chain has taken a message before, by its id.
    ///
    /// # Errors
    /// `invalid` (`input.id`) if it has taken another one of the same id.
    pub(super) fn knows_input(
        &self,
        loaded: &LoadedThread,
        input: Option<&Message>,
    ) -> Result<bool, Error> {
        let Some(message) = input else {
            return Ok(false);
        };
        let ids = message.id.iter().cloned().collect();
        let known = self.find_messages(loaded, ids)?;
        Ok(runner::is_known_message("input", message, &known)?)
    }

    /// The same for the input of a start. A repeated start has taken its input itself.
    pub(super) fn knows_input_of_start(
        &self,
        loaded: &LoadedThread,
        request: &RunRequest<'_>,
    ) -> Result<bool, Error> {
        let head = &loaded.head.value;
        match runner::is_repeated_start(head, request.holder, request.name) {
            true => Ok(false),
            false => self.knows_input(loaded, request.input.as_ref()),
        }
    }

    fn find_messages(
        &self,
        loaded: &LoadedThread,
        named: Vec<String>,
    ) -> Result<Vec<KnownMessage>, Error> {
        let ids = OrderedNames::new(named).into_vec();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let chain = &loaded.thread.value.chain;
        let keys: Vec<String> = ids
            .iter()
            .map(|id| runner::message_key(chain, id))
            .collect();
        let pairs: Vec<(&str, &str)> = keys.iter().map(|key| (key::SEEN, key.as_str())).collect();
        let items = self.ports.get(&pairs)?;
        let known = ids.iter().zip(&keys).filter_map(|(id, key)| {
            let item = items.iter().find(|item| item.name == *key)?;
            Some(KnownMessage {
                id: id.clone(),
                digest: item.value.clone(),
            })
        });
        Ok(known.collect())
    }
}
