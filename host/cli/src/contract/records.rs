//! Records of the contract. Fields that no command reads are left out.

/// `types.instant`: a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnixTime {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// `types.usage`: tokens by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TokenUsage {
    /// Input tokens outside of caches.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the provider's cache.
    pub read: u64,
    /// Input tokens written to the provider's cache.
    pub write: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
}

/// `types.cost`: what a thread has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadUsage {
    /// Completed model calls.
    pub turns: u32,
    /// Tokens by kind.
    pub usage: TokenUsage,
    /// Nano-USD, settled and charged.
    pub spend: u64,
    /// Milliseconds inside steps.
    pub duration: u64,
}

/// `types.limits`: caps of a thread; none is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadLimits {
    /// Model calls.
    pub turns: Option<u32>,
    /// Tokens of every kind.
    pub tokens: Option<u64>,
    /// Nano-USD.
    pub spend: Option<u64>,
    /// Child threads.
    pub spawns: Option<u32>,
    /// Levels of children.
    pub depth: Option<u32>,
    /// Milliseconds inside steps.
    pub duration: Option<u64>,
}

/// `types.account`: a budget account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountRecord {
    /// The chain that owns it.
    pub chain: String,
    /// The account that it reserves from.
    pub parent: Option<String>,
    /// Nano-USD; none is unlimited.
    pub limit: Option<u64>,
    /// Nano-USD settled or charged.
    pub spent: u64,
    /// Nano-USD set aside for attempts under way.
    pub held: u64,
    /// Nano-USD set aside for child chains.
    pub reserved: u64,
    /// The part of `spent` that its parent knows.
    pub reported: u64,
    /// Chains and accounts that still draw on it.
    pub users: u32,
    /// True if it admits nothing more.
    pub frozen: bool,
}

/// `types.cause`: the reason why a thread stopped, waits or ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopCause {
    /// `limit`, `error`, `budget`, `approval`, `cancelled` or `killed`.
    pub reason: String,
    /// A stable code.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
    /// The code of the failed model call.
    pub failure: Option<String>,
    /// Milliseconds that the provider asks to wait.
    pub retry: Option<u64>,
    /// The value that the cap must exceed.
    pub raise_above: Option<u64>,
}

/// `types.lease`: the holder of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunLease {
    /// The thread.
    pub thread: String,
    /// `<process nonce>/<n>`.
    pub holder: String,
    /// The time after which another host may claim it.
    pub expiry: UnixTime,
}

/// `types.run`: the run that a thread is in, or its last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunRecord {
    /// 1 for the first run; 0 before it.
    pub number: u32,
    /// None if nobody holds the thread.
    pub lease: Option<RunLease>,
    /// The kind of the step that is handed out.
    pub step: Option<String>,
}

/// `types.part`: entries of a thread that another begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BasePart {
    /// The thread that has them.
    pub thread: String,
    /// Version of the first.
    pub first: u64,
    /// Version of the last.
    pub last: u64,
}

/// `types.base`: what a thread begins with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadBase {
    /// The version that it begins after.
    pub length: u64,
    /// In the order in which they are read.
    pub parts: Vec<BasePart>,
}

/// `types.thread`: one thread.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Thread {
    /// Its id.
    pub id: String,
    /// None for a chat.
    pub directive: Option<String>,
    /// The thread that spawned it.
    pub parent: Option<String>,
    /// The first thread of its chain.
    pub chain: String,
    /// The thread that it continues.
    pub previous: Option<String>,
    /// The thread that continues it.
    pub next: Option<String>,
    /// Its status.
    pub status: String,
    /// The reason for its status.
    pub cause: Option<StopCause>,
    /// Its owner.
    pub agent: Option<String>,
    /// The task that it is bound to.
    pub task: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Its model or tier.
    pub model: String,
    /// Its caps.
    pub limits: ThreadLimits,
    /// Granted capabilities.
    pub capabilities: Vec<String>,
    /// JSON object: its inputs.
    pub inputs: String,
    /// The end status, once it has ended.
    pub outcome: Option<String>,
    /// JSON: its result.
    pub result: Option<String>,
    /// Its use of tokens, money and time.
    pub cost: ThreadUsage,
    /// The run that it is in or had last.
    pub run: RunRecord,
    /// Its newest version.
    pub version: u64,
    /// The entries that it begins with.
    pub base: Option<ThreadBase>,
    /// Tokens of its next request.
    pub context: u64,
    /// Tokens that its model takes.
    pub window: Option<u64>,
    /// The time of its creation.
    pub created: UnixTime,
    /// The time of its last commit.
    pub updated: UnixTime,
    /// JSON object, an open set.
    pub more: String,
}

/// `types.entry`: one entry of a history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// Its version.
    pub version: u64,
    /// The reason of the commit.
    pub reason: String,
    /// The time of the commit.
    pub time: UnixTime,
    /// SHA-256 of its stored text.
    pub hash: String,
    /// JSON object: the entry as it is stored.
    pub body: String,
}

/// `types.failure`: a code and a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordDamage {
    /// A stable code.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

/// `types.unreadable`: a thread that a page cannot show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnreadableThread {
    /// The thread.
    pub thread: String,
    /// The damage of its records.
    pub why: RecordDamage,
}

/// `registry.draft`: what a new thread is to be. Commands leave out the fields that the default
/// leaves empty in the contract.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadDraft {
    /// The whole id; none makes one.
    pub id: Option<String>,
    /// The name of a directive; none for a chat.
    pub directive: Option<String>,
    /// Its owner.
    pub agent: Option<String>,
    /// The task that it is bound to.
    pub task: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// The name of a model or tier.
    pub model: Option<String>,
    /// Its caps.
    pub limits: ThreadLimits,
    /// Of a chat: what it may call.
    pub capabilities: Vec<String>,
    /// Patterns of calls that need a person's consent.
    pub approvals: Vec<String>,
    /// True for a history that is appended in several commits.
    pub incomplete: bool,
    /// JSON object of inputs.
    pub inputs: Option<String>,
}

/// `registry.filter`: which threads to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ThreadFilter {
    /// All of the tenant.
    #[default]
    All,
    /// With this status.
    Status(String),
    /// Children that this thread spawned.
    Parent(String),
    /// Of this directive.
    Directive(String),
    /// Of this agent.
    Agent(String),
    /// Of this task.
    Task(String),
    /// Links of this chain.
    Chain(String),
    /// JSON object with a `kind`.
    Other(String),
}

/// `registry.row`: a thread in a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedThread {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: String,
    /// The code of the cause of its status.
    pub code: Option<String>,
    /// JSON: what it waits for.
    pub waits_for: Option<String>,
    /// None for a chat.
    pub directive: Option<String>,
    /// The thread that spawned it.
    pub parent: Option<String>,
    /// Its owner.
    pub agent: Option<String>,
    /// The task that it is bound to.
    pub task: Option<String>,
    /// Its title.
    pub title: Option<String>,
    /// Its model or tier.
    pub model: String,
    /// Its use of tokens, money and time.
    pub cost: ThreadUsage,
    /// Tokens of its next request.
    pub context: u64,
    /// Tokens that its model takes.
    pub window: Option<u64>,
    /// Its newest version.
    pub version: u64,
    /// The time of its creation.
    pub created: UnixTime,
    /// The time of its last commit.
    pub updated: UnixTime,
}

/// `registry.row-page`: one page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListPage {
    /// The threads.
    pub threads: Vec<ListedThread>,
    /// Those that the page cannot show.
    pub unreadable: Vec<UnreadableThread>,
    /// None at the end.
    pub cursor: Option<String>,
}

/// `history.snapshot`: a thread at a version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadSnapshot {
    /// The thread as it is now.
    pub thread: Thread,
    /// The version.
    pub version: u64,
    /// JSON: its state document at that version.
    pub state: String,
}

/// `history.entry-page`: one page of entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryPage {
    /// The entries.
    pub entries: Vec<Entry>,
    /// None at the end.
    pub cursor: Option<String>,
}

/// `history.opened`: the lease of an external loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenedThread {
    /// The version of the thread.
    pub version: u64,
    /// The number that fences later calls.
    pub token: u64,
}

/// `history.expected`: the version before an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Exactly this one.
    Exact(u64),
    /// Any.
    Any,
}

/// `history.change-set`: what an append adds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChangeSet {
    /// JSON objects.
    pub events: Vec<String>,
    /// JSON patches.
    pub patches: Vec<String>,
    /// Operations that commute.
    pub operations: Vec<String>,
    /// A whole state document.
    pub snapshot: Option<String>,
    /// The name of the request.
    pub request: Option<String>,
}

/// `history.written`: what an append or a close committed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommittedChange {
    /// The new version.
    pub version: u64,
    /// The status of the thread.
    pub status: String,
    /// JSON messages from the inbox.
    pub mail: Vec<String>,
}

/// `ledger.branch`: a thread of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeBranch {
    /// The thread.
    pub thread: String,
    /// Levels below the first.
    pub depth: u32,
    /// Its status.
    pub status: String,
    /// Nano-USD that it has spent.
    pub spend: u64,
    /// Its own account, if it has one.
    pub account: Option<AccountRecord>,
}

/// `ledger.tree-page`: one page of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreePage {
    /// The threads, in the order of the tree.
    pub branches: Vec<TreeBranch>,
    /// Those that the page cannot show.
    pub unreadable: Vec<UnreadableThread>,
    /// None at the end.
    pub cursor: Option<String>,
}

/// `ledger.model-call`: an estimate in tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelCall {
    /// The model.
    pub model: String,
    /// Input tokens.
    pub input: u64,
    /// Output tokens at most.
    pub output: u64,
}

/// `ledger.estimate`: what a call will cost at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostEstimate {
    /// By tokens.
    Tokens(ModelCall),
    /// Nano-USD.
    Amount(u64),
}

/// `ledger.admission`: money that is set aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldMoney {
    /// The version that names the call.
    pub version: u64,
    /// Nano-USD.
    pub amount: u64,
    /// Output tokens that it is enough for.
    pub output: Option<u64>,
}

/// `ledger.bill`: what a call has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallBill {
    /// By tokens.
    Usage(TokenUsage),
    /// Nano-USD.
    Amount(u64),
}

/// `ledger.charge-page`: charges for calls of unknown cost.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChargePage {
    /// The number of the calls.
    pub calls: u32,
    /// Nano-USD that are charged.
    pub spend: u64,
    /// The most that the calls can have cost.
    pub most: u64,
    /// None at the end.
    pub cursor: Option<String>,
}

/// `transcript.piece`: a piece of a document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TranscriptPiece {
    /// The text.
    pub text: String,
    /// The version that it is made from.
    pub version: u64,
    /// None at the end.
    pub cursor: Option<String>,
}

/// `runner.raised`: caps that are raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RaisedCaps {
    /// The new caps.
    pub caps: ThreadLimits,
    /// True to raise the accounts above as well.
    pub through: bool,
}

/// `runner.signal-kind`: the content of a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalContent {
    /// JSON: a user's message.
    Message(String),
    /// JSON: a decision about a call.
    Decision(String),
    /// The thread ends with its current step.
    Cancel,
    /// The thread ends at once.
    Kill,
    /// Caps are raised.
    Raise(RaisedCaps),
}
