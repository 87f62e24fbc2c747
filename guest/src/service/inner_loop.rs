//! The runner's loop inside the component: performs the steps of a thread and of all that it has
//! spawned, one after the other, over the imports `llm` and `tools`.
//!
//! It makes the same calls as a driver: start, submit, claim, resume, sweep. A step that it has
//! handed out and not begun when its steps are used up is parked, so that the next call begins it.
//! A step that is pending and not parked was begun by a call that never came back: it is closed as
//! the step of a dead holder is.

use super::due::is_interrupted;
use super::runner::StepHandle;
use super::store::DecisionOutcome;
use super::{Error, ErrorKind, ThreadService};
use crate::error_record::ErrorRecord;
use crate::ports::{HostPorts, RecordDamage, StepPerformer, StorageError};
use std::mem::take;
use threadkeep_core::error::{Error as CoreError, ErrorKind as CoreErrorKind};
use threadkeep_core::history::parse_user;
use threadkeep_core::id;
use threadkeep_core::json::{ObjectWriter, ToJson};
use threadkeep_core::plan::{DueCall, LoadedThread};
use threadkeep_core::runner::{
    self, DecisionInputs, HolderProof, LlmFailure, LoopBeginning, LoopInput, LoopRest, ReplyBlock,
    Signal, StepOutcome, StepSubmission,
};
use threadkeep_core::thread::{StepKind, ThreadStatus};
use threadkeep_core::time::UnixTime;

/// Most steps of one call. A host that wants more calls again.
pub const RUN_STEPS_MAX: u32 = 1_000;
/// Attempts at submitting a result: it is paid, and a submit may always be repeated.
const SUBMIT_TRIES_MAX: u32 = 8;
/// Due threads of a page: the first that can go on is taken, and the list is read anew.
const DUE_THREADS_MAX: u32 = 8;

/// The conversation of the thread whose steps are performed, as a driver holds it.
#[derive(Default)]
struct HeldMessages {
    thread: String,
    version: u64,
    messages: Vec<String>,
}

/// A thread that could not be begun: this call does not try it again.
struct ThreadLeft {
    thread: String,
    kind: &'static str,
    code: String,
}

impl ToJson for ThreadLeft {
    fn write(&self, out: &mut String) {
        ObjectWriter::new(out)
            .add("thread", &self.thread)
            .add("kind", self.kind)
            .add("code", &self.code)
            .finish();
    }
}

/// One call of the loop.
struct InnerLoop<'a> {
    holder: &'a str,
    /// Id of the thread that is run: the tip of its chain.
    top: String,
    steps: u32,
    steps_max: u32,
    held: HeldMessages,
    /// Due threads that were tried, with the store versions of their heads: another try without a
    /// change would come to the same.
    tried: Vec<(String, u64)>,
    left: Vec<ThreadLeft>,
    rest: LoopRest,
}

impl<P: HostPorts + StepPerformer> ThreadService<P> {
    /// Runs a thread and all that it spawns for at most so many steps; returns a JSON object that
    /// says how far it came and what it waits for.
    pub fn run(
        &self,
        thread: &str,
        input: Option<&str>,
        (holder, key): (&str, &str),
        steps: u32,
    ) -> Result<String, Error> {
        if steps == 0 || steps > RUN_STEPS_MAX {
            let problem = format!("must be 1 to {RUN_STEPS_MAX}");
            return Err(CoreError::invalid("steps", &steps.to_string(), problem).into());
        }
        id::check_request_name("holder", holder)?;
        id::check_request_name("key", key)?;
        let tip = self.load_tip(self.load(thread)?)?;
        let mut run = InnerLoop {
            holder,
            top: tip.thread.value.id.clone(),
            steps: 0,
            steps_max: steps,
            held: HeldMessages::default(),
            tried: Vec::new(),
            left: Vec::new(),
            rest: LoopRest::default(),
        };
        if let Some(begun) = self.begin_top(&mut run, tip, input, key)? {
            run.top.clone_from(&begun.loaded.thread.value.id);
            self.perform_run(&mut run, begun)?;
        }
        while !run.rest.out_of_steps && self.go_on_in_tree(&mut run)? {}
        self.answer_run(run)
    }

    /// Gets the thread going that is to be run; returns its first step, if it has one.
    fn begin_top(
        &self,
        run: &mut InnerLoop<'_>,
        tip: LoadedThread,
        input: Option<&str>,
        key: &str,
    ) -> Result<Option<StepHandle>, Error> {
        let resumes = input == Some(runner::RESUMPTION_INPUT);
        let input = input.filter(|_| !resumes);
        let message = input.map(parse_user).transpose()?;
        let head = &tip.head.value;
        let is_new = message.is_some() && !self.knows_input(&tip, message.as_ref())?;
        let input = input.filter(|_| is_new);
        let given = match (is_new, resumes) {
            (true, _) => LoopInput::Message,
            (false, true) => LoopInput::Resumption,
            (false, false) => LoopInput::Nothing,
        };
        let begun = match runner::choose_beginning(head, run.holder, given) {
            LoopBeginning::GoOn => match self.take_up(run, tip)? {
                Some(begun) => return Ok(Some(begun)),
                // Steps that are lost again and again need a person.
                None if !is_interrupted(&self.load(&run.top)?) => return Ok(None),
                None => self.start(&run.top, None, run.holder, key, None),
            },
            LoopBeginning::Start => self.start(&run.top, input, run.holder, key, None),
            LoopBeginning::Resume => self.resume(&run.top, input, run.holder, key, None),
            LoopBeginning::Signal => {
                if let Some(message) = message {
                    self.signal(&run.top, key, &Signal::Message(message))?;
                }
                return Ok(None);
            }
            LoopBeginning::Nothing => return Ok(None),
        };
        match begun {
            // It waits for a person; the answer says for what.
            Err(error) if given == LoopInput::Nothing && waits_for_person(&error) => Ok(None),
            begun => begun.map(Some),
        }
    }

    /// Takes up a thread that the holder has from an earlier call. Returns its pending step, unless
    /// that was begun and never answered: then the run is closed, and is to be started again.
    fn take_up(
        &self,
        run: &InnerLoop<'_>,
        loaded: LoadedThread,
    ) -> Result<Option<StepHandle>, Error> {
        let thread = loaded.thread.value.id.clone();
        let pending = loaded.head.value.step.as_ref();
        let (kind, version) = pending.map_or((None, 0), |step| (Some(step.kind), step.version));
        let begun = match kind {
            Some(StepKind::CallLlm | StepKind::CallTools) => self
                .decide(&thread, &|now, moment| {
                    Ok(runner::begin_step(now, version, moment)?)
                })?,
            _ => return self.hand_out_held(loaded).map(Some),
        };
        match begun {
            DecisionOutcome::Committed(plan) => {
                let loaded = super::registry::loaded_from_plan(*plan);
                self.hand_out_held(loaded).map(Some)
            }
            DecisionOutcome::Unchanged(loaded) => {
                self.close_run(&[run.holder.to_owned()], &loaded)?;
                Ok(None)
            }
        }
    }

    fn hand_out_held(&self, loaded: LoadedThread) -> Result<StepHandle, Error> {
        self.hand_out_step(DecisionOutcome::Unchanged(Box::new(loaded)), 0)
    }

    /// Performs the steps of a run until it stops, sleeps, or no step is left.
    fn perform_run(&self, run: &mut InnerLoop<'_>, mut step: StepHandle) -> Result<(), Error> {
        while let Some(kind) = step.step.kind {
            let ends = step.loaded.head.value.intent.is_some();
            let until = step.step.until.filter(|_| kind == StepKind::Wait && !ends);
            if until.is_some_and(|until| until > self.ports.now()) {
                return Ok(());
            }
            let thread = step.loaded.thread.value.id.clone();
            if run.steps == run.steps_max {
                run.rest.out_of_steps = true;
                if kind != StepKind::Wait {
                    let version = step.step.version;
                    self.decide(&thread, &|loaded, moment| {
                        Ok(runner::park_step(loaded, version, moment)?)
                    })?;
                }
                return Ok(());
            }
            run.steps += 1;
            let outcome = match kind {
                StepKind::CallTools => self.ports.perform(&step).map_err(bad_answer)?,
                // A cancel came while nobody performed the step.
                _ if ends => StepOutcome::Stopped(unsent_failure("cancelled", "stopped", "")),
                StepKind::CallLlm => self.call_model(run, &mut step)?,
                StepKind::Wait | StepKind::ExternalLoop => StepOutcome::Waited,
            };
            step = match self.submit_outcome(run, &step, outcome) {
                Ok(step) => step,
                Err(error) => return pass_unless_over(error),
            };
            let next = &step.loaded.thread.value.id;
            if thread == run.top && *next != thread {
                run.top.clone_from(next);
            }
        }
        Ok(())
    }

    fn submit_outcome(
        &self,
        run: &InnerLoop<'_>,
        step: &StepHandle,
        outcome: StepOutcome,
    ) -> Result<StepHandle, Error> {
        let thread = &step.loaded.thread.value.id;
        let submission = StepSubmission {
            token: step.loaded.head.value.token,
            version: step.step.version,
            outcome,
            inputs: DecisionInputs::default(),
        };
        let have = match run.held.thread == *thread {
            true => run.held.version,
            false => 0,
        };
        let mut tries = 1;
        loop {
            match self.submit(thread, &submission, have) {
                Err(error) if tries < SUBMIT_TRIES_MAX && may_succeed_later(&error) => tries += 1,
                done => return done.map_err(bad_answer),
            }
        }
    }

    /// Makes the model call of a step with the whole conversation. One that cannot be read is a
    /// call that fails before anything is sent.
    fn call_model(
        &self,
        run: &mut InnerLoop<'_>,
        step: &mut StepHandle,
    ) -> Result<StepOutcome, Error> {
        let mut held = take(&mut run.held);
        if step.summary.is_some() {
            held = HeldMessages::default();
        } else if let Err(error) = self.extend_messages(&mut held, step) {
            let why = error.into_damage()?;
            let (kind, code) = ("permanent", "history_unreadable");
            return Ok(StepOutcome::Failure(unsent_failure(
                kind,
                code,
                &why.message,
            )));
        }
        (step.since, step.messages) = (0, take(&mut held.messages));
        let mut outcome = self.ports.perform(step)?;
        held.messages = take(&mut step.messages);
        run.held = held;
        if let StepOutcome::Completion(completion) = &mut outcome {
            // Providers refuse empty texts when they come back.
            let keeps =
                |block: &ReplyBlock| !matches!(block, ReplyBlock::Text { text } if text.is_empty());
            completion.blocks.retain(keeps);
        }
        Ok(outcome)
    }

    /// Adds to the conversation what a step carries, and reads what it does not.
    fn extend_messages(&self, held: &mut HeldMessages, step: &mut StepHandle) -> Result<(), Error> {
        let thread = &step.loaded.thread.value.id;
        if held.thread != *thread || step.since == 0 {
            *held = HeldMessages {
                thread: thread.clone(),
                ..HeldMessages::default()
            };
        }
        let mut next = Some(held.version).filter(|held| *held < step.since);
        while let Some(after) = next {
            let (messages, cursor) = self.messages(thread, after, Some(step.since))?;
            held.messages.extend(messages);
            next = cursor;
        }
        held.messages.append(&mut step.messages);
        held.version = step.step.version;
        Ok(())
    }

    /// Gets one thread of the tree going and performs it; returns false if there is none. What is
    /// left to others is then noted.
    fn go_on_in_tree(&self, run: &mut InnerLoop<'_>) -> Result<bool, Error> {
        run.rest.next = None;
        let mut cursor = None;
        loop {
            let top = run.top.clone();
            let page = self.ready(DUE_THREADS_MAX, cursor, Some(&top))?;
            for due in page.threads {
                let loaded = due.loaded;
                if let Some(call) = runner::choose_due_call(&loaded.head.value)
                    && run.is_first_try(&loaded)
                {
                    return self.begin_due(run, &loaded, call).map(|()| true);
                }
            }
            run.rest.next = earlier(run.rest.next, page.next);
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        self.look_at_held(run)
    }

    /// Gets a due thread going and performs it. A thread that cannot be begun is left alone.
    fn begin_due(
        &self,
        run: &mut InnerLoop<'_>,
        due: &LoadedThread,
        call: DueCall,
    ) -> Result<(), Error> {
        if run.steps == run.steps_max {
            run.rest.out_of_steps = true;
            return Ok(());
        }
        run.steps += 1;
        let (thread, holder) = (&due.thread.value.id, run.holder);
        let begun = match call {
            DueCall::Sweep => self.sweep_whole(run, thread),
            DueCall::Start => self.start(thread, None, holder, holder, None).map(Some),
            DueCall::Claim => self.claim(thread, holder, HolderProof::None).map(Some),
            DueCall::Resume => {
                let key = format!("{thread}:{}", due.head.value.version);
                self.resume(thread, None, holder, &key, None).map(Some)
            }
        };
        match begun {
            Ok(Some(begun)) => {
                if *thread == run.top {
                    run.top.clone_from(&begun.loaded.thread.value.id);
                }
                self.perform_run(run, begun)
            }
            Ok(None) => Ok(()),
            Err(error) if may_succeed_later(&error) => Err(error),
            Err(error) => {
                run.leave(thread, error);
                Ok(())
            }
        }
    }

    /// Passes the end of a thread on to all its children. Where one cannot be told, the thread
    /// keeps the sweep, and is left alone.
    fn sweep_whole(
        &self,
        run: &mut InnerLoop<'_>,
        thread: &str,
    ) -> Result<Option<StepHandle>, Error> {
        let mut cursor = None;
        loop {
            let page = self.sweep_page(thread, cursor)?;
            for (thread, RecordDamage { code, .. }) in page.unreadable {
                let kind = "corrupt";
                run.left.push(ThreadLeft { thread, kind, code });
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(None);
            }
        }
    }

    /// Looks at all threads of the tree, and goes on with the first that this holder has and that
    /// can go on; returns false if there is none.
    fn look_at_held(&self, run: &mut InnerLoop<'_>) -> Result<bool, Error> {
        (run.rest.has_open_thread, run.rest.has_other_holder) = (false, false);
        run.rest.sleeps_until = None;
        let (mut cursor, top) = (None::<String>, run.top.clone());
        loop {
            let page = self.tree_page(&top, cursor.as_deref())?;
            for (loaded, _) in page.branches {
                let head = &loaded.head.value;
                let is_left = run.is_left(&loaded);
                match head.status {
                    ThreadStatus::Created | ThreadStatus::Waiting => {
                        run.rest.has_open_thread |= !is_left;
                    }
                    ThreadStatus::Running if !runner::is_held_by(head, run.holder) => {
                        run.rest.has_other_holder = true;
                    }
                    ThreadStatus::Running if !is_left => {
                        let goes_on = self.go_on_with_held(run, loaded)?;
                        if goes_on {
                            return Ok(true);
                        }
                    }
                    _ => {}
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(false);
            }
        }
    }

    /// Goes on with a thread that this holder has; returns false if it sleeps.
    fn go_on_with_held(
        &self,
        run: &mut InnerLoop<'_>,
        loaded: LoadedThread,
    ) -> Result<bool, Error> {
        let head = &loaded.head.value;
        let until = head.step.as_ref().and_then(|step| step.until);
        let until = until.filter(|until| head.intent.is_none() && *until > self.ports.now());
        if until.is_some() {
            run.rest.sleeps_until = earlier(run.rest.sleeps_until, until);
            return Ok(false);
        }
        if run.steps == run.steps_max {
            run.rest.out_of_steps = true;
        } else if let Some(step) = self.take_up(run, loaded)? {
            self.perform_run(run, step)?;
        }
        Ok(true)
    }

    /// Writes the answer of a call.
    fn answer_run(&self, run: InnerLoop<'_>) -> Result<String, Error> {
        let top = self.load(&run.top)?;
        let head = &top.head.value;
        let reason = runner::reason_to_go_on(head.status, run.rest);
        let mut text = String::new();
        let mut fields = ObjectWriter::new(&mut text);
        let state = if reason.is_some() { "more" } else { "finished" };
        fields.add("state", state);
        if let Some((reason, until)) = reason {
            fields
                .add("for", reason.as_str())
                .add_present("until", &until);
        }
        fields.add("thread", &top.thread.value.id);
        fields.add("status", head.status.as_str());
        if let Some(cause) = &head.cause {
            fields.add("code", &cause.code);
        }
        fields.add("steps", &run.steps);
        if !run.left.is_empty() {
            fields.add("left", &run.left);
        }
        fields.finish();
        let waits_for = self.details(&top)?.waits_for;
        let parts = [
            ("waits_for", &waits_for),
            ("result", &top.thread.value.result),
        ];
        for (name, json) in parts {
            if let Some(json) = json {
                text.pop();
                text.push_str(",\"");
                text.push_str(name);
                text.push_str("\":");
                text.push_str(json);
                text.push('}');
            }
        }
        Ok(text)
    }
}

impl InnerLoop<'_> {
    /// Returns true if this call leaves a thread alone.
    fn is_left(&self, loaded: &LoadedThread) -> bool {
        let id = &loaded.thread.value.id;
        self.left.iter().any(|left| left.thread == *id)
    }

    /// Returns true if this call has not tried to get the thread going as it is now.
    fn is_first_try(&mut self, loaded: &LoadedThread) -> bool {
        let tried = (loaded.thread.value.id.clone(), loaded.head.version);
        let first = !self.tried.contains(&tried);
        if first {
            self.tried.push(tried);
        }
        first
    }

    fn leave(&mut self, thread: &str, error: Error) {
        let ErrorRecord { kind, code, .. } = ErrorRecord::new(error, None);
        self.left.push(ThreadLeft {
            thread: thread.to_owned(),
            kind,
            code,
        });
    }
}

/// Returns the error of an import whose answer is refused where it is submitted.
fn bad_answer(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Core(
            kind @ (CoreErrorKind::Invalid { .. } | CoreErrorKind::Conflict { .. }),
        ) => ErrorKind::BadAnswer(kind.to_string()).into(),
        _ => error,
    }
}

/// Passes an error on, unless another holder has the thread or its run was ended.
fn pass_unless_over(error: Error) -> Result<(), Error> {
    match error.kind() {
        ErrorKind::Core(CoreErrorKind::Fenced { .. } | CoreErrorKind::Refused { .. }) => Ok(()),
        _ => Err(error),
    }
}

/// Returns true for the refusal of a run that waits for a person.
fn waits_for_person(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Core(CoreErrorKind::Refused { .. } | CoreErrorKind::Exceeded(_))
    )
}

/// Returns true for an error of the store after which the same call may be repeated.
fn may_succeed_later(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Storage(StorageError::Unavailable(..) | StorageError::OutcomeUnknown(..))
    )
}

/// The failure of a call that sent nothing.
fn unsent_failure(kind: &str, code: &str, message: &str) -> LlmFailure {
    LlmFailure {
        kind: kind.to_owned(),
        code: code.to_owned(),
        message: message.to_owned(),
        retry: None,
        sent: false,
        refused: false,
        usage: None,
        partial: String::new(),
    }
}

fn earlier(one: Option<UnixTime>, other: Option<UnixTime>) -> Option<UnixTime> {
    [one, other].into_iter().flatten().min()
}
