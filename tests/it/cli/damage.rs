//! Oversized and forged records on the command line: `list`, `tree`, `recover` and `audit` name
//! each and go on, and planted text never reaches the terminal unescaped.

use super::fixture::Project;
use serde_json::Value;
use threadkeep_tests::binary::Ran;

/// SQL that adds an index key whose name is no id: it would clear a terminal and turn its text.
fn forged(index: &str) -> String {
    format!(
        "INSERT INTO record_index (name, version, value) \
         VALUES ({index} || char(1, 48, 48, 1) || '~~' || char(27, 8238) || '[2J', 1, '')"
    )
}

fn plant(project: &Project, sql: &str) {
    let store = project.path().join(".ai/threads/registry.db");
    let shell = rusqlite::Connection::open(store).unwrap();
    let changed = shell.execute(sql, []).unwrap();
    assert!(changed > 0, "nothing was planted: {sql}");
}

const FORGED: &str = "~~\u{fffd}\u{fffd}[2J";

/// Checks that a command's output contains no terminal controls.
#[track_caller]
fn is_plain(ran: &Ran) {
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
fn oversized_and_forged_records_are_named_and_take_nothing_away() {
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
        (forged("'recency' || char(1)"), 3, FORGED),
    ] {
        let project = Project::new();
        for id in ["a", "b", "c"] {
            project.finished(id);
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
        (forged("'status' || char(1) || 'running'"), FORGED),
    ] {
        let project = Project::new();
        for id in ["a", "b"] {
            let running = project.unending(id);
            running.kill();
            running.end();
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
