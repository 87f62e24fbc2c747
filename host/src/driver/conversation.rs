//! The conversation that a driver already holds, so that each step carries only new messages and a
//! provider sees the same bytes as before.

use super::kept_conversations::ConversationEnd;
use super::request_images::ConversationImages;
use crate::error::CallError;
use crate::models::{CompletionRequest, FailureKind, ModelFailure, ToolSpec};
use crate::tenant::Tenant;
use crate::wit::{self, llm};

/// The request of a thread's model calls: each adds to it, nothing of it is copied.
#[derive(Debug, Default)]
pub(super) struct ThreadConversation {
    pub(super) request: CompletionRequest,
    /// The version whose messages the request holds.
    pub(super) held_version: u64,
    images: ConversationImages,
    /// True if prompt and tools are those of the run.
    has_settings: bool,
    /// The entry with which a run began, and the number of messages up to it once they are held.
    end: Option<(ConversationEnd, Option<usize>)>,
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
            // What was held up to the end is gone.
            self.end.take_if(|(_, messages)| messages.is_some());
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
        if let Some((end, messages)) = &mut self.end
            && end.version == version
        {
            *messages = Some(request.messages.len());
        }
        Ok(())
    }

    /// Begins a run with what is held: `end` is the entry that hands out its first request, if that
    /// is one for the conversation.
    pub(super) fn begin_run(&mut self, end: Option<ConversationEnd>) {
        self.has_settings = false;
        self.end = end.map(|end| (end, None));
    }

    /// Returns the conversation up to the entry with which its run began; `None` if its messages
    /// are not held.
    pub(super) fn into_ended(mut self) -> Option<(ConversationEnd, Self)> {
        let (end, messages) = self.end.take()?;
        self.request.messages.truncate(messages?);
        self.images.restart();
        self.held_version = end.version;
        Some((end, self))
    }

    /// Returns about how many bytes of memory the conversation takes.
    pub(super) fn bytes(&self) -> usize {
        let messages = self.request.messages.iter().map(String::len);
        messages.sum::<usize>() + self.images.bytes()
    }

    /// Makes a conversation of one message, for tests.
    #[cfg(test)]
    pub(super) fn make_ended(message: String, end: ConversationEnd) -> Self {
        let mut ended = Self {
            end: Some((end, Some(1))),
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
        let messages = &self.request.messages;
        self.request.images = self.images.load(tenant, messages, asked.images).await;
        self.request.model = model;
        self.request.output_max = asked.output;
        self.request.session.clone_from(&asked.session);
    }
}

fn tool_spec(tool: &crate::wit::Tool) -> ToolSpec {
    ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: tool.schema.clone(),
    }
}
