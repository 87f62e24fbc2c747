//! Chains: their links as JSON, from the first on, a page at a time. The pointers of the links are
//! walked and checked; nothing else goes by them.

use super::{Error, ErrorKind, ThreadService};
use crate::ports::HostPorts;
use threadkeep_core::error::{
    CHAIN_BROKEN, CHAIN_CYCLE, Error as CoreError, ErrorKind as CoreErrorKind,
};
use threadkeep_core::id;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::plan::LoadedThread;
use threadkeep_core::thread::{ThreadStatus, find_link_problem, find_step_problem};

/// Most links of one page: even with the longest ids and names a page fits the answer of a tool.
const LINKS_MAX: usize = 25;
/// Numbers of a cursor: the links so far, 1 if the named thread was one of them, and their turns,
/// input tokens, output tokens and nano-USD.
const SUMS: usize = 6;

/// The place of a walk, and what it has counted so far. Its text is the cursor of a page.
struct ChainWalk {
    sums: [u64; SUMS],
    /// The link that comes next.
    next: String,
}

impl ChainWalk {
    fn parse(cursor: &str) -> Option<Self> {
        let mut parts = cursor.split(' ');
        let mut sums = [0; SUMS];
        for sum in &mut sums {
            *sum = parts.next()?.parse().ok()?;
        }
        let next = parts.next()?.to_owned();
        id::check_id("cursor", &next).ok()?;
        Some(Self { sums, next })
    }

    fn to_cursor(&self) -> String {
        let mut cursor = String::new();
        for sum in self.sums {
            cursor.push_str(&sum.to_string());
            cursor.push(' ');
        }
        cursor + &self.next
    }

    fn count(&mut self, link: &LoadedThread, named: &str) {
        let seen = u64::from(link.key() == named);
        for (sum, own) in self
            .sums
            .iter_mut()
            .zip([1, seen].iter().chain(&costs(link)))
        {
            *sum = sum.saturating_add(*own);
        }
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Renders a page of the links of the chain of a thread as JSON, the first link at first. The
    /// thread may be any of them. What is counted is counted from the first link to the end of the
    /// page.
    ///
    /// # Errors
    /// `CoreErrorKind::BrokenChain` where the links do not lead from the first to the tip, or not
    /// by the thread.
    pub fn chain_page(&self, named: &LoadedThread, cursor: Option<&str>) -> Result<String, Error> {
        let mut walk = match cursor {
            None => ChainWalk {
                sums: [0; SUMS],
                next: named.thread.value.chain.clone(),
            },
            Some(cursor) => ChainWalk::parse(cursor).ok_or_else(|| wrong_cursor(cursor))?,
        };
        let mut link = self.load_link(&walk.next)?;
        if let Some(cursor) = cursor.filter(|_| link.chain_key() != named.chain_key()) {
            return Err(wrong_cursor(cursor));
        }
        let (mut lines, mut left) = (String::new(), LINKS_MAX);
        let cursor = loop {
            check_link(&link)?;
            walk.count(&link, &named.key());
            let next = self.load_next_link(&link)?;
            lines.push_str(&link_json(&link, next.as_ref()));
            left -= 1;
            match next {
                None if walk.sums[1] == 0 => {
                    let problem = "is of the chain, and no link of it leads there";
                    return Err(broken(CHAIN_BROKEN, &named.thread.value.id, problem));
                }
                None => break "null".to_owned(),
                Some(next) if left == 0 => {
                    walk.next.clone_from(&next.thread.value.id);
                    break format!("\"{}\"", walk.to_cursor());
                }
                Some(next) => link = next,
            }
            lines.push(',');
        };
        let [count, _, totals @ ..] = walk.sums;
        Ok(format!(
            concat!(
                r#"{{"success":true,"chain_length":{},"chain":[{}],"tip":"{}","totals":{},"#,
                r#""account":{},"cursor":{}}}"#
            ),
            count,
            lines,
            link.chain.value.tip,
            cost_json(totals),
            account_json(named),
            cursor,
        ))
    }

    /// Loads the link after one, if it names one, and checks that each names the other.
    fn load_next_link(&self, link: &LoadedThread) -> Result<Option<LoadedThread>, Error> {
        let Some(next) = &link.thread.value.next else {
            return Ok(None);
        };
        let next = self.load_link(next)?;
        let Some(problem) = find_step_problem(&link.thread.value, &next.thread.value) else {
            return Ok(Some(next));
        };
        let id = next.thread.value.id.clone();
        Err(match self.leads_to(next, &link.key()) {
            true => broken(
                CHAIN_CYCLE,
                &id,
                &format!("{problem}: the links lead back to it"),
            ),
            false => broken(CHAIN_BROKEN, &id, &problem),
        })
    }

    /// Returns true if a link, or one of the next ones after it, is the one with this key.
    fn leads_to(&self, mut at: LoadedThread, key: &str) -> bool {
        for _ in 0..LINKS_MAX {
            if at.key() == key {
                return true;
            }
            let next = at.thread.value.next.as_deref();
            let Some(Ok(next)) = next.map(|next| self.load_link(next)) else {
                return false;
            };
            at = next;
        }
        false
    }

    /// Loads a link. One that is missing or cannot be read breaks the chain.
    pub(super) fn load_link(&self, link: &str) -> Result<LoadedThread, Error> {
        let error = match self.load(link) {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        let problem = match error.kind() {
            ErrorKind::Core(CoreErrorKind::NotFound { .. } | CoreErrorKind::Invalid { .. }) => {
                "is a link of it, and is missing".to_owned()
            }
            _ => format!("cannot be read: {}", error.into_damage()?.message),
        };
        Err(broken(CHAIN_BROKEN, link, &problem))
    }
}

/// Checks that the records of a link agree about its place in the chain.
pub(super) fn check_link(link: &LoadedThread) -> Result<(), Error> {
    let (thread, head) = (&link.thread.value, &link.head.value);
    match find_link_problem(thread, head, &link.chain.value) {
        None => Ok(()),
        Some(problem) => Err(broken(CHAIN_BROKEN, &thread.id, &problem)),
    }
}

pub(super) fn broken(code: &'static str, link: &str, problem: &str) -> Error {
    CoreError::broken_chain(code, id::printable_id(link), problem).into()
}

fn wrong_cursor(cursor: &str) -> Error {
    CoreError::invalid("cursor", cursor, "is not one of this chain").into()
}

/// Turns, input tokens, output tokens and nano-USD of a link.
fn costs(link: &LoadedThread) -> [u64; 4] {
    let used = &link.head.value.counters;
    let (usage, spend) = (&used.usage, used.spend.get());
    [used.turns, usage.context(), usage.output, spend]
}

fn cost_json([turns, input, output, spend]: [u64; 4]) -> String {
    let spend = NanoUsd::new(spend);
    format!(
        r#"{{"turns":{turns},"input_tokens":{input},"output_tokens":{output},"spend":"{spend}"}}"#
    )
}

/// Renders an id, an amount or a time, which need no escapes; `null` without one.
fn text_json(text: Option<&dyn std::fmt::Display>) -> String {
    text.map_or_else(|| "null".to_owned(), |text| format!("\"{text}\""))
}

fn id_json(id: &Option<String>) -> String {
    text_json(id.as_ref().map(|id| id as _))
}

/// Renders the account that a chain draws on, in the form of all JSON for people and programs.
fn account_json(loaded: &LoadedThread) -> String {
    let account = loaded.account();
    let owner = loaded.chain.value.draws_on(&loaded.thread.value.chain);
    let left = account.limit.map(|_| account.room(None));
    let amount = |amount: &Option<NanoUsd>| text_json(amount.as_ref().map(|amount| amount as _));
    format!(
        concat!(
            r#"{{"chain":"{}","parent":{},"limit":{},"spent":"{}","held":"{}","reserved":"{}","#,
            r#""remaining":{},"debt":"{}","reported":"{}","users":{},"frozen":{}}}"#
        ),
        owner,
        id_json(&account.parent),
        amount(&account.limit),
        account.spent,
        account.held,
        account.reserved,
        amount(&left),
        account.deficit(),
        account.reported,
        account.users,
        account.frozen,
    )
}

fn link_json(link: &LoadedThread, next: Option<&LoadedThread>) -> String {
    let (thread, head) = (&link.thread.value, &link.head.value);
    let continued = next.map_or_else(
        || "null".to_owned(),
        |next| {
            let how = match head.status {
                ThreadStatus::Continued => "handed-off",
                _ => "resumed",
            };
            match &next.thread.value.base {
                Some(base) => format!(r#"{{"how":"{how}","version":{}}}"#, base.length),
                None => format!(r#"{{"how":"{how}","version":null}}"#),
            }
        },
    );
    format!(
        concat!(
            r#"{{"thread_id":"{}","status":"{}","outcome":{},"directive":{},"previous":{},"#,
            r#""next":{},"continued":{},"version":{},"cost":{},"created":"{}","updated":"{}"}}"#
        ),
        thread.id,
        head.status,
        text_json(thread.outcome.as_ref().map(|outcome| outcome as _)),
        id_json(&thread.directive),
        id_json(&thread.previous),
        id_json(&thread.next),
        continued,
        head.version,
        cost_json(costs(link)),
        thread.created.rfc3339(),
        head.updated.rfc3339(),
    )
}
