//! Resume: goes on with a thread from any link of its chain, in place or in a successor.
//!
//! The tip decides: one that has ended gets a successor, every other is started as it is. Between
//! the reads another caller may continue the chain; then its new tip decides.

use super::history::thread_path;
use super::resolve::{keeps_pin, with_policy_caps};
use super::runner::StepHandle;
use super::store::{CONTENTION, DECISION_TRIES_MAX, DecisionOutcome, parse_record};
use super::{Error, ThreadService};
use crate::ports::{HostPorts, StorageError};
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::history::{Message, parse_user};
use threadkeep_core::json::{JsonValue, ObjectWriter};
use threadkeep_core::key;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner::{self, DecisionInputs, ResumeRequest, StartRequest};
use threadkeep_core::thread::{CreationRecord, resume_key};

/// A caller's request to start or resume, with its texts parsed.
#[derive(Debug, Clone)]
pub(super) struct RunRequest<'a> {
    pub input: Option<Message>,
    pub holder: &'a str,
    pub name: &'a str,
    pub about: Option<JsonValue<'static>>,
}

impl<'a> RunRequest<'a> {
    pub fn parse(
        input: Option<&str>,
        (holder, name): (&'a str, &'a str),
        about: Option<&str>,
    ) -> Result<Self, Error> {
        Ok(Self {
            input: input.map(parse_user).transpose()?,
            holder,
            name,
            about: about.map(runner::parse_about).transpose()?,
        })
    }

    /// Returns the request for the core.
    pub fn to_start(&self, inputs: DecisionInputs) -> StartRequest<'a> {
        StartRequest {
            input: self.input.clone(),
            holder: self.holder,
            key: self.name,
            about: self.about.clone(),
            inputs,
            round: None,
        }
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Goes on with a thread, named by any link of its chain: in place, as a start does, or in a
    /// successor if the tip has ended.
    pub fn resume(
        &self,
        thread: &str,
        input: Option<&str>,
        holder: &str,
        name: &str,
        about: Option<&str>,
    ) -> Result<StepHandle, Error> {
        let request = RunRequest::parse(input, (holder, name), about)?;
        for _ in 0..DECISION_TRIES_MAX {
            let named = self.load(thread)?;
            if let Some(made) = self.resumed_before(&named, &request)? {
                let begun = self.hand_out_step(DecisionOutcome::Unchanged(Box::new(made)), 0)?;
                return Ok(with_resumption(begun, &named));
            }
            let tip = self.load_tip(named.clone())?;
            let ended = tip.head.value.status.is_terminal();
            let owes = ended && tip.head.value.sweep.is_some();
            let tip = &tip.thread.value.id;
            if owes {
                self.finish_sweeps(tip)?;
            }
            let done = match ended {
                true => self.resume_tip(tip, &request),
                false => self.start_parsed(tip, &request),
            };
            match done {
                // It was continued since it was read.
                Err(error) if error.is_continued() => {}
                Ok(begun) if ended => return Ok(with_resumption(begun, &named)),
                done => return done,
            }
        }
        let message = format!("others kept going on with {thread}: repeat the call");
        Err(StorageError::Unavailable(CONTENTION.into(), message).into())
    }

    /// Creates the successor of a tip that has ended, and begins its run.
    fn resume_tip(&self, tip: &str, request: &RunRequest<'_>) -> Result<StepHandle, Error> {
        let done = self.decide(tip, &|loaded, moment| {
            self.check_own_history(loaded)?;
            let settings = self.tenant_settings(!keeps_pin(loaded))?;
            let (pin, fresh) = self.pin_for_start(loaded, &settings)?;
            let inputs = DecisionInputs {
                mail: self.mail(loaded)?,
                known_input: self.knows_input(loaded, request.input.as_ref())?,
                ..DecisionInputs::default()
            };
            let random = self.draw_random()?;
            let resumed = ResumeRequest {
                start: request.to_start(inputs),
                random: &random,
                hashes: self.range_hashes(loaded, &thread_path(loaded))?,
            };
            let moment = with_policy_caps(moment, &settings.policy);
            Ok(runner::resume(loaded, Some(&pin), fresh, resumed, moment)?)
        })?;
        self.hand_out_step(done, 0)
    }

    /// Returns the successor that an earlier request of the same key has made, while its first step
    /// is pending.
    fn resumed_before(
        &self,
        named: &LoadedThread,
        request: &RunRequest<'_>,
    ) -> Result<Option<LoadedThread>, Error> {
        let seen = resume_key(&named.thread.value.chain, request.name)?;
        let items = self.ports.get(&[(key::SEEN, &seen)])?;
        let Some(item) = items.first() else {
            return Ok(None);
        };
        let made: CreationRecord = parse_record(item)?;
        made.format.refuse_newer(&made.thread, "resume key")?;
        let digest = request.to_start(DecisionInputs::default()).digest();
        if made.draft != digest {
            return Err(CoreError::conflict("input", digest, made.draft).into());
        }
        let made = self.load(&made.thread)?;
        if runner::is_repeated_start(&made.head.value, request.holder, request.name) {
            return Ok(Some(made));
        }
        let thread = &made.thread.value;
        let previous = thread.previous.as_deref().unwrap_or_default();
        Err(CoreError::continued_by(previous, &thread.id).into())
    }
}

/// Adds what the caller is told of a successor: the fields of a resume's answer.
fn with_resumption(mut begun: StepHandle, named: &LoadedThread) -> StepHandle {
    let (named, made) = (&named.thread.value.id, &begun.loaded);
    let thread = &made.thread.value;
    let old = thread.previous.as_deref().unwrap_or_default();
    let mut text = String::from("{\"resumed\":");
    ObjectWriter::new(&mut text)
        .add("old_thread_id", old)
        .add("new_thread_id", &thread.id)
        .add(
            "original_thread_id",
            &Some(named).filter(|named| *named != old && **named != thread.id),
        )
        .add("resolved_thread_id", old)
        .add("directive", &thread.directive)
        .add("reconstructed_turns", &made.head.value.carried_turns)
        .finish();
    text.push('}');
    begun.more = Some(text);
    begun
}
