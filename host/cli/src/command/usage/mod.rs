//! `usage`: money and tokens by day, model, directive and agent, from the entries of histories.
//!
//! What a thread has used is added up by day and model first, and those sums are kept in a cache
//! with a mark of the thread's head: so only threads whose heads were written since are read. A
//! host that cannot look at its store reads all.
//!
//! Of each thread only a page of entries is in memory. Reads are not one snapshot: a thread whose
//! run begins or ends meanwhile may be left out.

mod day_sums;
mod entry_costs;
mod sums_cache;

use self::day_sums::{DayNames, DaySum, select_since, sum_costs};
use self::entry_costs::{CostReader, EntryCost};
use self::sums_cache::{KnownThread, SumsCache};
use super::{fault, note_if_empty, view};
use crate::answer::{UsageAnswer, UsageRow};
use crate::args::{self, UsageKey};
use crate::contract::{CallError, CallRefusal, ListedThread, RefusalKind, ThreadFilter};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CallResult, CommandHost, HeadMark, PAGE_THREADS_MAX, ProjectThreads};
use std::collections::BTreeMap;

/// Most rows of an answer: each group is in memory until the last thread was read. A year by day,
/// model and agent has room.
const GROUPS_MAX: usize = 20_000;

/// Most threads that are named because they cannot be read; the others are counted.
const UNREADABLE_NAMED_MAX: usize = 20;

/// Adds up what threads have used.
pub async fn usage(
    host: &impl CommandHost,
    asked: args::UsageArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    let mut sums = UsageSums::new(&opened, &asked);
    // Only a host that can look at its store has a cache, and threads. Without a thread the cache
    // is left out: that costs time.
    let parsing = opened.read_usage_cache().and_then(|lines| {
        let thread = std::thread::Builder::new();
        thread.spawn(move || SumsCache::parse(&lines)).ok()
    });
    let marks = opened.head_marks().await;
    let cache = parsing.and_then(|parsing| parsing.join().ok());
    match marks.map_err(|error| fault::from_call(&error))? {
        Some(marks) => {
            let cache = cache.unwrap_or_default();
            add_marked(&opened, &marks, cache, &mut sums).await?;
        }
        None => add_listed(&opened, &mut sums).await?,
    }
    note_if_empty(&opened, screen);
    Ok(screen.print_answer(&sums.into_answer()))
}

/// Adds all threads by the marks of their heads: those that the cache knows as they are there, the
/// others as their entries say. Writes the cache if other threads are known now.
async fn add_marked(
    opened: &impl ProjectThreads,
    marks: &[HeadMark],
    mut cache: SumsCache,
    sums: &mut UsageSums<'_>,
) -> Result<(), CommandFault> {
    for mark in marks {
        if let Some(known) = cache.find(mark) {
            if let Some(later) = select_since(&known.sums, sums.since) {
                sums.add_sums(known.directive.as_deref(), known.agent.as_deref(), later)?;
            } else {
                read_marked(opened, mark, sums).await?;
            }
        } else if let Some(read) = read_marked(opened, mark, sums).await? {
            cache.add(read);
        }
    }
    if let Some(lines) = cache.into_changed_lines() {
        opened.write_usage_cache(&lines);
    }
    Ok(())
}

/// Reads a thread anew and adds it. Returns what is known of it then; none if it cannot be read, or
/// if its head was written meanwhile: nothing tells whether its newest entries were read.
async fn read_marked(
    opened: &impl ProjectThreads,
    mark: &HeadMark,
    sums: &mut UsageSums<'_>,
) -> Result<Option<KnownThread>, CommandFault> {
    let found = opened.get(&mark.thread).await;
    let costs = match &found {
        Ok(found) => {
            let before = found.base.as_ref().map_or(0, |base| base.length);
            read_costs(opened, &found.id, found.version.saturating_sub(before)).await
        }
        Err(error) => Err(error.clone()),
    };
    let mark_now = opened.head_mark(&mark.thread).await;
    let mark_now = mark_now.map_err(|error| fault::from_call(&error))?;
    let (found, costs) = match (found, costs) {
        (Ok(found), Ok(costs)) => (found, costs),
        // It was deleted meanwhile, or the name is no id.
        (Err(error), _) if is_no_thread(&error, mark_now.is_some()) => return Ok(None),
        (Err(error), _) | (_, Err(error)) => {
            return sums.add_refused(&mark.thread, &error).map(|()| None);
        }
    };
    sums.add_costs(found.directive.as_deref(), found.agent.as_deref(), &costs)?;
    let (Some(digest), true) = (mark.digest, mark_now.as_ref() == Some(mark)) else {
        return Ok(None);
    };
    Ok(Some(KnownThread {
        thread: mark.thread.clone(),
        digest,
        directive: found.directive,
        agent: found.agent,
        sums: sum_costs(&costs, i64::MIN),
    }))
}

/// Returns true if a refusal says that there is no such thread. A head without the record of its
/// thread is one that cannot be read.
fn is_no_thread(error: &CallError, has_head: bool) -> bool {
    let is = |kind| error.is_refused_as(kind);
    is(RefusalKind::Invalid) || is(RefusalKind::Deleted) || (is(RefusalKind::NotFound) && !has_head)
}

/// Adds all threads by pages of their list.
async fn add_listed(
    opened: &impl ProjectThreads,
    sums: &mut UsageSums<'_>,
) -> Result<(), CommandFault> {
    let filter = match (&sums.asked.agent, &sums.asked.directive) {
        (Some(agent), _) => ThreadFilter::Agent(agent.clone()),
        (None, Some(directive)) => ThreadFilter::Directive(directive.clone()),
        (None, None) => ThreadFilter::All,
    };
    let mut next = Some(None);
    while let Some(cursor) = next {
        let page = opened.list(filter.clone(), PAGE_THREADS_MAX, cursor).await;
        let page = page.map_err(|error| fault::from_call(&error))?;
        for thread in &page.threads {
            sums.read_listed(opened, thread).await?;
        }
        for thread in page.unreadable {
            sums.add_unreadable(view::unreadable(thread).thread_id);
        }
        next = page.cursor.map(Some);
    }
    Ok(())
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
    days: DayNames,
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
            days: DayNames::default(),
            threads: 0,
            unreadable: Vec::new(),
            unreadable_left_out: 0,
        }
    }

    /// Adds what a thread has used, of its own entries alone: those that it rests on are another's.
    async fn read_listed(
        &mut self,
        opened: &impl ProjectThreads,
        thread: &ListedThread,
    ) -> Result<(), CommandFault> {
        // An entry is a commit, so what has not changed since has no later one.
        if thread.updated.seconds < self.since {
            return Ok(());
        }
        // A host without marks reads entries by calls, which name a missing one.
        match read_costs(opened, &thread.id, 0).await {
            Ok(costs) => {
                self.add_costs(thread.directive.as_deref(), thread.agent.as_deref(), &costs)
            }
            Err(error) => self.add_refused(&thread.id, &error),
        }
    }

    /// Adds the costs of one thread.
    fn add_costs(
        &mut self,
        directive: Option<&str>,
        agent: Option<&str>,
        costs: &[EntryCost],
    ) -> Result<(), CommandFault> {
        let sums = sum_costs(costs, self.since);
        self.add_sums(directive, agent, sums.iter().collect())
    }

    /// Adds what one thread has used since the time that is asked for, if the thread is meant.
    fn add_sums(
        &mut self,
        directive: Option<&str>,
        agent: Option<&str>,
        sums: Vec<&DaySum>,
    ) -> Result<(), CommandFault> {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        if !is(&self.asked.directive, directive) || !is(&self.asked.agent, agent) {
            return Ok(());
        }
        self.threads += u64::from(!sums.is_empty());
        for sum in sums {
            let mut of = |key: &UsageKey| match key {
                UsageKey::Day => Some(self.days.name_day(sum.first)),
                UsageKey::Model => sum.model.clone(),
                UsageKey::Directive => directive.map(str::to_owned),
                UsageKey::Agent => agent.map(str::to_owned),
            };
            let group: Vec<Option<String>> = self.keys.iter().map(&mut of).collect();
            if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&group) {
                let message = format!("these properties make more than {GROUPS_MAX} sums");
                return Err(CommandFault::new("too-large", message)
                    .with_hint("name fewer properties with --by, or a later time with --since"));
            }
            self.groups.entry(group).or_default().add_sum(sum);
            self.total.add_sum(sum);
        }
        Ok(())
    }

    /// Names a thread that is refused; any other error is the command's.
    fn add_refused(&mut self, thread: &str, error: &CallError) -> Result<(), CommandFault> {
        match error {
            CallError::Refused(_) => {
                self.add_unreadable(thread.to_owned());
                Ok(())
            }
            CallError::Failed(_) => Err(fault::from_call(error)),
        }
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

/// Reads the costs that a thread's own entries record, of which there are so many at least.
async fn read_costs(
    opened: &impl ProjectThreads,
    thread: &str,
    count: u64,
) -> CallResult<Vec<EntryCost>> {
    let (mut reader, mut position) = (CostReader::default(), 1);
    loop {
        let page = opened.own_entries(thread, position).await?;
        if page.is_empty() && position <= count {
            return Err(CallError::Refused(CallRefusal::from_record(
                ("corrupt", "entry".to_owned()),
                (
                    format!("entry {position} of {thread} is missing"),
                    String::new(),
                ),
                Some(thread.to_owned()),
                "{}",
            )));
        }
        if page.is_empty() {
            return Ok(reader.into_costs());
        }
        position += page.len() as u64;
        for body in &page {
            reader.read_entry(body);
        }
    }
}
