//! Decisions about calls that need consent: loads their records and what applies them, and tells
//! what a suspended thread waits for.

use super::store::{LoadedPage, parse_record};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::history::{Entry, Event};
use threadkeep_core::key;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{self, DecidedCall, NeedsDetail, PreparedCall, Signal, decision_key};
use threadkeep_core::settings::PinnedSettings;
use threadkeep_core::thread::{CallConsent, DecisionRecord};

/// Most threads of a page whose waiting calls are named: the entry of each is read, which may have
/// a megabyte.
const NAMED_THREADS_MAX: usize = 32;

/// Details that a thread is shown with beside its records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadDetails {
    /// Tokens that its model takes, once it has a pin that can be read.
    pub window: Option<u64>,
    /// JSON: what it waits for, if it is suspended.
    pub waits_for: Option<String>,
}

impl<P: HostPorts> ThreadService<P> {
    /// Reads what a thread is shown with.
    pub fn details(&self, loaded: &LoadedThread) -> Result<ThreadDetails, Error> {
        Ok(ThreadDetails {
            window: self.window(loaded)?,
            waits_for: self.suspension_needs(loaded, NeedsDetail::Arguments)?,
        })
    }

    /// Returns what each thread of a page waits for that is suspended, as JSON: of calls their
    /// names for the first [`NAMED_THREADS_MAX`] threads that wait for decisions, else their ids.
    pub fn page_needs(&self, page: &LoadedPage) -> Result<Vec<Option<String>>, Error> {
        let mut left = NAMED_THREADS_MAX;
        let needs = page.threads.iter().map(|loaded| {
            let asks = loaded.head.value.undecided_calls().next().is_some();
            let detail = match asks && left > 0 {
                true => NeedsDetail::Names,
                false => NeedsDetail::Ids,
            };
            left -= usize::from(detail == NeedsDetail::Names);
            self.suspension_needs(loaded, detail)
        });
        needs.collect()
    }

    /// Returns what a suspended thread waits for, as JSON. The entry with its calls is read only
    /// where one of them waits for a decision.
    fn suspension_needs(
        &self,
        loaded: &LoadedThread,
        detail: NeedsDetail,
    ) -> Result<Option<String>, Error> {
        let head = &loaded.head.value;
        let asks = head.undecided_calls().next().is_some();
        let round = match asks && detail != NeedsDetail::Ids {
            false => None,
            true => match self.round(loaded) {
                Ok(round) => round,
                Err(error) => error.into_damage().map(|_| None)?,
            },
        };
        Ok(runner::suspension_needs(head, round.as_deref(), detail))
    }

    /// Reads the record of the decision that was taken about the call of a signal.
    pub(super) fn earlier_decision(
        &self,
        loaded: &LoadedThread,
        signal: &Signal,
    ) -> Result<Option<DecisionRecord>, Error> {
        let Signal::Decision(decision) = signal else {
            return Ok(None);
        };
        let call = (decision.version, decision.index);
        let name = decision_key(&loaded.chain_key(), &loaded.key(), call);
        let items = self.ports.get(&[(key::DECISION, &name)])?;
        items.first().map(parse_record).transpose()
    }

    /// Loads the open calls that were decided and are not handed out, with their records; those of
    /// the built-in tools are prepared. A record that cannot be read is `None`: what the head says
    /// of the call stands.
    pub(super) fn load_decisions(
        &self,
        loaded: &LoadedThread,
        round: Option<&Entry>,
        pin: Option<&PinnedSettings>,
        ceiling: ThreadCaps,
    ) -> Result<Vec<DecidedCall>, Error> {
        let Some(open) = &loaded.head.value.round else {
            return Ok(Vec::new());
        };
        let decided = open.calls.iter();
        let decided = decided.filter(|call| call.was_not_run() && !call.is_undecided());
        let decided: Vec<_> = decided.collect();
        if decided.is_empty() {
            return Ok(Vec::new());
        }
        let (root, thread) = (loaded.chain_key(), loaded.key());
        let names = decided.iter();
        let names = names.map(|call| decision_key(&root, &thread, (open.version, call.index)));
        let names: Vec<String> = names.collect();
        let keys: Vec<(&str, &str)> = names
            .iter()
            .map(|name| (key::DECISION, name.as_str()))
            .collect();
        let items = self.get_readable(&keys)?;
        let mut loaded_calls = Vec::with_capacity(decided.len());
        for (call, name) in decided.into_iter().zip(&names) {
            let item = items.iter().find(|item| item.name == *name);
            let prepared = match call.consent {
                Some(CallConsent::Approved) => {
                    let event = round.and_then(|entry| entry.events.get(call.index as usize));
                    self.prepare_approved(loaded, event, pin, ceiling)?
                }
                _ => None,
            };
            loaded_calls.push(DecidedCall {
                index: call.index,
                record: item.and_then(|item| parse_record(item).ok()),
                prepared,
            });
        }
        Ok(loaded_calls)
    }

    fn prepare_approved(
        &self,
        loaded: &LoadedThread,
        event: Option<&Event>,
        pin: Option<&PinnedSettings>,
        ceiling: ThreadCaps,
    ) -> Result<Option<PreparedCall>, Error> {
        match (event, pin) {
            (Some(Event::ToolUse(used)), Some(pin)) => {
                self.prepare_builtin(loaded, pin, (&used.name, &used.arguments), ceiling)
            }
            _ => Ok(None),
        }
    }
}
