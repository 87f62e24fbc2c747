//! `run` and `resume`: the result of a run that this process performs no longer.

use super::{
    ChargedRow, CommandAnswer, LeftAloneRow, ThreadNeeds, count_noun, decision_advice, lacking,
    optional_spend, spend,
};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::style::{StyledLine, TextRole};
use crate::{money, time_format};
use serde::Serialize;
use serde_json::Value;

/// The cost of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct ThreadCost {
    /// Completed model calls.
    pub turns: u64,
    /// Tokens that models read, from caches too.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// Nano-USD; decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub spend: u64,
}

impl ThreadCost {
    /// Adds the cost of another thread.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            turns: self.turns.saturating_add(other.turns),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            spend: self.spend.saturating_add(other.spend),
        }
    }

    /// Subtracts an earlier cost of the same threads.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        Self {
            turns: self.turns.saturating_sub(earlier.turns),
            input_tokens: self.input_tokens.saturating_sub(earlier.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(earlier.output_tokens),
            spend: self.spend.saturating_sub(earlier.spend),
        }
    }

    /// Formats it on one line for a user.
    pub fn describe(&self) -> String {
        format!(
            "{} for {}, {} input and {} output tokens",
            money::format_usd(self.spend),
            count_noun(self.turns, "turn"),
            self.input_tokens,
            self.output_tokens
        )
    }
}

/// Returns what the operator must do before a call that a ceiling refused would pass.
pub fn ceiling_advice(ceiling: &str) -> String {
    match ceiling {
        "book" => "let the operator mend or remove the book that the policy names".to_owned(),
        "models" => "let the operator grant the model in the policy".to_owned(),
        "unpriced" => {
            "let the operator give the model a price in the policy, or allow unpriced".to_owned()
        }
        "calls_per_minute" => "wait a minute".to_owned(),
        ceiling => format!("let the operator raise {ceiling} in the policy"),
    }
}

/// A cap of a thread that a run can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapKind {
    /// Model calls of a run.
    Turns,
    /// Tokens of a run.
    Tokens,
    /// Money of a chain.
    Spend,
    /// Children of a chain.
    Spawns,
    /// Levels of children.
    Depth,
    /// Time of a run.
    Duration,
}

/// The origin of a cap that a thread has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CapSource {
    /// The thread's own cap: `raise` lifts it.
    #[default]
    Thread,
    /// The operator's cap, which is lower: no `raise` lifts it.
    Policy,
    /// Both caps, which are equal.
    Both,
}

impl CapKind {
    /// Returns the cap that the code of a cause names.
    pub fn from_code(code: &str) -> Option<Self> {
        Some(match code {
            "turns_exceeded" => Self::Turns,
            "tokens_exceeded" => Self::Tokens,
            "spend_exceeded" | "budget" => Self::Spend,
            "spawns_exceeded" => Self::Spawns,
            "depth_exceeded" => Self::Depth,
            "duration_exceeded" => Self::Duration,
            _ => return None,
        })
    }

    /// The name of the cap in a policy and a directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::Spend => "spend",
            Self::Spawns => "spawns",
            Self::Depth => "depth",
            Self::Duration => "duration",
        }
    }

    /// Returns what to do about a thread that has reached it.
    pub fn advice(self, id: &str, bound: CapSource) -> String {
        let option = match self {
            Self::Turns => "--turns N",
            Self::Tokens => "--tokens N",
            Self::Spend => "--spend USD",
            Self::Spawns => "--spawns N",
            Self::Depth => "--depth N",
            Self::Duration => "--duration TIME",
        };
        let lifted = ceiling_advice(&format!("limits.{}", self.as_str()));
        match bound {
            CapSource::Thread => {
                format!("threadkeep raise {id} {option}, then threadkeep resume {id}")
            }
            CapSource::Policy => format!("{lifted}, then threadkeep resume {id}"),
            CapSource::Both => {
                format!("{lifted}, then threadkeep raise {id} {option} and threadkeep resume {id}")
            }
        }
    }
}

/// The reason for a thread's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatusCause {
    /// The reason: `limit`, `error`, `budget`, `approval`, `cancelled` or `killed`.
    pub reason: String,
    /// A stable code.
    pub code: String,
    /// A sentence for a user.
    pub message: String,
    /// The code of the failure that it reports.
    #[serde(skip)]
    pub failure: Option<String>,
}

/// A suspended child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SuspendedRow {
    /// The child.
    pub thread_id: String,
    /// The reason for the suspension.
    pub cause: Option<StatusCause>,
    /// The next thing to do, if anything can be done.
    pub next: Option<String>,
}

/// Totals of a thread and all threads below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreeTotalsView {
    /// Nano-USD settled and charged.
    pub spend: u64,
    /// Number of threads, including the root.
    pub threads: u64,
    /// Suspended threads below it.
    pub suspended: Vec<SuspendedRow>,
    /// Number of suspended threads that are not listed.
    pub suspended_left_out: u64,
    /// Threads that cannot be read: `spend` lacks what they have spent.
    pub unreadable: Vec<String>,
}

/// The code of a failure of which the operator's policy is the cause.
const OUT_OF_REACH: &str = "out_of_reach";
/// The code of a reply that is too large to be kept, as cause and as failure.
const REPLY_TOO_LARGE: &str = "reply_too_large";

/// The code of a cause by which it is advised: that of the failure, where that says more.
pub fn advised_code<'a>(code: &'a str, failure: Option<&str>) -> &'a str {
    match (code, failure) {
        ("provider_permanent", Some(OUT_OF_REACH)) => OUT_OF_REACH,
        ("provider_permanent", Some(REPLY_TOO_LARGE)) => REPLY_TOO_LARGE,
        _ => code,
    }
}

/// Returns true if a resume would only send the same request again, and fail or be paid again.
pub fn repeats_in_vain(code: &str) -> bool {
    matches!(
        code,
        "window_exceeded" | "handoff_impossible" | "provider_context_overflow" | REPLY_TOO_LARGE
    )
}

/// Returns what a user can do about a suspended thread; `None` where a resume would only fail
/// again.
///
/// `payer` is the thread whose cap on money bounds it; `wait` is the time that a provider asked to
/// wait, in milliseconds.
pub fn suspended_advice(
    id: &str,
    code: &str,
    bound: CapSource,
    payer: &str,
    wait: Option<u64>,
) -> Option<String> {
    let resume = format!("threadkeep resume {id}");
    match code.strip_prefix("ceiling_") {
        // Each run has its own time.
        Some("run_time") => return Some(resume),
        Some(ceiling) => return Some(format!("{}, then {resume}", ceiling_advice(ceiling))),
        None => {}
    }
    if let Some(millis) = wait {
        return Some(format!(
            "wait {}, then {resume}",
            time_format::format_duration(millis)
        ));
    }
    Some(match (CapKind::from_code(code), code) {
        // The resume of the thread that owns the account also resumes the threads that draw on it.
        (Some(CapKind::Spend), _) => CapKind::Spend.advice(payer, bound),
        (Some(cap), _) => cap.advice(id, bound),
        // A resume would send the same request; the cause says what to do.
        (None, "window_exceeded" | "provider_context_overflow") => return None,
        (None, "handoff_impossible") => format!(
            "send something shorter, from which it goes on: threadkeep resume {id} --message TEXT; \
             or begin at an earlier version: threadkeep checkpoints {id}, then threadkeep fork \
             {id} --at VERSION"
        ),
        (None, "approval_needed") => decision_advice(id, 1),
        (None, "handoff_loop") => format!(
            "look at what it does (threadkeep transcript {id}), then {resume} --message TEXT"
        ),
        // The model would be paid for the same reply again.
        (None, REPLY_TOO_LARGE) => format!(
            "ask for less: threadkeep resume {id} --message TEXT, or begin anew with a model whose \
             `output` in models.yaml is smaller; a resume without a message pays for the same \
             request again"
        ),
        // A full disk has another cause: its error says that space must be freed.
        (None, "store_full") => format!("{}, then {resume}", ceiling_advice("quota")),
        (None, "provider_quota") => {
            format!(
                "top up the account at the provider, or wait for its next period, then {resume}"
            )
        }
        (None, OUT_OF_REACH) => format!(
            "have the operator grant the provider's address in the policy (`hosts`, and `private: \
             true` \
             for a name), then {resume}"
        ),
        (None, "provider_permanent") => {
            format!("mend what the provider refuses, then {resume}")
        }
        (None, _) => resume,
    })
}

/// The answer of `run` and `resume`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunAnswer {
    /// The thread that the run ended in.
    pub thread_id: String,
    /// The first thread of its chain.
    pub chain_id: String,
    /// The threads of the chain that the run has left behind, in order.
    pub handed_off: Vec<String>,
    /// The number of the run.
    pub run: u64,
    /// Its status.
    pub status: String,
    /// Its outcome, if it has ended.
    pub outcome: Option<String>,
    /// Text of the last reply.
    pub text: String,
    /// Its result, if it has one.
    pub result: Option<Value>,
    /// The reason, for a status that has one.
    pub cause: Option<StatusCause>,
    /// The need of the thread, if it is suspended.
    pub waits_for: ThreadNeeds,
    /// The origin of the cap that it has reached, if the cause is a cap.
    #[serde(skip)]
    pub bound: CapSource,
    /// The thread whose cap on money bounds it.
    #[serde(skip)]
    pub payer: String,
    /// Milliseconds that a provider asked to wait.
    #[serde(skip)]
    pub wait: Option<u64>,
    /// Its own cost, and that of the threads that the run has left behind.
    pub cost: ThreadCost,
    /// The spend of it and all threads below it; none if the tree could not be read.
    #[serde(serialize_with = "optional_spend")]
    pub tree_spend: Option<u64>,
    /// Threads of the tree, including this one.
    pub tree_threads: u64,
    /// Threads of the tree that cannot be read: `tree_spend` lacks what they have spent.
    pub tree_unreadable: Vec<String>,
    /// Suspended threads below it.
    pub suspended: Vec<SuspendedRow>,
    /// Number of suspended threads that are not listed.
    pub suspended_left_out: u64,
    /// Charges that this command found or caused, for calls of unknown cost.
    pub charged: Vec<ChargedRow>,
    /// Threads that could not be begun and were left alone.
    pub left_alone: Vec<LeftAloneRow>,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for RunAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    /// Prints the summary on standard error: the text of the reply was streamed before. Whoever wants
    /// no progress is told of a run that did not end well.
    fn print(&self, screen: &mut OutputScreen) {
        if screen.is_quiet() && self.exit == CommandExit::Done {
            return;
        }
        for row in self.summary_rows(screen) {
            let label = format!("{:<8}", row.label);
            let line = StyledLine::default().with(TextRole::Aside, &label);
            screen.report(&line.with(row.role, &row.value));
        }
    }
}

/// A row of the summary of a run.
struct SummaryRow {
    label: &'static str,
    role: TextRole,
    value: String,
}

impl SummaryRow {
    fn plain(label: &'static str, value: String) -> Self {
        let role = TextRole::Plain;
        Self { label, role, value }
    }
}

/// The answer of `resume`: a run that went on in place, or in a successor of a thread that had
/// ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResumeAnswer {
    /// The run.
    #[serde(flatten)]
    pub ended: RunAnswer,
    /// True if the exit code is 0.
    pub success: bool,
    /// True if the thread had ended and a successor goes on with it.
    pub resumed: bool,
    /// The status of the thread before.
    pub previous_status: String,
    /// The thread that had ended.
    pub old_thread_id: Option<String>,
    /// Its successor.
    pub new_thread_id: Option<String>,
    /// The thread that was named, if it is an earlier link of the chain.
    pub original_thread_id: Option<String>,
    /// The thread that it leads to: the tip of its chain.
    pub resolved_thread_id: String,
    /// The directive.
    pub directive: Option<String>,
    /// Model replies that the successor is sent again.
    pub reconstructed_turns: Option<u64>,
    /// The result, if there is one.
    pub new_thread_result: Option<Value>,
}

impl CommandAnswer for ResumeAnswer {
    fn exit(&self) -> CommandExit {
        self.ended.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        self.ended.print(screen);
    }
}

impl SuspendedRow {
    fn describe_status(&self) -> String {
        let id = &self.thread_id;
        match &self.cause {
            Some(cause) => format!("{id} is suspended ({}): {}", cause.code, cause.message),
            None => format!("{id} is suspended"),
        }
    }
}

impl RunAnswer {
    fn describe_status(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{} ({}): {}", self.status, cause.code, cause.message),
            None => self.status.clone(),
        }
    }

    fn summary_rows(&self, screen: &OutputScreen) -> Vec<SummaryRow> {
        let mut rows = vec![
            SummaryRow::plain("thread", self.thread_id.clone()),
            SummaryRow {
                label: "status",
                role: TextRole::from_status(&self.status),
                value: self.describe_status(),
            },
        ];
        let waits = self.waits_for.describe_calls().into_iter();
        rows.extend(waits.map(|call| SummaryRow::plain("waits", call)));
        rows.push(SummaryRow::plain("cost", self.cost.describe()));
        let lacks = lacking(&self.tree_unreadable);
        if (self.tree_threads > 1 || !lacks.is_empty())
            && let Some(spend) = self.tree_spend
        {
            let threads = count_noun(self.tree_threads, "thread");
            let sum = format!("{} for {threads}{lacks}", money::format_usd(spend));
            rows.push(SummaryRow::plain("tree", sum));
        }
        for child in &self.suspended {
            rows.push(SummaryRow::plain("child", child.describe_status()));
            if let Some(next) = &child.next {
                let next = format!("next: {}", screen.next_step_for(next));
                rows.push(SummaryRow::plain("", next));
            }
        }
        if self.suspended_left_out > 0 {
            let more = format!("{} more are suspended", self.suspended_left_out);
            let more = format!("{more}: threadkeep list --status suspended");
            rows.push(SummaryRow::plain("child", more));
        }
        if let Some(next) = self.next_step() {
            rows.push(SummaryRow {
                label: "next",
                role: TextRole::Name,
                value: screen.next_step_for(&next).to_owned(),
            });
        }
        rows
    }

    /// Returns what a user can do about a suspended thread.
    fn next_step(&self) -> Option<String> {
        if self.status != "suspended" {
            return None;
        }
        let cause = self.cause.as_ref()?;
        let code = advised_code(&cause.code, cause.failure.as_deref());
        let calls = self.waits_for.calls().len();
        if code == "approval_needed" && calls > 1 {
            return Some(decision_advice(&self.thread_id, calls));
        }
        suspended_advice(&self.thread_id, code, self.bound, &self.payer, self.wait)
    }
}

#[cfg(test)]
mod tests;
