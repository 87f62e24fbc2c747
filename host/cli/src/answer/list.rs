//! The answer of `list`: threads as a table, each child below the thread that spawned it.

use super::{CommandAnswer, ThreadCost, ThreadNeeds, UnreadableRow};
use crate::exit::CommandExit;
use crate::screen::OutputScreen;
use crate::table::{ColumnAlignment, TextTable};
use crate::{money, time_format};
use serde::Serialize;
use std::collections::BTreeMap;

/// One line of `list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the fields are those of `ThreadView`")]
pub struct ThreadRow {
    pub thread_id: String,
    pub directive: Option<String>,
    pub status: String,
    /// The code of the cause of the status.
    pub code: Option<String>,
    pub outcome: Option<String>,
    pub waits_for: ThreadNeeds,
    pub title: Option<String>,
    pub agent: Option<String>,
    pub task: Option<String>,
    pub parent: Option<String>,
    pub model: String,
    pub cost: ThreadCost,
    pub context: u64,
    pub window: Option<u64>,
    pub version: u64,
    pub created: String,
    pub updated: String,
}

impl ThreadRow {
    /// Returns the status with the code of its cause, where that says more than the status does.
    fn describe_status(&self) -> String {
        match self.code.as_deref() {
            Some(code) if code != self.status => format!("{} ({code})", self.status),
            _ => self.status.clone(),
        }
    }
}

/// The answer of `list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListAnswer {
    /// One page.
    pub threads: Vec<ThreadRow>,
    /// Threads of the page whose records cannot be read.
    pub unreadable: Vec<UnreadableRow>,
    /// Passed back as `--cursor`, continues the list.
    pub cursor: Option<String>,
    /// The exit code.
    pub exit: CommandExit,
    /// True to show times in UTC.
    #[serde(skip)]
    pub utc: bool,
}

/// The column of the titles, which are cut where a terminal is narrow.
const TITLE_COLUMN: usize = 6;

impl CommandAnswer for ListAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        for row in &self.unreadable {
            row.warn(screen);
        }
        let Some(last) = self.threads.last() else {
            screen.note("no threads");
            return;
        };
        let (left, right) = (ColumnAlignment::Left, ColumnAlignment::Right);
        let waits = self.threads.iter().any(|row| !row.waits_for.is_none());
        let mut table = TextTable::new(&[left, left, right, right, right, left, left, left]);
        let needs = if waits { "WAITS FOR" } else { "" };
        table.add_row(&[
            "THREAD", "STATUS", "TURNS", "TOKENS", "COST", "UPDATED", "TITLE", needs,
        ]);
        let now = screen.now();
        for (level, place) in order_as_tree(&self.threads) {
            let row = &self.threads[place];
            let tokens = row.cost.input_tokens.saturating_add(row.cost.output_tokens);
            table.add_row(&[
                format!("{:1$}{2}", "", 2 * level, row.thread_id),
                row.describe_status(),
                row.cost.turns.to_string(),
                tokens.to_string(),
                money::format_usd(row.cost.spend),
                time_format::format_shown(&row.updated, now, self.utc),
                row.title.clone().unwrap_or_default(),
                row.waits_for.describe(),
            ]);
        }
        for line in table.lines_within(screen.out_columns(), TITLE_COLUMN) {
            screen.print_line(&line);
        }
        if self.cursor.is_some() {
            screen.note(&format!("more: --after {}", last.thread_id));
        }
    }
}

/// Returns the places of rows with their levels: each row in its order, and directly below it those
/// of its children that are there too, in the order in which they were created. A row whose parent
/// is not there has level 0.
pub fn order_as_tree(rows: &[ThreadRow]) -> Vec<(usize, usize)> {
    let key = |id: &str| id.to_ascii_lowercase();
    let places = rows.iter().map(|row| key(&row.thread_id));
    let places: BTreeMap<String, usize> = places.zip(0..).collect();
    let mut children: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut tops = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let parent = row.parent.as_deref().and_then(|id| places.get(&key(id)));
        match parent {
            Some(parent) if *parent != place => children.entry(*parent).or_default().push(place),
            _ => tops.push(place),
        }
    }
    for below in children.values_mut() {
        // Newest first as they are listed, so of two that were created together the later comes
        // first.
        below.reverse();
        below.sort_by(|a, b| rows[*a].created.cmp(&rows[*b].created));
    }
    let mut ordered = Vec::with_capacity(rows.len());
    // Parents that were forged may lead in a circle: such rows are under no top and come last.
    let mut left: Vec<bool> = vec![true; rows.len()];
    for top in tops.into_iter().chain(0..rows.len()) {
        let mut next = vec![(0, top)];
        while let Some((level, place)) = next.pop() {
            if !std::mem::take(&mut left[place]) {
                continue;
            }
            ordered.push((level, place));
            let below = children.get(&place).into_iter().flatten().rev();
            next.extend(below.map(|child| (level + 1, *child)));
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    fn row(id: &str, title: Option<&str>) -> ThreadRow {
        ThreadRow {
            thread_id: id.to_owned(),
            directive: None,
            status: "completed".to_owned(),
            code: None,
            outcome: Some("completed".to_owned()),
            waits_for: ThreadNeeds::default(),
            title: title.map(str::to_owned),
            agent: None,
            task: None,
            parent: None,
            model: "default".to_owned(),
            cost: ThreadCost {
                turns: 2,
                input_tokens: 250,
                output_tokens: 30,
                spend: 310_000,
            },
            context: 280,
            window: Some(32_000),
            version: 4,
            created: "2026-03-10T11:00:00Z".to_owned(),
            updated: "2026-03-10T11:57:00Z".to_owned(),
        }
    }

    fn answer(threads: Vec<ThreadRow>) -> ListAnswer {
        ListAnswer {
            threads,
            unreadable: Vec::new(),
            cursor: None,
            exit: CommandExit::Done,
            utc: false,
        }
    }

    #[test]
    fn a_list_is_an_aligned_table() {
        let suspended = ThreadRow {
            status: "suspended".to_owned(),
            code: Some("turns_exceeded".to_owned()),
            ..row("longer-2", None)
        };
        let answer = ListAnswer {
            unreadable: vec![UnreadableRow {
                thread_id: "b-1".to_owned(),
                code: "corrupt".to_owned(),
                message: "half".to_owned(),
            }],
            cursor: Some("status\u{1}it's".to_owned()),
            ..answer(vec![row("a-1", Some("漢\x1b[2J")), suspended])
        };
        let (mut person, out, err) = screen(false, true);
        person.print_answer(&answer);
        assert_eq!(
            out.text().lines().collect::<Vec<_>>(),
            [
                "THREAD    STATUS                      TURNS  TOKENS         COST  UPDATED        \
                 TITLE",
                "a-1       completed                       2     280  0.00031 USD  3 minutes ago  \
                 漢\\u{1b}[2J",
                "longer-2  suspended (turns_exceeded)      2     280  0.00031 USD  3 minutes ago",
            ]
        );
        assert_eq!(
            err.text(),
            "warning: b-1 cannot be read: half\nmore: --after longer-2\n"
        );
        let text = serde_json::to_string(&answer).unwrap();
        assert!(text.starts_with(
            r#"{"threads":[{"thread_id":"a-1","directive":null,"status":"completed""#
        ));
        assert!(
            text.ends_with(r#""cursor":"status\u0001it's","exit":0}"#),
            "{text}"
        );
    }

    #[test]
    fn an_empty_list_says_so_beside_the_answer() {
        let (mut person, out, err) = screen(false, false);
        person.print_answer(&answer(Vec::new()));
        assert_eq!(
            (out.text(), err.text()),
            (String::new(), "no threads\n".to_owned())
        );
    }

    #[test]
    fn children_stand_below_their_parents() {
        let child = |id: &str, parent: &str, minute: u32| ThreadRow {
            parent: Some(parent.to_owned()),
            created: format!("2026-03-10T11:{minute:02}:00Z"),
            ..row(id, None)
        };
        let rows = [
            child("part-2", "top", 3),
            child("part-1", "TOP", 2),
            row("other", None),
            row("top", None),
            child("leaf", "part-1", 4),
            child("orphan", "elsewhere", 1),
            // A circle, and a thread that names itself.
            child("a", "b", 1),
            child("b", "a", 1),
            child("self", "self", 1),
        ];
        let ordered = order_as_tree(&rows);
        let shown: Vec<_> = ordered
            .iter()
            .map(|(level, place)| (*level, rows[*place].thread_id.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (0, "other"),
                (0, "top"),
                (1, "part-1"),
                (2, "leaf"),
                (1, "part-2"),
                (0, "orphan"),
                (0, "self"),
                (0, "a"),
                (1, "b"),
            ]
        );
    }

    #[test]
    fn times_may_be_absolute() {
        let (mut person, out, _) = screen(false, true);
        person.print_answer(&ListAnswer {
            utc: true,
            ..answer(vec![row("a", None)])
        });
        assert!(
            out.text().contains("2026-03-10 11:57:00Z"),
            "{}",
            out.text()
        );
    }
}
