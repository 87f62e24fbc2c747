//! Conversions between WIT and core for the interface `registry`.

use super::thread::{cost, limits_in};
use super::{exported, instant, other_kind_error, unreadable_to_wit};
use crate::service::Error;
use crate::service::store::LoadedPage;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::json;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::thread::{CreatorOverrides, ThreadDraft};

#[inline(never)]
pub fn draft(draft: exported::registry::Draft, key: String) -> Result<ThreadDraft, Error> {
    let inputs = match draft.inputs.as_deref() {
        Some("") => return Err(CoreError::invalid("inputs", "", "are no JSON object").into()),
        inputs => inputs.unwrap_or_default().to_owned(),
    };
    Ok(ThreadDraft {
        key: Some(key),
        id: draft.id,
        directive: draft.directive,
        agent: draft.agent,
        task: draft.task,
        title: draft.title,
        overrides: CreatorOverrides {
            model: draft.model,
            limits: limits_in(draft.limits),
            capabilities: draft.capabilities,
            approvals: draft.approvals,
            within: None,
        },
        inputs,
        incomplete: draft.incomplete,
    })
}

/// Returns a filter as the name of an index and a value; `None` for all threads. Ids are looked up
/// by their key.
pub fn filter(filter: exported::registry::Filter) -> Result<Option<(&'static str, String)>, Error> {
    use exported::registry::Filter;
    let by_key = |id: String| threadkeep_core::id::key(&id);
    Ok(Some(match filter {
        Filter::All => return Ok(None),
        Filter::Status(value) => ("status", value),
        Filter::Parent(value) => ("parent", by_key(value)),
        Filter::Directive(value) => ("directive", value),
        Filter::Agent(value) => ("agent", value),
        Filter::Task(value) => ("task", value),
        Filter::Chain(value) => ("chain", by_key(value)),
        Filter::Other(text) => match forked_chain(&text) {
            Some(chain) => (threadkeep_core::key::FORK, by_key(chain)),
            None => return Err(other_kind_error("filter", &text)),
        },
    }))
}

/// Returns the chain of a filter `{"kind": "forks", "chain"}`.
fn forked_chain(text: &str) -> Option<String> {
    let filter = json::parse(text).ok()?;
    let kind = filter.get("kind")?.as_str()?;
    let chain = filter.get("chain")?.as_str()?;
    (kind == "forks").then(|| chain.to_owned())
}

pub fn row_page(
    page: LoadedPage,
    needs: Vec<Option<String>>,
    cursor: Option<String>,
) -> exported::registry::RowPage {
    let rows = page.threads.iter().zip(needs);
    exported::registry::RowPage {
        threads: rows
            .map(|(loaded, needs)| row_to_wit(loaded, needs))
            .collect(),
        unreadable: page.unreadable.into_iter().map(unreadable_to_wit).collect(),
        cursor,
    }
}

fn row_to_wit(loaded: &LoadedThread, waits_for: Option<String>) -> exported::registry::Row {
    let (record, head) = (&loaded.thread.value, &loaded.head.value);
    exported::registry::Row {
        id: record.id.clone(),
        status: head.status.to_string(),
        code: head.cause.as_ref().map(|cause| cause.code.clone()),
        waits_for,
        directive: record.directive.clone(),
        parent: record.parent.clone(),
        agent: record.agent.clone(),
        task: record.task.clone(),
        title: record.title.clone(),
        model: record.model.clone(),
        cost: cost(&head.counters),
        context: head.context,
        window: head.window,
        version: head.version,
        created: instant(record.created),
        updated: instant(head.updated),
    }
}
