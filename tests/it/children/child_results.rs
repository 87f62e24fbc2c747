//! Results that a thread gets about its children: every cut is named, and the newest and the
//! requested results come first.

use super::fixture::{ThreadFamily, ToolCallResult};
use crate::history::branch_fixture::{PlantedLink, plant_link};
use crate::runner::fixture::{RunnerFixture, calls, fails, says};
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_core::history::escaped_bytes;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{ANSWER_BYTES_MAX, StepOutcome};
use threadkeep_tests::fixture::MapLibrary;

fn parse_answer(got: &ToolCallResult) -> Value {
    assert!(!got.1, "{got:?}");
    serde_json::from_str(&got.2).unwrap()
}

/// Spawns a child that completes with this result.
fn complete_child(family: &mut ThreadFamily, result: &str) -> String {
    let child = family.spawn_running("work");
    family.world.submit(&child, says(result)).unwrap();
    child
}

/// Symptom: a parent worked with the first 1,200 bytes of its only child's result and did not know
/// it. Cause: each result was cut as if 32 children were waited for. Fix: the children share the
/// room of the answer, a cut is named, and `aggregate_results` reads on from there. Kind: each
/// answer that holds results, or causes.
#[test]
fn results_share_the_room_of_an_answer_and_a_cut_is_named() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let text = "All of it counts. ".repeat(2_000);
    let child = complete_child(&mut family, &text);
    let got = family.reply(&boss, &[("wait_threads", json!({}))]);
    let told = parse_answer(&got[0]);
    assert_eq!(told["threads"][0]["result"], text.as_str());
    assert!(told["threads"][0].get("cut").is_none(), "{told}");

    // A small result leaves its room to the large one, which is cut and names where it goes on.
    let large = "\"Quoted\", 漢字. ".repeat(3_000);
    let large_child = complete_child(&mut family, &large);
    let wait = ("wait_threads", json!({"threads": [child, large_child]}));
    let got = family.reply(&boss, &[wait]);
    assert!(escaped_bytes(&got[0].2) <= ANSWER_BYTES_MAX);
    let told = parse_answer(&got[0]);
    let shares: Vec<usize> = (0..2)
        .map(|n| told["threads"][n]["result"].as_str().unwrap().len())
        .collect();
    assert!(shares.iter().all(|share| *share > 15_000), "{shares:?}");
    assert!(told["threads"][1]["cut"].is_string(), "{told}");

    let mut read = String::new();
    for _ in 0..10 {
        let from = match read.len() {
            0 => json!({"threads": [large_child]}),
            from => json!({"threads": [large_child], "from": from}),
        };
        let got = family.reply(&boss, &[("aggregate_results", from)]);
        let told = parse_answer(&got[0]);
        read.push_str(told[0]["result"].as_str().unwrap());
        let cut = told[0]["cut"].as_str().unwrap_or_default();
        if !cut.contains("shows more") {
            break;
        }
        assert!(cut.contains(&format!("from {} shows", read.len())), "{cut}");
    }
    assert_eq!(read, large, "the whole of it was read");
}

/// Many answers of one reply share its room, and none is cut in the middle of its JSON.
#[test]
fn several_answers_of_one_reply_stay_whole() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    complete_child(&mut family, &"x".repeat(60_000));
    let aggregate = ("aggregate_results", json!({}));
    let got = family.reply(&boss, &vec![aggregate; 4]);
    let mut before = usize::MAX;
    for got in &got {
        let told = parse_answer(got);
        let shown = told[0]["result"].as_str().unwrap().len();
        assert!(shown > 1_000 && shown < before, "{shown} after {before}");
        assert!(told[0]["cut"].is_string(), "{told}");
        before = shown;
    }
}

/// Symptom: `read_transcript` of a long thread showed none of its newest messages. Cause: a page of
/// the history was read from its older end and cut at a mebibyte. Fix: it is read from the newest
/// entry back. Kind: large results and failures without messages among the newest entries.
/// Everything left out or cut is named.
#[test]
fn a_transcript_shows_the_newest_messages() {
    let mut family = ThreadFamily::in_world(RunnerFixture::over(
        Arc::new(MemoryStore::new()),
        MapLibrary::small_with_window(20_000_000),
    ));
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    let caps = ThreadCaps {
        spend: Some(NanoUsd::new(100_000_000_000)),
        ..ThreadCaps::NONE
    };
    let raise = crate::runner::fixture::raise(caps);
    family.world.service.signal(&boss, "more", &raise).unwrap();
    for _ in 0..5 {
        let handed = family.world.submit(&child, calls(&[("read", "{}")]));
        handed.unwrap();
        let StepOutcome::ToolOutcomes(mut outcomes) = family.world.outcomes(&child) else {
            panic!("there are calls");
        };
        outcomes[0].content = "x".repeat(400_000);
        family
            .world
            .submit(&child, StepOutcome::ToolOutcomes(outcomes))
            .unwrap();
    }
    for _ in 0..2 {
        let failed = StepOutcome::Failure(fails("permanent", false));
        family.world.submit(&child, failed).unwrap();
        family.world.start(&child, None).unwrap();
    }
    family
        .world
        .submit(&child, says("the newest words"))
        .unwrap();
    for (last, cuts) in [(1, false), (10, true), (50, true)] {
        let read = ("read_transcript", json!({"thread": child, "last": last}));
        let got = family.reply(&boss, &[read]);
        assert!(!got[0].1, "{got:?}");
        let lines: Vec<&str> = got[0].2.lines().collect();
        assert!(lines.last().unwrap().contains("the newest words"));
        assert_eq!(lines[0].starts_with("[cut: the newest"), cuts, "{last}");
        let bytes = lines.iter().any(|line| line.contains(" bytes shown]"));
        assert_eq!((bytes, lines.len() > 3), (cuts, cuts), "{last}");
    }
}

/// A child that was continued shows what it rests on, too.
#[test]
fn a_transcript_of_a_link_goes_back_along_its_path() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    family.world.submit(&child, says("words before")).unwrap();
    let link = PlantedLink {
        tip: &child,
        id: "link",
        from: 1,
    };
    plant_link(&family.world, link);
    family.world.start("link", Some("words between")).unwrap();
    family.world.submit("link", says("words after")).unwrap();
    for last in [1, 2, 3, 4, 50] {
        let read = ("read_transcript", json!({"thread": "link", "last": last}));
        let got = family.reply(&boss, &[read]);
        let shown = [
            "Execute the directive.",
            "words before",
            "words between",
            "words after",
        ];
        let lines: Vec<&str> = got[0].2.lines().collect();
        let expected = &shown[shown.len() - shown.len().min(last)..];
        assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        for (line, words) in lines.iter().zip(expected) {
            assert!(line.contains(words), "{line} {words}");
        }
    }
}

/// Entries without a message are skipped, however many there are.
#[test]
fn a_transcript_looks_behind_entries_without_messages() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let child = family.spawn_running("work");
    for _ in 0..4 {
        let failed = StepOutcome::Stopped(fails("cancelled", false));
        family.world.submit(&child, failed).unwrap();
        family.world.start(&child, None).unwrap();
    }
    let read = ("read_transcript", json!({"thread": child, "last": 1}));
    let got = family.reply(&boss, &[read]);
    assert!(got[0].2.contains("Execute the directive."), "{got:?}");
}

/// Symptom: `list_threads` with a status found nothing in a large tree. Cause: it filtered one page
/// of the tree. Fix: pages are read until enough threads match. Kind: with and without a status;
/// `more` says whether any follow.
#[test]
fn a_list_filters_before_it_cuts() {
    let mut family = ThreadFamily::new();
    let boss = family.boss.clone();
    let caps = ThreadCaps {
        spawns: Some(100),
        ..ThreadCaps::NONE
    };
    let raise = crate::runner::fixture::raise(caps);
    family.world.service.signal(&boss, "more", &raise).unwrap();
    let spawn = ("spawn_thread", json!({"directive": "work"}));
    let mut newest = String::new();
    for _ in 0..5 {
        family.world.advance(10);
        let got = family.reply(&boss, &vec![spawn.clone(); 14]);
        let told = parse_answer(got.last().unwrap());
        told["thread"].as_str().unwrap().clone_into(&mut newest);
    }
    family.world.start(&newest, None).unwrap();
    for (arguments, count, more) in [
        (json!({"status": "running"}), 1, false),
        (json!({"status": "killed"}), 0, false),
        (json!({"status": "created"}), 50, true),
        (json!({}), 50, true),
    ] {
        let got = family.reply(&boss, &[("list_threads", arguments.clone())]);
        let told = parse_answer(&got[0]);
        let threads = told["threads"].as_array().unwrap();
        let found = (threads.len(), told["more"].as_bool().unwrap());
        assert_eq!(found, (count, more), "{arguments}");
    }
}
