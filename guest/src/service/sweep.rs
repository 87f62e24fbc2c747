//! Sweeps: an end intent of a thread takes effect, and is passed on to its children.
//!
//! A sweep goes through the chains that the thread's chain has spawned, up to the number that its
//! head names, and tells the tip of each.

use super::child_chains::{child_index, child_range};
use super::store::{CONTENTION, DecisionOutcome};
use super::{Error, ThreadService};
use crate::ports::{HostPorts, NOT_A_CHILD, RecordDamage, StorageError};
use threadkeep_core::ordered_names::OrderedNames;
use threadkeep_core::plan::{LoadedThread, is_to_be_resumed};
use threadkeep_core::runner;
use threadkeep_core::thread::{EndIntent, ThreadRecord};
use threadkeep_core::{id, key};

/// Children that one call of `sweep` visits.
const SWEEP_CHILDREN_MAX: u32 = 50;
/// Most pages of threads below those that cannot be read in which one call tells somebody.
const LOST_PAGES_MAX: u32 = 20;
/// Most pages in which a resume finishes the sweeps that are owed.
const OWED_PAGES_MAX: u32 = 200;
/// Most pages of the indexes of those that cannot be read which one call reads.
const LOST_READS_MAX: u32 = 200;

impl<P: HostPorts> ThreadService<P> {
    /// Applies the end intent of a thread, and propagates it to a page of its children. If it
    /// cannot reach a child, the head of the thread keeps the intent, and a later sweep propagates
    /// it again.
    pub fn sweep_page(&self, thread: &str, cursor: Option<String>) -> Result<SweepPage, Error> {
        let _ = self.decide_or_close(thread, &|loaded, moment| {
            let round = self.round(loaded)?;
            let mail = self.mail(loaded)?;
            let moment = self.with_operator_caps(moment)?;
            Ok(runner::apply_intent(
                loaded,
                round.as_deref(),
                mail,
                moment,
            )?)
        })?;
        let loaded = self.load(thread)?;
        let Some(intent) = loaded.head.value.sweep else {
            return Ok(SweepPage::default());
        };
        let last = loaded.head.value.sweep_to;
        let (start, end) = swept_range(&loaded);
        let place = SweepCursor::parse(cursor.as_deref(), intent);
        super::store::check_cursor(place.from.or(cursor.as_deref()), &start, &end)?;
        // If the intent has become a kill since, the children of earlier pages got only a cancel.
        let from = place.from.filter(|_| place.same_intent).unwrap_or(&start);
        let page = self.scan_names(key::INDEX, (from, &end), SWEEP_CHILDREN_MAX, false)?;
        let (_, parent) = child_index(&loaded);
        let told = self.propagate_to_each((&parent, &page.keys()), (intent, last))?;
        let mut unreadable = told.unreadable;
        let lost = lost_chains(&unreadable).collect();
        unreadable.extend(self.propagate_below(lost, intent)?);
        let kept = !unreadable.is_empty() || place.same_intent && place.has_unreached;
        if page.cursor.is_none() && !kept {
            let _ = self.decide(thread, &|loaded, moment| {
                Ok(runner::finish_propagation(loaded, (intent, last), moment)?)
            })?;
        }
        let mark = if kept { UNREACHED_MARK } else { "" };
        let cursor = page.cursor;
        Ok(SweepPage {
            cursor: cursor.map(|cursor| format!("{}{mark} {cursor}", intent.as_str())),
            owing: told.owing,
            unreadable,
        })
    }

    /// Finishes the sweeps that a thread and those below it still owe, so that no child draws on an
    /// account that is to be thawed. Children that cannot be reached are left for a later sweep.
    pub(super) fn finish_sweeps(&self, thread: &str) -> Result<(), Error> {
        let mut owing = vec![thread.to_owned()];
        let mut pages = 0;
        while let Some(thread) = owing.pop() {
            let mut cursor = None;
            loop {
                if pages == OWED_PAGES_MAX {
                    let message = format!(
                        "the threads below {thread} are still being told of its end: sweep it, \
                         then repeat the call"
                    );
                    return Err(StorageError::Unavailable(CONTENTION.into(), message).into());
                }
                let page = self.sweep_page(&thread, cursor)?;
                owing.extend(page.owing);
                pages += 1;
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Passes the end intent to the tip of each of these chains, up to the spawn number `last`.
    fn propagate_to_each(
        &self,
        (parent, keys): (&str, &[String]),
        (intent, last): (EndIntent, Option<u64>),
    ) -> Result<ToldChains, Error> {
        let mut told_chains = ToldChains::default();
        let unreadable = &mut told_chains.unreadable;
        for (key, tip) in keys.iter().zip(self.load_children(parent, keys)?) {
            let child = match tip {
                Ok(child) => child,
                Err(why) => {
                    unreadable.push((id::printable_id(key), why));
                    continue;
                }
            };
            let chain = &child.chain.value;
            let head = &child.head.value;
            let ended = head.status.is_terminal()
                && chain.last_child_number() == 0
                && !is_to_be_resumed(head);
            if ended || last.is_some_and(|last| chain.number > last) {
                continue;
            }
            let told = self.decide_or_close(&child.thread.value.id, &|loaded, moment| {
                let round = self.round(loaded)?;
                let mail = self.mail(loaded)?;
                let moment = self.with_operator_caps(moment)?;
                Ok(runner::propagate_intent(
                    loaded,
                    round.as_deref(),
                    mail,
                    intent,
                    moment,
                )?)
            });
            match told {
                Ok(done) => {
                    told_chains.changed |= matches!(done, DecisionOutcome::Committed(_));
                    let now = done.into_loaded();
                    if now.head.value.sweep.is_some() {
                        told_chains.owing.push(now.thread.value.id.clone());
                    }
                }
                Err(error) => unreadable.push((key.clone(), error.into_damage()?)),
            }
        }
        Ok(told_chains)
    }

    /// Tells the children of a thread that was to be ended and cannot be read.
    pub(super) fn propagate_below_lost(
        &self,
        thread: &str,
        intent: EndIntent,
    ) -> Result<(), Error> {
        let own = id::key(thread);
        let items = self.get_readable(&[(key::THREAD, &own)])?;
        let record = items.first();
        let record = record.and_then(|item| super::store::parse_record::<ThreadRecord>(item).ok());
        let root = record.map(|record| id::key(&record.chain));
        let root = root.filter(|root| *root != own);
        let lost = [own].into_iter().chain(root).collect();
        self.propagate_below(lost, intent).map(|_| ())
    }

    /// Tells the children of chains whose tips cannot be read, which pass nothing on themselves.
    /// Those of them that cannot be told either are returned, and theirs are told in turn. A page
    /// in which everybody was told before takes no place of another, so that a repeated sweep gets
    /// further; the chains whose children a call did not reach are named with the reason.
    fn propagate_below(
        &self,
        mut lost: Vec<String>,
        intent: EndIntent,
    ) -> Result<Vec<(String, RecordDamage)>, Error> {
        // An index that was forged may name them in a circle.
        let mut known = OrderedNames::new(lost.clone());
        let (mut unreadable, mut changed, mut read) = (Vec::new(), 0, 0);
        while let Some(parent) = lost.pop() {
            // Its records do not say which of the two indexes has its children.
            let mut told = OrderedNames::default();
            for name in [key::CHILD, "parent"] {
                let (start, end) = child_range(&(name, parent.clone()));
                let mut from = Some(start);
                while let Some(start) = from.take() {
                    if changed == LOST_PAGES_MAX || read == LOST_READS_MAX {
                        lost.push(parent);
                        unreadable.extend(lost.into_iter().map(|key| (key, unreached_damage())));
                        return Ok(unreadable);
                    }
                    let page =
                        self.scan_names(key::INDEX, (&start, &end), SWEEP_CHILDREN_MAX, false)?;
                    let keys = page.keys().into_iter();
                    let keys: Vec<String> = keys.filter(|key| told.insert(key)).collect();
                    let found = self.propagate_to_each((&parent, &keys), (intent, None))?;
                    let below = lost_chains(&found.unreadable);
                    let below: Vec<String> = below.filter(|key| known.insert(key)).collect();
                    changed += u32::from(found.changed || !below.is_empty());
                    lost.extend(below);
                    unreadable.extend(found.unreadable);
                    from = page.cursor;
                    read += 1;
                }
            }
        }
        Ok(unreadable)
    }
}

/// The problem of a chain whose children a sweep did not come to.
fn unreached_damage() -> RecordDamage {
    RecordDamage::contradiction("more threads below it are lost than one call tells: sweep again")
}

/// Returns the keys of the chains whose children are told in their place. A thread that is no child
/// of the sweep's is not among them.
fn lost_chains(unreadable: &[(String, RecordDamage)]) -> impl Iterator<Item = String> {
    let lost = unreadable.iter().filter(|(_, why)| why.code != NOT_A_CHILD);
    lost.map(|(key, _)| key.clone())
}

/// The result of telling some chains of an end.
#[derive(Debug, Default)]
struct ToldChains {
    /// True if one was not told before.
    changed: bool,
    /// Threads that have to tell their own children now.
    owing: Vec<String>,
    /// Those that the intent could not reach: name and problem.
    unreadable: Vec<(String, RecordDamage)>,
}

/// Returns the range of the index entries of the children that a thread's sweep is meant for. The
/// entries of an earlier build do not name the spawn number: there it is asked of each child.
fn swept_range(loaded: &LoadedThread) -> (String, String) {
    let (name, value) = child_index(loaded);
    let (start, end) = child_range(&(name, value.clone()));
    let last = loaded.head.value.sweep_to;
    match last.filter(|_| name == key::CHILD) {
        None => (start, end),
        Some(last) => {
            let after = key::encode_number(last.saturating_add(1));
            (start, key::join(&[name, &key::index_value(&value), &after]))
        }
    }
}

/// The result of one page of a sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepPage {
    /// Start of the next page.
    pub cursor: Option<String>,
    /// Children that have to tell their own children now.
    pub owing: Vec<String>,
    /// Children that the intent could not reach: name and problem.
    pub unreadable: Vec<(String, RecordDamage)>,
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
            same_intent: told.strip_suffix(UNREACHED_MARK).unwrap_or(told) == intent.as_str(),
            has_unreached: told.ends_with(UNREACHED_MARK),
            from,
        }
    }
}
