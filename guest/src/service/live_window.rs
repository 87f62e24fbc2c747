//! Stand-in: replaced by the one of branch `tail`.

use super::history::thread_path;
use super::{Error, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::continuation::{LiveWindow, WindowEntry};
use threadkeep_core::history::{Entry, provider_messages};
use threadkeep_core::plan::LoadedThread;

impl<P: HostPorts> ThreadService<P> {
    /// Loads what a provider is sent up to a version.
    pub fn load_window(&self, loaded: &LoadedThread, until: u64) -> Result<LiveWindow, Error> {
        let path = thread_path(loaded).until(until);
        let mut window = LiveWindow::default();
        for range in path.ranges {
            let mut from = range.from;
            while from <= range.to {
                for (version, text) in self.range_entries(loaded, range, from, 100, false)? {
                    window.entries.push(WindowEntry {
                        thread: range.thread.to_owned(),
                        version,
                        hash: Entry::hash_of(&text),
                        texts: provider_messages(&Entry::from_text(&text)?),
                    });
                    from = version + 1;
                }
            }
        }
        Ok(window)
    }
}
