//! `resume` of threads that have ended: what a person and a program are told, and what a provider
//! is sent.

use crate::models::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use threadkeep_tests::binary::RunningProcess;
use threadkeep_tests::judge::{
    AnswerGate, ServerAnswer, call_reply, finish_chunk, read_file_call, text_chunk, text_reply,
};

/// A project whose model calls a tool first, and then answers each request with its number.
fn project() -> JudgedProject {
    JudgedProject::new(&ProjectPlan::default(), |n, _, _| match n {
        0 => call_reply(&[read_file_call(0, "notes.txt", "a")]),
        n => text_reply_of(n),
    })
}

fn text_reply_of(n: usize) -> ServerAnswer {
    ServerAnswer::stream()
        .send_chunk(&text_chunk(&format!("Answer {n}.")))
        .send_chunk(&finish_chunk("stop"))
        .send_done()
}

#[test]
fn a_thread_that_has_ended_goes_on_in_a_successor() {
    let judged = project();
    let project = &judged.project;
    assert_eq!(judged.run()["status"], "completed");
    let refused = project.json(&["resume", "t"]);
    assert_eq!(refused["error"]["code"], "invalid", "{refused}");
    let hint = refused["error"]["hint"].as_str().unwrap();
    assert!(
        hint.contains("threadkeep resume t --message TEXT"),
        "{hint}"
    );
    let ran = project.run(&["resume", "t", "And the rest?"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert!(
        ran.err.contains("t had completed: going on in go-"),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("Answer 2."), "{}", ran.out);
    // From the first link, in JSON.
    let answer = project.json(&["resume", "t", "Once more."]);
    let second = answer["old_thread_id"].as_str().unwrap().to_owned();
    let third = answer["new_thread_id"].as_str().unwrap().to_owned();
    assert_eq!(answer["thread_id"], third.as_str(), "{answer}");
    assert_eq!(
        (&answer["resumed"], &answer["success"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(answer["original_thread_id"], "t");
    assert_eq!(answer["resolved_thread_id"], second.as_str());
    assert_eq!(answer["previous_status"], "completed");
    assert_eq!(answer["directive"], "go");
    assert_eq!(answer["reconstructed_turns"], 3);
    assert_eq!(answer["new_thread_result"], "Answer 3.");
    let shown = project.json(&["show", "t"]);
    assert_eq!(shown["thread"]["next"], second.as_str());
    assert_eq!(shown["thread"]["result"], "Answer 1.", "its result stays");
    assert_eq!(project.json(&["audit"])["exit"], 0);
    let requests = judged.server.requests();
    let messages: Vec<Vec<&Value>> = requests.iter().map(|one| one.messages()).collect();
    for pair in messages.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        assert_eq!(&after[..before.len()], &before[..], "byte for byte");
    }
    let added = |n: usize| messages[n][messages[n - 1].len()..].to_vec();
    for (n, text) in [(2, "And the rest?"), (3, "Once more.")] {
        let added = added(n);
        assert_eq!(
            added.len(),
            2,
            "the reply before, and the message: {added:?}"
        );
        assert_eq!(added[1]["content"], text);
    }
    assert_eq!(requests[0].body["tools"], requests[3].body["tools"]);
}

/// A cancelled thread tries its last request again, without a message.
#[test]
fn a_cancelled_thread_tries_again() {
    let judged = JudgedProject::new(&ProjectPlan::default(), |n, _, _| match n {
        0 => ServerAnswer::stream()
            .send_chunk(&text_chunk("Half"))
            .pause_for(Duration::from_secs(60)),
        n => text_reply_of(n),
    });
    let project = &judged.project;
    let running = project.start(&["run", "go", "--id", "t"]);
    running.await_err("a reply is under way");
    running.interrupt();
    assert_eq!(running.wait_for_end().code, Some(1));
    let answer = project.json(&["resume", "t"]);
    assert_eq!(
        (&answer["status"], &answer["resumed"]),
        (&json!("completed"), &json!(true))
    );
    assert_eq!(answer["previous_status"], "cancelled");
    let requests = judged.server.requests();
    assert_eq!(
        requests[0].messages(),
        requests[1].messages(),
        "the same request"
    );
    assert_eq!(project.json(&["audit"])["exit"], 0);
}

/// Two processes resume one thread at once: one makes the successor, the other is told of it. The
/// model answers the first only when the other has ended.
#[test]
fn of_two_processes_one_resumes() {
    let gate = AnswerGate::default();
    let held = gate.clone();
    let judged = JudgedProject::new(&ProjectPlan::default(), move |n, _, _| {
        if n > 0 {
            held.wait();
        }
        text_reply(&format!("Answer {n}."))
    });
    let project = &judged.project;
    assert_eq!(judged.run()["status"], "completed");
    let mut both = [(); 2].map(|()| project.start(&["resume", "t", "Go on.", "--json"]));
    let begun = Instant::now();
    while both.iter_mut().all(RunningProcess::is_alive) {
        assert!(
            begun.elapsed() < Duration::from_secs(100),
            "none is refused"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    gate.open();
    let answers = both.map(|one| one.wait_for_end().json());
    let (won, lost) = match answers[0]["error"].is_null() {
        true => (&answers[0], &answers[1]),
        false => (&answers[1], &answers[0]),
    };
    assert_eq!(won["status"], "completed", "{answers:#?}");
    assert_eq!(
        (&lost["error"]["code"], &lost["exit"]),
        (&json!("busy"), &json!(4))
    );
    let successor = won["new_thread_id"].as_str().unwrap();
    let message = lost["error"]["message"].as_str().unwrap();
    assert!(message.contains(successor), "{message}");
    let listed = project.json(&["list"]);
    assert_eq!(listed["threads"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(judged.server.requests().len(), 2);
    assert_eq!(project.json(&["audit"])["exit"], 0);
}
