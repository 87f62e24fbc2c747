//! Trees: a thread and all that it spawned, each after its spawner.
//!
//! A tree is walked by chains, and each chain is shown as its tip. The children of a chain are read
//! together, so a page needs few reads. A cursor is the path to the last thread of its page: the
//! top, then for each level the index and the place in it by which a child is found.

use super::child_chains::{ChildIndex, INDEX_PAGE_ENTRIES, child_index, child_range};
use super::store::check_cursor;
use super::{Error, ThreadService};
use crate::ports::{HostPorts, NOT_A_CHILD, RecordDamage};
use std::vec;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::ordered_names::OrderedNames;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::{id, key};

/// Most threads of one page of a tree.
pub const TREE_THREADS_MAX: usize = 50;

/// Most levels of a tree that a cursor may go down.
const TREE_DEPTH_MAX: usize = 1_000;

/// A page of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TreePage {
    /// Tips of chains with their depths.
    pub branches: Vec<(LoadedThread, u32)>,
    /// Chains of the page whose tips are missing or cannot be read: key of the root and problem.
    pub unreadable: Vec<(String, RecordDamage)>,
    /// Start of the next page.
    pub cursor: Option<String>,
}

/// A child that was read: the end of the name of its index entry, and the tip or its problem.
type FoundChild = (String, Result<LoadedThread, RecordDamage>);

/// Name of the index of children in the cursor of a chain whose records are lost: the index of
/// parents is read after it.
const LOST_CHILD: &str = "lost-child";
/// Name of the index of parents in such a cursor: it follows the index of children.
const LOST_PARENT: &str = "lost-parent";

/// The place of a level among the indexes that have the children of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LevelPart {
    /// The one index that has all.
    Whole,
    /// The first of two.
    First,
    /// The second of two: what the first names is left out.
    Second,
}

/// The children of one chain that were not visited yet.
struct TreeLevel {
    index: ChildIndex,
    part: LevelPart,
    /// Children that were read.
    read: vec::IntoIter<FoundChild>,
    /// Start of the part of the index that was not read.
    from: Option<String>,
}

impl TreeLevel {
    fn of_index(index: ChildIndex) -> Self {
        let (start, _) = child_range(&index);
        Self {
            index,
            part: LevelPart::Whole,
            read: Vec::new().into_iter(),
            from: Some(start),
        }
    }

    /// Returns the level of a cursor by its name there.
    fn of_name(name: &str, root: String) -> Option<Self> {
        let (index, part) = match name {
            key::CHILD => (key::CHILD, LevelPart::Whole),
            "parent" => ("parent", LevelPart::Whole),
            LOST_CHILD => (key::CHILD, LevelPart::First),
            LOST_PARENT => ("parent", LevelPart::Second),
            _ => return None,
        };
        Some(Self {
            part,
            ..Self::of_index((index, root))
        })
    }

    /// Returns its name in a cursor.
    fn name(&self) -> &'static str {
        match self.part {
            LevelPart::Whole => self.index.0,
            LevelPart::First => LOST_CHILD,
            LevelPart::Second => LOST_PARENT,
        }
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Reads a page of a thread and all that it spawned, each after its spawner, with its depth.
    /// Threads that cannot be read are listed apart.
    pub fn tree_page(&self, thread: &str, cursor: Option<&str>) -> Result<TreePage, Error> {
        let top = self.top_key(thread)?;
        let mut page = TreePage::default();
        let mut visited = 0;
        let (mut path, mut levels) = match cursor {
            Some(cursor) => self.resume_walk(&top, cursor)?,
            None => {
                let tip = self.load_tips(std::slice::from_ref(&top))?.pop();
                let tip =
                    tip.unwrap_or_else(|| Err(RecordDamage::contradiction("it was not read")));
                let level = self.level_below(&top, &tip)?;
                page.push(&top, 0, tip);
                visited += 1;
                (vec![top], level.into_iter().collect())
            }
        };
        loop {
            let depth = levels.len();
            let Some(level) = levels.last_mut() else {
                break;
            };
            if visited == TREE_THREADS_MAX {
                page.cursor = Some(path.join("\n"));
                break;
            }
            let Some((tail, tip)) = self.next_child(level, TREE_THREADS_MAX - visited)? else {
                levels.pop();
                continue;
            };
            path.truncate(depth);
            let child = key::last_part(&tail);
            path.push(format!("{}\u{1}{tail}", level.name()));
            let below = self.level_below(&child, &tip)?;
            page.push(&child, depth as u32, tip);
            visited += 1;
            levels.extend(below);
        }
        Ok(page)
    }

    /// Returns the key of a tree's top: the root of its chain. One that cannot be read is a thread
    /// of the tree like any other; one of which no record is left is there as long as the index
    /// names a child of it.
    fn top_key(&self, thread: &str) -> Result<String, Error> {
        let top = id::key(thread);
        match self.load(thread) {
            Ok(loaded) => Ok(loaded.chain_key()),
            Err(error) if error.is_not_found() && self.level_below_lost(&top)?.is_none() => {
                Err(error)
            }
            Err(error) => error.into_damage().map(|_| top),
        }
    }

    /// Returns the level below a chain, if it has children.
    fn level_below(
        &self,
        root: &str,
        tip: &Result<LoadedThread, RecordDamage>,
    ) -> Result<Option<TreeLevel>, Error> {
        match tip {
            Ok(tip) if tip.chain.value.last_child_number() == 0 => Ok(None),
            Ok(tip) => Ok(Some(TreeLevel::of_index(child_index(tip)))),
            Err(why) if why.code == NOT_A_CHILD => Ok(None),
            Err(_) => self.level_below_lost(root),
        }
    }

    /// Returns the level below a chain whose records do not say which index has its children: a
    /// chain that an earlier build began has some in the one and all in the other, and one of
    /// several links the other way round.
    fn level_below_lost(&self, root: &str) -> Result<Option<TreeLevel>, Error> {
        for (index, name) in [(key::CHILD, LOST_CHILD), ("parent", "parent")] {
            let (start, end) = child_range(&(index, root.to_owned()));
            let page = self.scan_names(key::INDEX, (&start, &end), 1, false)?;
            if !page.names.is_empty() {
                return Ok(TreeLevel::of_name(name, root.to_owned()));
            }
        }
        Ok(None)
    }

    /// Returns the next child of a level; reads at most `limit` more of them where none is left.
    fn next_child(&self, level: &mut TreeLevel, limit: usize) -> Result<Option<FoundChild>, Error> {
        while level.read.len() == 0 {
            let Some(from) = level.from.take() else {
                if level.part != LevelPart::First {
                    break;
                }
                level.part = LevelPart::Second;
                level.index.0 = "parent";
                level.from = Some(child_range(&level.index).0);
                continue;
            };
            let (start, end) = child_range(&level.index);
            let page = self.scan_names(key::INDEX, (&from, &end), limit as u32, false)?;
            let mut names = page.names;
            if level.part == LevelPart::Second && !names.is_empty() {
                let first = self.indexed_children(&level.index.1)?;
                names.retain(|name| !first.contains(&key::last_part(name)));
            }
            let keys: Vec<String> = names.iter().map(|name| key::last_part(name)).collect();
            let tips = self.load_children(&level.index.1, &keys)?;
            // A foreign store may name what was not asked for.
            let tail = |name: &String| name.get(start.len()..).unwrap_or_default().to_owned();
            let tails = names.iter().map(tail);
            level.read = tails.zip(tips).collect::<Vec<FoundChild>>().into_iter();
            level.from = page.cursor;
        }
        Ok(level.read.next())
    }

    /// Returns the keys of all that the index of children has under a chain.
    fn indexed_children(&self, root: &str) -> Result<OrderedNames, Error> {
        let (start, end) = child_range(&(key::CHILD, root.to_owned()));
        let (mut children, mut from) = (Vec::new(), Some(start));
        while let Some(start) = from.take() {
            let page = self.scan_names(key::INDEX, (&start, &end), INDEX_PAGE_ENTRIES, false)?;
            children.extend(page.keys());
            from = page.cursor;
        }
        Ok(OrderedNames::new(children))
    }

    /// Returns the path of a cursor, and the levels that are left to be visited.
    fn resume_walk(&self, top: &str, cursor: &str) -> Result<(Vec<String>, Vec<TreeLevel>), Error> {
        let path: Vec<String> = cursor.split('\n').map(str::to_owned).collect();
        let refused = || CoreError::invalid("cursor", cursor, "is not one of this tree").into();
        if path.first().is_none_or(|first| first != top) || path.len() > TREE_DEPTH_MAX {
            return Err(refused());
        }
        let (mut parent, mut levels) = (top.to_owned(), Vec::new());
        for part in &path[1..] {
            let (name, tail) = part.split_once('\u{1}').ok_or_else(refused)?;
            let mut level = TreeLevel::of_name(name, parent).ok_or_else(refused)?;
            let (start, end) = child_range(&level.index);
            let from = format!("{start}{tail}\0");
            check_cursor(Some(&from), &start, &end)?;
            level.from = Some(from);
            levels.push(level);
            parent = key::last_part(tail);
        }
        let own = std::slice::from_ref(&parent);
        let last = match levels.last() {
            Some(level) => self.load_children(&level.index.1, own)?.pop(),
            None => self.load_tips(own)?.pop(),
        };
        if let Some(tip) = last {
            levels.extend(self.level_below(&parent, &tip)?);
        }
        Ok((path, levels))
    }
}

impl TreePage {
    fn push(&mut self, key: &str, depth: u32, tip: Result<LoadedThread, RecordDamage>) {
        match tip {
            Ok(tip) => self.branches.push((tip, depth)),
            Err(why) => self.unreadable.push((id::printable_id(key), why)),
        }
    }
}
