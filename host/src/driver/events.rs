//! What a run tells while it goes on: a typed stream. Deltas are no promise; what is called done is durable.

use crate::ceilings::Note;
use crate::models::Usage;
use crate::wit;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RunEvent {
    /// The run is held and its first step is durable.
    Started {
        /// The thread.
        thread: String,
        /// Number of the run.
        run: u64,
        /// The version that handed out its first step: what is newer is of this run.
        version: u64,
    },
    /// More text of the reply that is under way.
    Text(String),
    /// More thinking of it.
    Thinking(String),
    /// The model has begun a call of this tool.
    ToolNamed(String),
    /// What was told of this reply so far is void: its provider broke off, and another one begins anew.
    Restarted,
    /// A call was handed out and runs now.
    ToolStarted {
        /// `call_<version>_<index>`.
        call: String,
        /// The tool.
        name: String,
        /// JSON.
        arguments: String,
    },
    /// A call is done. Its result is durable once the round is.
    ToolDone {
        /// As when it started.
        call: String,
        /// The tool.
        name: String,
        /// True if it failed.
        failed: bool,
        /// Bytes of its result.
        bytes: usize,
    },
    /// It waits for children, durably: nobody holds it. It goes on by itself, and tells so as `Started`.
    Waits {
        /// The thread.
        thread: String,
    },
    /// Something happened in the run of a thread that it spawned, or one of those.
    Child {
        /// That thread.
        thread: String,
        /// What.
        event: Box<RunEvent>,
    },
    /// It could not be begun, so often that the run of its tree leaves it alone.
    LeftAlone {
        /// Why, as it was refused last.
        message: String,
    },
    /// A turn is durable: what the thread has used so far.
    Turn(Costs),
    /// A call waits for its turn, because too many were made in a minute, or for money that other calls hold.
    Waiting {
        /// Milliseconds until then.
        millis: u64,
        /// Why: which ceiling it is and whose policy says so, or that other calls hold the money.
        message: String,
    },
    /// A provider reports more tokens than the call can have come to; less is counted.
    Disbelieved {
        /// What it reports.
        reported: Usage,
        /// What is counted.
        counted: Usage,
    },
    /// An attempt failed and is tried again.
    Retry {
        /// Milliseconds until then.
        millis: u64,
        /// Why.
        message: String,
    },
    /// The run stopped or ended, durably.
    Ended(Box<Ended>),
    /// Work after the run failed, by itself: the run is as it ended.
    AfterFailed {
        /// Name of the work.
        work: String,
        /// Why.
        message: String,
    },
}

/// What a thread has used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Costs {
    /// Completed model calls.
    pub turns: u64,
    /// Tokens that models read, from caches too.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// Nano-USD.
    pub spend_nanos: u64,
    /// Milliseconds inside steps.
    pub duration_millis: u64,
}

impl Costs {
    /// Those of a thread.
    pub fn of(thread: &wit::Thread) -> Self {
        let usage = &thread.cost.usage;
        Self {
            turns: thread.cost.turns,
            input_tokens: usage
                .input
                .saturating_add(usage.read)
                .saturating_add(usage.write),
            output_tokens: usage.output,
            spend_nanos: thread.cost.spend,
            duration_millis: thread.cost.duration,
        }
    }
}

/// Why a run stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// `limit`, `error`, `budget`, `approval`, `cancelled` or `killed`.
    pub reason: String,
    /// A stable code.
    pub code: String,
    /// A sentence for a person.
    pub message: String,
}

/// Where a run stands once nobody performs it any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The thread.
    pub thread: String,
    /// Its status.
    pub status: String,
    /// How it ended, if it has.
    pub outcome: Option<String>,
    /// Why, for a status that has a reason.
    pub cause: Option<Why>,
    /// JSON, if it has a result.
    pub result: Option<String>,
    /// What it used.
    pub costs: Costs,
    /// Length of its history.
    pub version: u64,
}

impl Ended {
    pub(crate) fn of(thread: &wit::Thread) -> Self {
        Self {
            thread: thread.id.clone(),
            status: thread.status.clone(),
            outcome: thread.outcome.clone(),
            cause: thread.cause.as_ref().map(|cause| Why {
                reason: cause.reason.clone(),
                code: cause.code.clone(),
                message: cause.message.clone(),
            }),
            result: thread.result.clone(),
            costs: Costs::of(thread),
            version: thread.version,
        }
    }
}

/// Where events go. Emitting never blocks; nobody needs to listen.
#[derive(Debug, Clone, Default)]
pub struct Sink {
    sender: Option<mpsc::UnboundedSender<RunEvent>>,
    /// The child whose events go there.
    child: Option<Arc<str>>,
}

impl Sink {
    /// A sink that nobody listens to.
    pub fn none() -> Self {
        Self::default()
    }

    /// A sink and its stream. What waits in it is bounded by what a run may use: its turns, and the size of a reply.
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

    /// Where the notes of a permit go.
    pub(super) fn notes(&self) -> impl Fn(Note) + Send + Sync + 'static {
        let sink = self.clone();
        move |note| {
            sink.emit(match note {
                Note::Waits { wait, message } => RunEvent::Waiting {
                    millis: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                    message,
                },
                Note::Disbelieved { reported, counted } => {
                    RunEvent::Disbelieved { reported, counted }
                }
            });
        }
    }

    /// The same stream, for what happens in a child.
    pub(super) fn of_child(&self, thread: &str) -> Self {
        Self {
            sender: self.sender.clone(),
            child: Some(thread.into()),
        }
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
            // A listener that went away does not stop a run.
            let _ = sender.send(event);
        }
    }
}
