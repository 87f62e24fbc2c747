//! `list`: threads that meet filters, newest first.
//!
//! The component lists by one property at once, from an index of it. The rarest property of those
//! that are named is left to it; the others are compared with its rows, a page at a time. Where one
//! of the others has a page of threads at most, they are looked for among those.

use super::{chain, fault, note_if_empty, thread_names, view};
use crate::answer::{ListAnswer, has_ended};
use crate::args::{self, LIST_ALL_MAX};
use crate::contract::{ListPage, ListedThread, ThreadFilter, UnreadableThread};
use crate::exit::{CommandExit, CommandFault};
use crate::screen::OutputScreen;
use crate::threads::{CallResult, CommandHost, PAGE_THREADS_MAX, ProjectThreads};

/// Lists threads.
pub async fn list(
    host: &impl CommandHost,
    mut list: args::ListArgs,
    screen: &mut OutputScreen,
) -> Result<CommandExit, CommandFault> {
    let opened = host.open_to_read(screen)?;
    let filter = &mut list.filter;
    let named = [&mut filter.parent, &mut filter.chain, &mut filter.forks];
    for name in named.into_iter().chain([&mut list.after]).flatten() {
        thread_names::resolve(&opened, name).await?;
    }
    let parent = list.filter.parent.clone();
    let mut page = load_rows(&opened, &list).await?;
    if let Some(parent) = parent {
        chain::name_tip(&opened, &parent, "list --parent", screen).await;
        note_left_links(&page, screen);
    }
    note_if_empty(&opened, screen);
    let cursor = page.rows.cursor.take();
    Ok(screen.print_answer(&ListAnswer {
        threads: page.rows.threads.iter().map(view::thread_row).collect(),
        unreadable: page
            .rows
            .unreadable
            .into_iter()
            .map(view::unreadable)
            .collect(),
        cursor,
        exit: CommandExit::Done,
        utc: list.utc,
    }))
}

/// Threads that meet the filters.
#[derive(Default)]
struct FilteredRows {
    rows: ListPage,
    /// Children with more later links than one page has.
    long_chains: Vec<String>,
}

/// Loads the threads that meet the filters, as many as are asked for.
async fn load_rows(
    opened: &impl ProjectThreads,
    list: &args::ListArgs,
) -> Result<FilteredRows, CommandFault> {
    let failed = |error| fault::from_call(&error);
    let matcher = RowMatcher::new(opened, list);
    if let Some(rows) = find_among_few(opened, list, &matcher)
        .await
        .map_err(failed)?
    {
        return Ok(rows);
    }
    let index = index_of(&list.filter);
    let mut found = FilteredRows::default();
    let mut left = match list.all {
        true => LIST_ALL_MAX,
        false => list.limit,
    };
    let mut skips_until = list.after.as_deref();
    let mut cursor = list.cursor.clone();
    loop {
        let whole = matcher.compares_rows || skips_until.is_some();
        let size = if whole {
            PAGE_THREADS_MAX
        } else {
            left.min(PAGE_THREADS_MAX)
        };
        let mut page = opened
            .list(index.clone(), size, cursor.clone())
            .await
            .map_err(failed)?;
        let met = matcher.places(&page, skips_until);
        // A cursor stands behind a whole page: one that has too many is read again up to the last
        // that is wanted.
        if let Some(last) = met
            .get(left as usize - 1)
            .filter(|_| met.len() > left as usize)
        {
            let size = u32::try_from(last + 1).unwrap_or(PAGE_THREADS_MAX);
            page = opened
                .list(index.clone(), size, cursor)
                .await
                .map_err(failed)?;
        }
        let met = matcher.places(&page, skips_until);
        if skips_until.is_some_and(|after| page.threads.iter().any(|row| is_named(row, after))) {
            skips_until = None;
        }
        left = left.saturating_sub(u32::try_from(met.len()).unwrap_or(u32::MAX));
        cursor = page.cursor.take();
        found.rows.unreadable.append(&mut page.unreadable);
        let rows = page.threads.into_iter().enumerate();
        let rows = rows.filter(|(place, _)| met.contains(place));
        for (_, row) in rows {
            if list.filter.parent.is_some() {
                add_later_links(opened, &row, &mut found)
                    .await
                    .map_err(failed)?;
            }
            found.rows.threads.push(row);
        }
        if left == 0 || cursor.is_none() {
            break;
        }
    }
    found.rows.cursor = cursor;
    skips_until.map_or(Ok(found), |after| Err(make_unlisted_fault(after)))
}

/// The fault of a list that was to begin behind a thread which is not in it.
fn make_unlisted_fault(after: &str) -> CommandFault {
    CommandFault::new("not-found", format!("{after} is not in this list"))
        .with_hint("leave --after out to begin with the newest")
}

/// Looks among the threads of a property that has one page of them at most. None where no property
/// has so few, or where the index that is walked otherwise is needed: for its cursor, for what a
/// row has no column of, or for a thread behind which the list begins.
async fn find_among_few(
    opened: &impl ProjectThreads,
    list: &args::ListArgs,
    matcher: &RowMatcher<'_>,
) -> CallResult<Option<FilteredRows>> {
    use ThreadFilter::{Agent, Directive, Task};
    let mut filters = named_filters(&list.filter).into_iter();
    let is_compared = |filter| matches!(filter, Agent(_) | Directive(_) | Task(_));
    if !filters.next().is_some_and(is_compared) || list.cursor.is_some() || list.after.is_some() {
        return Ok(None);
    }
    for filter in filters {
        let mut page = opened.list(filter, PAGE_THREADS_MAX, None).await?;
        if page.cursor.is_some() {
            continue;
        }
        page.threads.retain(|row| matcher.meets(row));
        if page.threads.len() > list.limit as usize && !list.all {
            return Ok(None);
        }
        // The order of the index that is walked otherwise.
        let created = |row: &ListedThread| (row.created.seconds, row.created.nanos);
        page.threads
            .sort_by_key(|row| std::cmp::Reverse(created(row)));
        return Ok(Some(FilteredRows {
            rows: page,
            long_chains: Vec::new(),
        }));
    }
    Ok(None)
}

/// Adds the later links of a child in front of it, newest first: the component lists the first link
/// of a child alone, and a child that was continued runs in another.
async fn add_later_links(
    opened: &impl ProjectThreads,
    child: &ListedThread,
    found: &mut FilteredRows,
) -> CallResult<()> {
    // Only a thread that has ended can have been continued.
    if !has_ended(&child.status) {
        return Ok(());
    }
    let links = ThreadFilter::Chain(child.id.clone());
    let links = opened.list(links, PAGE_THREADS_MAX, None).await?;
    if links.cursor.is_some() {
        found.long_chains.push(child.id.clone());
    }
    let later = links.threads.into_iter().filter(|link| link.id != child.id);
    found.rows.threads.extend(later);
    let is_other = |one: &UnreadableThread| one.thread != child.id;
    found
        .rows
        .unreadable
        .extend(links.unreadable.into_iter().filter(is_other));
    Ok(())
}

/// Names the children with more links than are listed.
fn note_left_links(found: &FilteredRows, screen: &mut OutputScreen) {
    for child in &found.long_chains {
        screen.note(&format!(
            "{child} has earlier links: `threadkeep chain {child}`"
        ));
    }
}

/// The filter of the forks of a chain.
pub fn forks_of(chain: &str) -> ThreadFilter {
    ThreadFilter::Other(serde_json::json!({"kind": "forks", "chain": chain}).to_string())
}

/// Returns the index that is walked: the first of those that are named.
fn index_of(filter: &args::ListFilter) -> ThreadFilter {
    let named = named_filters(filter).into_iter().next();
    named.unwrap_or_default()
}

/// Returns the filters that are named, the rarest first. What has no column in a row comes before
/// what is compared.
fn named_filters(filter: &args::ListFilter) -> Vec<ThreadFilter> {
    let by = |name: &Option<String>, filter: fn(String) -> ThreadFilter| name.clone().map(filter);
    let filters = [
        by(&filter.chain, ThreadFilter::Chain),
        filter.forks.as_deref().map(forks_of),
        by(&filter.parent, ThreadFilter::Parent),
        by(&filter.task, ThreadFilter::Task),
        by(&filter.agent, ThreadFilter::Agent),
        by(&filter.directive, ThreadFilter::Directive),
        by(&filter.status, ThreadFilter::Status),
    ];
    filters.into_iter().flatten().collect()
}

/// Compares rows with the filters.
struct RowMatcher<'a> {
    filter: &'a args::ListFilter,
    /// The earliest time of the last change, in seconds since 1970.
    since: Option<i64>,
    /// False if every row of the index is listed.
    compares_rows: bool,
}

impl<'a> RowMatcher<'a> {
    fn new(opened: &impl ProjectThreads, list: &'a args::ListArgs) -> Self {
        let filter = &list.filter;
        let named = [
            &filter.status,
            &filter.directive,
            &filter.agent,
            &filter.task,
        ];
        let indexed = [&filter.parent, &filter.chain, &filter.forks];
        let named = named.into_iter().chain(indexed).flatten().count();
        let now = opened.now().seconds;
        let since = filter.since.map(|since| since.second_at(now));
        Self {
            filter,
            compares_rows: named > 1 || filter.roots || since.is_some(),
            since,
        }
    }

    /// Returns the places of the rows of a page that meet the filters, behind one that is skipped.
    fn places(&self, page: &ListPage, skips_until: Option<&str>) -> Vec<usize> {
        let rows = page.threads.iter().enumerate();
        let begin = skips_until.map_or(Some(0), |after| {
            let found = page.threads.iter().position(|row| is_named(row, after));
            found.map(|place| place + 1)
        });
        let Some(begin) = begin else {
            return Vec::new();
        };
        let rows = rows.skip(begin).filter(|(_, row)| self.meets(row));
        rows.map(|(place, _)| place).collect()
    }

    fn meets(&self, row: &ListedThread) -> bool {
        let filter = self.filter;
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        // The index of children has met `parent`, and knows links that the row does not name.
        is(&filter.status, Some(&row.status))
            && is(&filter.directive, row.directive.as_deref())
            && is(&filter.agent, row.agent.as_deref())
            && is(&filter.task, row.task.as_deref())
            && !(filter.roots && row.parent.is_some())
            && self.since.is_none_or(|since| row.updated.seconds >= since)
    }
}

fn is_named(row: &ListedThread, id: &str) -> bool {
    row.id.eq_ignore_ascii_case(id)
}
