//! Packing commits into segments, snapshots, and the deletion of what nobody needs any more.
//!
//! Any process does it whose view is at the newest commit; two at once write the same segments.

use super::StoreFault;
use super::commit_text::CommitHeader;
use super::file_name::{commit_name, segment_name, snapshot_name};
use super::opening::{FilePublisher, StoreListing, learn_segments, read_file};
use super::protocol::{PlantedFault, SegmentLayout};
use super::segment::{SegmentBuilder, SegmentIndex};
use super::snapshot::write_snapshot;
use super::view::StoreView;
use crate::directory::FileDirectory;
use std::io;

/// Packs what is due, writes a snapshot if one is due, and deletes. Returns true if it did
/// anything.
pub(super) fn compact_if_due(
    directory: &dyn FileDirectory,
    view: &mut StoreView,
    publisher: FilePublisher<'_>,
) -> Result<bool, StoreFault> {
    let layout = publisher.protocol.layout;
    if find_due_segment(view, layout).is_none() {
        return Ok(false);
    }
    learn_segments(directory, view)?;
    while let Some(range) = find_due_segment(view, layout) {
        let index = pack_segment(directory, view, range, publisher)?;
        view.absorb(&index)?;
    }
    write_snapshot_if_due(directory, view, publisher)?;
    delete_old_files(directory, publisher)?;
    Ok(true)
}

/// The next segment, if all of its commits are there: it is complete with so many commits or bytes.
fn find_due_segment(view: &StoreView, layout: SegmentLayout) -> Option<(u64, u64)> {
    let first = view.last_packed() + 1;
    let mut bytes = 0;
    for (count, (number, commit)) in (1..).zip(view.loose.range(first..)) {
        bytes += commit.bytes;
        if count == layout.commits || bytes >= layout.bytes {
            return Some((first, *number));
        }
    }
    None
}

fn pack_segment(
    directory: &dyn FileDirectory,
    view: &StoreView,
    (first, last): (u64, u64),
    publisher: FilePublisher<'_>,
) -> Result<SegmentIndex, StoreFault> {
    let mut builder = SegmentBuilder::new(first);
    for (number, commit) in view.loose.range(first..=last) {
        let name = commit_name(*number);
        let content = read_file(directory, &name)?;
        let header = CommitHeader::parse(&content, &name)?;
        if header.writer != commit.writer {
            // The number was freed, and taken by a writer that was stopped for long.
            return Err(StoreFault::Stale);
        }
        builder.add(&content, &name)?;
    }
    let (content, index) = builder.finish();
    // A file of this name has the same content.
    publisher.publish(directory, &segment_name((first, last)), last, &content)?;
    Ok(index)
}

/// Writes a snapshot at the first packing, and whenever the commits since the last one are more
/// than the records: so all snapshots together are no larger than all commits.
fn write_snapshot_if_due(
    directory: &dyn FileDirectory,
    view: &mut StoreView,
    publisher: FilePublisher<'_>,
) -> Result<(), StoreFault> {
    let listing = StoreListing::read(directory)?;
    let since = view.bytes_since_snapshot;
    let most = view.record_bytes.saturating_add(view.record_bytes / 4);
    if !listing.snapshots.is_empty() && since < most.max(publisher.protocol.layout.snapshot_bytes) {
        return Ok(());
    }
    if publisher.protocol.durable {
        // A segment that the snapshot names may be of a packer that was killed before it synced.
        let synced = directory.sync();
        synced.map_err(|error| StoreFault::io("the directory of the store", error))?;
    }
    let number = view.tip.number;
    let content = write_snapshot(view);
    publisher.publish(directory, &snapshot_name(number), number, &content)?;
    view.bytes_since_snapshot = 0;
    Ok(())
}

/// Deletes commit files below the end of the segment before the newest, lowest first; snapshots but
/// the newest two; and files that a writer left behind.
fn delete_old_files(
    directory: &dyn FileDirectory,
    publisher: FilePublisher<'_>,
) -> Result<(), StoreFault> {
    let listing = StoreListing::read(directory)?;
    let protocol = publisher.protocol;
    let kept = kept_from(&listing, protocol.has(PlantedFault::DeletesNewestEnd));
    let (Some(below), Some(_)) = (kept, listing.snapshots.last()) else {
        return Ok(());
    };
    if protocol.durable {
        // The names that make these files needless are durable first.
        let synced = directory.sync();
        synced.map_err(|error| StoreFault::io("the directory of the store", error))?;
    }
    let mut commits = listing.commits.clone();
    commits.retain(|number| *number < below);
    if protocol.has(PlantedFault::DeletesHighestFirst) {
        commits.reverse();
    }
    let commits = commits.iter().map(|number| commit_name(*number));
    let old = listing.snapshots.iter().rev().skip(2);
    let old = old.map(|number| snapshot_name(*number));
    let left = listing
        .temporary
        .iter()
        .filter(|(number, _)| *number < below);
    let left = left.map(|(_, name)| name.clone());
    for name in commits.chain(old).chain(left) {
        match directory.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreFault::io(&name, error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// The lowest commit whose file is kept: the end of the segment before the newest. Segments that
/// follow each other from the first count; any other file of such a name does not.
fn kept_from(listing: &StoreListing, too_high: bool) -> Option<u64> {
    let mut ends = Vec::new();
    for (first, last) in &listing.segments {
        if *first == ends.last().map_or(1, |end| end + 1) {
            ends.push(*last);
        }
    }
    let before = ends.len().checked_sub(2)?;
    match too_high {
        true => ends.last().map(|last| last + 1),
        false => ends.get(before).copied(),
    }
}
