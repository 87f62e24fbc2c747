//! Opening a store and bringing a view up to date: reading files, and the base check.

use super::StoreFault;
use super::commit_text::{CommitHeader, HEADER_BYTES_MAX, read_commit, write_commit};
use super::file_name::{StoreFileName, commit_name, segment_name, snapshot_name, temporary_name};
use super::protocol::{PlantedFault, StoreProtocol};
use super::segment::{SegmentIndex, read_index};
use super::snapshot::read_snapshot;
use super::view::{CommitIdentity, StoreView};
use crate::check::other_error;
use crate::directory::FileDirectory;
use std::io;

/// Most times that an opening is begun again because files were packed and deleted meanwhile.
const OPENINGS_MAX: usize = 100;

/// Times that the same files are found again before a file that is missing is lost, and not packed.
const UNCHANGED_MAX: usize = 3;

/// The files of a store, as a listing names them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StoreListing {
    /// Numbers of commit files, in order.
    pub commits: Vec<u64>,
    /// Ranges of segments, in order.
    pub segments: Vec<(u64, u64)>,
    /// Numbers of snapshots, in order.
    pub snapshots: Vec<u64>,
    /// Names of files that are not published, and their numbers.
    pub temporary: Vec<(u64, String)>,
}

impl StoreListing {
    /// Lists the files of a store. Names that are not its own are passed over.
    pub(super) fn read(directory: &dyn FileDirectory) -> Result<Self, StoreFault> {
        let mut listing = Self::default();
        let names = directory.list();
        for name in names.map_err(|error| StoreFault::io("the directory of the store", error))? {
            match StoreFileName::parse(&name) {
                Some(StoreFileName::Commit(number)) => listing.commits.push(number),
                Some(StoreFileName::Segment(first, last)) => listing.segments.push((first, last)),
                Some(StoreFileName::Snapshot(number)) => listing.snapshots.push(number),
                Some(StoreFileName::Temporary(number)) => listing.temporary.push((number, name)),
                None => {}
            }
        }
        listing.commits.sort_unstable();
        listing.segments.sort_unstable();
        listing.snapshots.sort_unstable();
        Ok(listing)
    }

    fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.segments.is_empty() && self.snapshots.is_empty()
    }
}

/// A writer of files that become visible whole or not at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct FilePublisher<'a> {
    /// Name of this writer of this file, which no other has.
    pub writer: &'a str,
    pub protocol: &'a StoreProtocol,
}

impl FilePublisher<'_> {
    /// Publishes a file, unless its name is taken; returns false then. `number` goes into the name
    /// of the temporary file.
    pub(super) fn publish(
        self,
        directory: &dyn FileDirectory,
        name: &str,
        number: u64,
        content: &str,
    ) -> Result<bool, PublishFault> {
        let temporary = temporary_name(number, self.writer);
        let written = self.write_temporary(directory, &temporary, content);
        let linked = match written {
            Ok(()) => directory.hard_link(&temporary, name),
            Err(error) => {
                let _ = directory.remove(&temporary);
                return Err(PublishFault::Before(StoreFault::io(&temporary, error)));
            }
        };
        let published = match linked {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            // Its temporary file is gone: this writer was stopped for so long that the number was
            // taken, packed and deleted by others, with what they found left behind below it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                let _ = directory.remove(&temporary);
                return Err(PublishFault::During(link_fault(name, error)));
            }
        };
        let syncs = self
            .protocol
            .syncs_unless(PlantedFault::AcknowledgesBeforeSync);
        let synced = match published && syncs {
            true => directory.sync(),
            false => Ok(()),
        };
        // What is left behind after a crash is removed by a later packing.
        let _ = directory.remove(&temporary);
        match synced {
            Ok(()) => Ok(published),
            Err(error) => Err(PublishFault::After(StoreFault::io(name, error))),
        }
    }

    fn write_temporary(
        self,
        directory: &dyn FileDirectory,
        temporary: &str,
        content: &str,
    ) -> io::Result<()> {
        let mut file = directory.create_new(temporary)?;
        file.append(content.as_bytes())?;
        if self
            .protocol
            .syncs_unless(PlantedFault::PublishesBeforeSync)
        {
            file.sync()?;
        }
        Ok(())
    }
}

/// The fault of a link that could not be made, in a directory that can be written. Linux answers
/// EPERM on a file system that has none.
fn link_fault(name: &str, source: io::Error) -> StoreFault {
    match source.kind() {
        io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied => {
            StoreFault::Told(other_error(
                "no-hard-links",
                format!(
                    "the file system of the store's directory makes no hard links ({source}): use \
                     another directory, or the sqlite store"
                ),
            ))
        }
        _ => StoreFault::io(name, source),
    }
}

/// A failed publication, by how far it had come.
#[derive(Debug)]
pub(super) enum PublishFault {
    /// Nothing is published.
    Before(StoreFault),
    /// The link failed: as a rule nothing is published.
    During(StoreFault),
    /// It is published, and nobody knows whether it is durable.
    After(StoreFault),
}

impl From<PublishFault> for StoreFault {
    fn from(fault: PublishFault) -> Self {
        match fault {
            PublishFault::Before(fault)
            | PublishFault::During(fault)
            | PublishFault::After(fault) => fault,
        }
    }
}

/// Opens a store; makes one in an empty directory.
pub(super) fn open_view(
    directory: &dyn FileDirectory,
    publisher: FilePublisher<'_>,
) -> Result<StoreView, StoreFault> {
    let mut stale = StoreFault::Stale;
    let (mut last, mut unchanged) = (StoreListing::default(), 0);
    for _ in 0..OPENINGS_MAX {
        let listing = StoreListing::read(directory)?;
        if listing.is_empty() {
            make_store(directory, publisher)?;
            continue;
        }
        let opened = read_view(directory, &listing, publisher.protocol);
        if is_outdated(directory, &listing, publisher.protocol)? {
            continue;
        }
        match opened {
            Err(fault) if matches!(fault, StoreFault::Stale) || fault.is_missing() => stale = fault,
            opened => return opened,
        }
        unchanged = if listing == last { unchanged + 1 } else { 0 };
        if unchanged == UNCHANGED_MAX {
            return Err(missing_file(&listing, &stale));
        }
        last = listing;
    }
    Err(stale)
}

/// The fault of a store of which a file is missing although nobody packs it.
fn missing_file(listing: &StoreListing, fault: &StoreFault) -> StoreFault {
    let place = match fault {
        StoreFault::Io { place, .. } => place.clone(),
        // The commit with which the snapshot or the last segment ends.
        _ => {
            let packed = listing.segments.last().map_or(0, |(_, last)| *last);
            let newest = listing.snapshots.last().copied().unwrap_or(0);
            commit_name(packed.max(newest))
        }
    };
    StoreFault::corrupt(format!("{place} is missing: put it back from a backup"))
}

/// True if a listing without a snapshot is older than a snapshot. Before there is one nothing is
/// deleted; afterwards commit 0 may be gone, and a writer that found the directory empty and was
/// stopped for long may have made it again, as the beginning of a store that is nobody's.
fn is_outdated(
    directory: &dyn FileDirectory,
    listing: &StoreListing,
    protocol: &StoreProtocol,
) -> Result<bool, StoreFault> {
    if !listing.snapshots.is_empty() || protocol.has(PlantedFault::BelievesOldListing) {
        return Ok(false);
    }
    Ok(!StoreListing::read(directory)?.snapshots.is_empty())
}

/// Writes commit 0, which makes a store: it has no operations, and its name is that of the store.
fn make_store(
    directory: &dyn FileDirectory,
    publisher: FilePublisher<'_>,
) -> Result<(), StoreFault> {
    let (text, _) = write_commit((0, publisher.writer), "-", 0, "");
    publisher.publish(directory, &commit_name(0), 0, &text)?;
    Ok(())
}

fn read_view(
    directory: &dyn FileDirectory,
    listing: &StoreListing,
    protocol: &StoreProtocol,
) -> Result<StoreView, StoreFault> {
    let mut view = match listing.snapshots.last() {
        Some(newest) => {
            let name = snapshot_name(*newest);
            read_snapshot(&read_file(directory, &name)?, &name)?
        }
        None => {
            let name = commit_name(0);
            let content = read_file(directory, &name)?;
            let (header, _) = read_commit(&content, &name)?;
            if protocol.syncs_unless(PlantedFault::BelievesBeforeSync) {
                // Its maker may have been killed before. A loss of power must not keep commit 1 and
                // take this one.
                let synced = directory.sync();
                synced.map_err(|error| StoreFault::io("the directory of the store", error))?;
            }
            StoreView {
                tip: (&header).into(),
                ..StoreView::default()
            }
        }
    };
    let lost = view
        .segments
        .iter()
        .find(|range| !listing.segments.contains(range));
    if let Some(lost) = lost {
        // It was there before the snapshot was.
        let name = segment_name(*lost);
        return Err(StoreFault::corrupt(format!(
            "{name} is missing: put it back from a backup"
        )));
    }
    for range in &listing.segments {
        if range.0 == view.last_packed() + 1 {
            read_segment(directory, &mut view, *range)?;
        }
    }
    read_newer_commits(directory, &mut view, protocol)?;
    let tip = view.tip.number;
    if let Some(beyond) = listing.commits.iter().find(|number| **number > tip) {
        let (next, beyond) = (commit_name(tip + 1), commit_name(*beyond));
        return Err(StoreFault::corrupt(format!(
            "{next} is missing, and {beyond} is there: put it back from a backup"
        )));
    }
    Ok(view)
}

/// Reads a segment into the view: the commits that it does not have yet, and the places of entries.
fn read_segment(
    directory: &dyn FileDirectory,
    view: &mut StoreView,
    range: (u64, u64),
) -> Result<(), StoreFault> {
    let name = segment_name(range);
    let mut file = directory
        .open(&name)
        .map_err(|error| read_fault(&name, error))?;
    let index = read_index(&mut *file, range, &name)?;
    for number in view.tip.number.max(range.0 - 1) + 1..=range.1 {
        let (offset, bytes) = index
            .commit_place(number)
            .ok_or_else(|| missing(number, &name))?;
        let content = file.read_at(offset, usize::try_from(bytes).unwrap_or(0));
        let content = content.map_err(|error| StoreFault::io(&name, error))?;
        let (header, body) = read_commit(&content, &name)?;
        if !follows(&view.tip, &header) {
            return Err(missing(number, &name));
        }
        view.apply(&header, body, &name)?;
    }
    view.absorb(&index)
}

fn missing(number: u64, name: &str) -> StoreFault {
    StoreFault::corrupt(format!(
        "{name} does not hold commit {number} as it follows"
    ))
}

fn follows(tip: &CommitIdentity, header: &CommitHeader) -> bool {
    header.number == tip.number + 1 && header.previous == tip.hash
}

/// Brings a view up to date, and checks that it may be believed: the commit that it ended with
/// before must still be there. The newest that was read would not do, as it may be of a number that
/// was freed and taken again since.
pub(super) fn read_newer_commits(
    directory: &dyn FileDirectory,
    view: &mut StoreView,
    protocol: &StoreProtocol,
) -> Result<(), StoreFault> {
    let base = view.tip.clone();
    let newest = protocol.has(PlantedFault::ChecksNewestRead);
    // An error counts only where the view could be believed.
    let believe = |fault: StoreFault, tip: &CommitIdentity| {
        let base = if newest { tip } else { &base };
        check_base(directory, base, protocol).err().unwrap_or(fault)
    };
    while let Some(content) = read_next(directory, view.tip.number + 1)? {
        let name = commit_name(view.tip.number + 1);
        let read = read_commit(&content, &name);
        let (header, body) = read.map_err(|fault| believe(fault, &view.tip))?;
        if !follows(&view.tip, &header) {
            return Err(believe(missing(view.tip.number + 1, &name), &view.tip));
        }
        let tip = view.tip.clone();
        let applied = view.apply(&header, body, &name);
        applied.map_err(|fault| believe(fault, &tip))?;
    }
    if view.tip != base && protocol.syncs_unless(PlantedFault::BelievesBeforeSync) {
        // Nobody is told of a commit that a loss of power could still take back.
        let synced = directory.sync();
        synced.map_err(|error| StoreFault::io("the directory of the store", error))?;
    }
    match protocol.has(PlantedFault::ReadWithoutBaseCheck) {
        true => Ok(()),
        false => check_base(directory, if newest { &view.tip } else { &base }, protocol),
    }
}

fn read_next(directory: &dyn FileDirectory, number: u64) -> Result<Option<Vec<u8>>, StoreFault> {
    match read_file(directory, &commit_name(number)) {
        Ok(content) => Ok(Some(content)),
        Err(fault) if fault.is_missing() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Reads a whole file.
pub(super) fn read_file(directory: &dyn FileDirectory, name: &str) -> Result<Vec<u8>, StoreFault> {
    let io = |error| StoreFault::io(name, error);
    let mut file = directory
        .open(name)
        .map_err(|error| read_fault(name, error))?;
    let size = usize::try_from(file.size().map_err(io)?).unwrap_or(usize::MAX);
    file.read_at(0, size).map_err(io)
}

/// The fault of a file that is there and cannot be opened to be read.
fn read_fault(name: &str, source: io::Error) -> StoreFault {
    match source.kind() {
        io::ErrorKind::PermissionDenied => StoreFault::Told(other_error(
            "unreadable",
            format!("{name} of the store cannot be read ({source}): give this user the right to"),
        )),
        _ => StoreFault::io(name, source),
    }
}

/// Checks that the file of this commit is still there.
pub(super) fn check_base(
    directory: &dyn FileDirectory,
    tip: &CommitIdentity,
    protocol: &StoreProtocol,
) -> Result<(), StoreFault> {
    let name = commit_name(tip.number);
    let read = directory
        .open(&name)
        .and_then(|mut file| file.read_at(0, HEADER_BYTES_MAX));
    let start = match read {
        Ok(start) => start,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(StoreFault::Stale),
        Err(error) => return Err(read_fault(&name, error)),
    };
    let header = CommitHeader::parse(&start, &name)?;
    let same = header.writer == tip.writer && header.hash == tip.hash;
    match same || protocol.has(PlantedFault::BaseByNameAlone) {
        true => Ok(()),
        false => Err(StoreFault::Stale),
    }
}

/// Takes note of segments that other processes have packed since. Returns true if there were any.
pub(super) fn learn_segments(
    directory: &dyn FileDirectory,
    view: &mut StoreView,
) -> Result<bool, StoreFault> {
    let before = view.segments.len();
    for range in StoreListing::read(directory)?.segments {
        if range.0 == view.last_packed() + 1 && range.1 <= view.tip.number {
            view.absorb(&read_segment_index(directory, range)?)?;
        }
    }
    Ok(view.segments.len() > before)
}

/// Reads what stands in a segment.
pub(super) fn read_segment_index(
    directory: &dyn FileDirectory,
    range: (u64, u64),
) -> Result<SegmentIndex, StoreFault> {
    let name = segment_name(range);
    let mut file = directory
        .open(&name)
        .map_err(|error| read_fault(&name, error))?;
    read_index(&mut *file, range, &name)
}
