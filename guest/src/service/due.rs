//! Due threads: those that a driver should begin, take over, or sweep now.
//!
//! Due entries are read in the order of their times, those of new threads last, and are never late,
//! so the head of each thread decides. Under the root of a tree only the threads of that tree are
//! loaded: each due entry names its tree, and interrupted threads, which have no due time, have an
//! index by tree. Under another thread, or in a tree that an earlier build began, the tree is
//! walked.

use super::due_entries::{DueNames, FIRST_DUE, tree_names};
use super::place::keys_above;
use super::registry::PAGE_THREADS_MAX;
use super::store::check_cursor;
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::plan::{LoadedThread, WaitStanding, is_to_be_revived, wait_standing};
use threadkeep_core::runner;
use threadkeep_core::thread::{Head, ThreadStatus};
use threadkeep_core::time::UnixTime;
use threadkeep_core::{id, key};

/// Most due entries among which the next one of a tree is looked for.
const NEXT_ENTRIES_MAX: u32 = 100;
/// First character of the cursor of the interrupted threads of a tree.
const INTERRUPTED_LIST: &str = "i";
/// First characters of the cursor of a walk that looks for new threads alone. No id begins so.
const NEW_LIST: &str = "\n";

/// A thread that needs a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueThread {
    /// Its records.
    pub loaded: LoadedThread,
    /// Store version of its partial, 0 if there is none.
    pub partial: u64,
}

/// A page of threads that need a driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePage {
    /// The threads.
    pub threads: Vec<DueThread>,
    /// Start of the next page.
    pub cursor: Option<String>,
    /// Time at which the next thread may be due that is not yet, of those that this page has looked
    /// at and, on the last page, of the entries after now. Of all pages of a list the earliest is
    /// never late; it may be early.
    pub next: Option<UnixTime>,
}

/// The threads among which due ones are looked for.
enum DueScope<'a> {
    /// All of the store.
    Store,
    /// Those of the tree under this root, by its key.
    Tree(String),
    /// A thread and all below it, read one by one.
    Walk(&'a str),
}

/// Threads that may be due, as they were loaded to be shown.
#[derive(Default)]
struct DueCandidates {
    /// The threads; true for those that may be revived.
    threads: Vec<(LoadedThread, bool)>,
    cursor: Option<String>,
}

impl<P: HostPorts> ThreadService<P> {
    /// Lists threads that need a driver: the longest due first and new threads last; all, or those
    /// of the tree under one. In a tree, threads to be revived come first.
    pub fn ready(
        &self,
        limit: u32,
        cursor: Option<String>,
        under: Option<&str>,
    ) -> Result<DuePage, Error> {
        if limit == 0 || limit > PAGE_THREADS_MAX {
            return Err(CoreError::invalid("limit", &limit.to_string(), "must be 1 to 100").into());
        }
        let now = self.ports.now();
        let scope = match under {
            None => DueScope::Store,
            Some(top) => self.scope_under(top)?,
        };
        let cursor = cursor.as_deref();
        let DueCandidates { threads, cursor } = match &scope {
            DueScope::Store => self.due_candidates(now, limit, cursor, None)?,
            DueScope::Tree(root) => self.tree_candidates(now, limit, cursor, root)?,
            DueScope::Walk(top) => self.walk_candidates(top, cursor)?,
        };
        let heads = threads.iter().map(|(loaded, _)| &loaded.head.value);
        // A lease that ends now has not expired yet.
        let waiting = heads.filter(|head| !needs_driver(head, now));
        let times = waiting.filter_map(|head| due_time(head));
        let mut next = times.filter(|time| *time >= now).min();
        if cursor.is_none() {
            next = [next, self.next_due_time(&scope, now)?]
                .into_iter()
                .flatten()
                .min();
        }
        Ok(DuePage {
            threads: self.choose_due(threads, now)?,
            cursor,
            next,
        })
    }

    fn scope_under<'a>(&self, top: &'a str) -> Result<DueScope<'a>, Error> {
        id::check_id("under", top)?;
        let key = id::key(top);
        if self.is_known_tree(&key) {
            return Ok(DueScope::Tree(key));
        }
        match self.load(top) {
            Ok(loaded) if is_indexed_root(&loaded) => Ok(DueScope::Tree(loaded.chain_key())),
            Ok(_) => Ok(DueScope::Walk(top)),
            // A tree may be left without its top: the walk finds out.
            Err(error) if error.is_damage() => Ok(DueScope::Walk(top)),
            Err(error) => Err(error),
        }
    }

    /// Chooses those that need a driver, with the records that this takes, in one read.
    fn choose_due(
        &self,
        candidates: Vec<(LoadedThread, bool)>,
        now: UnixTime,
    ) -> Result<Vec<DueThread>, Error> {
        let (mut chosen, mut ceiling) = (Vec::new(), None);
        for (loaded, may_revive) in candidates {
            let due_now =
                needs_driver(&loaded.head.value, now) && !self.is_capped(&loaded, &mut ceiling)?;
            let revives = !due_now && may_revive && is_interrupted(&loaded);
            if due_now || revives {
                chosen.push((loaded, revives));
            }
        }
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let mut names: Vec<(&str, String)> = Vec::with_capacity(chosen.len());
        for (loaded, revives) in &chosen {
            // The text of a stream belongs to a step.
            if loaded.head.value.step.is_some() {
                names.push((key::PARTIAL, loaded.key()));
            }
            for root in keys_above(&loaded.chain.value)
                .into_iter()
                .filter(|_| *revives)
            {
                let name = (key::CHAIN, root);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let names: Vec<(&str, &str)> = names
            .iter()
            .map(|(collection, name)| (*collection, name.as_str()))
            .collect();
        let items = self.get_readable(&names)?;
        let mut due = Vec::with_capacity(chosen.len());
        for (mut loaded, revives) in chosen {
            if revives {
                loaded.above = self.accounts_above(&items, &loaded.chain.value);
                if !is_to_be_revived(&loaded, self.read_ceiling(&mut ceiling)?) {
                    continue;
                }
            }
            let key = loaded.key();
            let partial = items
                .iter()
                .find(|item| item.collection == key::PARTIAL && item.name == key)
                .map_or(0, |item| item.version);
            due.push(DueThread { loaded, partial });
        }
        Ok(due)
    }

    /// Returns true if a suspended thread, made due by a message, cannot go on before a raise.
    fn is_capped(
        &self,
        loaded: &LoadedThread,
        ceiling: &mut Option<ThreadCaps>,
    ) -> Result<bool, Error> {
        let head = &loaded.head.value;
        if head.status != ThreadStatus::Suspended || head.intent.is_some() || head.sweep.is_some() {
            return Ok(false);
        }
        Ok(runner::is_start_refused(
            loaded,
            self.read_ceiling(ceiling)?,
        ))
    }

    /// Returns the operator's caps, which the host is asked for once a call, and only where a
    /// thread is suspended.
    fn read_ceiling(&self, known: &mut Option<ThreadCaps>) -> Result<ThreadCaps, Error> {
        if let Some(ceiling) = known {
            return Ok(*ceiling);
        }
        let ceiling = self.policy()?.limits;
        *known = Some(ceiling);
        Ok(ceiling)
    }

    /// Reads a page of a thread and all below it: first without new threads, and then those alone.
    fn walk_candidates(&self, top: &str, cursor: Option<&str>) -> Result<DueCandidates, Error> {
        let given = cursor.and_then(|cursor| cursor.strip_prefix(NEW_LIST));
        let (lists_new, cursor) = match given {
            Some(given) => (true, Some(given).filter(|given| !given.is_empty())),
            None => (false, cursor),
        };
        let page = self.tree_page(top, cursor)?;
        // The driver of a tree decides itself about starting the top; the threads below continue
        // with it.
        let threads = page.branches.into_iter();
        let threads = threads.filter(|(loaded, _)| is_new(&loaded.head.value) == lists_new);
        let cursor = match page.cursor {
            Some(next) if lists_new => Some(format!("{NEW_LIST}{next}")),
            None if !lists_new => Some(NEW_LIST.to_owned()),
            next => next,
        };
        Ok(DueCandidates {
            threads: threads.map(|(loaded, depth)| (loaded, depth > 0)).collect(),
            cursor,
        })
    }

    /// Reads a page of the threads of a tree: those that were interrupted, then those that are due.
    fn tree_candidates(
        &self,
        now: UnixTime,
        limit: u32,
        cursor: Option<&str>,
        root: &str,
    ) -> Result<DueCandidates, Error> {
        let mut page = DueCandidates::default();
        let given = match cursor {
            None => Some(""),
            Some(cursor) => cursor.strip_prefix(INTERRUPTED_LIST),
        };
        let Some(given) = given else {
            return self.due_candidates(now, limit, cursor, Some(root));
        };
        let (start, end) = key::prefix_range(&[key::INTERRUPTED, &key::index_value(root)]);
        let given = Some(given).filter(|given| !given.is_empty());
        check_cursor(given, &start, &end)?;
        let found = self.scan_names(key::INDEX, (given.unwrap_or(&start), &end), limit, false)?;
        let threads = self.load_many(&found.keys())?.threads.into_iter();
        // One that was told something has a due entry as well.
        let undue = threads.filter(|loaded| loaded.head.value.due.is_none());
        page.threads.extend(undue.map(|loaded| (loaded, true)));
        let rest = limit.saturating_sub(page.threads.len() as u32);
        if let Some(next) = found.cursor {
            page.cursor = Some(format!("{INTERRUPTED_LIST}{next}"));
        } else if rest == 0 {
            page.cursor = Some(FIRST_DUE.to_owned());
        } else {
            let due = self.due_candidates(now, rest, None, Some(root))?;
            page.threads.extend(due.threads);
            page.cursor = due.cursor;
        }
        Ok(page)
    }

    /// Reads a page of the threads that have a due entry whose time has come: all, or those of a
    /// tree.
    fn due_candidates(
        &self,
        now: UnixTime,
        limit: u32,
        cursor: Option<&str>,
        tree: Option<&str>,
    ) -> Result<DueCandidates, Error> {
        let DueNames { names, cursor } = self.due_names(now, limit, cursor, tree)?;
        let keys: Vec<String> = names.iter().map(|name| key::last_part(name)).collect();
        let threads = self.load_many(&keys)?.threads.into_iter();
        // An entry of an earlier build does not name its tree.
        let own = threads.filter(|loaded| {
            let root = loaded.chain.value.tree_root(&loaded.thread.value.chain);
            tree.is_none_or(|tree| id::key(root) == tree)
        });
        Ok(DueCandidates {
            threads: own.map(|loaded| (loaded, false)).collect(),
            cursor,
        })
    }

    /// Returns the time of the first due entry after now. Where none of the tree is near, it is the
    /// time of the last entry that was read. A walk has read the heads themselves.
    fn next_due_time(
        &self,
        scope: &DueScope<'_>,
        now: UnixTime,
    ) -> Result<Option<UnixTime>, Error> {
        let (tree, entries) = match scope {
            DueScope::Store => (None, 1),
            DueScope::Tree(root) => (Some(root.as_str()), NEXT_ENTRIES_MAX),
            DueScope::Walk(_) => return Ok(None),
        };
        let start = key::encode_number(now.millis().saturating_add(1));
        let page = self.ports.scan(key::DUE, &start, "", entries, false)?;
        let unread = page.cursor.clone();
        let names = tree_names(page, tree);
        let first = names.first().or(unread.as_ref());
        let millis = first.and_then(|name| key::leading_number(name));
        Ok(millis.map(UnixTime::from_millis))
    }
}

/// Returns true if a thread is the root of a tree whose interrupted threads have an index.
fn is_indexed_root(loaded: &LoadedThread) -> bool {
    let chain = &loaded.chain.value;
    chain.parent.is_none() && chain.above.is_empty() && chain.spawned.is_some()
}

/// Returns true if a thread was not begun yet, and is not to be ended.
fn is_new(head: &Head) -> bool {
    head.status == ThreadStatus::Created && head.sweep.is_none() && head.intent.is_none()
}

/// Returns true if the thread was interrupted, whatever the operator's caps are.
pub(super) fn is_interrupted(loaded: &LoadedThread) -> bool {
    let (head, chain) = (&loaded.head.value, &loaded.chain.value);
    head.status == ThreadStatus::Suspended
        && wait_standing(head, !chain.has_account(), ThreadCaps::NONE) == WaitStanding::Interrupted
}

/// Returns the time at which a thread needs a driver, if the records tell one.
fn due_time(head: &Head) -> Option<UnixTime> {
    match head.status {
        ThreadStatus::Running => head.expiry,
        _ => head.due.map(UnixTime::from_millis),
    }
}

/// Returns true if a thread is due and no holder drives it. A held thread needs no driver until its
/// lease expires, except to propagate an end intent to its children.
fn needs_driver(head: &Head, now: UnixTime) -> bool {
    let due = head.due.is_some_and(|due| due <= now.millis());
    let held =
        head.status == ThreadStatus::Running && head.expiry.is_some_and(|expiry| expiry >= now);
    due && (!held || head.sweep.is_some())
}
