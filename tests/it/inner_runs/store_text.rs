//! The whole of a store as text, in which ids and hashes are told apart by their places alone.

use serde_json::Value;
use std::collections::BTreeMap;
use threadkeep::storage::StorageBackend;

/// The collections of records.
const COLLECTIONS: [&str; 12] = [
    "thread", "head", "chain", "pin", "index", "due", "inbox", "seen", "decision", "partial",
    "state", "blob",
];
/// Digits of a hash, and of the random name of a commit.
const HASH_DIGITS: [usize; 2] = [64, 16];

/// Returns the records and entries of a store, a line each, sorted. The ids of threads, which are
/// random, are replaced by the names of their directives and their places in their chains.
pub fn store_text(store: &dyn StorageBackend) -> Vec<String> {
    let mut lines = Vec::new();
    for collection in COLLECTIONS {
        for (name, value) in records(store, collection) {
            let name = without_request_key(&name);
            lines.push(format!("{collection} {name} {value}"));
        }
    }
    for (partition, _) in records(store, "head") {
        for log in ["history", "state"] {
            let mut start = 1;
            loop {
                let read = store.read_log(log, &partition, start, 500, false).unwrap();
                let Some(last) = read.last() else { break };
                start = last.position + 1;
                let read = read.iter().map(|line| {
                    let (position, value) = (line.position, &line.value);
                    format!("{log} {partition} {position} {value}")
                });
                lines.extend(read);
            }
        }
    }
    let names = names_of_threads(store);
    let mut lines: Vec<String> = lines
        .into_iter()
        .map(|mut line| {
            for (id, name) in &names {
                line = line.replace(id, name);
            }
            without_hashes(&line)
        })
        .collect();
    lines.sort();
    lines
}

fn records(store: &dyn StorageBackend, collection: &str) -> Vec<(String, String)> {
    let (mut found, mut start) = (Vec::new(), String::new());
    loop {
        let page = store.scan(collection, &start, "", 500, false).unwrap();
        assert!(page.damaged.is_empty());
        let items = page.items.into_iter();
        found.extend(items.map(|item| (item.key.name, item.value)));
        match page.cursor {
            Some(next) => start = next,
            None => return found,
        }
    }
}

/// Returns a name for each id of a thread: no two links of a tree have the same directive.
fn names_of_threads(store: &dyn StorageBackend) -> BTreeMap<String, String> {
    let threads: BTreeMap<String, Value> = records(store, "thread")
        .into_iter()
        .map(|(_, text)| {
            let record: Value = serde_json::from_str(&text).unwrap();
            (record["id"].as_str().unwrap().to_owned(), record)
        })
        .collect();
    let name = |id: &String| {
        let (mut place, mut link) = (0, &threads[id]);
        while let Some(previous) = link["previous"].as_str() {
            (place, link) = (place + 1, &threads[previous]);
        }
        let directive = link["directive"].as_str().unwrap_or("chat");
        format!("<{directive} {place}>")
    };
    let names: BTreeMap<String, String> = threads.keys().map(|id| (id.clone(), name(id))).collect();
    let mut distinct: Vec<&String> = names.values().collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
    names
}

/// Replaces the key of a request to resume, which its caller chooses.
fn without_request_key(name: &str) -> String {
    match name.split_once("\u{1}resume\u{1}") {
        Some((chain, _)) => format!("{chain} resume #"),
        None => name.to_owned(),
    }
}

/// Replaces each hash and each random name by a mark.
fn without_hashes(line: &str) -> String {
    let (mut out, mut digits) = (String::new(), String::new());
    let end = |digits: &mut String, out: &mut String| {
        match HASH_DIGITS.contains(&digits.len()) {
            true => out.push('#'),
            false => out.push_str(digits),
        }
        digits.clear();
    };
    for letter in line.chars() {
        if matches!(letter, '0'..='9' | 'a'..='f') {
            digits.push(letter);
        } else {
            end(&mut digits, &mut out);
            out.push(letter);
        }
    }
    end(&mut digits, &mut out);
    out
}

#[test]
fn only_hashes_and_random_names_are_replaced() {
    let hash = "0f".repeat(32);
    let line = format!("a {hash} {} 12ab", "7".repeat(16));
    assert_eq!(without_hashes(&line), "a # # 12ab");
    assert_eq!(without_hashes(&"1".repeat(15)), "1".repeat(15));
}
