//! The runner: each call loads the inputs of a decision, commits it, and returns the next step of
//! the driver.

use super::registry::loaded_from_plan;
use super::resolve::{keeps_pin, with_policy_caps};
use super::resume::RunRequest;
use super::store::DecisionOutcome;
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use std::rc::Rc;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{Entry, provider_messages};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{
    self, CommitDecision, DecisionInputs, HolderProof, Signal, Step, StepSubmission,
};
use threadkeep_core::settings::PinnedSettings;
use threadkeep_core::thread::{InboxMessage, MAIL_MAX, StepKind, ThreadStatus};
use threadkeep_core::{id, key};

/// Most entries whose messages a step carries with a model call. A driver that is further behind
/// reads them with `transcript.messages`.
const ENTRIES_CARRIED_MAX: u64 = 8;

/// A step for a driver, with the data that a model call needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepHandle {
    /// The thread in its current state.
    pub loaded: LoadedThread,
    /// The step.
    pub step: Step,
    /// Prompt, model and tools, for a model call.
    pub pin: Option<Rc<PinnedSettings>>,
    /// Versions up to this one are not in `messages`.
    pub since: u64,
    /// Messages of the entries after it.
    pub messages: Vec<String>,
    /// True if other threads may have something to do.
    pub concerns_others: bool,
    /// JSON object: what the caller of a resume is told of the successor.
    pub more: Option<String>,
}

impl StepHandle {
    /// Returns the tokens that the model of the thread takes, once it has a pin.
    pub fn window(&self) -> Option<u64> {
        self.pin.as_deref().map(|pin| pin.model.window)
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Begins a run, or continues a suspended one.
    pub fn start(
        &self,
        thread: &str,
        input: Option<&str>,
        holder: &str,
        name: &str,
        about: Option<&str>,
    ) -> Result<StepHandle, Error> {
        self.start_parsed(thread, &RunRequest::parse(input, (holder, name), about)?)
    }

    pub(super) fn start_parsed(
        &self,
        thread: &str,
        request: &RunRequest<'_>,
    ) -> Result<StepHandle, Error> {
        let done = self.decide(thread, &|loaded, moment| {
            let settings = self.tenant_settings(!keeps_pin(loaded))?;
            let (pin, fresh) = match loaded.head.value.status {
                ThreadStatus::Created | ThreadStatus::Idle | ThreadStatus::Suspended => {
                    self.check_own_history(loaded)?;
                    let (pin, fresh) = self.pin_for_start(loaded, &settings)?;
                    (Some(pin), fresh)
                }
                _ => (None, None),
            };
            let inputs = self.load_decision_inputs(loaded, self.round(loaded)?.as_ref())?;
            let moment = with_policy_caps(moment, &settings.policy);
            let first = self.first_entry_of_start(loaded, request.holder, request.name)?;
            Ok(runner::start(
                loaded,
                pin.as_deref(),
                fresh,
                first.as_ref(),
                request.to_start(inputs),
                moment,
            )?)
        })?;
        self.hand_out_step(done, 0)
    }

    /// Reads the entry that a start made whose first step is pending, if this is the same start.
    fn first_entry_of_start(
        &self,
        loaded: &LoadedThread,
        holder: &str,
        name: &str,
    ) -> Result<Option<Entry>, Error> {
        let head = &loaded.head.value;
        match &head.step {
            Some(step) if runner::is_repeated_start(head, holder, name) => {
                self.entry(loaded, step.version)
            }
            _ => Ok(None),
        }
    }

    /// Takes over a thread whose holder is gone.
    pub fn claim(
        &self,
        thread: &str,
        holder: &str,
        proof: HolderProof,
    ) -> Result<StepHandle, Error> {
        let done = self.decide_or_close(thread, &|loaded, moment| {
            let round = self.round(loaded)?;
            let partial = self.partial(loaded)?;
            let pin = self.pin_if_any(loaded)?;
            let claimer = (
                holder,
                proof,
                self.load_decision_inputs(loaded, round.as_ref())?,
            );
            let moment = self.with_operator_caps(moment)?;
            Ok(runner::claim(
                loaded,
                pin.as_deref(),
                round.as_ref(),
                &partial,
                claimer,
                moment,
            )?)
        })?;
        self.hand_out_step(done, 0)
    }

    /// Applies the result of a step.
    pub fn submit(
        &self,
        thread: &str,
        submission: &StepSubmission,
        have: u64,
    ) -> Result<StepHandle, Error> {
        let done = self.decide_or_close(thread, &|loaded, moment| {
            let pin = self.pin_if_any(loaded)?;
            let round = self.round(loaded)?;
            let head = &loaded.head.value;
            let pending = head
                .step
                .as_ref()
                .is_some_and(|step| step.version == submission.version);
            let answer = match !pending && submission.version < head.version {
                true => self.entry(loaded, submission.version + 1)?,
                false => None,
            };
            let moment = self.with_operator_caps(moment)?;
            let mut submission = submission.clone();
            if pending {
                let outcome = &submission.outcome;
                let prepared =
                    self.prepare_calls(loaded, pin.as_deref(), outcome, moment.ceiling)?;
                submission.inputs = DecisionInputs {
                    prepared,
                    ..self.load_decision_inputs(loaded, round.as_ref())?
                };
            }
            Ok(runner::submit(
                loaded,
                pin.as_deref(),
                round.as_ref(),
                answer.as_ref(),
                submission,
                moment,
            )?)
        })?;
        self.hand_out_step(done, have)
    }

    /// Sends a signal; returns the thread afterwards. The same id with the same content is applied
    /// once.
    pub fn signal(&self, thread: &str, name: &str, signal: &Signal) -> Result<LoadedThread, Error> {
        id::check_request_name("key", name)?;
        let done = self.decide(thread, &|loaded, moment| {
            let seen = key::join(&[&loaded.chain_key(), name]);
            if let Some(item) = self.ports.get(&[(key::SEEN, &seen)])?.first() {
                let (expected, actual) = (signal.digest(), item.value.clone());
                return match expected == actual {
                    true => Ok(CommitDecision::Repeat),
                    false => Err(CoreError::Conflict {
                        field: "content",
                        expected,
                        actual,
                    }
                    .into()),
                };
            }
            let round = self.round(loaded)?;
            let moment = match signal {
                Signal::Raise(_) => self.with_operator_caps(moment)?,
                Signal::Message(_) | Signal::Cancel | Signal::Kill => moment,
            };
            let signal = signal.clone();
            Ok(runner::signal(
                loaded,
                round.as_ref(),
                self.mail(loaded)?,
                (name, signal),
                moment,
            )?)
        });
        if let (Err(error), Some(intent)) = (&done, signal.intent())
            && error.is_damage()
            && !matches!(error, Error::Core(CoreError::NewerFormat { .. }))
        {
            // It cannot be ended itself; what it spawned is told in its place. Below a record of a
            // newer program nothing is changed: that program ends it, with all that it spawned.
            self.propagate_below_lost(thread, intent)?;
        }
        done.map(DecisionOutcome::into_loaded)
    }

    /// Reads the mail that waits: one item for each message that the head counts, also where its
    /// record is missing or cannot be read.
    #[inline(never)]
    pub fn mail(&self, loaded: &LoadedThread) -> Result<Vec<InboxMessage>, Error> {
        let head = &loaded.head.value;
        if head.mail_count() == 0 {
            return Ok(Vec::new());
        }
        let root = loaded.chain_key();
        let names: Vec<String> = (head.mail_from..head.mail_to.min(head.mail_from + MAIL_MAX))
            .map(|n| key::join(&[&root, &key::encode_number(n)]))
            .collect();
        let pairs: Vec<(&str, &str)> = names
            .iter()
            .map(|name| (key::INBOX, name.as_str()))
            .collect();
        let items = self.get_readable(&pairs)?;
        let mail = names.into_iter().map(|key| {
            let item = items.iter().find(|item| item.name == key);
            let message = item.and_then(|item| super::store::parse_record(item).ok());
            InboxMessage { key, message }
        });
        Ok(mail.collect())
    }

    /// Returns the pending step of the committed plan, or of the thread as loaded if nothing was
    /// committed.
    pub(super) fn hand_out_step(
        &self,
        done: DecisionOutcome,
        have: u64,
    ) -> Result<StepHandle, Error> {
        let (loaded, entry, concerns_others) = match done {
            DecisionOutcome::Committed(mut plan) => {
                let (entry, others) = (plan.entry.take(), plan.concerns_other_threads());
                (loaded_from_plan(*plan), entry, others)
            }
            // It is not known any more if the commit before concerned other threads.
            DecisionOutcome::Unchanged(loaded) => (*loaded, None, true),
        };
        let pin = self.pin_if_any(&loaded)?;
        let read;
        let round = match (&loaded.head.value.round, &entry) {
            (Some(round), Some(entry)) if round.version == entry.version => Some(entry),
            (Some(_), _) => {
                read = self.round(&loaded)?;
                read.as_ref()
            }
            (None, _) => None,
        };
        let step = runner::pending_step(&loaded.head.value, pin.as_deref(), round)?;
        let (since, messages) = match step.kind {
            Some(StepKind::CallLlm) => {
                self.messages_to_carry(&loaded, have, step.version, entry)?
            }
            _ => (0, Vec::new()),
        };
        Ok(StepHandle {
            loaded,
            step,
            pin,
            since,
            messages,
            concerns_others,
            more: None,
        })
    }

    /// Returns the messages after `have` up to the step's version, if they are few; otherwise none,
    /// and the driver reads them itself.
    fn messages_to_carry(
        &self,
        loaded: &LoadedThread,
        have: u64,
        until: u64,
        entry: Option<Entry>,
    ) -> Result<(u64, Vec<String>), Error> {
        if have > until {
            let (expected, actual) = (have.to_string(), until.to_string());
            return Err(CoreError::Conflict {
                field: "have",
                expected,
                actual,
            }
            .into());
        }
        let base = loaded.thread.value.base_length();
        if have < base || until - have > ENTRIES_CARRIED_MAX {
            return Ok((until, Vec::new()));
        }
        let mut texts = Vec::new();
        let own = entry.as_ref().filter(|entry| entry.version == until);
        let read_to = if own.is_some() { until - 1 } else { until };
        if read_to > have {
            let count = (read_to - have) as u32;
            let lines = self.own_entries(loaded, have + 1, count)?;
            if lines.len() < count as usize {
                // The page was full before all entries were read. The driver reads them in pages.
                return Ok((until, Vec::new()));
            }
            for (_, text) in lines {
                texts.extend(provider_messages(&Entry::from_text(&text)?));
            }
        }
        if let Some(entry) = own {
            texts.extend(provider_messages(entry));
        }
        Ok((have, texts))
    }
}

/// Returns true if the thread's holder is in the list. Ids of holders are compared byte for byte.
pub fn is_dead(dead: &[String], loaded: &LoadedThread) -> bool {
    loaded
        .head
        .value
        .holder
        .as_ref()
        .is_some_and(|holder| dead.contains(holder))
}
