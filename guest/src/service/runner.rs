//! The runner: each call loads the inputs of a decision, commits it, and returns the next step of
//! the driver.

use super::blobs::NamedBlobs;
use super::decisions::ThreadDetails;
use super::registry::loaded_from_plan;
use super::resolve::{keeps_pin, with_policy_caps};
use super::resume::RunRequest;
use super::store::DecisionOutcome;
use super::{Error, ErrorKind, ThreadService};
use crate::ports::HostPorts;
use std::rc::Rc;
use threadkeep_core::continuation::{SummaryRequest, WindowNeeds, summary_request};
use threadkeep_core::error::{Error as CoreError, ErrorKind as CoreErrorKind};
use threadkeep_core::history::{Entry, provider_messages};
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{
    self, CommitDecision, DecisionInputs, HolderProof, NeedsDetail, Signal, StartRequest, Step,
    StepSubmission,
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
    /// The whole request that is made instead, for the summary of a thread that is handed off.
    pub summary: Option<SummaryRequest>,
    /// True if other threads may have something to do.
    pub concerns_others: bool,
    /// JSON object: what the caller of a resume is told of the successor.
    pub more: Option<String>,
    /// JSON: what the thread waits for, if it is suspended.
    pub waits_for: Option<String>,
}

impl StepHandle {
    /// Returns the tokens that the model of the thread takes, once it has a pin.
    pub fn window(&self) -> Option<u64> {
        self.pin.as_deref().map(|pin| pin.model.window)
    }

    /// Returns what the thread is shown with.
    pub fn details(&self) -> ThreadDetails {
        ThreadDetails {
            window: self.window(),
            waits_for: self.waits_for.clone(),
        }
    }

    /// Returns the name of the model that writes summaries; empty where none does.
    pub fn summary_model(&self) -> String {
        let settings = self.pin.as_deref().map(PinnedSettings::continuation);
        let summary = settings
            .as_ref()
            .and_then(|settings| settings.summary.as_ref());
        summary.map_or_else(String::new, |summary| summary.model.name.clone())
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
            let round = self.round(loaded)?;
            let known_input = self.knows_input_of_start(loaded, request)?;
            self.check_blobs(loaded, &NamedBlobs::of_message(request.input.as_ref()))?;
            let moment = with_policy_caps(moment, &settings.policy);
            let ceiling = moment.ceiling;
            let inputs = DecisionInputs {
                decided: self.load_decisions(loaded, round.as_deref(), pin.as_deref(), ceiling)?,
                known_input,
                ..self.load_decision_inputs(loaded, round.as_deref())?
            };
            let first = self.first_entry_of_start(loaded, request.holder, request.name)?;
            self.with_window_if_asked(loaded, inputs, &|inputs| {
                let (pin, fresh) = (pin.as_deref(), fresh.clone());
                let asked = StartRequest {
                    round: round.as_deref(),
                    ..request.to_start(inputs)
                };
                Ok(runner::start(
                    loaded,
                    pin,
                    fresh,
                    first.as_ref(),
                    asked,
                    moment,
                )?)
            })
        });
        let named = (request.holder, request.name);
        let Some(tip) = self.handed_off_by(&done, thread, named)? else {
            return self.hand_out_step(done?, 0);
        };
        let (old, asked) = (
            self.load(thread)?,
            request.to_start(DecisionInputs::default()),
        );
        runner::check_handed_off_start(self.newest_own_entry(&old)?.as_ref(), &asked)?;
        self.hand_out_step(DecisionOutcome::Unchanged(Box::new(tip)), 0)
    }

    /// Returns the tip of a thread that a start or claim of this holder and name has handed off, if
    /// its first step there is pending: `answer` is that of the same call, repeated.
    fn handed_off_by<T>(
        &self,
        answer: &Result<T, Error>,
        thread: &str,
        (holder, name): (&str, &str),
    ) -> Result<Option<LoadedThread>, Error> {
        if !answer.as_ref().is_err_and(Error::is_continued) {
            return Ok(None);
        }
        let tip = self.load(&self.load(thread)?.chain.value.tip)?;
        let repeated = runner::is_repeated_start(&tip.head.value, holder, name);
        Ok(Some(tip).filter(|_| repeated))
    }

    /// Answers what a hand-off of a thread would carry now, as JSON. A thread that has no settings
    /// of its own yet is taken as it would be started.
    pub fn hand_off_plan(&self, thread: &str) -> Result<String, Error> {
        let loaded = self.load(thread)?;
        let pin = match self.pin_if_any(&loaded)? {
            Some(pin) => pin,
            None => self.pin_for_start(&loaded, &self.tenant_settings(true)?)?.0,
        };
        let needs = runner::hand_off_plan_needs(&loaded, &pin);
        let window = self.load_window(&loaded, loaded.head.value.version, needs)?;
        Ok(runner::hand_off_plan(&loaded, &pin, &window))
    }

    /// Decides; loads the live window and decides once more where the decision asks for it.
    fn with_window_if_asked(
        &self,
        loaded: &LoadedThread,
        inputs: DecisionInputs,
        decide: &dyn Fn(DecisionInputs) -> Result<CommitDecision, Error>,
    ) -> Result<CommitDecision, Error> {
        let again = inputs.clone();
        match decide(inputs)? {
            CommitDecision::NeedsWindow(needs) => {
                let window = self.load_window(loaded, loaded.head.value.version, needs)?;
                decide(DecisionInputs {
                    window: Some(window),
                    ..again
                })
            }
            decided => Ok(decided),
        }
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
            let moment = self.with_operator_caps(moment)?;
            let ceiling = moment.ceiling;
            let inputs = DecisionInputs {
                decided: self.load_decisions(loaded, round.as_deref(), pin.as_deref(), ceiling)?,
                ..self.load_decision_inputs(loaded, round.as_deref())?
            };
            self.with_window_if_asked(loaded, inputs, &|inputs| {
                Ok(runner::claim(
                    loaded,
                    pin.as_deref(),
                    round.as_deref(),
                    &partial,
                    (holder, proof, inputs),
                    moment,
                )?)
            })
        });
        let name = format!("claim:{holder}");
        match self.handed_off_by(&done, thread, (holder, &name))? {
            Some(tip) => self.hand_out_step(DecisionOutcome::Unchanged(Box::new(tip)), 0),
            None => self.hand_out_step(done?, 0),
        }
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
            let policy = self.policy()?;
            let moment = with_policy_caps(moment, &policy);
            let mut inputs = submission.inputs.clone();
            if submission.token != head.token {
                inputs.tip = self.readable_tip(loaded)?.map(Box::new);
            }
            if pending {
                self.check_blobs(loaded, &NamedBlobs::of_outcome(&submission.outcome))?;
                // The calls of a summary are not performed.
                let pin = pin.as_deref().filter(|_| head.phase.is_none());
                let (outcome, ceiling) = (&submission.outcome, moment.ceiling);
                inputs = DecisionInputs {
                    prepared: self.prepare_calls(loaded, pin, outcome, ceiling)?,
                    decided: self.load_decisions(loaded, round.as_deref(), pin, ceiling)?,
                    approvals: policy.approvals,
                    ..self.load_decision_inputs(loaded, round.as_deref())?
                };
            }
            self.with_window_if_asked(loaded, inputs, &|inputs| {
                let submission = StepSubmission {
                    inputs,
                    ..submission.clone()
                };
                Ok(runner::submit(
                    loaded,
                    pin.as_deref(),
                    round.as_deref(),
                    answer.as_ref(),
                    submission,
                    moment,
                )?)
            })
        })?;
        match done {
            DecisionOutcome::Unchanged(loaded) if is_handed_off(&loaded) => {
                let tip = self.load(&loaded.chain.value.tip)?;
                let actual = tip.head.value.token;
                if actual != submission.token {
                    return Err(CoreError::fenced_by(submission.token, actual).into());
                }
                self.hand_out_step(DecisionOutcome::Unchanged(Box::new(tip)), 0)
            }
            // Nothing that the driver holds is of a successor.
            DecisionOutcome::Committed(plan) if id::key(&plan.thread.id) != id::key(thread) => {
                self.hand_out_step(DecisionOutcome::Committed(plan), 0)
            }
            done => self.hand_out_step(done, have),
        }
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
                    false => Err(CoreError::conflict("content", expected, actual).into()),
                };
            }
            if let Signal::Message(message) = signal {
                if self.knows_input(loaded, Some(message))? {
                    return Ok(CommitDecision::Repeat);
                }
                self.check_blobs(loaded, &NamedBlobs::of_message(Some(message)))?;
            }
            let round = self.round(loaded)?;
            let moment = match signal {
                Signal::Raise(_) => self.with_operator_caps(moment)?,
                Signal::Message(_)
                | Signal::Cancel
                | Signal::Kill
                | Signal::Fail(_)
                | Signal::Decision(_) => moment,
            };
            let earlier = self.earlier_decision(loaded, signal)?;
            let signal = signal.clone();
            Ok(runner::signal(
                loaded,
                round.as_deref(),
                (self.mail(loaded)?, earlier),
                (name, signal),
                moment,
            )?)
        });
        if let (Err(error), Some(intent)) = (&done, signal.intent())
            && error.is_damage()
            && !matches!(
                error.kind(),
                ErrorKind::Core(CoreErrorKind::NewerFormat { .. })
            )
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
        let (loaded, entry, own, concerns_others) = match done {
            DecisionOutcome::Committed(mut plan) => {
                let (entry, others) = (plan.entry.take(), plan.concerns_other_threads());
                let own = entry.as_ref().map(|entry| {
                    let messages = std::mem::take(&mut plan.messages);
                    (entry.version, messages)
                });
                (loaded_from_plan(*plan), entry, own, others)
            }
            // It is not known any more if the commit before concerned other threads.
            DecisionOutcome::Unchanged(loaded) => (*loaded, None, None, true),
        };
        let pin = self.pin_if_any(&loaded)?;
        let read;
        let round = match (&loaded.head.value.round, &entry) {
            (Some(round), Some(entry)) if round.version == entry.version => Some(&**entry),
            (Some(_), _) => {
                read = self.round(&loaded)?;
                read.as_deref()
            }
            (None, _) => None,
        };
        let step = runner::pending_step(&loaded.head.value, pin.as_deref(), round)?;
        let waits_for = runner::suspension_needs(&loaded.head.value, round, NeedsDetail::Arguments);
        let summary = self.summary_to_ask(&loaded, &step, pin.as_deref())?;
        let (since, messages) = match step.kind {
            Some(StepKind::CallLlm) if summary.is_some() => (0, Vec::new()),
            Some(StepKind::CallLlm) => self.messages_to_carry(&loaded, have, step.version, own)?,
            _ => (0, Vec::new()),
        };
        Ok(StepHandle {
            loaded,
            step,
            pin,
            since,
            messages,
            summary,
            concerns_others,
            more: None,
            waits_for,
        })
    }

    /// Returns the request for the summary of a thread, where its pending step is to ask for it.
    fn summary_to_ask(
        &self,
        loaded: &LoadedThread,
        step: &Step,
        pin: Option<&PinnedSettings>,
    ) -> Result<Option<SummaryRequest>, Error> {
        let settings = pin.map(PinnedSettings::continuation);
        let settings = settings.as_ref().and_then(|pinned| pinned.summary.as_ref());
        let head = &loaded.head.value;
        match (pin, &head.phase, step.kind, settings) {
            (Some(pin), Some(_), Some(StepKind::CallLlm), Some(settings)) => {
                let terms = runner::summary_terms(settings, head, pin);
                let needs = WindowNeeds {
                    transcript: Some(terms.most()),
                    ..WindowNeeds::default()
                };
                let window = self.load_window(loaded, step.version, needs)?;
                Ok(summary_request(&window, None, terms))
            }
            _ => Ok(None),
        }
    }

    /// Returns the messages after `have` up to the step's version, if they are few; otherwise none,
    /// and the driver reads them itself.
    fn messages_to_carry(
        &self,
        loaded: &LoadedThread,
        have: u64,
        until: u64,
        own: Option<(u64, Vec<String>)>,
    ) -> Result<(u64, Vec<String>), Error> {
        if have > until {
            let (expected, actual) = (have.to_string(), until.to_string());
            return Err(CoreError::conflict("have", expected, actual).into());
        }
        let base = loaded.thread.value.base_length();
        if have < base || until - have > ENTRIES_CARRIED_MAX {
            return Ok((until, Vec::new()));
        }
        let mut texts = Vec::new();
        let own = own.filter(|(version, _)| *version == until);
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
        if let Some((_, messages)) = own {
            texts.extend(messages);
        }
        Ok((have, texts))
    }
}

/// Returns true if the run of a thread has gone on in a successor.
fn is_handed_off(loaded: &LoadedThread) -> bool {
    loaded.head.value.status == ThreadStatus::Continued
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
