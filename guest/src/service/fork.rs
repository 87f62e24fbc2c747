//! Forks: new chains that begin as another thread was at a version.

use super::history::{PAGE_ENTRIES_MAX, check_on_path, missing_entry, thread_path};
use super::registry::loaded_from_plan;
use super::store::{CONTENTION, DECISION_TRIES_MAX};
use super::{Error, ThreadService};
use crate::ports::{HostPorts, StorageError};
use threadkeep_core::error::{Error as CoreError, ErrorKind as CoreErrorKind};
use threadkeep_core::history::Entry;
use threadkeep_core::id;
use threadkeep_core::ledger::UnknownBill;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{DecisionContext, LoadedThread};
use threadkeep_core::runner::{self, ForkPoint, ForkRequest};
use threadkeep_core::thread::{FORMAT, HistoryBase, PathReplay, WindowCount};

impl<P: HostPorts> ThreadService<P> {
    /// Creates a thread that begins as another was at a version. A repeated request returns the
    /// thread that it has made.
    pub fn fork(
        &self,
        thread: &str,
        version: u64,
        key: &str,
        change: Option<&str>,
    ) -> Result<LoadedThread, Error> {
        id::check_id("thread", thread)?;
        let request = ForkRequest::parse((thread, version), key, change)?;
        // The entries up to a version never change: they are read once.
        let mut carried = None;
        for _ in 0..DECISION_TRIES_MAX {
            if let Some(made) = self.made_before(key, request.digest())? {
                return Ok(made);
            }
            let original = self.load(thread)?;
            original.check_formats()?;
            let pinned = original.thread.value.pin.is_some();
            let pin = pinned.then(|| self.read_pin(&original)).transpose()?;
            let (base, replay, state) = match carried.take() {
                Some(carried) => carried,
                None => {
                    let mut fixed = WindowCount::default();
                    for text in pin.iter().flat_map(|(pin, _)| pin.fixed_texts()) {
                        fixed.add_text(text, false);
                    }
                    let (base, replay) = self.read_carried(&original, version, fixed)?;
                    (base, replay, self.state_at(&original, version)?)
                }
            };
            let (commit, random) = (self.draw_random()?, self.draw_random()?);
            let moment = self.with_operator_caps(DecisionContext {
                now: self.ports.now(),
                commit: &commit,
                ceiling: ThreadCaps::NONE,
                unknown_bill: UnknownBill::Estimate,
                store_full_message: None,
            })?;
            let point = ForkPoint {
                original: &original,
                version,
                base: &base,
                replay: &replay,
                state: &state,
                pin: pin.as_ref().map(|(pin, text)| (&**pin, text.as_str())),
            };
            let plan = runner::fork(&request, point, moment, &random)?;
            if self.commit(&plan)? {
                return Ok(loaded_from_plan(*plan));
            }
            carried = Some((base, replay, state));
        }
        let message = format!("other writers kept changing {thread}: repeat the call");
        Err(StorageError::Unavailable(CONTENTION.into(), message).into())
    }

    /// Reads the entries that a fork at a version rests on: its base, and what they lead to.
    fn read_carried(
        &self,
        original: &LoadedThread,
        version: u64,
        fixed: WindowCount,
    ) -> Result<(HistoryBase, PathReplay), Error> {
        let path = thread_path(original);
        check_on_path(original, &path, "version", version)?;
        let path = path.until(version);
        let mut replay = PathReplay::new(fixed);
        for range in &path.ranges {
            let own = id::key(range.thread) == original.key();
            let mut from = range.from;
            while from <= range.to {
                let limit = PAGE_ENTRIES_MAX;
                for (version, text) in self.range_entries(original, *range, from, limit, false)? {
                    from = version + 1;
                    replay.replay(&carried_entry(range.thread, version, &text)?, own);
                }
            }
        }
        let hashes = self.range_hashes(original, &path)?;
        let base = path.to_base(&|at| {
            let known = hashes.iter().find(|(version, _)| *version == at);
            known.map(|(_, hash)| hash.clone())
        })?;
        match base {
            Some(base) => Ok((base, replay)),
            None => {
                let problem = "is before the first entry: create a thread instead";
                Err(CoreError::invalid("version", &version.to_string(), problem).into())
            }
        }
    }
}

/// Reads an entry that a fork rests on: that of its version, in a format that is known here.
fn carried_entry(thread: &str, version: u64, text: &str) -> Result<Entry, Error> {
    let entry = Entry::from_text(text)?;
    if entry.version != version {
        return Err(missing_entry(thread, version));
    }
    let (thread, format) = (thread.to_owned(), entry.format);
    let record = "entry";
    match format > FORMAT {
        true => Err(CoreErrorKind::NewerFormat {
            thread,
            record,
            format,
        }
        .into()),
        false => Ok(entry),
    }
}
