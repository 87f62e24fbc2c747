//! Converts the component's records to the types of the command line, in one direction: the command
//! line has no records of its own.

use crate::answer::{
    AccountFigures, AccountView, EventView, ForkView, LimitsView, RunView, StateView, StatusCause,
    ThreadCost, ThreadNeeds, ThreadRow, ThreadView, UnreadableRow, has_ended,
};
use crate::args::CapArgs;
use crate::contract::{
    AccountRecord, Entry, ListedThread, RunRecord, StopCause, Thread, ThreadLimits, ThreadUsage,
    UnixTime, UnreadableThread,
};
use serde_json::Value;
use std::time::Duration;
use threadkeep_units::time::rfc3339_seconds;

/// Converts what a thread has used.
pub fn cost(cost: &ThreadUsage) -> ThreadCost {
    let usage = &cost.usage;
    ThreadCost {
        turns: cost.turns.into(),
        input_tokens: usage
            .input
            .saturating_add(usage.read)
            .saturating_add(usage.write),
        output_tokens: usage.output,
        spend: cost.spend,
    }
}

/// Formats a time of the contract.
pub(super) fn format_time(time: UnixTime) -> String {
    rfc3339_seconds(time.seconds)
}

/// Converts the reason for a thread's status.
pub fn cause(cause: &StopCause) -> StatusCause {
    StatusCause {
        reason: cause.reason.clone(),
        code: cause.code.clone(),
        message: cause.message.clone(),
        failure: cause.failure.clone(),
    }
}

/// Parses stored JSON. Text that is not JSON becomes a JSON string.
pub fn parse_json(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
    }
}

/// Makes a row of `list` of a record of the contract; the fields that the two records of a thread
/// have alike are named once.
macro_rules! make_row {
    ($thread:ident { $($other:ident: $value:expr),* $(,)? }) => {
        ThreadRow {
            thread_id: $thread.id.clone(),
            directive: $thread.directive.clone(),
            status: $thread.status.clone(),
            title: $thread.title.clone(),
            agent: $thread.agent.clone(),
            task: $thread.task.clone(),
            parent: $thread.parent.clone(),
            model: $thread.model.clone(),
            cost: cost(&$thread.cost),
            context: $thread.context,
            window: $thread.window,
            version: $thread.version,
            created: format_time($thread.created),
            updated: format_time($thread.updated),
            $($other: $value,)*
        }
    };
}

/// Converts a row of `list`.
pub fn thread_row(thread: &ListedThread) -> ThreadRow {
    let needs = parse_json(thread.waits_for.as_deref().unwrap_or_default());
    make_row!(thread {
        code: thread.code.clone(),
        outcome: has_ended(&thread.status).then(|| thread.status.clone()),
        waits_for: ThreadNeeds::new(needs),
    })
}

/// Makes the row of a thread that was read alone.
pub fn row_of_thread(thread: &Thread) -> ThreadRow {
    make_row!(thread {
        code: thread.cause.as_ref().map(|cause| cause.code.clone()),
        outcome: thread.outcome.clone(),
        waits_for: thread_needs(thread),
    })
}

/// Converts a thread that a list cannot show.
pub fn unreadable(thread: UnreadableThread) -> UnreadableRow {
    // Whatever else is wrong with a record, an error about the thread says `corrupt`.
    let code = match thread.why.code.as_str() {
        "newer-format" => "newer-format",
        _ => "corrupt",
    };
    UnreadableRow {
        thread_id: thread.thread,
        code: code.to_owned(),
        message: thread.why.message,
    }
}

/// Converts a whole thread.
pub fn thread(thread: &Thread) -> ThreadView {
    let more = parse_json(&thread.more);
    ThreadView {
        thread_id: thread.id.clone(),
        directive: thread.directive.clone(),
        status: thread.status.clone(),
        outcome: thread.outcome.clone(),
        cause: thread.cause.as_ref().map(cause),
        waits_for: ThreadNeeds::new(more["waits_for"].clone()),
        title: thread.title.clone(),
        agent: thread.agent.clone(),
        task: thread.task.clone(),
        parent: thread.parent.clone(),
        chain: thread.chain.clone(),
        previous: thread.previous.clone(),
        next: thread.next.clone(),
        forked_from: forked_from(&more["forked_from"]),
        state: state(&more["state"]),
        forks: more["forks"].as_u64().unwrap_or_default(),
        model: thread.model.clone(),
        limits: limits(&thread.limits),
        capabilities: thread.capabilities.clone(),
        inputs: parse_json(&thread.inputs),
        result: thread.result.as_deref().map(parse_json),
        cost: cost(&thread.cost),
        duration: thread.cost.duration,
        context: thread.context,
        window: thread.window,
        run: run(&thread.run),
        version: thread.version,
        created: format_time(thread.created),
        updated: format_time(thread.updated),
    }
}

/// Returns what a thread waits for.
pub fn thread_needs(thread: &Thread) -> ThreadNeeds {
    ThreadNeeds::new(parse_json(&thread.more)["waits_for"].take())
}

/// Converts the place at which a thread was forked.
fn forked_from(origin: &Value) -> Option<ForkView> {
    Some(ForkView {
        thread_id: origin["thread"].as_str()?.to_owned(),
        version: origin["version"].as_u64()?,
    })
}

fn state(state: &Value) -> Option<StateView> {
    Some(StateView {
        version: state["version"].as_u64()?,
        bytes: state["bytes"].as_u64()?,
    })
}

fn run(run: &RunRecord) -> RunView {
    RunView {
        number: run.number.into(),
        holder: run.lease.as_ref().map(|lease| lease.holder.clone()),
        expiry: run.lease.as_ref().map(|lease| format_time(lease.expiry)),
        step: run.step.clone(),
    }
}

/// Converts an account.
pub fn account(account: AccountRecord) -> AccountView {
    AccountView::from(AccountFigures {
        chain: account.chain,
        parent: account.parent,
        limit: account.limit,
        spent: account.spent,
        held: account.held,
        reserved: account.reserved,
        reported: account.reported,
        users: account.users,
        frozen: account.frozen,
    })
}

/// Converts caps in force.
pub fn limits(limits: &ThreadLimits) -> LimitsView {
    LimitsView {
        turns: limits.turns.map(u64::from),
        tokens: limits.tokens,
        spend: limits.spend,
        spawns: limits.spawns.map(u64::from),
        depth: limits.depth.map(u64::from),
        duration: limits.duration,
    }
}

/// Converts caps of the command line.
pub fn caps(caps: &CapArgs) -> ThreadLimits {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    ThreadLimits {
        turns: caps.turns,
        tokens: caps.tokens,
        spend: caps.spend,
        spawns: caps.spawns,
        depth: caps.depth,
        duration: caps.duration.map(millis),
    }
}

/// Converts the events of an entry.
pub fn entry_events(entry: &Entry) -> Vec<EventView> {
    let body = parse_json(&entry.body);
    let events = body["events"].as_array().into_iter().flatten();
    let events = (0_u32..).zip(events).map(|(index, event)| EventView {
        version: entry.version,
        index,
        kind: event["type"].as_str().unwrap_or_default().to_owned(),
        time: format_time(entry.time),
        body: event.clone(),
    });
    events.collect()
}
