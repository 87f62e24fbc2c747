//! The conversation that a driver already holds, so that each step carries only new messages and a
//! provider sees the same bytes as before.

use super::kept_conversations::ConversationEnd;
use crate::blobs::read_blob;
use crate::error::CallError;
use crate::models::{
    CompletionRequest, ConversationImages, FailureKind, ModelFailure, RequestImages, ToolSpec,
};
use crate::tenant::Tenant;
use crate::wit::{self, llm};

/// Bytes of memory of a conversation and of a message beside their texts, at the most.
const KEPT_BYTES: usize = 1_024;
const MESSAGE_BYTES: usize = 64;

/// The request of a thread's model calls: each adds to it, nothing of it is copied.
#[derive(Debug, Default)]
pub(super) struct ThreadConversation {
    pub(super) request: CompletionRequest,
    /// The version whose messages the request holds.
    pub(super) held_version: u64,
    images: ConversationImages,
    /// True if prompt and tools are those of the run.
    has_settings: bool,
    /// The entry that handed out the first request of this run, or of an earlier one.
    end: Option<ConversationEnd>,
    /// The number of messages up to that entry, once they are held.
    messages_at_end: Option<usize>,
}

impl ThreadConversation {
    /// Takes over the messages that a step carries; reads those that it does not. A request with
    /// `since` 0 is whole: it replaces what is held.
    pub(super) async fn extend(
        &mut self,
        tenant: &Tenant,
        thread: &str,
        version: u64,
        asked: &llm::Request,
    ) -> Result<(), CallError> {
        let request = &mut self.request;
        if asked.since == 0 {
            self.held_version = 0;
            self.has_settings = false;
            request.messages.clear();
            self.images.restart();
            if self.messages_at_end.take().is_some() {
                // Other messages replace those that were held up to it.
                self.end = None;
            }
        }
        if !self.has_settings {
            self.has_settings = true;
            request.system.clone_from(&asked.system);
            request.tools = asked.tools.iter().map(tool_spec).collect();
        }
        let (after, mut next) = (self.held_version, Some(None));
        while let Some(cursor) = next.filter(|_| after < asked.since) {
            let page = tenant.messages(thread, after, Some(asked.since), cursor);
            let page = page.await?;
            request.messages.extend(page.messages);
            next = page.cursor.map(Some);
        }
        request.messages.extend(asked.messages.iter().cloned());
        self.held_version = version;
        if self.end.as_ref().is_some_and(|end| end.version == version) {
            self.messages_at_end = Some(request.messages.len());
        }
        Ok(())
    }

    /// Returns the version whose messages the component need not hand out again. It leaves prompt
    /// and tools out, too, so there is none before they are known.
    pub(super) fn version_to_report(&self) -> u64 {
        if self.has_settings {
            self.held_version
        } else {
            0
        }
    }

    /// Begins a run with the messages that are held. `first` is the entry that hands out the first
    /// request of the run, if that request is the conversation and no request for a summary.
    /// Without one, what is held stays as it was kept.
    pub(super) fn begin_run(&mut self, first: Option<ConversationEnd>) {
        self.has_settings = false;
        if first.is_some() {
            (self.end, self.messages_at_end) = (first, None);
        }
    }

    /// Returns the messages up to an entry whose hash is known, with the images; `None` if they are
    /// not held.
    pub(super) fn into_kept(self) -> Option<Self> {
        let (end, count) = (self.end?, self.messages_at_end?);
        let mut kept = Self {
            held_version: end.version,
            end: Some(end),
            messages_at_end: Some(count),
            images: self.images,
            ..Self::default()
        };
        kept.request.messages = self.request.messages;
        kept.request.messages.truncate(count);
        kept.request.messages.shrink_to_fit();
        kept.images.restart();
        (count > 0).then_some(kept)
    }

    /// Returns the entry that a kept conversation ends with.
    pub(super) fn kept_end(&self) -> Option<&ConversationEnd> {
        self.end.as_ref()
    }

    /// Returns about how many bytes of memory a kept conversation takes.
    pub(super) fn kept_bytes(&self) -> usize {
        let messages = self
            .request
            .messages
            .iter()
            .map(|text| text.len() + MESSAGE_BYTES);
        KEPT_BYTES + messages.sum::<usize>() + self.images.bytes()
    }

    /// Makes a conversation of one message, for tests.
    #[cfg(test)]
    pub(super) fn make_ended(message: String, end: ConversationEnd) -> Self {
        let mut ended = Self {
            end: Some(end),
            messages_at_end: Some(1),
            ..Self::default()
        };
        ended.request.messages.push(message);
        ended
    }

    /// As [`Self::extend`]. A conversation that cannot be made, because stored entries of it are
    /// damaged, is a call that fails before anything is sent: the money is given back.
    pub(super) async fn extend_or_refuse(
        &mut self,
        tenant: &Tenant,
        thread: &str,
        version: u64,
        asked: &llm::Request,
    ) -> Result<Option<ModelFailure>, CallError> {
        match self.extend(tenant, thread, version, asked).await {
            Ok(()) => Ok(None),
            Err(CallError::Refused(wit::Error::Corrupt(damage))) => {
                let kind = FailureKind::Permanent;
                let unread = ModelFailure::new(kind, "history_unreadable", damage.message);
                Ok(Some(unread.not_sent()))
            }
            Err(error) => Err(error),
        }
    }

    /// Completes the request for a step, for the provider that knows the model by this name.
    pub(super) async fn complete_request(
        &mut self,
        tenant: &Tenant,
        model: String,
        asked: &llm::Request,
    ) {
        self.images.add_messages(&self.request.messages);
        self.request.images = self.load_images(tenant, asked.images).await;
        self.request.model = model;
        self.request.output_max = asked.output;
        self.request.session.clone_from(&asked.session);
    }

    /// Reads the images of the request, on a thread that may block. If the caller stops waiting,
    /// the messages are looked through anew.
    async fn load_images(&mut self, tenant: &Tenant, takes_images: bool) -> RequestImages {
        if self.images.is_empty() {
            return RequestImages::default();
        }
        let mut images = std::mem::take(&mut self.images);
        let chosen = tenant.on_store(move |storage| {
            let chosen = images.choose(takes_images, |chain, hash| {
                let read = read_blob(storage, chain, hash);
                read.inspect_err(|error| {
                    tracing::warn!(%error, "an image of a conversation cannot be read");
                })
                .ok()
            });
            Ok((images, chosen))
        });
        match chosen.await {
            Ok((images, chosen)) => {
                self.images = images;
                chosen
            }
            Err(error) => {
                tracing::warn!(%error, "the images of a conversation cannot be read");
                RequestImages::default()
            }
        }
    }
}

fn tool_spec(tool: &crate::wit::Tool) -> ToolSpec {
    ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: tool.schema.clone(),
    }
}
