//! Coverage of the suite as observed: a witness between the cases and a store notes every answer,
//! and each operation, condition, error and limit that `storage/mod.rs` names must be among them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use threadkeep::storage::{
    ANSWER_BYTES_MAX, COMMIT_BYTES_MAX, COMMIT_OPS_MAX, CommitOp, CommitOutcome, KEY_BYTES_MAX,
    LogEntry, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, RecordExpectation, RecordKey, RecordPage,
    SET_NAME_BYTES_MAX, StorageBackend, StorageError, StorageQuota, StoredRecord, VALUE_BYTES_MAX,
};

use super::differential::error_kind;
use super::suite::{MemoryHome, StoreHome, cases};

/// The contract in Rust, whose lists are read from its text.
const CONTRACT: &str = include_str!("../../../storage/src/lib.rs");

/// Errors that no store in memory has, and the tests in which a real one has them.
const ELSEWHERE: [(&str, &str, &str); 2] = [
    (
        "Unavailable",
        include_str!("sqlite.rs"),
        "fn a_stranger_that_writes_makes_commits_unavailable",
    ),
    (
        "OutcomeUnknown",
        include_str!("processes.rs"),
        "fn a_file_that_cannot_grow_keeps_what_was_acknowledged",
    ),
];

/// Observations, each with the first case that made it.
type WitnessNotes = Arc<Mutex<BTreeMap<String, &'static str>>>;

struct WitnessStore {
    inner: Arc<dyn StorageBackend>,
    case: &'static str,
    seen: WitnessNotes,
}

impl WitnessStore {
    fn note(&self, what: String) {
        self.seen.lock().unwrap().entry(what).or_insert(self.case);
    }

    /// Notes an answer, and whether a size was at its limit or one above.
    fn note_answer<T>(
        &self,
        operation: &str,
        answer: &Result<T, StorageError>,
        sizes: &[(&str, usize, usize)],
    ) {
        let given = answer.is_ok();
        match answer {
            Ok(_) => self.note(format!("{operation}: given")),
            Err(error) => {
                self.note(format!("error {}", error_kind(error)));
                self.note(format!("{operation}: refused"));
            }
        }
        for (name, limit, size) in sizes {
            if given && size == limit {
                self.note(format!("{name} reached"));
            }
            let refused = |error: &StorageError| {
                let code = matches!(error, StorageError::Other { code, .. }
                    if ["invalid-collection", "invalid-log"].contains(code));
                code || matches!(error, StorageError::TooLarge { .. })
            };
            if answer.as_ref().is_err_and(refused) && *size == limit + 1 {
                self.note(format!("{name} exceeded"));
            }
        }
    }

    fn page(&self, bytes: usize, more: bool) {
        if bytes == PAGE_BYTES_MAX {
            self.note("PAGE_BYTES_MAX reached".to_owned());
            if more {
                self.note("PAGE_BYTES_MAX exceeded".to_owned());
            }
        }
    }
}

impl StorageBackend for WitnessStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let answer = self.inner.get(keys);
        let longest = keys.iter().map(|key| key.name.len()).max().unwrap_or(0);
        let sizes = [
            ("PAGE_ENTRIES_MAX", PAGE_ENTRIES_MAX as usize, keys.len()),
            ("KEY_BYTES_MAX", KEY_BYTES_MAX, longest),
        ];
        self.note_answer("get", &answer, &sizes);
        let bytes =
            |items: &Vec<StoredRecord>| items.iter().map(|item| item.value.len()).sum::<usize>();
        if answer
            .as_ref()
            .is_ok_and(|items| bytes(items) == ANSWER_BYTES_MAX)
        {
            self.note("ANSWER_BYTES_MAX reached".to_owned());
        }
        if let Err(StorageError::TooLarge {
            what: "answer",
            actual,
            ..
        }) = &answer
            && *actual == ANSWER_BYTES_MAX as u64 + 1
        {
            self.note("ANSWER_BYTES_MAX exceeded".to_owned());
        }
        answer
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        let answer = self.inner.scan(collection, start, end, limit, reverse);
        let sizes = [
            (
                "PAGE_ENTRIES_MAX",
                PAGE_ENTRIES_MAX as usize,
                limit as usize,
            ),
            ("KEY_BYTES_MAX", KEY_BYTES_MAX, start.len().max(end.len())),
            ("SET_NAME_BYTES_MAX", SET_NAME_BYTES_MAX, collection.len()),
        ];
        self.note_answer(if reverse { "scan back" } else { "scan" }, &answer, &sizes);
        if let Ok(page) = &answer {
            let bytes = page.items.iter().map(|item| item.value.len()).sum();
            self.page(bytes, page.cursor.is_some());
        }
        answer
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        let answer = self.inner.read_log(log, partition, start, limit, reverse);
        let sizes = [
            (
                "PAGE_ENTRIES_MAX",
                PAGE_ENTRIES_MAX as usize,
                limit as usize,
            ),
            ("KEY_BYTES_MAX", KEY_BYTES_MAX, partition.len()),
        ];
        let operation = if reverse { "read-log back" } else { "read-log" };
        self.note_answer(operation, &answer, &sizes);
        answer
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let answer = self.inner.commit(ops, closing);
        let (mut longest, mut largest, mut bytes) = (0, 0, 0);
        for op in ops {
            let (name, value) = sizes(op);
            longest = longest.max(name);
            largest = largest.max(value);
            bytes += name + value;
            let word = match &answer {
                Ok(CommitOutcome::Committed) => "committed",
                Ok(CommitOutcome::Conflict) => "conflict",
                Err(_) => "refused",
            };
            self.note(format!("{}: {word}", op_words(op)));
        }
        let sizes = [
            ("KEY_BYTES_MAX", KEY_BYTES_MAX, longest),
            ("VALUE_BYTES_MAX", VALUE_BYTES_MAX, largest),
            ("COMMIT_OPS_MAX", COMMIT_OPS_MAX, ops.len()),
            ("COMMIT_BYTES_MAX", COMMIT_BYTES_MAX, bytes),
        ];
        self.note_answer(
            if closing { "closing commit" } else { "commit" },
            &answer,
            &sizes,
        );
        answer
    }
}

/// Bytes of the name and of the value.
fn sizes(op: &CommitOp) -> (usize, usize) {
    match op {
        CommitOp::Check { key, .. } | CommitOp::Delete { key } => (key.name.len(), 0),
        CommitOp::Put { key, value, .. } => (key.name.len(), value.len()),
        CommitOp::Append {
            partition, value, ..
        } => (partition.len(), value.len()),
        CommitOp::Trim { partition, .. } => (partition.len(), 0),
    }
}

fn op_words(op: &CommitOp) -> &'static str {
    let expect = |expect: &RecordExpectation, words: [&'static str; 3]| match expect {
        RecordExpectation::Any => words[0],
        RecordExpectation::Absent => words[1],
        RecordExpectation::Version(_) => words[2],
    };
    match op {
        CommitOp::Check { expect: e, .. } => {
            expect(e, ["check any", "check absent", "check version"])
        }
        CommitOp::Put { expect: e, .. } => expect(e, ["put any", "put absent", "put version"]),
        CommitOp::Delete { .. } => "delete",
        CommitOp::Append { .. } => "append",
        CommitOp::Trim { .. } => "trim",
    }
}

struct WitnessedHome {
    inner: MemoryHome,
    case: &'static str,
    seen: WitnessNotes,
}

impl StoreHome for WitnessedHome {
    fn open(&self) -> Arc<dyn StorageBackend> {
        Arc::new(WitnessStore {
            inner: self.inner.open(),
            case: self.case,
            seen: Arc::clone(&self.seen),
        })
    }
}

/// The names between backticks in the part of the contract from `start` to `end`.
fn listed_names(start: &str, end: &str) -> Vec<&'static str> {
    let (_, rest) = CONTRACT.split_once(start).expect("the contract says it");
    let (list, _) = rest.split_once(end).expect("the list ends");
    list.split('`').skip(1).step_by(2).collect()
}

/// The items that the contract's text names, in the words of the witness.
fn contract_items() -> Vec<String> {
    let limits = CONTRACT
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| name.ends_with("_MAX"));
    let limits = limits.flat_map(|name| [format!("{name} reached"), format!("{name} exceeded")]);
    let sizes = listed_names("`what` names the size: ", ".\n").into_iter();
    let codes = listed_names("Nothing was written. Codes: ", ", and a backend's own").into_iter();
    let mut named: Vec<String> = limits.collect();
    named.extend(sizes.map(|size| format!("error too-large {size}")));
    named.extend(codes.map(|code| format!("error other {code}")));
    for operation in ["get", "scan", "scan back", "read-log", "read-log back"] {
        named.extend(["given", "refused"].map(|word| format!("{operation}: {word}")));
    }
    named.extend(
        [
            "commit: given",
            "closing commit: given",
            "closing commit: refused",
        ]
        .map(str::to_owned),
    );
    for condition in ["check absent", "check version", "put absent", "put version"] {
        let ends = ["committed", "conflict", "refused"];
        named.extend(ends.map(|word| format!("{condition}: {word}")));
    }
    for free in ["put any", "delete", "append", "trim"] {
        // Each also beside a condition that does not hold.
        let ends = ["committed", "conflict", "refused"];
        named.extend(ends.map(|word| format!("{free}: {word}")));
    }
    named
}

/// The variants of the error, each in the words of the witness.
fn variants() -> Vec<(&'static str, &'static str)> {
    let (_, rest) = CONTRACT
        .split_once("pub enum StorageError {")
        .expect("it is there");
    let (body, _) = rest.split_once("\n}").expect("it ends");
    let names = body.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?.strip_suffix(" {")?;
        name.chars().all(char::is_alphanumeric).then_some(name)
    });
    let word = |name| match name {
        "QuotaExceeded" => "error quota-exceeded",
        "TooLarge" => "error too-large",
        "Corrupt" => "error corrupt",
        "Other" => "error other",
        _ => "",
    };
    names.map(|name| (name, word(name))).collect()
}

#[test]
fn every_operation_error_and_limit_is_met_by_a_case() {
    let seen = WitnessNotes::default();
    for case in cases() {
        let home = |quota: Option<StorageQuota>| {
            let (inner, seen) = (MemoryHome::new(quota), Arc::clone(&seen));
            let case = case.name;
            Box::new(WitnessedHome { inner, case, seen }) as Box<dyn StoreHome>
        };
        case.run(&home);
    }
    let seen = seen.lock().unwrap();
    let named = contract_items();
    for what in &named {
        println!("{what:<36} {}", seen.get(what).unwrap_or(&"by no case"));
    }
    let missing: Vec<_> = named
        .iter()
        .filter(|what| !seen.contains_key(*what))
        .collect();
    assert!(missing.is_empty(), "no case meets {missing:#?}");
    // Today's number of items: a list whose text has changed must not become an empty one.
    assert!(named.len() >= 60, "the contract names only {}", named.len());
    let variants = variants();
    assert_eq!(variants.len(), 6, "{variants:?}");
    for (variant, word) in variants {
        let elsewhere = ELSEWHERE
            .iter()
            .any(|(name, text, test)| *name == variant && text.contains(test));
        let here = !word.is_empty() && seen.keys().any(|what| what.starts_with(word));
        assert!(here || elsewhere, "nothing shows {variant}");
    }
}
