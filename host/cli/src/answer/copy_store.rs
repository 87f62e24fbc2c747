//! `copy`: a store that was moved to the other kind.

use super::{CommandAnswer, count_noun};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use serde::Serialize;

/// The answer of `copy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CopyAnswer {
    /// The kind of the store that was replaced.
    pub from: String,
    /// The kind of the store that counts now.
    pub to: String,
    /// Threads in it, all of them audited.
    pub threads: u64,
    /// Records that were copied.
    pub records: u64,
    /// Log entries that were copied.
    pub entries: u64,
    /// Bytes of their names and values.
    pub bytes: u64,
    /// The place of the store that was replaced, from the project's directory.
    pub replaced: String,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for CopyAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let Self {
            from,
            to,
            records,
            entries,
            bytes,
            replaced,
            ..
        } = self;
        let threads = count_noun(self.threads, "thread");
        screen.print_line(&format!(
            "{threads} moved from {from} to {to}: {records} records, {entries} entries, {bytes} \
             bytes, audited and compared"
        ));
        screen.print_line(&format!(
            "the {from} store is put away in {replaced}; remove it when you need it no more"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    #[test]
    fn a_moved_store_is_told_with_the_place_of_the_old_one() {
        let (mut screen, out, _) = screen(false, false);
        let answer = CopyAnswer {
            from: "sqlite".to_owned(),
            to: "files".to_owned(),
            threads: 1,
            records: 9,
            entries: 4,
            bytes: 1_234,
            replaced: ".ai/threads/replaced.d/1".to_owned(),
            exit: CommandExit::Done,
        };
        answer.print(&mut screen);
        let expected = "1 thread moved from sqlite to files: 9 records, 4 entries, 1234 bytes, \
                        audited and compared\nthe sqlite store is put away in \
                        .ai/threads/replaced.d/1; remove it when you need it no more\n";
        assert_eq!(out.text(), expected);
    }
}
