//! Creation of a thread: insert or fail, in one commit.

use super::{
    ChainRecord, CreationRecord, CreatorOverrides, FORMAT, Head, RecordFormat, ThreadRecord,
    ThreadStatus, UsageCounters, creation_key, genesis_hash,
};
use crate::error::Error;
use crate::hash::sha256;
use crate::json;
use crate::ledger::{Account, UnknownBill};
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::plan::{
    ChainFunds, CommitPlan, DecisionContext, LoadedThread, StoreWrite, StoredRecord, ThreadChange,
    WriteCondition, index_write,
};
use crate::time::UnixTime;
use crate::{id, key};
use std::rc::Rc;

/// Longest title, in characters.
pub const TITLE_CHARS_MAX: usize = 200;
/// Longest name of an agent or task, in bytes.
pub const LABEL_BYTES_MAX: usize = 200;
/// Most bytes of a thread's inputs.
pub const INPUTS_BYTES_MAX: usize = 64 << 10;
/// Most capabilities of a chat, and most patterns of calls that need consent of a draft.
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
    /// True for a thread whose history is appended in several parts: it cannot be run until its
    /// holder has closed it well.
    pub incomplete: bool,
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

/// The chain of which a new thread is the first link. For later links see
/// [`super::create_link`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainPlace<'a> {
    /// A new chain under no other, with the thread as its first link.
    Root,
    /// A new chain under that of the thread that spawns it.
    Child(SpawnParent<'a>),
}

/// Returns the plan that creates a thread. The writes of a child belong into the parent's commit
/// that reserves its money ([`crate::plan::ThreadChange::add_created`]).
/// `random` is at least six hex digits, used where the id is generated.
///
/// # Errors
/// `ErrorKind::Invalid` for a draft that is not valid.
pub fn create(
    draft: &ThreadDraft,
    resolved: ResolvedDraft,
    place: ChainPlace<'_>,
    now: UnixTime,
    random: &str,
) -> Result<Box<CommitPlan>, Error> {
    let id = new_id(draft, now, random)?;
    let thread = new_record(draft, resolved, id, now);
    let mut plan = match place {
        ChainPlace::Root => create_chain(thread, None, draft.incomplete),
        ChainPlace::Child(parent) => create_chain(thread, Some(parent), false),
    }?;
    if let Some(request) = &draft.key {
        let written = request_write(request, &draft.digest(), &plan.thread.id)?;
        plan.writes.push(written);
    }
    Ok(plan)
}

/// Returns the record of a new thread that is the first link of a chain without a parent.
fn new_record(
    draft: &ThreadDraft,
    resolved: ResolvedDraft,
    id: String,
    now: UnixTime,
) -> ThreadRecord {
    ThreadRecord {
        format: FORMAT,
        directive: draft.directive.clone(),
        parent: None,
        chain: id.clone(),
        previous: None,
        next: None,
        base: None,
        fork: None,
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
    }
}

/// Creates a thread with a chain of its own.
fn create_chain(
    mut thread: ThreadRecord,
    parent: Option<SpawnParent<'_>>,
    incomplete: bool,
) -> Result<Box<CommitPlan>, Error> {
    thread.parent = parent.as_ref().map(|parent| parent.thread.to_owned());
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
        spawned: Some(0),
        forks: 0,
        account: funds.account,
        above: funds.above,
    };
    let head = Head {
        incomplete,
        ..new_head(&thread)
    };
    let loaded = absent_thread(thread, head, chain);
    let mut change = ThreadChange::new(&loaded, creation_context(&loaded, ThreadCaps::NONE));
    begin_thread(&mut change);
    change.into_head_plan()
}

impl ThreadDraft {
    /// Returns a digest of everything but the key, by which a repeated request is known.
    pub fn digest(&self) -> String {
        let Self {
            key: _,
            id,
            directive,
            agent,
            task,
            title,
            overrides,
            inputs,
            incomplete,
        } = self;
        let names = [id, directive, agent, task, title].map(json::to_text);
        let [id, directive, agent, task, title] = &names;
        let overrides = json::to_text(overrides);
        let texts = [
            "draft", id, directive, agent, task, title, &overrides, inputs,
        ];
        // A request of an earlier program has the digest that it had.
        match incomplete {
            true => sha256(&[&texts[..], &["incomplete"]].concat()),
            false => sha256(&texts),
        }
    }
}

/// Returns the write that remembers a request to create a thread, by the digest of what it asks.
pub(crate) fn request_write(
    request: &str,
    digest: &str,
    thread: &str,
) -> Result<StoreWrite, Error> {
    let record = CreationRecord {
        format: RecordFormat::CURRENT,
        draft: digest.to_owned(),
        thread: thread.to_owned(),
    };
    Ok(StoreWrite::Put {
        collection: key::SEEN,
        key: creation_key(request)?,
        expect: WriteCondition::Absent,
        value: json::to_text(&record),
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
    let overrides = &draft.overrides;
    for (field, patterns) in [
        ("capabilities", &overrides.capabilities),
        ("approvals", &overrides.approvals),
    ] {
        if patterns.len() > CAPABILITIES_MAX {
            let problem = format!("are more than {CAPABILITIES_MAX}");
            return Err(Error::invalid(field, "", problem));
        }
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

/// Returns a thread whose records do not exist yet.
pub(crate) fn absent_thread(
    thread: ThreadRecord,
    head: Head,
    chain: impl Into<Rc<ChainRecord>>,
) -> LoadedThread {
    LoadedThread {
        thread: StoredRecord::absent(thread),
        head: StoredRecord::absent(head),
        chain: StoredRecord::absent(chain),
        above: Vec::new(),
        parent: None,
        state: None,
    }
}

/// Returns the inputs of a creation, which appends no entry and admits nothing.
pub(super) fn creation_context(loaded: &LoadedThread, ceiling: ThreadCaps) -> DecisionContext<'_> {
    DecisionContext {
        now: loaded.thread.value.created,
        commit: "",
        ceiling,
        unknown_bill: UnknownBill::Estimate,
        store_full_message: None,
    }
}

/// Makes a new thread due, and adds the entries of the indexes that it has from its birth on.
pub(crate) fn begin_thread(change: &mut ThreadChange<'_>) {
    change.head.mark_due();
    let (thread, created) = (&change.thread, change.thread.created.millis());
    let key = id::key(&thread.id);
    // A link is no other child than its chain: the entry of the chain's root finds it.
    let is_link = thread.previous.is_some();
    let parent = thread.parent.as_deref().filter(|_| !is_link).map(id::key);
    let named = [
        ("status", Some(change.head.status.as_str())),
        (key::RECENCY, Some("")),
        ("chain", Some(&*id::key(&thread.chain))),
        ("directive", thread.directive.as_deref()),
        ("agent", thread.agent.as_deref()),
        ("task", thread.task.as_deref()),
        ("parent", parent.as_deref()),
    ];
    let entries = named.into_iter().filter_map(|(name, value)| {
        let value = value?;
        Some(index_write(name, value, created, &key))
    });
    change.extra.extend(entries.collect::<Vec<_>>());
    let chain = &change.chain;
    if let Some(parent) = chain.parent.as_deref().filter(|_| !is_link) {
        let entry = index_write(key::CHILD, &id::key(parent), chain.number, &key);
        change.extra.push(entry);
    }
}

/// Returns the head of a new thread, before it is due.
pub(crate) fn new_head(thread: &ThreadRecord) -> Head {
    let now = thread.created;
    Head {
        format: FORMAT,
        status: ThreadStatus::Created,
        incomplete: false,
        cause: None,
        run: 0,
        token: 0,
        holder: None,
        expiry: None,
        request: None,
        due: None,
        recency: now.millis(),
        step: None,
        phase: None,
        hand_offs: 0,
        shortened: false,
        round: None,
        hold: None,
        holds: Vec::new(),
        charged: Vec::new(),
        counters: UsageCounters::default(),
        carried_spend: None,
        carried_turns: 0,
        unusable: 0,
        bad_rounds: 0,
        lost: 0,
        context: 0,
        estimated: 0,
        window_bytes: 0,
        window: None,
        prefix: String::new(),
        asked: false,
        asked_version: None,
        version: thread.base_length(),
        hash: genesis_hash(&thread.id, &thread.chain, thread.base.as_ref()),
        intent: None,
        sweep: None,
        sweep_to: None,
        wait: None,
        mail_from: 0,
        mail_to: 0,
        limits: thread.limits,
        state: None,
        session: None,
        updated: now,
    }
}
