//! The names of threads on a command line: an id, the beginning of one that no other id has, or
//! `@last`.

use super::fault;
use crate::contract::{CallError, RefusalKind, ThreadFilter};
use crate::exit::CommandFault;
use crate::threads::{CallResult, PAGE_THREADS_MAX, ProjectThreads};

/// The name of the newest thread that no other thread spawned.
pub const LAST: &str = "@last";

/// Most ids that an error names because they begin alike.
const CANDIDATES_NAMED_MAX: usize = 5;

/// Longest id, in bytes: a longer text begins none.
const ID_BYTES_MAX: usize = 200;

/// Puts the id of the thread that is meant in the place of its name. A text that is the id of a
/// thread means that one, whatever else begins with it; a text that begins no id stays, so that the
/// command itself says what is wrong with it.
///
/// # Errors
/// `ambiguous` for the beginning of several ids, and `not-found` for `@last` without a thread. A
/// store that cannot be read.
pub async fn resolve(opened: &impl ProjectThreads, name: &mut String) -> Result<(), CommandFault> {
    let failed = |error: CallError| fault::from_call(&error);
    if name == LAST {
        let last = find_last(opened).await.map_err(failed)?;
        *name = last.ok_or_else(no_last_thread)?;
        return Ok(());
    }
    if !may_begin_id(name) {
        return Ok(());
    }
    // A beginning such as `a/` is no id.
    let is_none = |error: &CallError| {
        error.is_refused_as(RefusalKind::NotFound) || error.is_refused_as(RefusalKind::Invalid)
    };
    match opened.get(name).await {
        Err(error) if is_none(&error) => {}
        _ => return Ok(()),
    }
    let found = opened.find_ids(name, CANDIDATES_NAMED_MAX + 1).await;
    let mut found = found.map_err(failed)?;
    match found.len() {
        0 => Ok(()),
        1 => {
            *name = found.remove(0);
            Ok(())
        }
        _ => Err(ambiguous(name, &found)),
    }
}

/// Resolves each of several names.
///
/// # Errors
/// As [`resolve`], for the first name that is wrong.
pub async fn resolve_all(
    opened: &impl ProjectThreads,
    names: &mut [String],
) -> Result<(), CommandFault> {
    for name in names {
        resolve(opened, name).await?;
    }
    Ok(())
}

/// Returns true for a text that the id of a thread may begin with.
fn may_begin_id(text: &str) -> bool {
    let is_of_ids = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'/');
    !text.is_empty() && text.len() <= ID_BYTES_MAX && text.bytes().all(is_of_ids)
}

/// Finds the newest thread that no other one spawned, by the last start or end of a run: the first
/// of `list --roots`.
async fn find_last(opened: &impl ProjectThreads) -> CallResult<Option<String>> {
    // Most often the newest thread of all is no child.
    let (mut limit, mut cursor) = (1, None);
    loop {
        let page = opened.list(ThreadFilter::All, limit, cursor).await?;
        let root = page.threads.into_iter().find(|row| row.parent.is_none());
        cursor = page.cursor;
        limit = PAGE_THREADS_MAX;
        if root.is_some() || cursor.is_none() {
            return Ok(root.map(|row| row.id));
        }
    }
}

/// Returns ids that begin with a text, at most `limit`, from pages of the list of all threads.
pub async fn find_listed_ids(
    opened: &(impl ProjectThreads + ?Sized),
    beginning: &str,
    limit: usize,
) -> CallResult<Vec<String>> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = opened
            .list(ThreadFilter::All, PAGE_THREADS_MAX, cursor)
            .await?;
        let ids = page.threads.into_iter().map(|row| row.id);
        found.extend(ids.filter(|id| begins_with(id, beginning)));
        cursor = page.cursor;
        if found.len() >= limit || cursor.is_none() {
            found.sort_unstable();
            found.dedup();
            found.truncate(limit);
            return Ok(found);
        }
    }
}

/// Returns true if an id begins with a text; upper and lower case are alike, as they are for ids.
fn begins_with(id: &str, beginning: &str) -> bool {
    let start = id.get(..beginning.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(beginning))
}

fn no_last_thread() -> CommandFault {
    CommandFault::new("not-found", format!("{LAST}: there is no thread yet"))
        .with_hint("`threadkeep run DIRECTIVE` makes the first one")
}

fn ambiguous(name: &str, found: &[String]) -> CommandFault {
    let named = &found[..found.len().min(CANDIDATES_NAMED_MAX)];
    let more = match found.len() > named.len() {
        true => ", ...",
        false => "",
    };
    let message = format!("{name:?} begins the ids of several threads");
    CommandFault::new("ambiguous", message).with_hint(format!(
        "write more of the one that is meant: {}{more}",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_begin_alike_whatever_their_case() {
        for (id, beginning, expected) in [
            ("Short-1", "short", true),
            ("short-1", "SHORT-1", true),
            ("short", "short-1", false),
            ("a/b", "a/", true),
            ("né", "n\u{c3}", false),
        ] {
            assert_eq!(begins_with(id, beginning), expected, "{id} {beginning}");
        }
    }

    #[test]
    fn only_letters_of_ids_begin_one() {
        for text in ["a", "A/b_c-1", "-"] {
            assert!(may_begin_id(text), "{text}");
        }
        for text in ["", "a b", "a.b", "@last", "é", "a\u{1}", &"x".repeat(201)] {
            assert!(!may_begin_id(text), "{text:?}");
        }
    }

    #[test]
    fn an_ambiguous_name_has_at_most_five_candidates() {
        let found: Vec<String> = (0..6).map(|n| format!("a{n}")).collect();
        let fault = ambiguous("a", &found);
        assert_eq!(fault.code, "ambiguous");
        let hint = fault.hint.unwrap();
        assert!(hint.ends_with("a0, a1, a2, a3, a4, ..."), "{hint}");
        let hint = ambiguous("a", &found[..2]).hint.unwrap();
        assert!(hint.ends_with("a0, a1"), "{hint}");
    }
}
