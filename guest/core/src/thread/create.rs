//! Creation of a thread: insert or fail, in one commit.

use super::{
    ChainRecord, CreationRecord, CreatorOverrides, FORMAT, Head, ThreadRecord, ThreadStatus,
    UsageCounters, creation_key, genesis_hash,
};
use crate::error::Error;
use crate::json;
use crate::ledger::Account;
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::plan::{ChainFunds, CommitPlan, StoreWrite, WriteCondition, due_write, index_write};
use crate::time::UnixTime;
use crate::{id, key};

/// Longest title, in characters.
pub const TITLE_CHARS_MAX: usize = 200;
/// Longest name of an agent or task, in bytes.
pub const LABEL_BYTES_MAX: usize = 200;
/// Most bytes of a thread's inputs.
pub const INPUTS_BYTES_MAX: usize = 64 << 10;
/// Most capabilities of a chat.
pub const CAPABILITIES_MAX: usize = 256;

/// A caller's request for a new thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadDraft {
    /// Name of the request, by which a repeated one is known; `None` for a child, which its
    /// parent's commit makes once.
    pub key: Option<String>,
    /// The whole id; `None` to generate one.
    pub id: Option<String>,
    /// Name of a directive.
    pub directive: Option<String>,
    /// Owner within the tenant.
    pub agent: Option<String>,
    /// A task of the caller's.
    pub task: Option<String>,
    /// Title for people.
    pub title: Option<String>,
    /// Model, caps, and a chat's capabilities.
    pub overrides: CreatorOverrides,
    /// JSON object, or empty.
    pub inputs: String,
}

/// A draft after its directive and settings were resolved by the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedDraft {
    /// Name of the model or tier.
    pub model: String,
    /// Resolved caps.
    pub limits: ThreadCaps,
    /// Tools that may be called.
    pub capabilities: Vec<String>,
    /// JSON object with defaults filled in.
    pub inputs: String,
    /// The spend that the directive or the overrides name, if they do: the reserve of a child with
    /// an account of its own.
    pub reserve: Option<NanoUsd>,
}

/// The thread that spawns a child, and the money for the child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnParent<'a> {
    /// Id of the thread that spawns it.
    pub thread: &'a str,
    /// Id of that thread's chain.
    pub chain: &'a str,
    /// Spawn number of the child among the children of that chain, from 1.
    pub number: u64,
    /// Number of chains above the child.
    pub depth: u64,
    /// Account and path of the child, as [`crate::plan::ThreadChange::fund_child`] returned them.
    pub funds: ChainFunds,
}

/// Returns the plan that creates a thread: a root, or with `parent` a child, whose writes belong
/// into the parent's commit that reserves its money ([`crate::plan::ThreadChange::extra`]).
/// `random` is at least six hex digits, used where the id is generated.
pub fn create(
    draft: &ThreadDraft,
    resolved: ResolvedDraft,
    parent: Option<SpawnParent<'_>>,
    now: UnixTime,
    random: &str,
) -> Result<CommitPlan, Error> {
    let id = new_id(draft, now, random)?;
    let thread = ThreadRecord {
        format: FORMAT,
        directive: draft.directive.clone(),
        parent: parent.as_ref().map(|parent| parent.thread.to_owned()),
        chain: id.clone(),
        previous: None,
        next: None,
        agent: draft.agent.clone(),
        task: draft.task.clone(),
        title: draft.title.clone(),
        model: resolved.model,
        limits: resolved.limits,
        capabilities: resolved.capabilities,
        overrides: draft.overrides.clone(),
        inputs: resolved.inputs,
        pin: None,
        outcome: None,
        result: None,
        created: now,
        id,
    };
    let chain_parent = parent.as_ref().map(|parent| parent.chain.to_owned());
    let (number, depth) = parent
        .as_ref()
        .map_or((0, 0), |parent| (parent.number, parent.depth));
    let funds = match parent {
        Some(parent) => parent.funds,
        None => ChainFunds {
            account: Account::new_root(thread.limits.spend),
            above: Vec::new(),
        },
    };
    let chain = ChainRecord {
        format: FORMAT,
        tip: thread.id.clone(),
        parent: chain_parent,
        number,
        depth,
        children: 0,
        forks: 0,
        account: funds.account,
        above: funds.above,
    };
    let head = new_head(&thread, now);
    let mut writes = creation_writes(&thread, &head, &chain)?;
    if let Some(request) = &draft.key {
        writes.push(StoreWrite::Put {
            collection: key::SEEN,
            key: creation_key(request)?,
            expect: WriteCondition::Absent,
            value: json::to_text(&CreationRecord::new(draft, &thread.id)),
        });
    }
    Ok(CommitPlan {
        writes,
        closing: false,
        thread,
        head,
        chain,
        above: Vec::new(),
        entry: None,
    })
}

/// Returns the id of the thread that a draft makes. Every error that a draft can have is found
/// here.
pub fn new_id(draft: &ThreadDraft, now: UnixTime, random: &str) -> Result<String, Error> {
    check_draft(draft)?;
    let id = match &draft.id {
        Some(id) => id.clone(),
        None => id::generate_id(draft.directive.as_deref(), now, random),
    };
    id::check_id("id", &id)?;
    Ok(id)
}

/// Checks that the fields of a draft are within their bounds.
fn check_draft(draft: &ThreadDraft) -> Result<(), Error> {
    for (field, label) in [("agent", &draft.agent), ("task", &draft.task)] {
        if let Some(label) = label
            && (label.is_empty()
                || label.len() > LABEL_BYTES_MAX
                || label.chars().any(char::is_control))
        {
            return Err(Error::invalid(
                field,
                label,
                "must be 1 to 200 bytes without control characters",
            ));
        }
    }
    check_title(draft.title.as_deref())?;
    draft.overrides.limits.check("limits")?;
    if draft.inputs.len() > INPUTS_BYTES_MAX {
        return Err(Error::invalid(
            "inputs",
            "",
            format!("are longer than {INPUTS_BYTES_MAX} bytes"),
        ));
    }
    if draft.overrides.capabilities.len() > CAPABILITIES_MAX {
        return Err(Error::invalid(
            "capabilities",
            "",
            format!("are more than {CAPABILITIES_MAX}"),
        ));
    }
    Ok(())
}

/// Checks that a title is at most [`TITLE_CHARS_MAX`] characters on one line.
pub fn check_title(title: Option<&str>) -> Result<(), Error> {
    match title {
        Some(title) if title.is_empty() || title.chars().count() > TITLE_CHARS_MAX => Err(
            Error::invalid("title", title, "must be 1 to 200 characters"),
        ),
        Some(title) if title.chars().any(char::is_control) => Err(Error::invalid(
            "title",
            title,
            "must be one line without control characters",
        )),
        _ => Ok(()),
    }
}

fn new_head(thread: &ThreadRecord, now: UnixTime) -> Head {
    Head {
        format: FORMAT,
        status: ThreadStatus::Created,
        cause: None,
        run: 0,
        token: 0,
        holder: None,
        expiry: None,
        request: None,
        due: Some(0),
        recency: now.millis(),
        step: None,
        round: None,
        hold: None,
        holds: Vec::new(),
        charged: Vec::new(),
        counters: UsageCounters::default(),
        bad_rounds: 0,
        lost: 0,
        context: 0,
        prefix: String::new(),
        asked: false,
        version: 0,
        hash: genesis_hash(&thread.id, &thread.chain),
        intent: None,
        sweep: None,
        wait: None,
        mail_from: 0,
        mail_to: 0,
        limits: thread.limits,
        session: None,
        updated: now,
    }
}

fn creation_writes(
    thread: &ThreadRecord,
    head: &Head,
    chain: &ChainRecord,
) -> Result<Vec<StoreWrite>, Error> {
    let (key, created) = (id::key(&thread.id), thread.created.millis());
    let put = |collection, value| StoreWrite::Put {
        collection,
        key: key.clone(),
        expect: WriteCondition::Absent,
        value,
    };
    let mut writes = vec![
        put(key::THREAD, json::to_text(thread)),
        put(key::HEAD, json::to_text(head)),
        put(key::CHAIN, json::to_text(chain)),
        due_write(0, &key, &thread.chain),
        index_write("status", head.status.as_str(), created, &key),
        index_write(key::RECENCY, "", created, &key),
        index_write("chain", &key, created, &key),
    ];
    for (name, value) in [
        ("directive", &thread.directive),
        ("agent", &thread.agent),
        ("task", &thread.task),
    ] {
        if let Some(value) = value {
            writes.push(index_write(name, value, created, &key));
        }
    }
    if let Some(parent) = &thread.parent {
        writes.push(index_write("parent", &id::key(parent), created, &key));
    }
    Ok(writes)
}
