//! A fork: the first thread of a new chain, which begins as another thread was at a version.
//!
//! It rests on the entries of the other up to there and has everything else of its own: account,
//! counters, caps, mail. Nothing that either does afterwards is seen by the other. The chain of the
//! other counts its forks, so that it cannot be deleted under them.

use super::checks::check_complete;
use super::open_calls::interrupted_result;
use crate::error::Error;
use crate::hash::sha256;
use crate::history::{CommitReason, Event, SuspendedEvent};
use crate::json::{self, JsonObject};
use crate::ledger::Account;
use crate::plan::{
    CommitPlan, DecisionContext, LoadedThread, StoreWrite, ThreadChange, WriteCondition,
    index_write,
};
use crate::settings::{PinnedSettings, check_known_fields, parse_limits, parse_object, text_field};
use crate::state::StateDocument;
use crate::thread::{
    BASE_PARTS_MAX, ChainRecord, CreatorOverrides, FORMAT, ForkOrigin, Head, HistoryBase,
    PathReplay, StatusCause, ThreadDraft, ThreadRecord, ThreadStatus, absent_thread, begin_thread,
    inherit_state, new_head, new_id, request_write,
};
use crate::{id, key};

/// Fields of the own properties of a fork.
const CHANGE_FIELDS: [&str; 4] = ["title", "agent", "task", "limits"];

/// A caller's request for a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkRequest {
    /// Name of the request, by which a repeated one is known.
    pub key: String,
    /// Its own title, agent, task and caps.
    pub draft: ThreadDraft,
    digest: String,
}

impl ForkRequest {
    /// Reads a request; `change` is a JSON object: `{"title"?, "agent"?, "task"?, "limits"?}`.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` for a field that is unknown or not valid.
    pub fn parse(
        (thread, version): (&str, u64),
        key: &str,
        change: Option<&str>,
    ) -> Result<Self, Error> {
        let place = "change";
        let fields = match change {
            Some(text) => parse_object(place, text)?,
            None => JsonObject::new(),
        };
        check_known_fields(place, &fields, &CHANGE_FIELDS)?;
        let text = |name| text_field(place, &fields, name);
        let draft = ThreadDraft {
            key: Some(key.to_owned()),
            title: text("title")?,
            agent: text("agent")?,
            task: text("task")?,
            overrides: CreatorOverrides {
                limits: parse_limits("change.limits", fields.get("limits"))?,
                ..CreatorOverrides::default()
            },
            ..ThreadDraft::default()
        };
        let digest = sha256(&[
            "fork",
            &id::key(thread),
            &version.to_string(),
            &draft.digest(),
        ]);
        Ok(Self {
            key: key.to_owned(),
            draft,
            digest,
        })
    }

    /// Returns a digest of the request, by which a repeated one is known.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// The place where a fork begins.
#[derive(Debug, Clone, Copy)]
pub struct ForkPoint<'a> {
    /// The thread that is forked, as it is now.
    pub original: &'a LoadedThread,
    /// The version on its path.
    pub version: u64,
    /// The entries of its path up to there.
    pub base: &'a HistoryBase,
    /// The state to which these lead.
    pub replay: &'a PathReplay,
    /// The state document that it had there.
    pub state: &'a StateDocument,
    /// The pin of the original, and its text, if it has one.
    pub pin: Option<(&'a PinnedSettings, &'a str)>,
}

/// Returns the plan that creates a fork. `random` is at least six hex digits, used for the id;
/// `moment` has the operator's caps.
///
/// # Errors
/// `ErrorKind::Invalid` for properties that are not valid, or for a version whose path has too many
/// parts.
pub fn fork(
    request: &ForkRequest,
    point: ForkPoint<'_>,
    moment: DecisionContext<'_>,
    random: &str,
) -> Result<Box<CommitPlan>, Error> {
    check_complete(point.original)?;
    if point.base.parts.len() > BASE_PARTS_MAX {
        let parts = point.base.parts.len();
        let problem = format!(
            "lies on a path of {parts} ranges of entries, the most is {BASE_PARTS_MAX}: fork it \
             nearer to its beginning"
        );
        return Err(Error::invalid(
            "version",
            &point.version.to_string(),
            problem,
        ));
    }
    let thread = forked_record(request, point, moment, random)?;
    let head = forked_head(&thread, point);
    let chain = new_chain(&thread, &head);
    let mut loaded = absent_thread(thread, head, chain);
    if !point.state.is_empty() {
        inherit_state(&mut loaded, point.state.for_fork());
    }
    let mut change = ThreadChange::new(&loaded, moment);
    begin_thread(&mut change);
    // Nothing goes on by itself: a person has asked for it, and says what is next.
    change.head.due = None;
    let root = id::key(&change.thread.id);
    if let (Some(hash), Some((_, text))) = (&change.thread.pin, point.pin) {
        change.extra.push(StoreWrite::Put {
            collection: key::PIN,
            key: key::join(&[&root, hash]),
            expect: WriteCondition::Absent,
            value: text.to_owned(),
        });
    }
    let created = change.thread.created.millis();
    let chain = point.original.chain_key();
    change
        .extra
        .push(index_write(key::FORK, &chain, created, &root));
    change.extra.push(count_fork(point.original));
    let written = request_write(&request.key, &request.digest, &change.thread.id)?;
    change.extra.push(written);
    push_first_events(&mut change, point);
    match (change.events.is_empty(), change.head.status) {
        // What it inherits of the state is in its first entry.
        (true, _) if change.head.state.is_some() => change.into_plan(CommitReason::Changed),
        (true, _) => change.into_head_plan(),
        (false, ThreadStatus::Suspended) => change.into_plan(CommitReason::Suspended),
        (false, _) => change.into_plan(CommitReason::ToolResults),
    }
}

/// Adds what the first entry of the fork holds: results of the calls that are open at its version,
/// and for a directive's thread why it is suspended.
fn push_first_events(change: &mut ThreadChange<'_>, point: ForkPoint<'_>) {
    for call in &point.replay.open {
        let result = interrupted_result((call.version, call.index), call.name.clone());
        change.push_event(Event::ToolResult(result));
    }
    if let Some(cause) = change.head.cause.clone() {
        change.push_event(Event::Suspended(SuspendedEvent { cause }));
    }
}

/// Returns the write that counts one more fork of the original's chain. It replaces the record as
/// it was read: a chain that is deleted meanwhile refuses it.
fn count_fork(original: &LoadedThread) -> StoreWrite {
    let mut chain = ChainRecord::clone(&original.chain.value);
    chain.forks += 1;
    StoreWrite::Put {
        collection: key::CHAIN,
        key: original.chain_key(),
        expect: WriteCondition::for_read_version(original.chain.version),
        value: json::to_text(&chain),
    }
}

fn forked_record(
    request: &ForkRequest,
    point: ForkPoint<'_>,
    moment: DecisionContext<'_>,
    random: &str,
) -> Result<ThreadRecord, Error> {
    let original = &point.original.thread.value;
    let draft = ThreadDraft {
        directive: original.directive.clone(),
        ..request.draft.clone()
    };
    let id = new_id(&draft, moment.now, random)?;
    let named = draft.overrides.limits;
    // As they were resolved at first: a raise was a word about the original alone.
    let resolved = point.pin.map_or(original.limits, |(pin, _)| pin.limits);
    let mut overrides = original.overrides.clone();
    overrides.limits = overrides.limits.overridden_by(named);
    Ok(ThreadRecord {
        format: FORMAT,
        chain: id.clone(),
        id,
        parent: None,
        previous: None,
        next: None,
        base: Some(point.base.clone()),
        fork: Some(ForkOrigin {
            thread: original.id.clone(),
            chain: original.chain.clone(),
            version: point.version,
        }),
        agent: draft.agent.or_else(|| original.agent.clone()),
        task: draft.task.or_else(|| original.task.clone()),
        title: draft.title.or_else(|| original.title.clone()),
        limits: resolved.overridden_by(named).lowered_to(moment.ceiling),
        overrides,
        outcome: None,
        result: None,
        created: moment.now,
        ..ThreadRecord::clone(original)
    })
}

/// Returns the head of a fork: idle where it takes the next input, suspended where a run of its
/// directive is to go on. Its conversation is that of the original at the version.
fn forked_head(thread: &ThreadRecord, point: ForkPoint<'_>) -> Head {
    let idle = thread.directive.is_none();
    let mut head = Head {
        status: match idle {
            true => ThreadStatus::Idle,
            false => ThreadStatus::Suspended,
        },
        cause: (!idle).then(|| forked_cause(&point.original.thread.value.id, point.version)),
        // The run that it is suspended in.
        run: u64::from(!idle),
        ..new_head(thread)
    };
    point.replay.write_to(&mut head);
    head
}

fn forked_cause(original: &str, version: u64) -> StatusCause {
    let message = format!(
        "it was forked from {original} at version {version}: resume it to go on from there"
    );
    StatusCause::new("approval", FORKED, message)
}

/// Code of the cause for which the fork of a directive's thread is suspended.
pub const FORKED: &str = "forked";

/// Returns the record of the chain of a fork: a root with an account of its own, on which an idle
/// thread does not draw.
fn new_chain(thread: &ThreadRecord, head: &Head) -> ChainRecord {
    let account = Account::new_root(thread.limits.spend);
    ChainRecord {
        format: FORMAT,
        tip: thread.id.clone(),
        parent: None,
        number: 0,
        depth: 0,
        children: 0,
        spawned: Some(0),
        forks: 0,
        account: Account {
            users: u32::from(head.status.draws_on_account()),
            ..account
        },
        above: Vec::new(),
    }
}
