//! The view `budget_ledger`: made for people, and compared here with the JSON of the records
//! `thread`, `head` and `chain`.

use super::fixture::{SqliteFixture, commit, put_op};
use crate::audit::fixture::ClosedStore;
use rusqlite::Connection;
use std::collections::BTreeMap;
use threadkeep::storage::CommitOp;
use threadkeep::storage::RecordExpectation::Any;

/// The seed's columns in their order, then the exact ones.
const COLUMNS: [&str; 10] = [
    "thread_id",
    "parent_id",
    "max_spend",
    "reserved_spend",
    "actual_spend",
    "status",
    "max_spend_exact",
    "reserved_spend_exact",
    "actual_spend_exact",
    "account_id",
];

/// One row; the floating-point columns as SQLite shows them.
type ViewRow = Vec<Option<String>>;

fn rows(connection: &Connection) -> BTreeMap<String, ViewRow> {
    let mut statement = connection.prepare("SELECT * FROM budget_ledger").unwrap();
    let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
    assert_eq!(names, COLUMNS);
    let text = |row: &rusqlite::Row<'_>, column: usize| -> rusqlite::Result<Option<String>> {
        use rusqlite::types::Value;
        Ok(match row.get(column)? {
            Value::Null => None,
            Value::Integer(n) => panic!("{column} is an integer: {n}"),
            Value::Real(n) => Some(n.to_string()),
            Value::Text(text) => Some(text),
            Value::Blob(_) => panic!("{column} is a blob"),
        })
    };
    let row = |row: &rusqlite::Row<'_>| (0..COLUMNS.len()).map(|at| text(row, at)).collect();
    let rows = statement.query_map([], row).unwrap();
    rows.map(|row: rusqlite::Result<ViewRow>| row.unwrap())
        .map(|row| (row[0].clone().unwrap(), row))
        .collect()
}

/// Builds a row from its columns, separated by lines; `-` is NULL.
fn parse_row(row: &str) -> ViewRow {
    let columns = row.split(" | ");
    columns
        .map(|text| (text != "-").then(|| text.to_owned()))
        .collect()
}

fn thread(id: &str, parent: &str, chain: &str, status: &str) -> [CommitOp; 2] {
    let name = id.to_lowercase();
    let thread = format!(r#"{{"id":"{id}","parent":{parent},"chain":"{chain}"}}"#);
    let head = format!(r#"{{"status":"{status}"}}"#);
    [
        put_op("thread", &name, Any, &thread),
        put_op("head", &name, Any, &head),
    ]
}

fn chain(root: &str, tip: &str, above: &str, account: &str) -> CommitOp {
    let value = format!(r#"{{"tip":"{tip}"{above},"account":{account}}}"#);
    put_op("chain", root, Any, &value)
}

#[test]
fn an_account_stands_at_the_tip_of_its_chain_and_nowhere_else() {
    let fixture = SqliteFixture::new();
    let store = fixture.open();
    let root = r#"{"parent":null,"limit":100000000,"reserved":20000000,"spent":1}"#;
    let own = r#"{"parent":"First","limit":20000000,"reserved":0,"spent":5}"#;
    let none = r#"{"parent":null,"limit":null,"reserved":0,"spent":0}"#;
    let boundless = r#"{"parent":null,"limit":null,"reserved":0,"spent":18446744073709551615}"#;
    let ops = [
        thread("First", "null", "First", "continued"),
        thread("second", "null", "First", "running"),
        thread("own", "\"second\"", "own", "killed"),
        thread("plain", "\"second\"", "plain", "completed"),
        thread("boundless", "null", "boundless", "idle"),
    ];
    commit(&store, &ops.concat());
    commit(
        &store,
        &[
            chain("first", "Second", "", root),
            chain("own", "own", r#","above":["First"]"#, own),
            chain("plain", "plain", r#","above":["First"]"#, none),
            chain("boundless", "boundless", "", boundless),
        ],
    );
    let expected = [
        "First | - | 0 | 0 | 0 | completed | 0 | 0 | 0 | First",
        "second | - | 0.1 | 0.02 | 0.000000001 | active | 0.1 | 0.02 | 0.000000001 | First",
        "own | second | 0.02 | 0 | 0.000000005 | cancelled | 0.02 | 0 | 0.000000005 | own",
        "plain | second | - | 0 | 0 | completed | - | 0 | 0 | First",
        "boundless | - | - | 0 | 18446744073.709553 | active | - | 0 | 18446744073.709551615 | \
         boundless",
    ];
    let expected = expected.map(|row| (parse_row(row)[0].clone().unwrap(), parse_row(row)));
    let expected: BTreeMap<String, ViewRow> = expected.into();
    assert_eq!(rows(&fixture.shell()), expected);
}

#[test]
fn a_status_is_active_until_the_thread_has_ended() {
    let fixture = SqliteFixture::new();
    let store = fixture.open();
    for (status, expected) in [
        ("created", "active"),
        ("running", "active"),
        ("waiting", "active"),
        ("suspended", "active"),
        ("idle", "active"),
        ("completed", "completed"),
        ("error", "error"),
        ("cancelled", "cancelled"),
        ("killed", "cancelled"),
        ("continued", "completed"),
    ] {
        commit(&store, &thread("a", "null", "a", status));
        let row = rows(&fixture.shell()).remove("a").unwrap();
        assert_eq!(row[5].as_deref(), Some(expected), "{status}");
    }
}

#[test]
fn missing_values_are_null() {
    let fixture = SqliteFixture::new();
    let store = fixture.open();
    let [bare, _] = thread("a", "null", "a", "idle");
    commit(
        &store,
        &[
            bare,
            put_op("thread", "b", Any, "no JSON\0"),
            put_op("head", "b", Any, "{"),
            put_op("chain", "b", Any, "{"),
        ],
    );
    let null = |id: &str| parse_row(&format!("{id}{}", " | -".repeat(9)));
    let expected = [("a".to_owned(), null("a")), ("b".to_owned(), null("b"))];
    assert_eq!(rows(&fixture.shell()), expected.into());
    let shell = fixture.shell();
    let write = "UPDATE budget_ledger SET status = 'x'";
    assert!(shell.execute_batch(write).is_err(), "it takes no writes");
}

/// Rows of records that the core wrote: every account of a store with all kinds of records, and the
/// sum over the tips.
#[test]
fn real_records_are_shown_as_they_are() {
    let kept = ClosedStore::new();
    let shown = kept.inspect_copy(rows);
    assert_eq!(shown.len(), 16);
    let accounts: Vec<(String, serde_json::Value)> = kept.inspect_copy(|connection| {
        let chains = "SELECT name, value FROM record_chain";
        let mut statement = connection.prepare(chains).unwrap();
        let chains = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)));
        let chains = chains.unwrap().map(Result::unwrap);
        chains
            .map(|(name, value)| (name, serde_json::from_str(&value).unwrap()))
            .collect()
    });
    let mut own = 0;
    for (root, record) in accounts {
        let row = shown
            .values()
            .find(|row| row[0].as_ref().unwrap().to_lowercase() == root);
        let row = row.unwrap();
        let account = &record["account"];
        let decimal = |field: &str| {
            let nanos = account[field].as_u64()?;
            let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
            let digits = text.trim_end_matches('0').trim_end_matches('.');
            Some(digits.to_owned())
        };
        let has = record["above"].is_null() || !account["parent"].is_null();
        own += usize::from(has);
        let zero = || Some("0".to_owned());
        let expected = match has {
            true => [decimal("limit"), decimal("reserved"), decimal("spent")],
            false => [None, zero(), zero()],
        };
        assert_eq!(row[6..9], expected, "{root}");
        for (real, exact) in row[2..5].iter().zip(&expected) {
            let number = |text: &String| text.parse::<f64>().unwrap();
            assert_eq!(
                real.as_ref().map(number),
                exact.as_ref().map(number),
                "{root}"
            );
        }
    }
    assert_eq!(own, 14, "two children draw on the account above");
}
