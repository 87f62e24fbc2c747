//! The path of a thread, as its record tells it.

use crate::wit;

pub use threadkeep_units::thread_path::{LastVersions, PathPart, ThreadPath};

/// Returns the path of a thread.
pub fn path_of(thread: &wit::Thread) -> ThreadPath {
    let base = thread.base.as_ref();
    let parts = base.iter().flat_map(|base| &base.parts);
    let parts = parts.map(|part| PathPart {
        thread: part.thread.clone(),
        first: part.first,
        last: part.last,
    });
    let newest = (thread.id.as_str(), thread.version);
    ThreadPath::new(newest, base.map_or(0, |base| base.length), parts)
}
