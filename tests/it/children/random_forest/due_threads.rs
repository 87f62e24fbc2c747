//! The due threads of a random forest, handled as a driver does.

use super::RandomForest;
use threadkeep_core::thread::ThreadStatus;

impl RandomForest {
    /// Due threads of all trees, in the order of the trees.
    fn due(&self) -> Vec<(String, ThreadStatus, bool)> {
        let mut due = Vec::new();
        for top in &self.tops {
            let mut cursor = None;
            loop {
                let page = self.world.service.ready(100, cursor, Some(top)).unwrap();
                due.extend(page.threads.into_iter().map(|due| {
                    let head = due.loaded.head.value;
                    let sweep = head.sweep.is_some() || head.intent.is_some();
                    (due.loaded.thread.value.id.clone(), head.status, sweep)
                }));
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        due
    }

    pub(super) fn one_due(&mut self, n: u8) {
        let due = self.due();
        if let Some((thread, status, sweep)) = due.get(usize::from(n) % due.len().max(1)).cloned() {
            self.handle_due(&thread, status, sweep);
            self.count("due");
        }
    }

    /// Handles one due thread as a driver does; returns true if anything changed.
    fn handle_due(&mut self, thread: &str, status: ThreadStatus, sweep: bool) -> bool {
        let before = self.load(thread).head.value;
        match status {
            _ if sweep => {
                self.count("sweep when due");
                let mut cursor = None;
                loop {
                    cursor = self
                        .world
                        .service
                        .sweep_page(thread, cursor)
                        .unwrap()
                        .cursor;
                    if cursor.is_none() {
                        break;
                    }
                }
            }
            _ if !self.has_room() => self.count("no room"),
            ThreadStatus::Running => drop(self.claim(thread, 2)),
            ThreadStatus::Waiting => drop(self.claim(thread, 1)),
            _ if status.is_terminal() => {
                self.resume(thread, None);
            }
            _ => drop(self.start(thread, None)),
        }
        self.load(thread).head.value != before
    }

    /// Drives everything that goes on by itself to its end, on a clock that stands still: a wait
    /// that no child answers stays open.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut moved = false;
            while let Some(thread) = self.pick_busy(0) {
                self.answer(&thread, 2, &[]);
                moved = true;
            }
            for (thread, status, sweep) in self.due() {
                moved |= self.handle_due(&thread, status, sweep);
            }
            if !moved {
                return;
            }
        }
        panic!("there is always something to do");
    }
}
