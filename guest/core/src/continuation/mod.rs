//! Stand-in: replaced by the module of branch `tail`.
use crate::estimate::estimate_tokens;
use crate::history::{Event, ProviderRole, provider_messages_of};

/// An entry of the live window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowEntry {
    /// Id of its thread.
    pub thread: String,
    /// Its version.
    pub version: u64,
    /// SHA-256 of the entry; empty while it is not written.
    pub hash: String,
    /// Its messages.
    pub texts: Vec<String>,
}

/// The entries that a provider is sent, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LiveWindow {
    /// The entries.
    pub entries: Vec<WindowEntry>,
}

impl LiveWindow {
    /// Adds the entry that a change makes.
    pub fn with_entry(&self, thread: &str, version: u64, events: &[Event]) -> Self {
        let mut with = self.clone();
        with.entries.push(WindowEntry {
            thread: thread.to_owned(),
            version,
            hash: String::new(),
            texts: provider_messages_of(version, events),
        });
        with
    }
}

impl WindowEntry {
    fn tokens(&self) -> u64 {
        self.texts.iter().map(|text| estimate_tokens(text)).sum()
    }
    fn role(text: &str) -> ProviderRole {
        match text {
            text if text.starts_with(r#"{"role":"user""#) => ProviderRole::User,
            text if text.starts_with(r#"{"role":"tool""#) => ProviderRole::Tool,
            _ => ProviderRole::Assistant,
        }
    }
}

/// Bounds of the messages that a hand-off carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailingBounds {
    /// Tokens of the next request beside them.
    pub fixed: u64,
    /// Tokens of the summary.
    pub summary: u64,
    /// Most tokens of the next request.
    pub target: u64,
    /// Most tokens of summary and trailing messages.
    pub ceiling: u64,
}

/// What a hand-off carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrailingSelection {
    /// All: there is nothing to leave out.
    Whole,
    /// Not even the least that must be carried fits.
    TooLarge {
        /// Tokens of the request with the least.
        tokens: u64,
    },
    /// A part.
    Part(TrailingMessages),
}

/// The messages that a hand-off carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrailingMessages {
    /// Ranges of entries: thread, first and last version, hash of the last.
    pub ranges: Vec<(String, u64, u64, String)>,
    /// Their texts, in order.
    pub texts: Vec<String>,
    /// Messages of the assistant among them.
    pub turns: u64,
}

/// Selects the trailing messages.
pub fn select_trailing(window: &LiveWindow, bounds: TrailingBounds) -> TrailingSelection {
    let entries = &window.entries;
    let starts: Vec<usize> = (0..entries.len())
        .filter(|at| match entries[*at].texts.first() {
            None => false,
            Some(text) => WindowEntry::role(text) != ProviderRole::Tool,
        })
        .collect();
    let tokens_from =
        |at: usize| -> u64 { entries[at..].iter().map(WindowEntry::tokens).sum::<u64>() };
    let room = bounds
        .target
        .saturating_sub(bounds.fixed + bounds.summary)
        .min(bounds.ceiling.saturating_sub(bounds.summary));
    let is_user = |at: usize| {
        let mut texts = entries[at].texts.iter();
        texts.any(|text| WindowEntry::role(text) == ProviderRole::User)
    };
    let last_user = (0..entries.len()).rev().find(|at| is_user(*at));
    let user_start = last_user.and_then(|at| starts.iter().rev().find(|start| **start <= at));
    let Some(first) = starts.first() else {
        return TrailingSelection::Whole;
    };
    for start in starts.iter() {
        let mut tokens = tokens_from(*start);
        let mut group = None;
        if let Some(user) = user_start.filter(|user| *user < start) {
            let end = starts.iter().find(|end| *end > user).unwrap();
            tokens += tokens_from(*user) - tokens_from(*end);
            group = Some((*user, *end));
        }
        let last = Some(start) == starts.last();
        let least = bounds.target.saturating_sub(bounds.fixed + bounds.summary);
        if tokens > room && !(last && tokens <= least) {
            if last {
                return TrailingSelection::TooLarge {
                    tokens: tokens + bounds.fixed + bounds.summary,
                };
            }
            continue;
        }
        if start == first {
            return TrailingSelection::Whole;
        }
        let mut kept: Vec<usize> = group.map_or(Vec::new(), |(from, to)| (from..to).collect());
        kept.extend(*start..entries.len());
        return TrailingSelection::Part(collect(window, &kept));
    }
    TrailingSelection::Whole
}

fn collect(window: &LiveWindow, kept: &[usize]) -> TrailingMessages {
    let mut trailing = TrailingMessages::default();
    let mut before = None;
    for at in kept {
        let entry = &window.entries[*at];
        match trailing.ranges.last_mut() {
            Some((thread, _, to, hash))
                if before == Some(at - 1) && *thread == entry.thread && *to + 1 == entry.version =>
            {
                (*to, *hash) = (entry.version, entry.hash.clone());
            }
            _ => trailing.ranges.push((
                entry.thread.clone(),
                entry.version,
                entry.version,
                entry.hash.clone(),
            )),
        }
        before = Some(*at);
        trailing.texts.extend(entry.texts.iter().cloned());
        trailing.turns += entry
            .texts
            .iter()
            .filter(|text| WindowEntry::role(text) == ProviderRole::Assistant)
            .count() as u64;
    }
    trailing
}

/// The request for a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryRequest {
    /// System prompt.
    pub system: String,
    /// Messages as JSON texts.
    pub messages: Vec<String>,
    /// Estimated tokens.
    pub tokens: u64,
}

/// Makes the request for a summary.
pub fn summary_request(
    window: &LiveWindow,
    summary: &crate::settings::PinnedSummary,
) -> SummaryRequest {
    let texts: Vec<&str> = window
        .entries
        .iter()
        .flat_map(|entry| entry.texts.iter().map(String::as_str))
        .collect();
    let transcript = texts.join("\n");
    let message = provider_messages_of(
        0,
        &[Event::Message(crate::history::Message::text(
            crate::history::MessageRole::User,
            summary.render(&transcript),
        ))],
    )
    .remove(0);
    SummaryRequest {
        system: String::new(),
        tokens: estimate_tokens(&message),
        messages: vec![message],
    }
}

/// Text of the message that opens a handed-off link.
pub fn handoff_context(summary: Option<&str>, problem: Option<&str>) -> String {
    match (summary, problem) {
        (Some(summary), _) => format!("## Thread Handoff Context\n\n{summary}"),
        (None, Some(problem)) => {
            format!("## Thread Handoff Context\n\nEarlier messages were left out: {problem}")
        }
        (None, None) => "## Thread Handoff Context\n\nEarlier messages were left out".to_owned(),
    }
}

/// The assistant's answer to it.
pub const HANDOFF_ANSWER: &str = "Understood. Continuing.";
/// The message with which a directive goes on.
pub const CONTINUE_MESSAGE: &str =
    "Continue executing the directive. Pick up where the previous thread left off.";
