//! `top`: the threads of a project as a live tree on a terminal.
//!
//! The screen shows what `list` shows, again and again: it holds no thread and writes nothing. Text
//! of threads passes [`printable`] before it reaches the terminal.

use super::session::CommandSession;
use crossterm_events::{Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::crossterm::event as crossterm_events;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table, TableState};
use std::time::{Duration, Instant};
use threadkeep_cli::answer::{ThreadRow, count_noun, order_as_tree};
use threadkeep_cli::args::TopArgs;
use threadkeep_cli::command::{fault, thread_names, view};
use threadkeep_cli::contract::ThreadFilter;
use threadkeep_cli::exit::{CommandExit, CommandFault};
use threadkeep_cli::screen::OutputScreen;
use threadkeep_cli::threads::ProjectThreads;
use threadkeep_cli::{money, printable, time_format};

/// Most threads that are shown: one page of the component, and more than any terminal has rows.
const ROWS_MAX: u32 = 100;

/// Rows that a page of the screen jumps over.
const PAGE_ROWS: u16 = 10;

/// Longest wait for a key, so that the screen is drawn anew when its size changes.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// Shows threads until a key ends it.
pub async fn top(
    session: &CommandSession,
    mut asked: TopArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let properties = screen.properties();
    if properties.json || !properties.in_terminal || !properties.out_terminal {
        let message = "top is for a terminal, with keys and a screen";
        return Err(CommandFault::usage(message)
            .with_hint("`threadkeep list` and `threadkeep tree` print the same"));
    }
    let mut opened = session.open_to_read(screen)?;
    if let Some(thread) = &mut asked.thread {
        thread_names::resolve(&opened, thread).await?;
    }
    let mut view = TopView {
        has_colors: session
            .environment()
            .get("NO_COLOR")
            .is_none_or(str::is_empty),
        ..TopView::default()
    };
    view.reload(&opened, asked.thread.as_deref(), screen)
        .await?;
    let failed = |error: std::io::Error| {
        CommandFault::new("terminal", format!("the terminal cannot be used: {error}"))
    };
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let done = loop {
        if let Err(error) = terminal.draw(|frame| view.draw(frame)) {
            break Err(failed(error));
        }
        match read_key(asked.every.saturating_sub(view.loaded.elapsed())) {
            Err(error) => break Err(failed(error)),
            Ok(Some(key)) if !view.take_key(key) => break Ok(CommandExit::Done),
            Ok(_) => {}
        }
        if view.loaded.elapsed() < asked.every {
            continue;
        }
        // The first thread of a project makes its store.
        if opened.is_empty() && !opened.is_memory_only() {
            match session.open_to_read(screen) {
                Ok(found) => opened = found,
                Err(fault) => break Err(fault),
            }
        }
        if let Err(fault) = view.reload(&opened, asked.thread.as_deref(), screen).await {
            break Err(fault);
        }
    };
    ratatui::restore();
    done
}

/// A key that does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TopKey {
    Quit,
    /// So many rows up or down.
    Move(i32),
}

/// Returns the next key that does something, if one comes in time.
fn read_key(time: Duration) -> std::io::Result<Option<TopKey>> {
    if !crossterm_events::poll(time.min(KEY_WAIT))? {
        return Ok(None);
    }
    let Event::Key(key) = crossterm_events::read()? else {
        return Ok(None);
    };
    if key.kind == KeyEventKind::Release {
        return Ok(None);
    }
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(TopKey::Quit),
        KeyCode::Char('c' | 'd') if control => Some(TopKey::Quit),
        KeyCode::Down | KeyCode::Char('j') => Some(TopKey::Move(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(TopKey::Move(-1)),
        KeyCode::PageDown | KeyCode::Char(' ') => Some(TopKey::Move(i32::from(PAGE_ROWS))),
        KeyCode::PageUp => Some(TopKey::Move(-i32::from(PAGE_ROWS))),
        KeyCode::Home => Some(TopKey::Move(i32::MIN)),
        KeyCode::End => Some(TopKey::Move(i32::MAX)),
        _ => None,
    })
}

/// The threads that are shown, and the row that is marked.
struct TopView {
    rows: Vec<(usize, ThreadRow)>,
    marked: TableState,
    loaded: Instant,
    has_colors: bool,
}

impl Default for TopView {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            marked: TableState::default(),
            loaded: Instant::now(),
            has_colors: false,
        }
    }
}

impl TopView {
    /// Reads the threads anew: the newest, or those of a tree.
    async fn reload(
        &mut self,
        opened: &impl ProjectThreads,
        thread: Option<&str>,
        screen: &OutputScreen,
    ) -> Result<(), CommandFault> {
        self.rows = match thread {
            None => load_newest(opened).await?,
            Some(thread) => load_tree(opened, thread).await?,
        };
        self.loaded = Instant::now();
        for (_, row) in &mut self.rows {
            row.updated = time_format::format_relative(&row.updated, screen.now());
        }
        let last = self.rows.len().saturating_sub(1);
        let marked = self.marked.selected().unwrap_or_default().min(last);
        self.marked
            .select((!self.rows.is_empty()).then_some(marked));
        Ok(())
    }

    /// Does what a key says; false if it is the end.
    fn take_key(&mut self, key: TopKey) -> bool {
        let TopKey::Move(rows) = key else {
            return false;
        };
        let last = i64::try_from(self.rows.len())
            .unwrap_or(i64::MAX)
            .saturating_sub(1);
        let marked = self.marked.selected().unwrap_or_default();
        let marked = i64::try_from(marked)
            .unwrap_or_default()
            .saturating_add(i64::from(rows));
        let marked = usize::try_from(marked.clamp(0, last.max(0))).unwrap_or_default();
        self.marked
            .select((!self.rows.is_empty()).then_some(marked));
        true
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let places = [
            Constraint::Length(1),
            Constraint::Fill(1),
            Constraint::Length(1),
        ];
        let [head, body, foot] = Layout::vertical(places).areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        frame.render_widget(Line::styled(self.describe(), bold), head);
        let header = [
            "THREAD", "STATUS", "TURNS", "TOKENS", "USD", "UPDATED", "TITLE",
        ];
        let header = Row::new(header).style(bold);
        let rows = self
            .rows
            .iter()
            .map(|(level, row)| self.render_row(*level, row));
        let widths = [
            Constraint::Fill(3),
            Constraint::Length(12),
            Constraint::Length(5),
            Constraint::Length(8),
            Constraint::Length(10),
            Constraint::Length(14),
            Constraint::Fill(2),
        ];
        let marked = Style::new().add_modifier(Modifier::REVERSED);
        let table = Table::new(rows.collect::<Vec<_>>(), widths).header(header);
        let table = table.row_highlight_style(marked);
        frame.render_stateful_widget(table, body, &mut self.marked);
        frame.render_widget(Line::from("q ends it, arrows and pages move"), foot);
    }

    /// The sums of what is shown.
    fn describe(&self) -> String {
        let count = |status: &str| {
            let rows = self.rows.iter().filter(|(_, row)| row.status == status);
            rows.count()
        };
        let spend = self
            .rows
            .iter()
            .fold(0_u64, |sum, (_, row)| sum.saturating_add(row.cost.spend));
        format!(
            "{}: {} running, {} waiting, {} suspended; {}",
            count_noun(self.rows.len() as u64, "thread"),
            count("running"),
            count("waiting"),
            count("suspended"),
            money::format_usd(spend)
        )
    }

    fn render_row(&self, level: usize, row: &ThreadRow) -> Row<'static> {
        let tokens = row.cost.input_tokens.saturating_add(row.cost.output_tokens);
        let color = match row.status.as_str() {
            _ if !self.has_colors => None,
            "running" => Some(Color::Green),
            "waiting" => Some(Color::Cyan),
            "suspended" => Some(Color::Yellow),
            "error" | "killed" | "cancelled" => Some(Color::Red),
            _ => None,
        };
        let status = color.map_or_else(Style::new, |color| Style::new().fg(color));
        let text = |text: &str| printable::line(text).into_owned();
        Row::new([
            Cell::from(format!("{:1$}{2}", "", 2 * level, text(&row.thread_id))),
            Cell::from(Span::styled(text(&row.status), status)),
            Cell::from(row.cost.turns.to_string()),
            Cell::from(tokens.to_string()),
            Cell::from(money::format_decimal(row.cost.spend)),
            Cell::from(text(&row.updated)),
            Cell::from(text(row.title.as_deref().unwrap_or_default())),
        ])
    }
}

/// Loads the newest threads, each child below its parent.
async fn load_newest(
    opened: &impl ProjectThreads,
) -> Result<Vec<(usize, ThreadRow)>, CommandFault> {
    let page = opened.list(ThreadFilter::All, ROWS_MAX, None).await;
    let page = page.map_err(|error| fault::from_call(&error))?;
    let rows: Vec<ThreadRow> = page.threads.iter().map(view::thread_row).collect();
    let ordered = order_as_tree(&rows).into_iter();
    Ok(ordered
        .map(|(level, place)| (level, rows[place].clone()))
        .collect())
}

/// Loads a thread and those that it spawned, in their order.
async fn load_tree(
    opened: &impl ProjectThreads,
    thread: &str,
) -> Result<Vec<(usize, ThreadRow)>, CommandFault> {
    let (mut rows, mut cursor) = (Vec::new(), None);
    loop {
        let page = opened.tree(thread, cursor).await;
        let page = page.map_err(|error| fault::from_thread_call(opened, thread, &error))?;
        for branch in page.branches {
            // A record that can no longer be read was read a moment ago: the next look says so.
            if let Ok(found) = opened.get(&branch.thread).await {
                let level = usize::try_from(branch.depth).unwrap_or_default();
                rows.push((level, view::row_of_thread(&found)));
            }
        }
        cursor = page.cursor;
        if cursor.is_none() || rows.len() >= ROWS_MAX as usize {
            return Ok(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn row(id: &str, status: &str) -> ThreadRow {
        let mut row = view::row_of_thread(&threadkeep_cli::contract::Thread::default());
        (row.thread_id, row.status) = (id.to_owned(), status.to_owned());
        row
    }

    fn drawn(view: &mut TopView) -> String {
        let mut terminal = Terminal::new(TestBackend::new(80, 8)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_screen_has_the_tree_and_its_sums() {
        let mut view = TopView {
            rows: vec![
                (0, row("family", "waiting")),
                (1, row("part\u{1b}[2J", "running")),
            ],
            ..TopView::default()
        };
        view.rows[1].1.cost.spend = 1_500_000_000;
        let shown = drawn(&mut view);
        for text in [
            "2 threads: 1 running, 1 waiting, 0 suspended; 1.50 USD",
            "THREAD",
            "family",
            "  part\\u{1b}[2J",
            "q ends it",
        ] {
            assert!(shown.contains(text), "{text}:\n{shown}");
        }
    }

    #[test]
    fn keys_move_within_the_rows() {
        let mut view = TopView {
            rows: (0..30)
                .map(|n| (0, row(&format!("t{n}"), "idle")))
                .collect(),
            ..TopView::default()
        };
        for (key, expected) in [
            (TopKey::Move(-1), 0),
            (TopKey::Move(1), 1),
            (TopKey::Move(10), 11),
            (TopKey::Move(i32::MAX), 29),
            (TopKey::Move(1), 29),
            (TopKey::Move(i32::MIN), 0),
        ] {
            assert!(view.take_key(key));
            assert_eq!(view.marked.selected(), Some(expected), "{key:?}");
        }
        view.take_key(TopKey::Move(i32::MAX));
        assert!(drawn(&mut view).contains("t29"));
        view.rows.clear();
        assert!(view.take_key(TopKey::Move(1)));
        assert_eq!(view.marked.selected(), None);
        assert!(!view.take_key(TopKey::Quit));
    }
}
