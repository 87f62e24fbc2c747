//! The view `threads`: made for people, and compared here with the JSON of the records `thread` and
//! `head`.

use threadkeep::storage::RecordExpectation::Any;
use threadkeep::storage::StorageBackend;

use super::fixture::{SqliteFixture, commit, put_op};

/// The columns of the thread registry, in their order.
const COLUMNS: [&str; 11] = [
    "thread_id",
    "directive",
    "parent_id",
    "status",
    "continuation_thread_id",
    "continuation_of",
    "chain_root_id",
    "result",
    "cost",
    "created_at",
    "updated_at",
];

const THREAD: &str = concat!(
    r#"{"id":"Fix-1771322456000-a1b2c3","directive":"fix","parent":"root-1","chain":"Fix-0","#,
    r#""previous":"Fix-0","next":"Fix-2","result":{"ok":true,"n":1.50},"#,
    r#""created":{"seconds":1771322456,"nanos":7000000}}"#
);
const HEAD: &str = concat!(
    r#"{"status":"continued","updated":{"seconds":1771322457,"nanos":999999999},"#,
    r#""counters":{"turns":4,"usage":{"input":3000,"output":800,"read":150,"write":50,"#,
    r#""reasoning":10},"spend":20000000,"duration":1234}}"#
);

fn rows(fixture: &SqliteFixture) -> Vec<Vec<Option<String>>> {
    let shell = fixture.shell();
    let mut statement = shell
        .prepare("SELECT * FROM threads ORDER BY thread_id")
        .unwrap();
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    assert_eq!(names, COLUMNS);
    let row = |row: &rusqlite::Row<'_>| (0..COLUMNS.len()).map(|column| row.get(column)).collect();
    statement
        .query_map([], row)
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap()
}

fn cost_of(spend: &str) -> String {
    format!(r#"{{"turns":4,"input_tokens":3200,"output_tokens":800,"spend":"{spend}"}}"#)
}

#[test]
fn a_thread_and_its_head_are_one_row() {
    let fixture = SqliteFixture::new();
    let store = fixture.open();
    let name = "fix-1771322456000-a1b2c3";
    commit(
        &store,
        &[
            put_op("thread", name, Any, THREAD),
            put_op("head", name, Any, HEAD),
        ],
    );
    let expected = [
        "Fix-1771322456000-a1b2c3",
        "fix",
        "root-1",
        "continued",
        "Fix-2",
        "Fix-0",
        "Fix-0",
        r#"{"ok":true,"n":1.50}"#,
        &cost_of("0.02"),
        "2026-02-17T10:00:56.007Z",
        "2026-02-17T10:00:57.999Z",
    ];
    assert_eq!(rows(&fixture), [expected.map(|text| Some(text.to_owned()))]);
}

#[test]
fn missing_values_are_null() {
    let fixture = SqliteFixture::new();
    let store = fixture.open();
    let bare = concat!(
        r#"{"id":"a","directive":null,"parent":null,"chain":"a","previous":null,"next":null,"#,
        r#""result":null,"created":{"seconds":0,"nanos":0}}"#
    );
    commit(
        &store,
        &[
            put_op("thread", "a", Any, bare),
            put_op("thread", "b", Any, "no JSON\0"),
            put_op("head", "b", Any, "{"),
        ],
    );
    let null = || vec![None; COLUMNS.len()];
    let (mut a, mut b) = (null(), null());
    a[0] = Some("a".to_owned());
    a[6] = Some("a".to_owned());
    a[9] = Some("1970-01-01T00:00:00.000Z".to_owned());
    b[0] = Some("b".to_owned());
    assert_eq!(rows(&fixture), [a, b]);
}

#[test]
fn spend_is_exact() {
    let cases = [
        ("0", "0"),
        ("1", "0.000000001"),
        ("10", "0.00000001"),
        ("999999999", "0.999999999"),
        ("1000000000", "1"),
        ("1500000000", "1.5"),
        ("100000000000", "100"),
        ("9223372036854775807", "9223372036.854775807"),
        // Above the range of SQLite's own integers.
        ("18446744073709551615", "18446744073.709551615"),
    ];
    let fixture = SqliteFixture::new();
    let store = fixture.open();
    for (nanos, expected) in cases {
        let head = HEAD.replace("20000000", nanos);
        commit(
            &store,
            &[
                put_op("thread", "a", Any, THREAD),
                put_op("head", "a", Any, &head),
            ],
        );
        assert_eq!(
            rows(&fixture)[0][8].as_deref(),
            Some(cost_of(expected).as_str()),
            "{nanos} nano-USD"
        );
    }
}

#[test]
fn a_view_takes_no_writes() {
    let fixture = SqliteFixture::new();
    let store = fixture.open();
    commit(&store, &[put_op("thread", "a", Any, THREAD)]);
    let shell = fixture.shell();
    for sql in [
        "DELETE FROM threads",
        "UPDATE threads SET status = 'x'",
        "INSERT INTO threads (thread_id) VALUES ('b')",
    ] {
        assert!(shell.execute_batch(sql).is_err(), "{sql}");
    }
    assert_eq!(
        store.scan("thread", "", "", 10, false).unwrap().items.len(),
        1
    );
}
