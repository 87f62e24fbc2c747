//! Child threads: looks up the threads that calls of the built-in tools name, and passes an end
//! intent of a thread on to its children.
//!
//! A thread reaches the threads of its own chain and those that lie under it. Other threads are
//! reported as not found, so that their ids are not given away.

use super::store::LoadedPage;
use super::{Error, ThreadService};
use crate::ports::{HostPorts, LibraryError, StorageError};
use threadkeep_core::error::{Error as CoreError, cut};
use threadkeep_core::history::{Entry, Event, Message, MessageRole, escaped_bytes};
use threadkeep_core::json::ObjectWriter;
use threadkeep_core::ledger::ReserveGrant;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{LoadedThread, RelatedThread};
use threadkeep_core::runner::{
    self, CALLS_MAX, ChildSnapshot, DecisionInputs, PreparedCall, ReplyBlock, SENT_BYTES_MAX,
    SpawnRequest, StepOutcome, WaitRequest,
};
use threadkeep_core::settings::{
    BuiltinCall, PinnedSettings, SpawnCall, WaitCall, is_builtin_tool,
};
use threadkeep_core::thread::{
    ChainRecord, CreatorOverrides, EndIntent, InboxMessage, ThreadDraft, WAIT_MAX,
};
use threadkeep_core::{id, key};

/// Children that one call of `sweep` visits.
const SWEEP_CHILDREN_MAX: u32 = 50;
/// Most pages of threads below those that cannot be read which one call tells: an index that was
/// forged may name them in a circle.
const LOST_PAGES_MAX: u32 = 20;
/// Index entries of one page, and most pages, that are searched for one child.
const INDEX_PAGE_ENTRIES: u32 = 500;
const INDEX_PAGES_MAX: usize = 10;

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
            let own = pin.find_tool(name).is_some() && is_builtin_tool(name);
            let call = own.then(|| BuiltinCall::parse(name, arguments)).flatten();
            prepared.push(match call {
                None => None,
                Some(Err(error)) => Some(PreparedCall::Answer(error.to_string(), true)),
                Some(Ok(call)) => {
                    Some(refusal_as_answer(self.prepare_call(loaded, call, ceiling))?)
                }
            });
        }
        Ok(prepared)
    }

    fn prepare_call(
        &self,
        loaded: &LoadedThread,
        call: BuiltinCall,
        ceiling: ThreadCaps,
    ) -> Result<PreparedCall, Error> {
        Ok(match call {
            BuiltinCall::Spawn(spawn) => self.prepare_spawn(loaded, *spawn, ceiling)?,
            BuiltinCall::Wait(waits) => {
                PreparedCall::Wait(self.load_waiting(loaded, &waits, false)?)
            }
            BuiltinCall::Status(thread) => {
                as_answer(status_json(&self.load_reachable(loaded, &thread)?))
            }
            BuiltinCall::List(status) => as_answer(self.list_under(loaded, status.as_deref())?),
            BuiltinCall::Send(thread, text) => self.prepare_message(loaded, &thread, text)?,
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
            BuiltinCall::Aggregate(threads, from) => {
                let waits = WaitCall {
                    threads,
                    any: false,
                    timeout: 0,
                };
                PreparedCall::Results(self.load_waiting(loaded, &waits, false)?.children, from)
            }
        })
    }

    fn prepare_spawn(
        &self,
        loaded: &LoadedThread,
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
                within: Some(runner::child_bounds(limits, &parent.capabilities)),
            },
            inputs: spawn.inputs,
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

    fn prepare_message(
        &self,
        loaded: &LoadedThread,
        thread: &str,
        text: String,
    ) -> Result<PreparedCall, Error> {
        let to = self.load_other_chain(loaded, thread)?;
        if to.head.value.status.is_terminal() {
            let problem = "has ended and takes no more messages";
            return Err(CoreError::invalid("send_message.thread", thread, problem).into());
        }
        if escaped_bytes(&text) + 256 > SENT_BYTES_MAX {
            let problem = format!("is longer than {SENT_BYTES_MAX} bytes");
            return Err(CoreError::invalid("send_message.message", "", problem).into());
        }
        let waiting = self.mail(&to)?.iter().map(InboxMessage::json_bytes).sum();
        let message = Message::text(MessageRole::User, text);
        Ok(PreparedCall::Send(
            Box::new(into_related_thread(to)),
            message,
            waiting,
        ))
    }

    /// Loads a thread that this one reaches: of its own chain, or under it.
    fn load_reachable(&self, loaded: &LoadedThread, thread: &str) -> Result<LoadedThread, Error> {
        let hidden = || {
            Error::from(CoreError::NotFound {
                kind: "thread",
                name: cut(thread, 200).to_owned(),
                nearest: None,
            })
        };
        let found = match self.load(thread) {
            Err(Error::Core(CoreError::NotFound { .. })) => return Err(hidden()),
            found => found?,
        };
        let (own, mut chain) = (&loaded.thread.value.chain, found.chain.value.clone());
        if found.thread.value.chain == *own {
            return Ok(found);
        }
        while let Some(parent) = chain.parent {
            if parent == *own {
                return Ok(found);
            }
            if chain.depth <= loaded.chain.value.depth {
                break;
            }
            let items = self.ports.get(&[(key::CHAIN, &id::key(&parent))])?;
            let Some(item) = items.first() else { break };
            chain = super::store::parse_record::<ChainRecord>(item)?;
        }
        Err(hidden())
    }

    /// Loads a thread that this one reaches and that is not of its own chain.
    fn load_other_chain(&self, loaded: &LoadedThread, thread: &str) -> Result<LoadedThread, Error> {
        let found = self.load_reachable(loaded, thread)?;
        found.check_formats()?;
        match found.thread.value.chain == loaded.thread.value.chain {
            true => Err(CoreError::invalid("thread", thread, "is your own").into()),
            false => Ok(found),
        }
    }

    /// Returns the ids of the newest children, oldest first.
    fn newest_children(&self, loaded: &LoadedThread) -> Result<Vec<String>, Error> {
        let parent = key::index_value(&loaded.key());
        let (start, end) = key::prefix_range(&["parent", &parent]);
        let most = WAIT_MAX as u32;
        let page = self.scan_names(key::INDEX, (&start, &end), most, true)?;
        let mut children = page.keys();
        children.reverse();
        Ok(children)
    }

    /// Loads the children that a call waits for, in their current state. It must be called after
    /// the head of the waiting thread was read: a child that ends replaces that head, so a decision
    /// with older children conflicts. A child that cannot be read is among them, and ends the wait
    /// for it as unreadable. `known` says that the threads were found to be children before.
    fn load_waiting(
        &self,
        loaded: &LoadedThread,
        waits: &WaitCall,
        known: bool,
    ) -> Result<WaitRequest, Error> {
        let all = match waits.threads.is_empty() {
            true => self.newest_children(loaded)?,
            false => Vec::new(),
        };
        for thread in &waits.threads {
            id::check_id("threads", thread)?;
        }
        let known = known || !all.is_empty();
        let threads = if all.is_empty() { &waits.threads } else { &all };
        let keys: Vec<String> = threads.iter().map(|thread| id::key(thread)).collect();
        let found = self.load_many(&keys)?;
        let mut children = Vec::with_capacity(keys.len());
        for (thread, key) in threads.iter().zip(&keys) {
            let child = found.threads.iter().find(|child| child.key() == *key);
            let own = child.filter(|child| {
                child.chain.value.parent.as_ref() == Some(&loaded.thread.value.chain)
            });
            children.push(match own {
                // No driver of this version goes on with it, and it cannot wake its parent.
                Some(child) if child.check_formats().is_err() => {
                    ChildSnapshot::unreadable(&id::printable_id(thread))
                }
                Some(child) => {
                    let (thread, head, chain) = (&child.thread, &child.head, &child.chain);
                    ChildSnapshot::new(&thread.value, &head.value, &chain.value)
                }
                None if child.is_none() && (known || self.is_indexed_child(loaded, key)?) => {
                    ChildSnapshot::unreadable(&id::printable_id(thread))
                }
                None => return Err(child_not_found(thread)),
            });
        }
        if waits.threads.is_empty() {
            // Children of one reply were made in the same millisecond.
            children.sort_by_key(|child| child.number);
        }
        Ok(WaitRequest {
            any: waits.any,
            timeout: waits.timeout,
            all: waits.threads.is_empty(),
            children,
        })
    }

    /// Returns true if the index names a thread as a child of another. It is used where the child's
    /// own records cannot tell.
    fn is_indexed_child(&self, loaded: &LoadedThread, child: &str) -> Result<bool, Error> {
        let (start, end) = key::prefix_range(&["parent", &key::index_value(&loaded.key())]);
        let mut from = Some(start);
        for _ in 0..INDEX_PAGES_MAX {
            let Some(start) = from.take() else { break };
            let page = self.scan_names(key::INDEX, (&start, &end), INDEX_PAGE_ENTRIES, false)?;
            if page.keys().iter().any(|key| key == child) {
                return Ok(true);
            }
            from = page.cursor;
        }
        Ok(false)
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
            return Err(CoreError::Corrupt(message).into());
        };
        self.load_waiting(loaded, &waits, true).map(Some)
    }

    /// Does the same as [`ThreadService::sweep_page`]. Returns the start of the next page, or
    /// `None` if all children were visited.
    pub fn sweep(&self, thread: &str, cursor: Option<String>) -> Result<Option<String>, Error> {
        Ok(self.sweep_page(thread, cursor)?.cursor)
    }

    /// Applies the end intent of a thread, and propagates it to a page of its children. If it
    /// cannot reach a child, the head of the thread keeps the intent, and a later sweep propagates
    /// it again.
    pub fn sweep_page(&self, thread: &str, cursor: Option<String>) -> Result<SweepPage, Error> {
        let _ = self.decide_or_close(thread, &|loaded, moment| {
            let round = self.round(loaded)?;
            let mail = self.mail(loaded)?;
            let moment = self.with_operator_caps(moment)?;
            Ok(runner::apply_intent(loaded, round.as_ref(), mail, moment)?)
        })?;
        let loaded = self.load(thread)?;
        let Some(intent) = loaded.head.value.sweep else {
            return Ok(SweepPage::default());
        };
        let (start, end) = key::prefix_range(&["parent", &key::index_value(&loaded.key())]);
        let place = SweepCursor::parse(cursor.as_deref(), intent);
        super::store::check_cursor(place.from.or(cursor.as_deref()), &start, &end)?;
        // If the intent has become a kill since, the children of earlier pages got only a cancel.
        let from = place.from.filter(|_| place.same_intent).unwrap_or(&start);
        let page = self.scan_names(key::INDEX, (from, &end), SWEEP_CHILDREN_MAX, false)?;
        let mut unreadable = self.propagate_to_each(&page.keys(), intent)?;
        let lost = unreadable.iter().map(|(key, _)| key.clone()).collect();
        unreadable.extend(self.propagate_below(lost, intent)?);
        let kept = !unreadable.is_empty() || place.same_intent && place.has_unreached;
        if page.cursor.is_none() && !kept {
            let _ = self.decide(thread, &|loaded, moment| {
                Ok(runner::finish_propagation(loaded, intent, moment)?)
            })?;
        }
        let mark = if kept { UNREACHED_MARK } else { "" };
        let cursor = page.cursor;
        Ok(SweepPage {
            cursor: cursor.map(|cursor| format!("{}{mark} {cursor}", intent.as_str())),
            unreadable,
        })
    }

    /// Passes the end intent to each of these threads; returns those that it cannot reach.
    fn propagate_to_each(
        &self,
        keys: &[String],
        intent: EndIntent,
    ) -> Result<Vec<(String, String)>, Error> {
        let LoadedPage {
            threads,
            mut unreadable,
        } = self.load_many(keys)?;
        for child in threads {
            if child.head.value.status.is_terminal() && child.chain.value.children == 0 {
                continue;
            }
            let told = self.decide_or_close(&child.thread.value.id, &|loaded, moment| {
                let round = self.round(loaded)?;
                let mail = self.mail(loaded)?;
                let moment = self.with_operator_caps(moment)?;
                Ok(runner::propagate_intent(
                    loaded,
                    round.as_ref(),
                    mail,
                    intent,
                    moment,
                )?)
            });
            if let Err(error) = told {
                unreadable.push((child.key(), error.into_damage_message()?));
            }
        }
        Ok(unreadable)
    }

    /// Tells the children of threads that cannot be read, which pass nothing on themselves. Those
    /// of them that cannot be told either are returned, and theirs are told in turn.
    pub fn propagate_below(
        &self,
        mut lost: Vec<String>,
        intent: EndIntent,
    ) -> Result<Vec<(String, String)>, Error> {
        let (mut unreadable, mut pages) = (Vec::new(), 0);
        while let Some(parent) = lost.pop() {
            let (start, end) = key::prefix_range(&["parent", &key::index_value(&parent)]);
            let mut from = Some(start);
            while let Some(start) = from.take().filter(|_| pages < LOST_PAGES_MAX) {
                let page =
                    self.scan_names(key::INDEX, (&start, &end), SWEEP_CHILDREN_MAX, false)?;
                let found = self.propagate_to_each(&page.keys(), intent)?;
                lost.extend(found.iter().map(|(key, _)| key.clone()));
                unreadable.extend(found);
                from = page.cursor;
                pages += 1;
            }
        }
        Ok(unreadable)
    }
}

/// The result of one page of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepPage {
    /// Start of the next page.
    pub cursor: Option<String>,
    /// Children that the intent could not reach: name and problem.
    pub unreadable: Vec<(String, String)>,
}

/// Mark behind the intent in a cursor: the intent could not reach a child of an earlier page.
const UNREACHED_MARK: &str = "!";

/// The parts of a sweep's cursor: the intent that was propagated so far, and the next key.
struct SweepCursor<'a> {
    same_intent: bool,
    has_unreached: bool,
    from: Option<&'a str>,
}

impl<'a> SweepCursor<'a> {
    fn parse(cursor: Option<&'a str>, intent: EndIntent) -> Self {
        let (told, from) = cursor.and_then(|cursor| cursor.split_once(' ')).unzip();
        let told = told.unwrap_or_default();
        Self {
            same_intent: told.trim_end_matches(UNREACHED_MARK) == intent.as_str(),
            has_unreached: told.ends_with(UNREACHED_MARK),
            from,
        }
    }
}

fn child_not_found(thread: &str) -> Error {
    CoreError::NotFound {
        kind: "child thread",
        name: cut(thread, 200).to_owned(),
        nearest: None,
    }
    .into()
}

fn as_answer(text: String) -> PreparedCall {
    PreparedCall::Answer(text, false)
}

fn into_related_thread(loaded: LoadedThread) -> RelatedThread {
    RelatedThread {
        id: loaded.thread.value.id,
        chain: loaded.thread.value.chain,
        head: loaded.head,
    }
}

/// Turns a refusal into the answer of the call, because the model asked for something it cannot
/// have. A store that fails is an error of the whole decision.
fn refusal_as_answer(prepared: Result<PreparedCall, Error>) -> Result<PreparedCall, Error> {
    let text = match prepared {
        Ok(prepared) => return Ok(prepared),
        Err(Error::Core(error)) => error.to_string(),
        Err(Error::Deleted(thread)) => format!("{thread} was deleted"),
        Err(Error::Library(LibraryError::Invalid {
            field,
            value,
            problem,
            ..
        })) => format!("{field} {value:?} {problem}"),
        Err(Error::BadAnswer(message))
        | Err(Error::Library(
            LibraryError::Unavailable(_, message) | LibraryError::Other(_, message),
        ))
        | Err(Error::Storage(
            StorageError::Corrupt(_, message) | StorageError::TooLarge(_, message),
        )) => message,
        Err(error @ Error::Storage(_)) => return Err(error),
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
        .add("status", head.status.as_str())
        .add_present("cause", &cause)
        .add("turns", &head.counters.turns)
        .add("cost_usd", &head.counters.spend.to_string())
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
