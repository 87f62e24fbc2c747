//! `usage`: money and tokens by day, model, directive and agent, from the entries of histories.
//!
//! Threads are walked a page at a time, and of each thread only a page of entries is in memory.
//! Pages are not one snapshot: a thread whose run begins or ends meanwhile may be left out.

mod entry_costs;

use self::entry_costs::{CostReader, EntryCost};
use super::{fault, note_if_empty, view};
use crate::answer::{UsageAnswer, UsageRow};
use crate::args::{self, UsageKey};
use crate::contract::{CallError, ListedThread, ThreadFilter};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CallResult, CommandHost, PAGE_THREADS_MAX, ProjectThreads};
use std::collections::BTreeMap;
use threadkeep_units::time::rfc3339_seconds;

/// Most rows of an answer: each group is in memory until the last thread was read. A year by day,
/// model and agent has room.
const GROUPS_MAX: usize = 20_000;

/// Most threads that are named because they cannot be read; the others are counted.
const UNREADABLE_NAMED_MAX: usize = 20;

/// Characters of a time of RFC 3339 that are its day.
const DAY_CHARS: usize = "2026-03-10".len();

/// Adds up what threads have used.
pub async fn usage(
    host: &impl CommandHost,
    asked: args::UsageArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    let mut sums = UsageSums::new(&opened, &asked);
    let filter = match (&asked.agent, &asked.directive) {
        (Some(agent), _) => ThreadFilter::Agent(agent.clone()),
        (None, Some(directive)) => ThreadFilter::Directive(directive.clone()),
        (None, None) => ThreadFilter::All,
    };
    let mut next = Some(None);
    while let Some(cursor) = next {
        let page = opened.list(filter.clone(), PAGE_THREADS_MAX, cursor).await;
        let page = page.map_err(|error| fault::from_call(&error))?;
        for thread in &page.threads {
            sums.add_thread(&opened, thread).await?;
        }
        for thread in page.unreadable {
            sums.add_unreadable(view::unreadable(thread).thread_id);
        }
        next = page.cursor.map(Some);
    }
    note_if_empty(&opened, screen);
    Ok(screen.print_answer(&sums.into_answer()))
}

/// The sums of usage, by the properties that are asked for.
struct UsageSums<'a> {
    asked: &'a args::UsageArgs,
    /// The properties, each once.
    keys: Vec<UsageKey>,
    /// The earliest time that counts, in seconds since 1970.
    since: i64,
    groups: BTreeMap<Vec<Option<String>>, UsageRow>,
    total: UsageRow,
    threads: u64,
    unreadable: Vec<String>,
    unreadable_left_out: u64,
}

impl<'a> UsageSums<'a> {
    fn new(opened: &impl ProjectThreads, asked: &'a args::UsageArgs) -> Self {
        let mut keys: Vec<UsageKey> = Vec::new();
        for key in &asked.by {
            if !keys.contains(key) {
                keys.push(*key);
            }
        }
        let now = opened.now().seconds;
        Self {
            asked,
            keys,
            since: asked.since.map_or(i64::MIN, |since| since.second_at(now)),
            groups: BTreeMap::new(),
            total: UsageRow::default(),
            threads: 0,
            unreadable: Vec::new(),
            unreadable_left_out: 0,
        }
    }

    /// Adds what a thread has used, of its own entries alone: those that it rests on are another's.
    async fn add_thread(
        &mut self,
        opened: &impl ProjectThreads,
        thread: &ListedThread,
    ) -> Result<(), CommandFault> {
        let is =
            |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let is_meant =
            is(&self.asked.directive, &thread.directive) && is(&self.asked.agent, &thread.agent);
        // An entry is a commit, so what has not changed since has no later one.
        if !is_meant || thread.updated.seconds < self.since || thread.version == 0 {
            return Ok(());
        }
        match read_costs(opened, &thread.id).await {
            Ok(costs) => self.add_costs(thread, costs),
            Err(CallError::Refused(_)) => {
                self.add_unreadable(thread.id.clone());
                Ok(())
            }
            Err(error) => Err(fault::from_call(&error)),
        }
    }

    fn add_costs(
        &mut self,
        thread: &ListedThread,
        costs: Vec<EntryCost>,
    ) -> Result<(), CommandFault> {
        let mut counts = false;
        for cost in costs.iter().filter(|cost| cost.seconds >= self.since) {
            counts = true;
            let of = |key: &UsageKey| match key {
                UsageKey::Day => Some(rfc3339_seconds(cost.seconds)[..DAY_CHARS].to_owned()),
                UsageKey::Model => cost.model.clone(),
                UsageKey::Directive => thread.directive.clone(),
                UsageKey::Agent => thread.agent.clone(),
            };
            let group: Vec<Option<String>> = self.keys.iter().map(of).collect();
            if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
                let message = format!("these properties make more than {GROUPS_MAX} sums");
                return Err(CommandFault::new("too-large", message)
                    .with_hint("name fewer properties with --by, or a later time with --since"));
            }
            self.groups.entry(group).or_default().add_cost(cost);
            self.total.add_cost(cost);
        }
        self.threads += u64::from(counts);
        Ok(())
    }

    fn add_unreadable(&mut self, thread: String) {
        match self.unreadable.len() < UNREADABLE_NAMED_MAX {
            true => self.unreadable.push(thread),
            false => self.unreadable_left_out += 1,
        }
    }

    /// Returns the sums: by day the earliest first, else the largest first.
    fn into_answer(self) -> UsageAnswer {
        let keys = self.keys;
        let rows = self.groups.into_iter().map(|(group, mut row)| {
            for (key, value) in keys.iter().zip(group) {
                *row.property(*key) = value;
            }
            row
        });
        let mut rows: Vec<UsageRow> = rows.collect();
        if keys.first() != Some(&UsageKey::Day) {
            rows.sort_by_key(|row| std::cmp::Reverse(row.spend));
        }
        UsageAnswer {
            by: keys,
            usage: rows,
            total: self.total,
            threads: self.threads,
            unreadable: self.unreadable,
            unreadable_left_out: self.unreadable_left_out,
            exit: CommandExit::Done,
        }
    }
}

impl UsageRow {
    fn add_cost(&mut self, cost: &EntryCost) {
        let tokens = &cost.tokens;
        let input = tokens
            .input
            .saturating_add(tokens.read)
            .saturating_add(tokens.write);
        self.turns = self.turns.saturating_add(u64::from(cost.is_turn));
        self.input_tokens = self.input_tokens.saturating_add(input);
        self.output_tokens = self.output_tokens.saturating_add(tokens.output);
        self.spend = self.spend.saturating_add(cost.spend);
    }
}

/// Reads the costs that a thread's own entries record.
async fn read_costs(opened: &impl ProjectThreads, thread: &str) -> CallResult<Vec<EntryCost>> {
    let (mut reader, mut position) = (CostReader::default(), 1);
    loop {
        let page = opened.own_entries(thread, position).await?;
        if page.is_empty() {
            return Ok(reader.into_costs());
        }
        position += page.len() as u64;
        for body in &page {
            reader.read_entry(body);
        }
    }
}
