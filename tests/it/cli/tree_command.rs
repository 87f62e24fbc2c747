//! `tree`: a thread and all its descendants, with their accounts. The test creates the children as
//! a spawn does, in the project's own store.

use super::fixture::CliProject;
use crate::history::LoopHost;
use crate::runner::fixture::RunnerFixture;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use threadkeep::storage::sqlite::{CommitDurability, SqliteOptions, SqliteStore};
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::CallBill;
use threadkeep_tests::fixture::MapLibrary;

/// A project with the chat `top`; `make` adds further threads to its store.
fn project(make: impl FnOnce(&mut LoopHost)) -> CliProject {
    let project = CliProject::new();
    project.json(&["create", "--id", "top"]);
    let folder = project.path().join(".ai/threads");
    let folder = cap_std::fs::Dir::open_ambient_dir(folder, cap_std::ambient_authority()).unwrap();
    let options = SqliteOptions {
        durability: CommitDurability::Normal,
        ..SqliteOptions::local()
    };
    let store = SqliteStore::open(&folder, threadkeep::project::SQLITE_STORE, options).unwrap();
    let mut host = LoopHost {
        world: RunnerFixture::over(Arc::new(store), MapLibrary::small()),
        thread: "top".to_owned(),
        token: None,
    };
    make(&mut host);
    project
}

/// Gives `top` two children, `rich` with its own money and `poor` without, and gives `rich` a
/// `grandchild` whose loop has spent and holds.
fn add_family(host: &mut LoopHost) {
    host.spawn("top", "rich", Some(700_000_001));
    host.spawn("rich", "grandchild", None);
    host.spawn("top", "poor", None);
    host.thread = "grandchild".to_owned();
    host.take_lease("h/1", 3_000).unwrap();
    let amount = crate::history::loop_money::dollars;
    let held = host.hold("a", &amount(100_000_000)).unwrap();
    let bill = CallBill::Amount(NanoUsd::new(100_000_000));
    host.settle(held.version, bill).unwrap();
    host.hold("b", &amount(200_000_000)).unwrap();
}

/// The rows of a tree.
fn threads_of(tree: &Value) -> impl Iterator<Item = &Value> {
    tree["threads"].as_array().expect("a list").iter()
}

/// Converts an amount to nano-USD.
fn nanos(value: &Value) -> u64 {
    let text = value.as_str().expect("an amount is text");
    NanoUsd::parse(text).expect("it is exact").get()
}

#[test]
fn a_tree_shows_whose_money_each_draws_on_and_adds_up_to_the_nano() {
    let project = project(add_family);
    let shown = project.run(&["tree", "top"]);
    let expected = "\
THREAD          STATUS   OWN COST  SPENT        LIMIT  HELD     RESERVED    REMAINING  USD
top             created      0.00   0.10         1.00  0.00  0.600000001  0.299999999  [#+++++++--]
  rich          created      0.00   0.10  0.700000001  0.20         0.00  0.400000001  [##+++-----]
    grandchild  running      0.10   0.10                                               draws on rich
  poor          created      0.00   0.00                                               draws on top
";
    assert_eq!(shown.out, expected);
    let tree = project.json(&["tree", "top"]);
    let threads = tree["threads"].as_array().expect("a list");
    for thread in threads {
        let account = &thread["account"];
        if !account.is_null() {
            let parts =
                ["spent", "held", "reserved", "remaining"].map(|part| nanos(&account[part]));
            assert_eq!(
                parts.iter().sum::<u64>(),
                nanos(&account["limit"]),
                "{account}"
            );
        }
    }
    let [top, rich] = [0, 1].map(|at| &threads[at]["account"]);
    assert_eq!(top["reserved"], rich["limit"]);
    assert_eq!(rich["parent"], "top");
    let own: u64 = threads.iter().map(|thread| nanos(&thread["spend"])).sum();
    assert_eq!(own, nanos(&rich["spent"]) + nanos(&top["spent"]));

    // A thread that draws on another's account, shown by itself.
    let part = project.json(&["tree", "grandchild"]);
    assert_eq!(part["threads"][0]["draws_on"], "rich");
    assert_eq!(part["threads"][0]["depth"], 0);
    let budget = project.json(&["budget", "show", "grandchild"]);
    assert_eq!(
        (&budget["account"]["chain"], &budget["cost"]["spend"]),
        (&json!("rich"), &json!("0.10"))
    );
    let shown = project.run(&["budget", "show", "grandchild"]).out;
    for line in [
        "account    that of rich",
        "reserved in  top",
        "held         0.20 for calls",
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&shown).contains(&words(line)), "{line}: {shown}");
    }
    // The cost of a thread in `list` and `show` is its own alone.
    assert_eq!(
        project.json(&["show", "rich"])["thread"]["cost"]["spend"],
        "0.00"
    );
}

/// Symptom: `top` was shown with no spend, and the spend of its open descendants' accounts as
/// reserved. Cause: an account gets the spend of others only when theirs close. Fix: the spend of
/// the tree is added up. Kind: every place that shows it.
#[test]
fn what_open_accounts_have_spent_is_shown_above_them() {
    let project = project(add_family);
    let tree = project.json(&["tree", "top"]);
    let spent = |place: &Value| (place["tree_spend"].clone(), place["tree_threads"].clone());
    for (id, spend, threads) in [("top", "0.10", 4), ("rich", "0.10", 2), ("poor", "0.00", 1)] {
        let budget = project.json(&["budget", "show", id]);
        assert_eq!(spent(&budget), (json!(spend), json!(threads)), "{id}");
        let row = threads_of(&tree).find(|row| row["thread_id"] == id);
        assert_eq!(row.unwrap()["tree_spend"], spend, "{id}");
    }
    let shown = project.run(&["budget", "show", "poor"]).out;
    for line in [
        "spent 0.10 with descendants",
        "reserved 0.600000001 for children",
    ] {
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(line), "{line}: {shown}");
    }
}

/// Symptom: `run` of a tree ended silently about a child that waits for a person, and reported the
/// spend of its top alone. Kinds: for a person and for a program, a child that can go on, and one
/// that is done.
#[test]
fn the_end_of_a_run_tells_of_the_whole_tree() {
    let project = CliProject::new();
    project.add_family(1);
    let ran = project.run(&["run", "parent", "--id", "a"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let child = project.json(&["list", "--parent", "a"])["threads"][0].clone();
    let id = child["thread_id"].as_str().expect("a text");
    for words in [
        "cost    0.00024 USD for 2 turns".to_owned(),
        "tree    0.00036 USD for 2 threads".to_owned(),
        format!("child   {id} is suspended (turns_exceeded): "),
        format!("next: threadkeep raise {id} --turns N, then threadkeep resume {id}"),
    ] {
        assert!(ran.err.contains(&words), "{words}: {}", ran.err);
    }
    project.add_family(5);
    let whole = project.json(&["run", "parent", "--id", "b"]);
    assert_eq!(
        (&whole["suspended"], &whole["suspended_left_out"]),
        (&json!([]), &json!(0))
    );
    let spent = (
        &whole["cost"]["spend"],
        &whole["tree_spend"],
        &whole["tree_threads"],
    );
    assert_eq!(spent, (&json!("0.00024"), &json!("0.00055"), &json!(2)));
}

#[test]
fn a_tree_of_more_than_a_thousand_threads_goes_on_at_its_cursor() {
    const CHILDREN: usize = 1_060;
    let project = project(|host| {
        for n in 0..CHILDREN {
            host.spawn("top", &format!("c{n:04}"), None);
        }
    });
    let first = project.json(&["tree", "top"]);
    let cursor = first["cursor"].as_str().expect("there are more");
    let second = project.json(&["tree", "top", "--cursor", cursor]);
    assert!(second["cursor"].is_null(), "{second}");
    let pages = [&first, &second].map(|page| page["threads"].as_array().expect("a list"));
    assert_eq!(
        (pages[0].len(), pages[1].len()),
        (1_000, CHILDREN + 1 - 1_000)
    );
    let mut seen = BTreeSet::new();
    for thread in pages.into_iter().flatten() {
        assert_eq!(thread["draws_on"], "top");
        assert!(
            seen.insert(thread["thread_id"].to_string()),
            "{thread} twice"
        );
    }
    assert_eq!(first["threads"][0]["tree_spend"], "0.00");
    let shown = project.run(&["tree", "top"]);
    assert!(
        shown.err.starts_with("more: --cursor $'top"),
        "{}",
        shown.err
    );
}

/// Symptom: one child whose head could not be read was silently left out of a tree and of a kill,
/// or ended the command. Fix: it is named, and the others are shown and told.
#[test]
fn a_child_that_cannot_be_read_is_named_and_stops_no_command() {
    let project = project(add_family);
    let store = project.path().join(".ai/threads/registry.db");
    let store = rusqlite::Connection::open(store).unwrap();
    let broken = "UPDATE record_head SET value = '{' WHERE name = 'rich'";
    assert_eq!(store.execute(broken, []), Ok(1));
    let tree = project.json(&["tree", "top"]);
    let shown: Vec<&Value> = tree["threads"].as_array().unwrap().iter().collect();
    let ids: Vec<&Value> = shown.iter().map(|row| &row["thread_id"]).collect();
    assert_eq!(ids, ["top", "grandchild", "poor"]);
    assert_eq!(shown[1]["draws_on"], "rich", "its account can be read");
    assert_eq!(tree["unreadable"][0]["thread_id"], "rich");
    let killed = project.run(&["kill", "top"]);
    assert_eq!(killed.code, Some(0), "{}", killed.err);
    assert!(killed.err.contains("rich cannot be read"), "{}", killed.err);
    assert_eq!(project.status("poor"), "killed");
    assert_eq!(project.status("grandchild"), "killed", "told in its place");
    let recovered = project.json(&["recover"]);
    assert_eq!(recovered["exit"], 0, "it comes to its end");
    let unreadable = recovered["unreadable"].as_array().unwrap();
    let named = unreadable.iter().any(|row| row["thread_id"] == "rich");
    assert!(named, "{recovered:#}");
    let person = project.run(&["recover"]);
    assert!(person.err.contains("rich cannot be read"), "{}", person.err);
}

/// Symptom: `tree` and `kill` of a thread that could not be read failed whole, and what it had
/// spawned went on. Fix: what lies below is shown and ended, and what cannot be read is named.
#[test]
fn tree_and_kill_of_a_thread_that_cannot_be_read_reach_what_lies_below_it() {
    for damage in [
        "UPDATE record_{} SET value = '{' WHERE name = 'rich'",
        "DELETE FROM record_{} WHERE name = 'rich'",
    ] {
        for records in [
            &["thread"][..],
            &["head"],
            &["chain"],
            &["thread", "head", "chain"],
        ] {
            let project = project(add_family);
            let store = project.path().join(".ai/threads/registry.db");
            let store = rusqlite::Connection::open(store).unwrap();
            for record in records {
                let damage = damage.replace("{}", record);
                assert_eq!(store.execute(&damage, []), Ok(1), "{damage}");
            }
            let tree = project.json(&["tree", "rich"]);
            let ids: Vec<&Value> = threads_of(&tree).map(|row| &row["thread_id"]).collect();
            assert_eq!(ids, ["grandchild"], "{damage} {records:?}: {tree}");
            assert_eq!(tree["unreadable"][0]["thread_id"], "rich", "{tree}");
            let killed = project.json(&["kill", "rich"]);
            assert_eq!(killed["exit"], 1, "{killed}");
            let said = killed["error"]["message"].as_str().expect("a text");
            assert!(said.contains("all 1 below it have ended"), "{said}");
            assert_eq!(project.status("grandchild"), "killed", "{records:?}");
            assert_eq!(project.status("poor"), "created", "it lies beside");
        }
    }
    let missing = CliProject::new();
    missing.json(&["create", "--id", "top"]);
    for command in ["tree", "kill"] {
        let refused = missing.json(&[command, "tip"]);
        assert_eq!(refused["error"]["code"], "not-found", "{refused}");
    }
}

/// Symptom: what a tree had spent left children out that could not be read, and said nothing. Fix:
/// the sum is that of what can be read, with the names of the others.
#[test]
fn a_sum_over_a_tree_names_what_it_lacks() {
    for record in ["head", "chain"] {
        let project = project(add_family);
        let store = project.path().join(".ai/threads/registry.db");
        let store = rusqlite::Connection::open(store).unwrap();
        let broken = format!("UPDATE record_{record} SET value = '{{' WHERE name = 'rich'");
        assert_eq!(store.execute(&broken, []), Ok(1));
        drop(store);
        let budget = project.json(&["budget", "show", "top"]);
        let told = ["tree_spend", "tree_threads", "tree_unreadable"].map(|field| &budget[field]);
        let expected = [json!("0.10"), json!(3), json!(["rich"])];
        assert_eq!(told, [&expected[0], &expected[1], &expected[2]], "{record}");
        let shown = project.run(&["budget", "show", "top"]).out;
        let words = "0.10 USD for 3 threads, without rich, which cannot be read";
        assert!(shown.contains(words), "{shown}");
        let tree = project.run(&["tree", "top"]);
        assert!(tree.err.contains("in no SPENT above"), "{}", tree.err);
    }
}

/// Symptom: one suspended child whose account was lost made every figure of a run's end null. Fix:
/// the others stand there, and what to do about it is to find out what is wrong.
#[test]
fn a_suspended_child_whose_account_is_lost_takes_no_figure_away() {
    let project = project(|host| {
        host.spawn("top", "rich", Some(700_000_001));
        host.spawn("rich", "grandchild", None);
    });
    let store = project.path().join(".ai/threads/registry.db");
    let store = rusqlite::Connection::open(store).unwrap();
    let cause = json!({"reason": "budget", "code": "spend_exceeded", "message": "no money"});
    let short = format!(
        "UPDATE record_head SET value = json_set(value, '$.status', 'suspended', '$.due', NULL, \
         '$.cause', json('{cause}')) WHERE name = 'grandchild'"
    );
    let lost = "DELETE FROM record_chain WHERE name = 'rich'";
    for sql in [short.as_str(), lost] {
        assert_eq!(store.execute(sql, []), Ok(1), "{sql}");
    }
    drop(store);
    let ended = project.json(&["resume", "top", "--message", "Hello."]);
    assert_eq!(ended["status"], "idle", "{ended:#}");
    assert_eq!(ended["tree_unreadable"], json!(["rich"]), "{ended:#}");
    assert_eq!(ended["tree_spend"], ended["cost"]["spend"], "{ended:#}");
    let child = &ended["suspended"][0];
    let told = (&child["thread_id"], &child["next"]);
    let expected = (&json!("grandchild"), &json!("threadkeep audit"));
    assert_eq!(told, expected, "{ended:#}");
}
