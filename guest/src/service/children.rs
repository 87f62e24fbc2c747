//! Child threads: looks up the threads that calls of the built-in tools name.
//!
//! A thread reaches the threads of its own chain and those that lie under it. Other threads are
//! reported as not found, so that their ids are not given away.

use super::{Error, ErrorKind, ThreadService};
use crate::ports::{HostPorts, LibraryError, StorageError};
use std::rc::Rc;
use threadkeep_core::error::{Error as CoreError, cut};
use threadkeep_core::history::{Entry, Event, Message, MessageRole, escaped_bytes};
use threadkeep_core::json::ObjectWriter;
use threadkeep_core::ledger::ReserveGrant;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{LoadedThread, RelatedThread, is_to_be_resumed};
use threadkeep_core::runner::{
    self, CALLS_MAX, DecisionInputs, PreparedCall, ReplyBlock, SENT_BYTES_MAX, SpawnRequest,
    StepOutcome, WaitRequest,
};
use threadkeep_core::settings::{
    BuiltinCall, PinnedSettings, SpawnCall, WaitCall, is_builtin_tool,
};
use threadkeep_core::thread::{CreatorOverrides, EndIntent, InboxMessage, ThreadDraft};
use threadkeep_core::{id, key};

impl<P: HostPorts> ThreadService<P> {
    /// Loads the inputs of a decision besides the thread's records; `round` holds the calls of its
    /// open round.
    pub fn load_decision_inputs(
        &self,
        loaded: &LoadedThread,
        round: Option<&Entry>,
    ) -> Result<DecisionInputs, Error> {
        Ok(DecisionInputs {
            mail: self.mail(loaded)?,
            prepared: Vec::new(),
            waiting: self.open_wait(loaded, round)?,
            ..DecisionInputs::default()
        })
    }

    /// Looks up the threads that the calls of a reply name, for calls of the built-in tools.
    pub fn prepare_calls(
        &self,
        loaded: &LoadedThread,
        pin: Option<&PinnedSettings>,
        outcome: &StepOutcome,
        ceiling: ThreadCaps,
    ) -> Result<Vec<Option<PreparedCall>>, Error> {
        let (StepOutcome::Completion(completion), Some(pin)) = (outcome, pin) else {
            return Ok(Vec::new());
        };
        let mut prepared = Vec::new();
        for block in &completion.blocks {
            let ReplyBlock::ToolUse {
                name, arguments, ..
            } = block
            else {
                continue;
            };
            if prepared.len() >= CALLS_MAX {
                break;
            }
            prepared.push(self.prepare_builtin(loaded, pin, (name, arguments), ceiling)?);
        }
        Ok(prepared)
    }

    /// Looks up the threads that a call names; `None` if it is of no built-in tool.
    pub(super) fn prepare_builtin(
        &self,
        loaded: &LoadedThread,
        pin: &PinnedSettings,
        (name, arguments): (&str, &str),
        ceiling: ThreadCaps,
    ) -> Result<Option<PreparedCall>, Error> {
        let own = pin.find_tool(name).is_some() && is_builtin_tool(name);
        let call = own.then(|| BuiltinCall::parse(name, arguments)).flatten();
        Ok(match call {
            None => None,
            Some(Err(error)) => Some(PreparedCall::Answer(error.to_string(), true)),
            Some(Ok(call)) => {
                let prepared = self.prepare_call(loaded, pin, call, ceiling);
                Some(refusal_as_answer(prepared)?)
            }
        })
    }

    fn prepare_call(
        &self,
        loaded: &LoadedThread,
        pin: &PinnedSettings,
        call: BuiltinCall,
        ceiling: ThreadCaps,
    ) -> Result<PreparedCall, Error> {
        Ok(match call {
            BuiltinCall::Spawn(spawn) => self.prepare_spawn(loaded, pin, *spawn, ceiling)?,
            BuiltinCall::Wait(waits) => {
                PreparedCall::Wait(self.load_waiting(loaded, &waits, false)?)
            }
            BuiltinCall::Status(thread) => {
                let found = self.load_reachable(loaded, &thread)?;
                as_answer(status_json(&self.load_tip(found)?))
            }
            BuiltinCall::List(status) => as_answer(self.list_under(loaded, status.as_deref())?),
            BuiltinCall::Send(thread, text) => {
                let to = self.load_other_chain(loaded, &thread)?;
                if to.head.value.status.is_terminal() && !is_to_be_resumed(&to.head.value) {
                    let problem = "has ended and takes no more messages: resume_thread goes on \
                                   with it";
                    let field = "send_message.thread";
                    return Err(CoreError::invalid(field, &thread, problem).into());
                }
                self.prepare_message(to, text, "sent")?
            }
            BuiltinCall::Resume(thread, text) => {
                let to = self.load_other_chain(loaded, &thread)?;
                runner::check_may_be_resumed(&to, ceiling)?;
                self.prepare_message(to, text, "resumed")?
            }
            BuiltinCall::Stop(thread, at_once) => {
                let to = self.load_other_chain(loaded, &thread)?;
                let intent = if at_once {
                    EndIntent::Kill
                } else {
                    EndIntent::Cancel
                };
                match to.head.value.status.is_terminal() {
                    true => as_answer(status_json(&to)),
                    false => PreparedCall::Stop(Box::new(into_related_thread(to)), intent),
                }
            }
            BuiltinCall::Read(thread, last) => {
                as_answer(self.newest_messages(&self.load_reachable(loaded, &thread)?, last)?)
            }
            BuiltinCall::Chain(thread, cursor) => {
                let found = self.load_reachable(loaded, &thread)?;
                as_answer(self.chain_page(&found, cursor.as_deref())?)
            }
            BuiltinCall::Aggregate(threads, from) => {
                let waits = WaitCall {
                    threads,
                    any: false,
                    timeout: Some(0),
                };
                PreparedCall::Results(self.load_waiting(loaded, &waits, false)?.children, from)
            }
        })
    }

    fn prepare_spawn(
        &self,
        loaded: &LoadedThread,
        pin: &PinnedSettings,
        spawn: SpawnCall,
        ceiling: ThreadCaps,
    ) -> Result<PreparedCall, Error> {
        let parent = &loaded.thread.value;
        let limits = loaded.head.value.limits.lowered_to(ceiling);
        let draft = ThreadDraft {
            key: None,
            id: None,
            directive: Some(spawn.directive),
            agent: parent.agent.clone(),
            task: parent.task.clone(),
            title: spawn.title,
            overrides: CreatorOverrides {
                model: spawn.model,
                limits: spawn.limits,
                capabilities: Vec::new(),
                approvals: Vec::new(),
                within: Some(runner::child_bounds(
                    limits,
                    &parent.capabilities,
                    &pin.approvals,
                )),
            },
            inputs: spawn.inputs,
            incomplete: false,
        };
        let resolved = self.resolve_draft(&draft)?;
        let grant = resolved.reserve.map(|amount| match spawn.clamp {
            true => ReserveGrant::AtMost(amount),
            false => ReserveGrant::Exactly(amount),
        });
        let random = self.draw_random()?;
        Ok(PreparedCall::Spawn(Box::new(SpawnRequest {
            draft,
            resolved,
            grant,
            random,
        })))
    }

    /// Prepares a message for the tip of another chain; `done` is the word for what it does there.
    fn prepare_message(
        &self,
        to: LoadedThread,
        text: String,
        done: &'static str,
    ) -> Result<PreparedCall, Error> {
        if escaped_bytes(&text) + 256 > SENT_BYTES_MAX {
            let problem = format!("is longer than {SENT_BYTES_MAX} bytes");
            return Err(CoreError::invalid("message", "", problem).into());
        }
        let waiting = self.mail(&to)?.iter().map(InboxMessage::json_bytes).sum();
        let message = Message::text(MessageRole::User, text);
        Ok(PreparedCall::Send(
            Box::new(into_related_thread(to)),
            message,
            waiting,
            done,
        ))
    }

    /// Loads a thread that this one reaches: of its own chain, or under it.
    fn load_reachable(&self, loaded: &LoadedThread, thread: &str) -> Result<LoadedThread, Error> {
        let hidden = || Error::from(CoreError::not_found("thread", thread, None));
        let found = match self.load(thread) {
            Err(error) if error.is_not_found() => return Err(hidden()),
            found => found?,
        };
        let (own, mut chain) = (&loaded.thread.value.chain, Rc::clone(&found.chain.value));
        if found.thread.value.chain == *own {
            return Ok(found);
        }
        while let Some(parent) = &chain.parent {
            if parent == own {
                return Ok(found);
            }
            if chain.depth <= loaded.chain.value.depth {
                break;
            }
            let items = self.ports.get(&[(key::CHAIN, &id::key(parent))])?;
            let Some(item) = items.first() else { break };
            chain = Rc::new(super::store::parse_record(item)?);
        }
        Err(hidden())
    }

    /// Loads the tip of a chain that this thread reaches and that is not its own. `thread` names
    /// any link of it.
    fn load_other_chain(&self, loaded: &LoadedThread, thread: &str) -> Result<LoadedThread, Error> {
        let found = self.load_reachable(loaded, thread)?;
        if found.thread.value.chain == loaded.thread.value.chain {
            return Err(CoreError::invalid("thread", thread, "is your own").into());
        }
        let tip = self.load_tip(found)?;
        tip.check_formats()?;
        Ok(tip)
    }

    /// Loads the wait of a thread's open round, if it has one.
    fn open_wait(
        &self,
        loaded: &LoadedThread,
        round: Option<&Entry>,
    ) -> Result<Option<WaitRequest>, Error> {
        let open = loaded.head.value.round.as_ref();
        let call = open.and_then(|open| open.calls.iter().find(|call| call.waits));
        let (Some(call), Some(round)) = (call, round) else {
            return Ok(None);
        };
        let used = match round.events.get(call.index as usize) {
            Some(Event::ToolUse(used)) => BuiltinCall::parse(&used.name, &used.arguments),
            _ => None,
        };
        let Some(Ok(BuiltinCall::Wait(waits))) = used else {
            let message = format!(
                "the open wait of {} is not in its history",
                loaded.thread.value.id
            );
            return Err(CoreError::corrupt(message).into());
        };
        self.load_waiting(loaded, &waits, true).map(Some)
    }
}

fn as_answer(text: String) -> PreparedCall {
    PreparedCall::Answer(text, false)
}

fn into_related_thread(loaded: LoadedThread) -> RelatedThread {
    RelatedThread {
        id: loaded.thread.value.id.clone(),
        chain: loaded.thread.value.chain.clone(),
        head: loaded.head,
    }
}

/// Turns a refusal into the answer of the call, because the model asked for something it cannot
/// have. A store that fails is an error of the whole decision.
fn refusal_as_answer(prepared: Result<PreparedCall, Error>) -> Result<PreparedCall, Error> {
    let error = match prepared {
        Ok(prepared) => return Ok(prepared),
        Err(error) => error.into_kind(),
    };
    let text = match error {
        ErrorKind::Core(kind) => kind.to_full_text(),
        ErrorKind::Deleted(thread) => format!("{thread} was deleted"),
        ErrorKind::Library(LibraryError::Invalid {
            field,
            value,
            problem,
            ..
        }) => format!("{field} {value:?} {problem}"),
        ErrorKind::BadAnswer(message)
        | ErrorKind::Library(
            LibraryError::Unavailable(_, message) | LibraryError::Other(_, message),
        )
        | ErrorKind::Storage(
            StorageError::Corrupt(_, message) | StorageError::TooLarge(_, message),
        ) => message,
        kind @ ErrorKind::Storage(_) => return Err(kind.into()),
    };
    Ok(PreparedCall::Answer(text, true))
}

/// Renders the status of a thread as JSON, for a model.
fn status_json(loaded: &LoadedThread) -> String {
    let (head, account) = (&loaded.head.value, loaded.account());
    let cause = head.cause.as_ref();
    let cause = cause.map(|cause| format!("{}: {}", cause.code, cut(&cause.message, 500)));
    let mut text = String::new();
    ObjectWriter::new(&mut text)
        .add("thread", &loaded.thread.value.id)
        .add_present("chain", &loaded.thread.value.first_link())
        .add("status", head.status.as_str())
        .add_present("cause", &cause)
        .add("turns", &head.counters.turns)
        .add("cost_usd", &head.spend_under_cap().to_string())
        .add(
            "budget_of",
            loaded.chain.value.draws_on(&loaded.thread.value.chain),
        )
        .add_present("limit_usd", &account.limit.map(|limit| limit.to_string()))
        .add_present(
            "left_usd",
            &account.limit.map(|_| account.room(None).to_string()),
        )
        .finish();
    text
}
