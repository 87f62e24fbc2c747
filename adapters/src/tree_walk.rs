//! A path that is walked below a directory, one name at a time, for the library and the file tools.
//!
//! No directory is opened through a link: a link's own path is walked in its place, and one that
//! leads out is refused. Each opened object is compared with the one seen. So neither a link nor a
//! swap in between leads to a directory whose name was not looked at.

use std::io;
use std::path::Component;
use threadkeep_storage::directory::{
    AuthorityError, DirectoryTree, EntryDetails, EntryType, open_child_tree,
};

/// Most links that one path may lead over, as on common systems.
const LINKS_MAX: usize = 40;

/// A part of a path that a walk is about to enter.
pub(crate) enum WalkedPart<'a> {
    /// A name, before it is looked up.
    Name(&'a str),
    /// A directory, once it is open.
    Directory(&'a dyn DirectoryTree),
}

/// The reason why a walk ends early.
pub(crate) enum WalkRefusal {
    /// The caller hides a part, or a name in a link is not UTF-8.
    Hidden,
    /// The path leads out, or a part of it cannot be opened.
    Authority(AuthorityError),
}

/// A path that was walked to its end.
pub(crate) struct WalkedPath<'a> {
    root: &'a dyn DirectoryTree,
    /// The directories below the root that were entered, with their names.
    entered: Vec<(String, Box<dyn DirectoryTree>)>,
    /// The entry at the end, if it is no directory.
    entry: Option<(String, EntryDetails)>,
}

impl<'a> WalkedPath<'a> {
    /// Walks the path below `root`, whose names are joined by `/`; empty ones and `.` are passed
    /// over. `hides` tells which parts do not exist for the caller.
    pub(crate) fn walk(
        root: &'a dyn DirectoryTree,
        path: &str,
        hides: &dyn Fn(WalkedPart<'_>) -> bool,
    ) -> Result<Self, WalkRefusal> {
        let names = path.split('/');
        let names = names.filter(|name| !name.is_empty() && *name != ".");
        let mut walk = PathWalk {
            place: path,
            left: names.rev().map(str::to_owned).collect(),
            links: 0,
            walked: Self {
                root,
                entered: Vec::new(),
                entry: None,
            },
        };
        if path.starts_with('/') {
            return Err(walk.refuse_exit());
        }
        while let Some(name) = walk.left.pop() {
            walk.enter(&name, hides)?;
        }
        Ok(walk.walked)
    }

    /// The directory that the end of the path is in or, if it is a directory, that itself.
    pub(crate) fn directory(&self) -> &dyn DirectoryTree {
        match self.entered.last() {
            Some((_, dir)) => &**dir,
            None => self.root,
        }
    }

    /// The entry at the end of the path, with its name; `None` if the end is a directory. It is no
    /// link.
    pub(crate) fn entry(&self) -> Option<(&str, &EntryDetails)> {
        let entry = self.entry.as_ref();
        entry.map(|(name, seen)| (name.as_str(), seen))
    }

    /// Another handle of the directory at the end of the path.
    pub(crate) fn into_directory(mut self) -> io::Result<Box<dyn DirectoryTree>> {
        match self.entered.pop() {
            Some((_, dir)) => Ok(dir),
            None => self.root.clone_tree(),
        }
    }

    /// The path without links, empty for the root.
    pub(crate) fn resolved_path(&self) -> String {
        let names = self.entered.iter().map(|(name, _)| name.as_str());
        let file = self.entry.as_ref().map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.chain(file).collect();
        names.join("/")
    }
}

/// A walk that is under way.
struct PathWalk<'a, 'b> {
    /// The path, as errors call it.
    place: &'b str,
    /// The names that are left, the next one last.
    left: Vec<String>,
    links: usize,
    walked: WalkedPath<'a>,
}

impl PathWalk<'_, '_> {
    /// Enters the directory of a name, or takes up the path of a link.
    fn enter(
        &mut self,
        name: &str,
        hides: &dyn Fn(WalkedPart<'_>) -> bool,
    ) -> Result<(), WalkRefusal> {
        if name == ".." {
            return match self.walked.entered.pop() {
                Some(_) => Ok(()),
                None => Err(self.refuse_exit()),
            };
        }
        if hides(WalkedPart::Name(name)) {
            return Err(WalkRefusal::Hidden);
        }
        let seen = self.walked.directory().details(name);
        let seen = seen.map_err(|error| self.refuse_io(error))?;
        match seen.entry_type {
            EntryType::Link => self.take_up_link(name),
            EntryType::Directory => {
                let dir = open_child_tree(self.walked.directory(), name);
                let dir = dir.map_err(WalkRefusal::Authority)?;
                if hides(WalkedPart::Directory(&*dir)) {
                    return Err(WalkRefusal::Hidden);
                }
                self.walked.entered.push((name.to_owned(), dir));
                Ok(())
            }
            EntryType::File | EntryType::Special if self.left.is_empty() => {
                self.walked.entry = Some((name.to_owned(), seen));
                Ok(())
            }
            EntryType::File | EntryType::Special => {
                let place = self.place.to_owned();
                Err(WalkRefusal::Authority(AuthorityError::NotDirectory {
                    place,
                }))
            }
        }
    }

    /// Puts the names of a link's path before those that are left.
    fn take_up_link(&mut self, name: &str) -> Result<(), WalkRefusal> {
        self.links += 1;
        let path = match self.links > LINKS_MAX {
            true => Err(io::Error::other("too many links")),
            false => self.walked.directory().read_link(name),
        };
        let path = path.map_err(|error| self.refuse_io(error))?;
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir => names.push("..".to_owned()),
                Component::Normal(name) => match name.to_str() {
                    Some(name) => names.push(name.to_owned()),
                    None => return Err(WalkRefusal::Hidden),
                },
                Component::RootDir | Component::Prefix(_) => return Err(self.refuse_exit()),
            }
        }
        self.left.extend(names.into_iter().rev());
        Ok(())
    }

    fn refuse_exit(&self) -> WalkRefusal {
        let place = self.place.to_owned();
        WalkRefusal::Authority(AuthorityError::Leaves { place })
    }

    fn refuse_io(&self, error: io::Error) -> WalkRefusal {
        WalkRefusal::Authority(AuthorityError::from_io(self.place, error))
    }
}
