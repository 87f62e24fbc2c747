//! What a driver already holds of a conversation, so that each turn carries only what is new and a provider sees the
//! same bytes as before.

use crate::error::CallError;
use crate::models::{Request, ToolSpec};
use crate::tenant::Tenant;
use crate::wit::llm;

/// The prefix of a thread's requests.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    system: String,
    tools: Vec<ToolSpec>,
    messages: Vec<String>,
    /// The version whose messages it holds.
    pub(super) have: u64,
}

impl Conversation {
    /// Take over what a step carries; read what it does not.
    pub(super) async fn extend(
        &mut self,
        tenant: &Tenant,
        thread: &str,
        version: u64,
        request: &llm::Request,
    ) -> Result<(), CallError> {
        if self.have == 0 {
            self.system.clone_from(&request.system);
            self.tools = request.tools.iter().map(spec).collect();
        }
        let mut after = self.have;
        while after < request.since {
            let page = tenant.messages(thread, after, request.since).await?;
            self.messages.extend(page.messages);
            after = page.cursor.unwrap_or(request.since);
        }
        self.messages.extend(request.messages.iter().cloned());
        self.have = version;
        Ok(())
    }

    /// The whole request, for the provider.
    pub(super) fn request(&self, model: String, asked: &llm::Request) -> Request {
        Request {
            model,
            system: self.system.clone(),
            tools: self.tools.clone(),
            messages: self.messages.clone(),
            output_max: asked.output,
            session: asked.session.clone(),
        }
    }
}

fn spec(tool: &crate::wit::Tool) -> ToolSpec {
    ToolSpec {
        name: tool.name.clone(),
        description: tool.description.clone(),
        schema: tool.schema.clone(),
    }
}
