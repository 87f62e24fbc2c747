//! `state.json` of a thread, rendered in pieces: the live window may be as large as the window of
//! its model.

use super::history::PAGE_ENTRIES_MAX;
use super::transcript::{DocumentPiece, PAGE_BYTES_MAX};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{Entry, Event};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_core::transcript::{
    CHECKPOINT_END, CheckpointSource, PartialReply, checkpoint_head, push_checkpoint_messages,
};

/// Most entries that are searched for the text of an interrupted reply, from the newest back. The
/// attempts of one request are few.
const PARTIAL_ENTRIES_MAX: u32 = 32;

/// The place in a checkpoint at which a piece begins. It names the version, so that all pieces are
/// of one checkpoint, whatever is committed meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckpointCursor {
    /// Version of the checkpoint.
    version: u64,
    /// Version of the last entry whose messages were given.
    after: u64,
    /// True while no message was given.
    is_first: bool,
}

impl CheckpointCursor {
    fn parse(text: &str) -> Option<Self> {
        let (version, rest) = text.split_once(':')?;
        let (after, first) = rest.split_once(':')?;
        let is_first = match first {
            "0" => false,
            "1" => true,
            _ => return None,
        };
        Some(Self {
            version: version.parse().ok()?,
            after: after.parse().ok()?,
            is_first,
        })
    }

    fn to_text(self) -> String {
        let first = u8::from(self.is_first);
        format!("{}:{}:{first}", self.version, self.after)
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Renders a piece of the checkpoint of a version (`None`: the newest).
    pub(super) fn render_checkpoint(
        &self,
        thread: &str,
        at: Option<u64>,
        cursor: Option<&str>,
    ) -> Result<DocumentPiece, Error> {
        let Some(cursor) = cursor else {
            let loaded = self.load(thread)?;
            let version = at.unwrap_or(loaded.head.value.version);
            let (text, has_prompt) = self.checkpoint_beginning(loaded, version)?;
            let begin = CheckpointCursor {
                version,
                after: 0,
                is_first: !has_prompt,
            };
            return self.push_messages(thread, text, begin);
        };
        let place = CheckpointCursor::parse(cursor);
        let place = place.filter(|place| at.is_none_or(|at| at == place.version));
        let place = place
            .ok_or_else(|| CoreError::invalid("cursor", cursor, "is not one of this document"))?;
        self.push_messages(thread, String::new(), place)
    }

    /// Appends pages of messages to the text of a piece, as many as fit.
    fn push_messages(
        &self,
        thread: &str,
        mut text: String,
        mut place: CheckpointCursor,
    ) -> Result<DocumentPiece, Error> {
        let CheckpointCursor { version, .. } = place;
        loop {
            let (page, next) = self.message_page(thread, place)?;
            if !text.is_empty() && text.len() + page.len() > PAGE_BYTES_MAX {
                let cursor = Some(place.to_text());
                return Ok(DocumentPiece {
                    text,
                    version,
                    cursor,
                });
            }
            text.push_str(&page);
            match next {
                Some(next) => place = next,
                None => break,
            }
        }
        text.push_str(CHECKPOINT_END);
        Ok(DocumentPiece {
            text,
            version,
            cursor: None,
        })
    }

    /// Returns the messages of a page of entries, and the place at which the next one begins.
    fn message_page(
        &self,
        thread: &str,
        mut place: CheckpointCursor,
    ) -> Result<(String, Option<CheckpointCursor>), Error> {
        let mut text = String::new();
        if place.after == place.version {
            return Ok((text, None));
        }
        let until = ("cursor", Some(place.version));
        let page = self.entries_up_to(thread, place.after, until, PAGE_ENTRIES_MAX)?;
        let (_, lines, mut cursor) = page;
        for line in &lines {
            let (before, was_first) = (text.len(), place.is_first);
            push_checkpoint_messages(&mut text, &line.entry, &mut place.is_first);
            if text.len() > PAGE_BYTES_MAX && before > 0 {
                text.truncate(before);
                place.is_first = was_first;
                cursor = Some(place.after);
                break;
            }
            place.after = line.entry.version;
        }
        Ok((text, cursor.map(|_| place)))
    }

    /// Renders the checkpoint of a version up to its messages.
    fn checkpoint_beginning(
        &self,
        mut loaded: LoadedThread,
        at: u64,
    ) -> Result<(String, bool), Error> {
        let newest = at == loaded.head.value.version;
        let mut saved = self.ports.now();
        let state = match loaded.head.value.state {
            Some(_) => Some(self.state_at(&loaded, at)?),
            None => None,
        };
        let state = state.filter(|state| !state.is_empty());
        let partial = match newest {
            true => self.partial_reply(&loaded)?,
            false => None,
        };
        if !newest {
            saved = self.time_at(&loaded, at)?;
            loaded.head.value_mut().version = at;
        }
        let pin = self.pin_if_any(&loaded)?;
        let overrides = &loaded.thread.value.overrides;
        let approvals = pin
            .as_ref()
            .map_or(&overrides.approvals, |pin| &pin.approvals);
        let head = &loaded.head.value;
        let stopped = newest && head.status == ThreadStatus::Suspended;
        let round = match stopped && head.undecided_calls().next().is_some() {
            true => self.round(&loaded)?,
            false => None,
        };
        Ok(checkpoint_head(CheckpointSource {
            loaded: &loaded,
            newest,
            saved_at: &saved.rfc3339(),
            prompt: pin.as_ref().map(|pin| pin.prompt.as_str()),
            approvals,
            partial: partial.as_ref(),
            round: round.as_deref(),
            state: state.as_ref(),
        })?)
    }

    /// Returns the text of the reply under way, or of the newest that was interrupted and has not
    /// been followed by a whole one.
    fn partial_reply(&self, loaded: &LoadedThread) -> Result<Option<PartialReply>, Error> {
        let head = &loaded.head.value;
        let step = head.step.as_ref();
        if let Some(step) = step.filter(|step| step.kind == StepKind::CallLlm) {
            let text = self.partial(loaded)?.text;
            if !text.is_empty() {
                return Ok(Some(PartialReply {
                    text,
                    output_max: Some(step.output),
                }));
            }
        }
        let first = loaded.thread.value.version_at(1);
        let oldest = head
            .version
            .saturating_sub(u64::from(PARTIAL_ENTRIES_MAX) - 1);
        for version in (oldest.max(first)..=head.version).rev() {
            let Some(entry) = self.entry(loaded, version)? else {
                return Ok(None);
            };
            let partial = entry.events.iter().rev().find_map(|event| match event {
                Event::Partial(partial) => Some(partial.text.clone()),
                _ => None,
            });
            if let Some(text) = partial {
                let output_max = self.output_max(loaded, &entry)?;
                return Ok(Some(PartialReply { text, output_max }));
            }
            if entry.events.iter().any(is_of_whole_reply) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Returns the most tokens that the attempt could have had which an entry settles.
    fn output_max(&self, loaded: &LoadedThread, entry: &Entry) -> Result<Option<u64>, Error> {
        let Some(settled) = &entry.settled else {
            return Ok(None);
        };
        let attempt = self.entry(loaded, settled.version)?;
        let admitted = attempt.and_then(|attempt| attempt.admitted);
        Ok(admitted.map(|admitted| admitted.output))
    }
}

/// Returns true for an event of an entry with a reply that is whole.
fn is_of_whole_reply(event: &Event) -> bool {
    matches!(
        event,
        Event::AssistantText(_) | Event::ToolUse(_) | Event::Result(_)
    )
}

#[cfg(test)]
mod tests {
    use super::CheckpointCursor;

    #[test]
    fn cursors_are_read_as_they_were_written() {
        let place = CheckpointCursor {
            version: 12,
            after: 7,
            is_first: true,
        };
        assert_eq!(CheckpointCursor::parse(&place.to_text()), Some(place));
        for text in ["", "12", "12:7", "12:7:2", "a:7:0", "12::0", "12:7:0:1"] {
            assert_eq!(CheckpointCursor::parse(text), None, "{text}");
        }
    }
}
