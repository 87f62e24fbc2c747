//! The cache of `usage`: for each thread the mark of its head, its owner, and what it has used.
//!
//! Sums count while the head of their thread has the same mark, so a restored backup, a copy, a
//! correction and a thread that is gone make what does not fit anymore be read anew. A history that
//! was changed behind an unchanged head is found by `audit`, as it is without the cache.
//!
//! Each line is an array; threads are in the order of their ids in lower case, as their heads are.

use super::day_sums::DaySum;
use crate::threads::HeadMark;
use serde::Deserialize;
use serde_json::json;

/// Most sums that are kept of one thread: a year with a few models. One with more is read each
/// time.
const SUMS_MAX: usize = 1_000;

/// A thread of the cache. Its line has the fields in their order.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct KnownThread {
    /// The id in lower case.
    pub(super) thread: String,
    /// The mark of the head that these are the sums of.
    pub(super) digest: [u64; 2],
    pub(super) directive: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) sums: Vec<DaySum>,
}

/// The threads that a cache knows, looked up in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct SumsCache {
    known: Vec<KnownThread>,
    /// The place of the next one that is looked at.
    next: usize,
    /// Places of those whose head is gone or another one.
    dropped: Vec<usize>,
    /// Those that were read since.
    added: Vec<KnownThread>,
}

impl SumsCache {
    /// Reads the lines of a cache. What is no line of one is left out.
    pub(super) fn parse(lines: &[u8]) -> Self {
        let parsed = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let parsed = parsed.filter_map(|line| serde_json::from_slice(line).ok());
        let mut known: Vec<KnownThread> = parsed.collect();
        // A look-up goes forward only.
        known.sort_by(|one, other| one.thread.cmp(&other.thread));
        Self {
            known,
            ..Self::default()
        }
    }

    /// Returns what is known of a thread, which comes after all that were asked for before, if its
    /// head has the same mark.
    pub(super) fn find(&mut self, mark: &HeadMark) -> Option<&KnownThread> {
        loop {
            let place = self.next;
            let known = self.known.get(place)?;
            if known.thread > mark.thread {
                return None;
            }
            self.next += 1;
            if known.thread == mark.thread && Some(known.digest) == mark.digest {
                return self.known.get(place);
            }
            self.dropped.push(place);
        }
    }

    /// Keeps what was read anew.
    pub(super) fn add(&mut self, read: KnownThread) {
        if read.sums.len() <= SUMS_MAX {
            self.added.push(read);
        }
    }

    /// Returns the lines of a new cache; `None` if they are the same as before.
    pub(super) fn into_changed_lines(mut self) -> Option<Vec<u8>> {
        self.dropped.extend(self.next..self.known.len());
        if self.dropped.is_empty() && self.added.is_empty() {
            return None;
        }
        let mut dropped = self.dropped.into_iter().peekable();
        let known = self.known.into_iter().enumerate();
        let kept = known.filter(|(place, _)| dropped.next_if_eq(place).is_none());
        let mut threads: Vec<KnownThread> = kept.map(|(_, known)| known).collect();
        threads.extend(self.added);
        threads.sort_by(|one, other| one.thread.cmp(&other.thread));
        Some(render_lines(&threads))
    }
}

fn render_lines(threads: &[KnownThread]) -> Vec<u8> {
    let mut lines = Vec::new();
    for known in threads {
        let sums = known.sums.iter().map(|sum| {
            json!([
                sum.model, sum.first, sum.last, sum.turns, sum.input, sum.output, sum.spend
            ])
        });
        let line = json!([
            known.thread,
            known.digest,
            known.directive,
            known.agent,
            sums.collect::<Vec<_>>()
        ]);
        lines.extend_from_slice(line.to_string().as_bytes());
        lines.push(b'\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_known(thread: &str, digest: u64) -> KnownThread {
        KnownThread {
            thread: thread.to_owned(),
            digest: [digest, u64::MAX],
            directive: Some("say \"hi\"\n\u{e9}".to_owned()),
            agent: None,
            sums: vec![
                DaySum {
                    model: Some("tiny".to_owned()),
                    first: i64::MIN,
                    last: -1,
                    turns: 1,
                    input: 2,
                    output: 3,
                    spend: u64::MAX,
                },
                DaySum {
                    model: None,
                    first: 5,
                    last: i64::MAX,
                    turns: 0,
                    input: 0,
                    output: 0,
                    spend: 0,
                },
            ],
        }
    }

    fn mark(thread: &str, digest: u64) -> HeadMark {
        HeadMark {
            thread: thread.to_owned(),
            digest: Some([digest, u64::MAX]),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let threads = [make_known("a", 1), make_known("b", 2)];
        let mut cache = SumsCache::parse(&render_lines(&threads));
        for (place, thread) in ["a", "b"].into_iter().enumerate() {
            let found = cache.find(&mark(thread, place as u64 + 1));
            assert_eq!(found, Some(&threads[place]));
        }
        assert_eq!(cache.into_changed_lines(), None);
    }

    #[test]
    fn only_the_same_head_is_known() {
        let lines = render_lines(&[
            make_known("a", 1),
            make_known("b", 2),
            make_known("d", 4),
            make_known("e", 5),
        ]);
        let mut cache = SumsCache::parse(&lines);
        let unreadable = HeadMark {
            digest: None,
            ..mark("d", 4)
        };
        for (asked, is_known) in [
            (mark("a", 9), false),
            (mark("b", 2), true),
            (mark("c", 2), false),
            (unreadable, false),
        ] {
            assert_eq!(cache.find(&asked).is_some(), is_known, "{asked:?}");
        }
        cache.add(make_known("a", 9));
        let lines = cache.into_changed_lines().expect("e is gone");
        let expected = [make_known("a", 9), make_known("b", 2)];
        assert_eq!(lines, render_lines(&expected));
    }

    #[test]
    fn what_is_no_line_of_a_cache_is_left_out() {
        let mut lines =
            b"\n[]\nnull\n{\"thread\":\"a\"}\n[\"a\",[1],null,null,[]]\n\xff\n".to_vec();
        lines.extend(render_lines(&[make_known("b", 2), make_known("a", 1)]));
        lines.extend(br#"["c",[1,-1],null,null,[]]"#);
        let mut cache = SumsCache::parse(&lines);
        for (thread, digest) in [("a", 1), ("b", 2)] {
            assert!(cache.find(&mark(thread, digest)).is_some(), "{thread}");
        }
        assert!(cache.find(&mark("c", 1)).is_none());
    }

    #[test]
    fn a_thread_of_too_many_sums_is_read_each_time() {
        let mut long = make_known("a", 1);
        long.sums = vec![long.sums[0].clone(); SUMS_MAX + 1];
        let mut cache = SumsCache::parse(&[]);
        cache.add(long);
        assert_eq!(cache.into_changed_lines(), None);
    }
}
