//! The registry: create, get, list, title.

use super::store::{LoadedPage, check_cursor, parse_record};
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::error::{Error as CoreError, ErrorKind as CoreErrorKind};
use threadkeep_core::history::{CommitReason, Event, TitleEvent};
use threadkeep_core::key;
use threadkeep_core::plan::{CommitPlan, LoadedThread, StoredRecord, ThreadChange};
use threadkeep_core::runner::CommitDecision;
use threadkeep_core::thread::{self, ChainPlace, CreationRecord, ThreadDraft, ThreadStatus};

/// Most threads of one page.
pub const PAGE_THREADS_MAX: u32 = 100;

/// A filter of threads: the name of an index and a value; `None` lists all.
pub type IndexFilter<'a> = Option<(&'static str, &'a str)>;

/// Returns the records of a plan, to be shown only: without store versions, chains above and
/// parent.
pub fn loaded_from_plan(plan: CommitPlan) -> LoadedThread {
    LoadedThread {
        thread: StoredRecord::new(0, plan.thread),
        head: StoredRecord::new(0, plan.head),
        chain: StoredRecord::new(0, plan.chain),
        above: Vec::new(),
        parent: None,
        state: None,
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Creates a thread; fails if its id exists. A repeated request returns the thread that it has
    /// made.
    pub fn create(&self, draft: &ThreadDraft) -> Result<LoadedThread, Error> {
        if let Some(made) = self.created_before(draft)? {
            return Ok(made);
        }
        let resolved = self.resolve_draft(draft)?;
        let now = self.ports.now();
        let random = self.draw_random()?;
        let plan = thread::create(draft, resolved, ChainPlace::Root, now, &random)?;
        if self.commit(&plan)? {
            return Ok(loaded_from_plan(*plan));
        }
        match self.created_before(draft)? {
            Some(made) => Ok(made),
            None => Err(CoreErrorKind::Exists(plan.thread.id.clone()).into()),
        }
    }

    /// Loads the thread that an earlier request of the same key has made.
    fn created_before(&self, draft: &ThreadDraft) -> Result<Option<LoadedThread>, Error> {
        match &draft.key {
            Some(request) => self.made_before(request, &draft.digest()),
            None => Ok(None),
        }
    }

    /// Loads the thread that an earlier request of this key has made, of what has this digest.
    pub(super) fn made_before(
        &self,
        request: &str,
        digest: &str,
    ) -> Result<Option<LoadedThread>, Error> {
        let items = self
            .ports
            .get(&[(key::SEEN, &thread::creation_key(request)?)])?;
        let Some(item) = items.first() else {
            return Ok(None);
        };
        let made: CreationRecord = parse_record(item)?;
        self.load(made.thread_for(digest)?).map(Some)
    }

    /// Lists a page of threads, newest first: all, or those of an index.
    pub fn list(
        &self,
        filter: IndexFilter<'_>,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<(LoadedPage, Option<String>), Error> {
        if limit == 0 || limit > PAGE_THREADS_MAX {
            return Err(CoreError::invalid("limit", &limit.to_string(), "must be 1 to 100").into());
        }
        if let Some(("status", status)) = filter
            && !ThreadStatus::ALL
                .iter()
                .any(|known| known.as_str() == status)
        {
            let names: Vec<&str> = ThreadStatus::ALL
                .iter()
                .map(|known| known.as_str())
                .collect();
            return Err(
                CoreError::invalid_name("status", status, "is not a status", &names).into(),
            );
        }
        let (name, value) = filter.unwrap_or((key::RECENCY, ""));
        let (start, end) = key::prefix_range(&[name, &key::index_value(value)]);
        check_cursor(cursor.as_deref(), &start, &end)?;
        let end = cursor.unwrap_or(end);
        let page = self.scan_names(key::INDEX, (&start, &end), limit, true)?;
        let mut many = self.load_many(&page.keys())?;
        many.unreadable.extend(page.damaged);
        Ok((many, page.cursor))
    }

    /// Sets or removes the title. The title of a held thread changes without an entry in its
    /// history.
    pub fn set_title(&self, thread: &str, title: Option<String>) -> Result<LoadedThread, Error> {
        thread::check_title(title.as_deref())?;
        let done = self.decide(thread, &|loaded, moment| {
            if loaded.thread.value.title == title {
                return Ok(CommitDecision::Repeat);
            }
            // The entries of a link that was continued are a part of the next one's path.
            if let Some(next) = &loaded.thread.value.next {
                return Err(CoreError::continued_by(&loaded.thread.value.id, next).into());
            }
            let mut change = ThreadChange::new(loaded, moment);
            change.thread_mut().title.clone_from(&title);
            let plan = if loaded.head.value.status == ThreadStatus::Running {
                change.into_head_plan()?
            } else {
                change.push_event(Event::Title(TitleEvent {
                    title: title.clone(),
                }));
                change.into_plan(CommitReason::Changed)?
            };
            Ok(CommitDecision::Commit(plan))
        })?;
        Ok(done.into_loaded())
    }
}
