//! Events of a run while it goes on: a typed stream. Deltas are no promise; what an event calls
//! done is durable.

use crate::ceilings::CallNotice;
use crate::models::Usage;
use crate::wit;
use std::sync::Arc;
use tokio::sync::mpsc;

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RunEvent {
    /// The lease is taken and the first step is durable.
    Started {
        /// The thread.
        thread: String,
        /// Number of the run.
        run: u64,
        /// The version that handed out its first step: what is newer is of this run.
        version: u64,
    },
    /// More text of the reply under way.
    Text(String),
    /// More thinking of the reply under way.
    Thinking(String),
    /// The model has begun a call of this tool.
    ToolNamed(String),
    /// The deltas of this reply so far are void: its provider broke off, and another one begins
    /// anew.
    Restarted,
    /// A tool call was handed out and runs now.
    ToolStarted {
        /// `call_<version>_<index>`.
        call: String,
        /// The name of the tool.
        name: String,
        /// The arguments, JSON.
        arguments: String,
    },
    /// A tool call is done. Its result is durable once the round is.
    ToolDone {
        /// The same `call` as in `ToolStarted`.
        call: String,
        /// The name of the tool.
        name: String,
        /// True if the call failed.
        failed: bool,
        /// Bytes of the result.
        bytes: usize,
    },
    /// The component itself answered a call: of one of its built-in tools, or one that it refused,
    /// such as of a tool that there is not. The result is durable.
    ToolAnswered {
        /// `call_<version>_<index>`.
        call: String,
        /// The name of the tool, as the model wrote it.
        name: String,
        /// The arguments, JSON if the model wrote any.
        arguments: String,
        /// True if the call failed or was refused.
        failed: bool,
        /// Bytes of the result.
        bytes: usize,
        /// The result of a call that was refused: the reason.
        refusal: Option<String>,
    },
    /// The run waits for children, durably and without a lease. It goes on by itself, which
    /// `Started` reports.
    Waits {
        /// The thread.
        thread: String,
    },
    /// An event in the run of a descendant, a thread that this one spawned or one of theirs.
    Child {
        /// The descendant.
        thread: String,
        /// Its event.
        event: Box<RunEvent>,
    },
    /// The run of a process that died was closed; the tree goes on with its thread.
    Recovered {
        /// The thread.
        thread: String,
        /// The version that closed it. Its entry tells what is charged for a call under way.
        version: u64,
    },
    /// The thread failed to begin so often that the run of its tree does not try again.
    LeftAlone {
        /// The reason of the last refusal.
        message: String,
    },
    /// The thread had ended: its conversation goes on in a successor, whose run begins. What
    /// follows is of that one.
    Resumed(Box<ThreadResumption>),
    /// The window of the model is nearly full: a summary of the conversation is written, of which
    /// no text is reported. The run then goes on in another thread, which `HandedOff` reports.
    HandingOff {
        /// The thread that the run is about to leave.
        thread: String,
        /// Tokens of its next request.
        tokens: u64,
        /// Tokens that its model takes.
        window: u64,
    },
    /// The run goes on in another thread: the next link of its chain. What follows is of that one.
    HandedOff {
        /// The thread that the run has left.
        from: String,
        /// The thread that it goes on in.
        to: String,
        /// The reason why no summary opens it, if none does and one was to be written.
        summary_problem: Option<String>,
        /// Totals of the thread that the run has left, its summary included.
        costs: ThreadCosts,
    },
    /// A turn is durable.
    Turn {
        /// Totals that the thread has used so far, without those that the run has left.
        costs: ThreadCosts,
        /// Tokens of its next request.
        context: u64,
        /// Tokens that its model takes.
        window: Option<u64>,
    },
    /// A call waits for its slot, because too many were made in a minute, or for money that other
    /// calls hold.
    Waiting {
        /// Milliseconds of the wait.
        millis: u64,
        /// The reason: the ceiling and the policy that sets it, or that other calls hold the money.
        message: String,
    },
    /// A provider reports more tokens than the call can have come to; less is counted.
    Disbelieved {
        /// The reported usage.
        reported: Usage,
        /// The counted usage.
        counted: Usage,
    },
    /// An attempt failed and is tried again.
    Retry {
        /// Milliseconds until the next attempt.
        millis: u64,
        /// The reason of the failure.
        message: String,
    },
    /// The run stopped or ended, durably.
    Ended(Box<EndedRun>),
    /// Work after the run failed; the run itself stays as it ended.
    AfterFailed {
        /// Name of the work.
        work: String,
        /// The reason of the failure.
        message: String,
    },
}

/// A thread that had ended and goes on in a successor.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[non_exhaustive]
pub struct ThreadResumption {
    /// The link of the chain that had ended.
    pub old_thread_id: String,
    /// Its successor.
    pub new_thread_id: String,
    /// The link that was named, if that is an earlier one.
    pub original_thread_id: Option<String>,
    /// The directive of both; none for a chat.
    pub directive: Option<String>,
    /// Model replies that are sent again.
    pub reconstructed_turns: u64,
}

impl ThreadResumption {
    /// Returns what the first step of a successor tells of it.
    pub(super) fn from_step(step: &wit::runner::Step) -> Option<Self> {
        #[derive(serde::Deserialize)]
        struct StepDetails {
            resumed: Option<ThreadResumption>,
        }
        let details: StepDetails = serde_json::from_str(&step.more).ok()?;
        details.resumed
    }
}

/// Totals that a thread has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadCosts {
    /// Completed model calls.
    pub turns: u64,
    /// Tokens that models read, including those from caches.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// Money in nano-USD.
    pub spend_nanos: u64,
    /// Milliseconds inside steps.
    pub duration_millis: u64,
}

impl ThreadCosts {
    /// The totals of a thread.
    pub fn from_thread(thread: &wit::Thread) -> Self {
        Self::from_cost(&thread.cost)
    }

    /// Adds the totals of another thread.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            turns: self.turns.saturating_add(other.turns),
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            spend_nanos: self.spend_nanos.saturating_add(other.spend_nanos),
            duration_millis: self.duration_millis.saturating_add(other.duration_millis),
        }
    }

    /// The same of what a thread or a row of a list says that it has used.
    pub fn from_cost(cost: &wit::Cost) -> Self {
        let usage = &cost.usage;
        Self {
            turns: cost.turns.into(),
            input_tokens: usage
                .input
                .saturating_add(usage.read)
                .saturating_add(usage.write),
            output_tokens: usage.output,
            spend_nanos: cost.spend,
            duration_millis: cost.duration,
        }
    }
}

/// Reason why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopCause {
    /// `limit`, `error`, `budget`, `approval`, `cancelled` or `killed`.
    pub reason: String,
    /// A stable code.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

/// State of a thread whose run is no longer performed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedRun {
    /// The thread that the run ended in. It may be another one than the run began in, which
    /// [`RunEvent::HandedOff`] has reported then.
    pub thread: String,
    /// Its status.
    pub status: String,
    /// The outcome, if the run has ended.
    pub outcome: Option<String>,
    /// The reason, for a status that has one.
    pub cause: Option<StopCause>,
    /// The result, JSON, if there is one.
    pub result: Option<String>,
    /// Totals that the thread used, without those that the run has left
    /// ([`RunEvent::HandedOff`]).
    pub costs: ThreadCosts,
    /// Length of the thread's history.
    pub version: u64,
}

impl EndedRun {
    pub(crate) fn from_thread(thread: &wit::Thread) -> Self {
        Self {
            thread: thread.id.clone(),
            status: thread.status.clone(),
            outcome: thread.outcome.clone(),
            cause: thread.cause.as_ref().map(|cause| StopCause {
                reason: cause.reason.clone(),
                code: cause.code.clone(),
                message: cause.message.clone(),
            }),
            result: thread.result.clone(),
            costs: ThreadCosts::from_thread(thread),
            version: thread.version,
        }
    }
}

/// Destination of events. Emitting never blocks, with or without a listener.
#[derive(Debug, Clone, Default)]
pub struct EventSink {
    sender: Option<mpsc::UnboundedSender<RunEvent>>,
    /// The child whose events are sent here.
    child: Option<Arc<str>>,
}

impl EventSink {
    /// A sink without a listener.
    pub fn none() -> Self {
        Self::default()
    }

    /// A sink and its stream. The number of waiting events is bounded by what a run may use: its
    /// turns, and the size of a reply.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<RunEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (
            Self {
                sender: Some(sender),
                child: None,
            },
            receiver,
        )
    }

    /// Returns a receiver of the notices of a permit, for
    /// [`RunPermit::set_notice_receiver`](crate::ceilings::RunPermit::set_notice_receiver).
    pub(super) fn notice_receiver(&self) -> impl Fn(CallNotice) + Send + Sync + 'static {
        let sink = self.clone();
        move |note| {
            sink.emit(match note {
                CallNotice::Waits { wait, message } => RunEvent::Waiting {
                    millis: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    message,
                },
                CallNotice::Disbelieved { reported, counted } => {
                    RunEvent::Disbelieved { reported, counted }
                }
            });
        }
    }

    /// The same sink, for a run that goes on in another thread.
    pub(super) fn follow_thread(&self, thread: &str) -> Self {
        match self.child {
            Some(_) => self.for_child(thread),
            None => self.clone(),
        }
    }

    /// A sink into the same stream, for events of a child.
    pub(super) fn for_child(&self, thread: &str) -> Self {
        Self {
            sender: self.sender.clone(),
            child: Some(thread.into()),
        }
    }

    /// True if somebody receives the events: nothing needs to be read for one that nobody hears.
    pub(crate) fn has_listener(&self) -> bool {
        self.sender
            .as_ref()
            .is_some_and(|sender| !sender.is_closed())
    }

    pub(crate) fn emit(&self, event: RunEvent) {
        if let Some(sender) = &self.sender {
            let event = match &self.child {
                None => event,
                Some(child) => RunEvent::Child {
                    thread: child.to_string(),
                    event: Box::new(event),
                },
            };
            // A listener that is gone does not stop a run.
            let _ = sender.send(event);
        }
    }
}
