//! Oversized and forged records on the command line: `list`, `tree`, `recover` and `audit` name
//! each and go on, and planted text never reaches the terminal unescaped.

use super::fixture::CliProject;
use serde_json::Value;
use threadkeep_tests::binary::ProcessOutput;

/// SQL that adds an index key whose name is no id: it would clear a terminal and turn its text.
fn forged_key_sql(index: &str) -> String {
    format!(
        "INSERT INTO record_index (name, version, value) \
         VALUES ({index} || char(1, 48, 48, 1) || '~~' || char(27, 8238) || '[2J', 1, '')"
    )
}

fn plant(project: &CliProject, sql: &str) {
    let store = project.path().join(".ai/threads/registry.db");
    let shell = rusqlite::Connection::open(store).unwrap();
    let changed = shell.execute(sql, []).unwrap();
    assert!(changed > 0, "nothing was planted: {sql}");
}

const FORGED: &str = "~~\u{fffd}\u{fffd}[2J";

/// Checks that a command's output contains no terminal controls.
#[track_caller]
fn is_plain(ran: &ProcessOutput) {
    let raw = |c: char| c == '\u{1b}' || c == '\u{202e}';
    for text in [&ran.out, &ran.err] {
        assert!(!text.contains(raw), "{text:?}");
    }
}

fn ids(document: &Value, list: &str) -> Vec<String> {
    let rows = document[list]
        .as_array()
        .unwrap_or_else(|| panic!("{document:#}"));
    let ids = rows.iter().map(|row| row["thread_id"].as_str().unwrap());
    ids.map(str::to_owned).collect()
}

/// Symptom: one such record made `list`, `recover` and `audit` fail (`invalid` for a forged id,
/// `corrupt` for a value of 5 MB). Fix: each is named beside the others.
#[test]
fn oversized_and_forged_records_are_named_and_hide_no_others() {
    let oversized = "printf('%.*c', 5000000, 'x')";
    let head = format!("UPDATE record_head SET value = {oversized} WHERE name = 'b'");
    let entry = |index: &str| {
        format!(
            "UPDATE record_index SET value = {oversized} \
             WHERE name LIKE '{index}%' AND name LIKE '%' || char(1) || 'b'"
        )
    };
    let other = "UPDATE record_thread SET value = json_set(value, '$.id', char(27) || 'x') \
                 WHERE name = 'b'";
    for (plant_list, shown, named) in [
        (head.clone(), 2, "b"),
        (other.to_owned(), 2, "b"),
        (entry("recency"), 3, "b"),
        (forged_key_sql("'recency' || char(1)"), 3, FORGED),
    ] {
        let project = CliProject::new();
        for id in ["a", "b", "c"] {
            project.finish_thread(id);
        }
        plant(&project, &plant_list);
        let listed = project.json(&["list"]);
        assert_eq!(listed["exit"], 0, "{plant_list}");
        assert_eq!(
            ids(&listed, "threads").len(),
            shown,
            "{plant_list}: {listed:#}"
        );
        assert_eq!(ids(&listed, "unreadable"), [named], "{plant_list}");
        let person = project.run(&["list"]);
        assert!(person.err.contains(named), "{plant_list}: {}", person.err);
        is_plain(&person);
        let audited = project.run(&["audit"]);
        assert_eq!(audited.code, Some(1), "{plant_list}: {}", audited.out);
        assert!(
            audited.out.contains(&named.replace('\u{fffd}', " ")),
            "{}",
            audited.out
        );
        is_plain(&audited);
        assert_eq!(project.json(&["recover"])["exit"], 0, "{plant_list}");
    }
    for (plant_recover, named) in [
        (head, "b"),
        (entry("status"), "b"),
        (forged_key_sql("'status' || char(1) || 'running'"), FORGED),
    ] {
        let project = CliProject::new();
        for id in ["a", "b"] {
            let running = project.start_unending(id);
            running.kill();
            running.wait_for_end();
        }
        plant(&project, &plant_recover);
        let recovered = project.json(&["recover"]);
        assert_eq!(recovered["exit"], 0, "{plant_recover}");
        let closed = recovered["recovered"].as_array().unwrap();
        assert!(closed.contains(&Value::from("a")), "{recovered:#}");
        assert!(
            ids(&recovered, "unreadable").contains(&named.to_owned()),
            "{recovered:#}"
        );
        let person = project.run(&["recover"]);
        assert_eq!(person.code, Some(0));
        assert!(person.err.contains(named) || named == "b", "{}", person.err);
        is_plain(&person);
    }
}

/// Symptom: a key name over 1 MiB was left out of `list` and `audit` unnamed, `audit` with exit
/// code 0; a forged name without an id was told as `warning:  cannot be read`. Fix: each is named
/// and goes on. The kind: names that are too long to be read, and that are or end with nothing, in
/// what `list` reads and in what only `audit` does.
#[test]
fn records_without_a_readable_name_are_named_and_take_nothing_away() {
    let long = "printf('%.*c', 2000000, 'x')";
    let insert = |collection: &str, name: &str| {
        format!("INSERT INTO record_{collection} (name, version, value) VALUES ({name}, 1, '')")
    };
    let recency = "'recency' || char(1) || char(1)";
    let ends_with_nothing = format!("{recency} || '0000000000000001' || char(1)");
    let no_id = "an index entry names it, and it is no id";
    for (planted, in_list, in_audit) in [
        (
            insert("index", &format!("{recency} || {long}")),
            Some("a record of index has a name of 2000009 bytes"),
            "a record of index has a name of 2000009 bytes",
        ),
        (insert("index", &ends_with_nothing), Some(no_id), no_id),
        (
            insert("head", long),
            None,
            "a record of head has a name of 2000000 bytes",
        ),
        (
            insert("sweep", long),
            None,
            "a record of sweep has a name of 2000000 bytes",
        ),
        (
            insert("head", "''"),
            None,
            "a record of head has an empty name",
        ),
    ] {
        let project = CliProject::new();
        for id in ["a", "b"] {
            project.finish_thread(id);
        }
        plant(&project, &planted);
        let unnamed = "a record with an empty or unreadable name";
        let listed = project.json(&["list"]);
        assert_eq!(listed["exit"], 0, "{planted}: {listed:#}");
        assert_eq!(ids(&listed, "threads"), ["b", "a"], "{planted}");
        let expected = if in_list.is_some() { &[""][..] } else { &[] };
        assert_eq!(
            ids(&listed, "unreadable"),
            expected,
            "{planted}: {listed:#}"
        );
        let person = project.run(&["list"]);
        for said in in_list.iter().flat_map(|said| [said, &unnamed]) {
            assert!(
                person.err.contains(said),
                "{planted}: {said}: {}",
                person.err
            );
        }
        let audited = project.run(&["audit"]);
        assert_eq!(audited.code, Some(1), "{planted}: {}", audited.out);
        for said in [in_audit, unnamed, "2 threads"] {
            assert!(
                audited.out.contains(said),
                "{planted}: {said}: {}",
                audited.out
            );
        }
    }
}

/// Symptom: a value of 200 MB under a name of an index took its size in memory of each command.
/// Cause: SQLite compares rows of an index whole. Fix: what SQLite may have is bounded, and
/// `doctor` names the record.
#[test]
fn a_huge_row_of_an_index_is_refused_unread() {
    let project = CliProject::new();
    project.finish_thread("a");
    plant(
        &project,
        "INSERT INTO record_index (name, version, value) \
         VALUES ('recency' || char(1, 1) || 'huge', 1, zeroblob(90000000))",
    );
    for arguments in [&["list"][..], &["audit"], &["recover"], &["show", "a"]] {
        let ran = project.run(arguments);
        if ran.code != Some(0) {
            assert!(
                ran.err.contains("`threadkeep doctor` names it"),
                "{}",
                ran.err
            );
        }
    }
    let ran = project.run(&["list"]);
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    let doctor = project.run(&["doctor"]);
    assert!(
        doctor.out.contains("the record index recency"),
        "{}",
        doctor.out
    );
}
