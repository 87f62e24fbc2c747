//! Conversions between WIT and core of a thread and its parts.

use super::{instant, types, usage};
use crate::service::decisions::ThreadDetails;
use threadkeep_core::json::{ObjectWriter, ToJson};
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::thread::{
    CauseDetail, HistoryBase, StateSummary, StatusCause, ThreadStatus, UsageCounters, raise_floor,
};

/// A count as the contract tells it. Records of earlier programs may have larger caps.
pub(super) fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(super) fn limits(limits: &ThreadCaps) -> types::Limits {
    let ThreadCaps {
        turns,
        tokens,
        spend,
        spawns,
        depth,
        duration,
    } = *limits;
    types::Limits {
        turns: turns.map(count),
        tokens,
        spend: spend.map(NanoUsd::get),
        spawns: spawns.map(count),
        depth: depth.map(count),
        duration,
    }
}

pub(super) fn limits_in(limits: types::Limits) -> ThreadCaps {
    let types::Limits {
        turns,
        tokens,
        spend,
        spawns,
        depth,
        duration,
    } = limits;
    ThreadCaps {
        turns: turns.map(u64::from),
        tokens,
        spend: spend.map(NanoUsd::new),
        spawns: spawns.map(u64::from),
        depth: depth.map(u64::from),
        duration,
    }
}

pub(super) fn cause(cause: &StatusCause, raise_above: Option<u64>) -> types::Cause {
    let retry = cause.retry_millis();
    let StatusCause {
        reason,
        code,
        message,
        value,
        maximum,
        detail,
    } = cause.clone();
    let CauseDetail { failure, account } = detail.map(|detail| *detail).unwrap_or_default();
    types::Cause {
        reason,
        code,
        message,
        value,
        maximum,
        failure,
        retry,
        raise_above,
        account,
    }
}

pub(super) fn lease(loaded: &LoadedThread) -> Option<types::Lease> {
    let head = &loaded.head.value;
    let holder = head.holder.clone()?;
    let expiry = instant(head.expiry.unwrap_or(head.updated));
    Some(types::Lease {
        thread: loaded.thread.value.id.clone(),
        holder,
        expiry,
    })
}

#[inline(never)]
pub(super) fn cost(used: &UsageCounters) -> types::Cost {
    types::Cost {
        turns: count(used.turns),
        usage: usage(used.usage),
        spend: used.spend.get(),
        duration: used.duration,
    }
}

fn base(base: &HistoryBase) -> types::Base {
    let parts = base.parts.iter().map(|part| types::Part {
        thread: part.thread.clone(),
        first: part.from,
        last: part.to,
        hash: part.hash.clone(),
    });
    types::Base {
        length: base.length,
        parts: parts.collect(),
    }
}

/// The open set of a thread's further fields.
fn more(loaded: &LoadedThread, waits_for: Option<&str>) -> String {
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add("children", &loaded.chain.value.children)
        .add("mail", &loaded.head.value.mail_count())
        .add("tip", &loaded.chain.value.tip)
        .add("forks", &loaded.chain.value.forks)
        .add_present("forked_from", &loaded.thread.value.fork)
        .add_present("state", &loaded.head.value.state.map(StateSize))
        .add_present("incomplete", &loaded.head.value.incomplete.then_some(true))
        .finish();
    if let Some(waits_for) = waits_for {
        text.pop();
        text.push_str(",\"waits_for\":");
        text.push_str(waits_for);
        text.push('}');
    }
    text
}

/// Size of a state, and the version that changed it last.
struct StateSize(StateSummary);

impl ToJson for StateSize {
    fn write(&self, out: &mut String) {
        let Self(state) = self;
        ObjectWriter::new(out)
            .add("version", &state.version)
            .add("bytes", &state.bytes)
            .finish();
    }
}

#[inline(never)]
pub fn thread(loaded: &LoadedThread, details: ThreadDetails) -> types::Thread {
    let (record, head) = (&loaded.thread.value, &loaded.head.value);
    types::Thread {
        id: record.id.clone(),
        directive: record.directive.clone(),
        parent: record.parent.clone(),
        chain: record.chain.clone(),
        previous: record.previous.clone(),
        next: record.next.clone(),
        status: head.status.to_string(),
        cause: head.cause.as_ref().map(|why| cause(why, raise_floor(head))),
        agent: record.agent.clone(),
        task: record.task.clone(),
        title: record.title.clone(),
        model: record.model.clone(),
        limits: limits(&head.limits),
        capabilities: record.capabilities.clone(),
        inputs: record.inputs.clone(),
        outcome: record
            .outcome
            .map(|status: ThreadStatus| status.to_string()),
        result: record.result.clone(),
        cost: cost(&head.counters),
        run: types::Run {
            number: count(head.run),
            lease: lease(loaded),
            step: head.step.as_ref().map(|step| step.kind.as_str().to_owned()),
            version: head.step.as_ref().map(|step| step.version),
        },
        version: head.version,
        hash: head.hash.clone(),
        base: record.base.as_ref().map(base),
        context: head.context,
        window: details.window,
        created: instant(record.created),
        updated: instant(head.updated),
        more: more(loaded, details.waits_for.as_deref()),
    }
}
