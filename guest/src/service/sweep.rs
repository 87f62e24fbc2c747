//! Sweeps: an end intent of a thread takes effect, and is passed on to its children.
//!
//! A sweep goes through the chains that the thread's chain has spawned, up to the number that its
//! head names, and tells the tip of each.

use super::child_chains::{child_index, child_range};
use super::{Error, ThreadService};
use crate::ports::{HostPorts, NOT_A_CHILD, RecordDamage};
use std::collections::BTreeSet;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::runner;
use threadkeep_core::thread::{EndIntent, ThreadRecord};
use threadkeep_core::{id, key};

/// Children that one call of `sweep` visits.
const SWEEP_CHILDREN_MAX: u32 = 50;
/// Most pages of threads below those that cannot be read which one call tells: an index that was
/// forged may name them in a circle.
const LOST_PAGES_MAX: u32 = 20;

impl<P: HostPorts> ThreadService<P> {
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
        let last = loaded.head.value.sweep_to;
        let (start, end) = swept_range(&loaded);
        let place = SweepCursor::parse(cursor.as_deref(), intent);
        super::store::check_cursor(place.from.or(cursor.as_deref()), &start, &end)?;
        // If the intent has become a kill since, the children of earlier pages got only a cancel.
        let from = place.from.filter(|_| place.same_intent).unwrap_or(&start);
        let page = self.scan_names(key::INDEX, (from, &end), SWEEP_CHILDREN_MAX, false)?;
        let (_, parent) = child_index(&loaded);
        let mut unreadable = self.propagate_to_each((&parent, &page.keys()), (intent, last))?;
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
            unreadable,
        })
    }

    /// Passes the end intent to the tip of each of these chains, up to the spawn number `last`;
    /// returns those that it cannot reach.
    fn propagate_to_each(
        &self,
        (parent, keys): (&str, &[String]),
        (intent, last): (EndIntent, Option<u64>),
    ) -> Result<Vec<(String, RecordDamage)>, Error> {
        let mut unreadable = Vec::new();
        for (key, tip) in keys.iter().zip(self.load_children(parent, keys)?) {
            let child = match tip {
                Ok(child) => child,
                Err(why) => {
                    unreadable.push((id::printable_id(key), why));
                    continue;
                }
            };
            let chain = &child.chain.value;
            let ended = child.head.value.status.is_terminal() && chain.last_child_number() == 0;
            if ended || last.is_some_and(|last| chain.number > last) {
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
                unreadable.push((key.clone(), error.into_damage()?));
            }
        }
        Ok(unreadable)
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
    /// Those of them that cannot be told either are returned, and theirs are told in turn.
    fn propagate_below(
        &self,
        mut lost: Vec<String>,
        intent: EndIntent,
    ) -> Result<Vec<(String, RecordDamage)>, Error> {
        let (mut unreadable, mut pages) = (Vec::new(), 0);
        while let Some(parent) = lost.pop() {
            // Its records do not say which of the two indexes has its children.
            let mut told = BTreeSet::new();
            for name in [key::CHILD, "parent"] {
                let (start, end) = child_range(&(name, parent.clone()));
                let mut from = Some(start);
                while let Some(start) = from.take().filter(|_| pages < LOST_PAGES_MAX) {
                    let page =
                        self.scan_names(key::INDEX, (&start, &end), SWEEP_CHILDREN_MAX, false)?;
                    let keys = page.keys().into_iter();
                    let keys: Vec<String> = keys.filter(|key| told.insert(key.clone())).collect();
                    let found = self.propagate_to_each((&parent, &keys), (intent, None))?;
                    lost.extend(lost_chains(&found));
                    unreadable.extend(found);
                    from = page.cursor;
                    pages += 1;
                }
            }
        }
        Ok(unreadable)
    }
}

/// Returns the keys of the chains whose children are told in their place. A thread that is no child
/// of the sweep's is not among them.
fn lost_chains(unreadable: &[(String, RecordDamage)]) -> impl Iterator<Item = String> {
    let lost = unreadable.iter().filter(|(_, why)| why.code != NOT_A_CHILD);
    lost.map(|(key, _)| key.clone())
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
            same_intent: told.trim_end_matches(UNREACHED_MARK) == intent.as_str(),
            has_unreached: told.ends_with(UNREACHED_MARK),
            from,
        }
    }
}
