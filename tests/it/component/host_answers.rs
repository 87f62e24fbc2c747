//! Imports that answer an error, or what their contract does not allow: the caller gets a typed
//! error, and nothing is written.

use super::fixture::message;
use super::foreign_host::{ForeignHost, failure};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{COLLECTIONS, StorageBackend, StoredRecord};
use threadkeep::wit::Error;
use threadkeep::wit::registry::Draft;
use threadkeep_tests::fixture::MapLibrary;
use wasmtime::component::Val;

fn records(store: &MemoryStore) -> Vec<StoredRecord> {
    let pages = COLLECTIONS.map(|(name, _)| store.scan(name, "", "", 500, false).unwrap().items);
    pages.concat()
}

/// Creates a thread, and starts another one that exists, in a host whose import gives this answer;
/// returns both errors.
#[track_caller]
fn call_with(interface: &str, function: &str, answer: &Val, name: &str) -> [Error; 2] {
    let store = Arc::new(MemoryStore::new());
    let mut sound = ForeignHost::over(&store, MapLibrary::small(), |_| {});
    let registry = sound.threads.threadkeep_threads_registry();
    let draft = Draft::for_directive("work");
    let there = registry.call_create(&mut sound.store, &draft, "1").unwrap();
    let there = there.unwrap().id;
    let before = records(&store);
    let mut host = ForeignHost::answering(&store, interface, function, answer.clone());
    let registry = host.threads.threadkeep_threads_registry();
    let created = registry.call_create(&mut host.store, &draft, "2").unwrap();
    let input = message("go");
    let runner = host.threads.threadkeep_threads_runner();
    let started = runner.call_start(&mut host.store, &there, Some(&input), "p/1", "k", None);
    let answers = [created.map(drop), started.unwrap().map(drop)];
    assert_eq!(records(&store), before, "{name}: something was written");
    answers.map(|answer| answer.expect_err(name).into())
}

/// Symptom: "" and "zz" were taken for random bytes, and ids became less unique in silence. Cause:
/// nobody looked at them. Fix: length and digits are checked. Kind: every answer that is not two
/// lower-case hex digits for each byte.
#[test]
fn random_bytes_of_another_form_are_refused() {
    for text in [
        "",
        "zz",
        "0123456789abcde",
        "0123456789abcdef0",
        "0123456789ABCDEF",
        "0123456789abcdeg",
        " 123456789abcdef",
        "0123456789abcdé",
    ] {
        let answer = Val::String(text.to_owned());
        for error in call_with("random", "bytes", &answer, text) {
            match error {
                Error::Other(failure) => assert_eq!(failure.code, "bad-answer", "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}

#[test]
fn errors_of_storage_are_typed_and_write_nothing() {
    for (case, expected) in [
        ("unavailable", "unavailable"),
        ("outcome-unknown", "unknown"),
        ("quota-exceeded", "full"),
        ("too-large", "other"),
        ("corrupt", "corrupt"),
        ("other", "other"),
    ] {
        for function in ["commit", "get"] {
            let name = format!("{function} {case}");
            let answer = failure(case, "planted");
            for error in call_with("storage", function, &answer, &name) {
                let word = match error {
                    Error::Unavailable(_) => "unavailable",
                    Error::Unknown(_) => "unknown",
                    Error::Full(_) => "full",
                    Error::Corrupt(_) => "corrupt",
                    Error::Other(_) => "other",
                    other => panic!("{name}: {other:?}"),
                };
                assert_eq!(word, expected, "{name}");
            }
        }
    }
}

/// Numbers of the library that no signed reader could hold are refused by name, and so are
/// negative ones.
#[test]
fn numbers_of_the_library_are_below_2_to_the_63() {
    let model = |field: &str| {
        format!(
            r#"{{"name":"default","provider":"p","window":9000,"output":400,{field},
            "prices":{{"input":"1","output":"2"}}}}"#
        )
    };
    let tool = |timeout: &str| {
        format!(
            r#"{{"name":"read","description":"d","schema":{{}},"idempotent":true,"consent":false,
            "timeout":{timeout}}}"#
        )
    };
    let policy = |limits: &str| format!(r#"{{"limits":{{{limits}}}}}"#);
    let too_large = "9223372036854775808";
    let cases = [
        (
            "model",
            "default",
            model(&format!("\"call_millis\":{too_large}")),
            "call_millis",
        ),
        (
            "model",
            "default",
            model("\"call_millis\":-1"),
            "call_millis",
        ),
        (
            "model",
            "default",
            model(&format!("\"rate\":{too_large}")),
            "rate",
        ),
        ("tool", "read", tool(too_large), "timeout"),
        ("tool", "read", tool("-1"), "timeout"),
        (
            "settings",
            "policy",
            policy(&format!("\"tokens\":{too_large}")),
            "tokens",
        ),
        (
            "settings",
            "policy",
            policy("\"spend\":\"9223372036.854775808\""),
            "spend",
        ),
        ("settings", "policy", policy("\"duration\":-1"), "duration"),
    ];
    for (kind, name, document, field) in cases {
        let store = Arc::new(MemoryStore::new());
        let library = MapLibrary::small().with(kind, name, &document);
        let mut host = ForeignHost::over(&store, library, |_| {});
        let registry = host.threads.threadkeep_threads_registry();
        let draft = Draft::for_directive("work");
        let created = registry.call_create(&mut host.store, &draft, "1").unwrap();
        match created.map_err(Error::from) {
            Err(Error::Invalid(invalid)) => {
                assert!(invalid.field.contains(field), "{document}: {invalid:?}");
            }
            other => panic!("{document}: {other:?}"),
        }
        assert!(records(&store).is_empty(), "{document}");
    }
}
