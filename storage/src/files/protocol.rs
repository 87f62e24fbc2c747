//! The rules by which a store keeps its files, shared by all processes of a directory, and the
//! faults that tests plant to see that they are found.

/// When commits are packed. All processes that use a directory must have the same: which commits a
/// segment has follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Number of commits with which a segment is complete.
    pub commits: usize,
    /// Bytes of commits with which it is complete, if that comes first.
    pub bytes: u64,
    /// Least bytes of commits between two snapshots.
    pub snapshot_bytes: u64,
}

impl SegmentLayout {
    /// The layout of every store outside of tests.
    pub const STANDARD: Self = Self {
        commits: 256,
        bytes: 8 << 20,
        snapshot_bytes: 1 << 20,
    };
}

/// A rule of the protocol that is broken on purpose.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedFault {
    /// A commit is acknowledged without the base check.
    CommitWithoutBaseCheck,
    /// A view is believed without the base check.
    ReadWithoutBaseCheck,
    /// A view is believed if the newest commit that was just read is there, not the one before.
    ChecksNewestRead,
    /// The base check looks at the name alone, not at the writer.
    BaseByNameAlone,
    /// Files are deleted highest first.
    DeletesHighestFirst,
    /// The end of the newest segment is deleted, too.
    DeletesNewestEnd,
    /// A commit that lost its number is published as it is.
    RepeatsWithoutConditions,
    /// News of another process is believed before it is durable.
    BelievesBeforeSync,
    /// A commit whose base is gone counts as committed.
    TakesGoneBaseForCommitted,
    /// A commit whose base is gone counts as not committed.
    TakesGoneBaseForLost,
    /// A published commit is acknowledged before its name is durable.
    AcknowledgesBeforeSync,
    /// A file is published before its content is durable.
    PublishesBeforeSync,
}

/// The rules that the parts of a store share.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreProtocol {
    /// True to make files and names durable.
    pub durable: bool,
    pub layout: SegmentLayout,
    pub fault: Option<PlantedFault>,
}

impl StoreProtocol {
    /// True if this fault is planted.
    pub(super) fn has(&self, fault: PlantedFault) -> bool {
        self.fault == Some(fault)
    }

    /// True if names are to be made durable, where a planted fault does not leave that out.
    pub(super) fn syncs_unless(&self, fault: PlantedFault) -> bool {
        self.durable && !self.has(fault)
    }
}
