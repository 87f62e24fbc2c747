//! Ctrl-C that meets a hand-off, in a process of its own: whichever link the run is in by then, the
//! tip of the chain is cancelled, and nothing is held any more.

use crate::models::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use threadkeep_tests::binary::{ProcessOutput, RunningProcess};
use threadkeep_tests::judge::{
    AnswerGate, chunk, finish_chunk, stream_reply, text_reply, usage_chunk,
};

/// The number of the request for the summary, and of the first of the next link.
const SUMMARY: usize = 1;
const NEXT_LINK: usize = 2;

/// A chat with a nearly full window: its next request hands it off.
struct FullChat {
    judged: JudgedProject,
    /// Holds the answer with the summary, and the first reply of the next link.
    gates: [AnswerGate; 2],
    /// The requests that the server is about to answer or to hold.
    asked: mpsc::Receiver<usize>,
}

impl FullChat {
    fn new() -> Self {
        let gates = [AnswerGate::default(), AnswerGate::default()];
        let (ask, asked) = mpsc::channel();
        let (ask, held) = (Arc::new(Mutex::new(ask)), gates.clone());
        let judged = JudgedProject::new(&ProjectPlan::default(), move |n, _, _| {
            let ask = ask.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match n {
                0 => {
                    return stream_reply(&[
                        chunk(&json!({"content": "One."}), None),
                        finish_chunk("stop"),
                        usage_chunk(31_000, 10),
                    ]);
                }
                SUMMARY => {
                    let _ = ask.send(n);
                    held[0].wait();
                    let _ = ask.send(n);
                }
                _ => {
                    let _ = ask.send(n);
                    held[1].wait();
                }
            }
            text_reply("## Pending Work")
        });
        let said = judged.say(&"long ".repeat(12_000));
        assert_eq!(said.code, Some(0), "{}", said.err);
        Self {
            judged,
            gates,
            asked,
        }
    }

    /// Resumes the chat with a message, and waits until the summary is asked for.
    fn resume(&self) -> RunningProcess {
        let running = self.judged.project.start(&["resume", "c", "And now?"]);
        self.await_request(SUMMARY);
        running
    }

    fn await_request(&self, expected: usize) {
        let asked = self.asked.recv_timeout(Duration::from_secs(100));
        assert_eq!(asked, Ok(expected));
    }

    /// Checks that the run ended as cancelled, at the tip; returns the number of links.
    fn check_cancelled(&self, ran: &ProcessOutput) -> u64 {
        assert_eq!(ran.code, Some(1), "{ran:#?}");
        assert!(ran.err.contains("status  cancelled"), "{}", ran.err);
        let project = &self.judged.project;
        let chain = project.json(&["chain", "c"]);
        let tip = chain["tip"].as_str().unwrap();
        let shown = project.json(&["show", tip]);
        let thread = &shown["thread"];
        assert_eq!(
            (&thread["status"], &thread["run"]["holder"]),
            (&json!("cancelled"), &Value::Null),
            "{thread}"
        );
        assert_eq!(chain["account"]["held"], "0.00", "{chain}");
        let recovered = project.json(&["recover"]);
        assert_eq!(recovered["recovered"], json!([]), "{recovered}");
        assert_eq!(project.json(&["audit"])["findings"], json!([]));
        // Nobody is sent on: the chain can be resumed from its first link.
        self.gates.iter().for_each(AnswerGate::open);
        let resumed = project.json(&["resume", "c", "Go on."]);
        assert_eq!(resumed["previous_status"], "cancelled", "{resumed}");
        assert_eq!(resumed["status"], "idle", "{resumed}");
        chain["chain_length"].as_u64().unwrap()
    }
}

#[test]
fn an_interrupt_during_the_summary_cancels_the_link_that_writes_it() {
    let chat = FullChat::new();
    let running = chat.resume();
    running.interrupt();
    let links = chat.check_cancelled(&running.wait_for_end());
    assert_eq!(links, 1);
}

#[test]
fn an_interrupt_after_the_hand_off_cancels_the_next_link() {
    let chat = FullChat::new();
    let running = chat.resume();
    chat.gates[0].open();
    chat.await_request(SUMMARY);
    chat.await_request(NEXT_LINK);
    running.interrupt();
    let ran = running.wait_for_end();
    assert!(ran.err.contains("continued in"), "{}", ran.err);
    assert_eq!(chat.check_cancelled(&ran), 2);
}

/// The signal arrives about when the summary does, so around the commit of the hand-off: before it,
/// beside it, and after it.
#[test]
fn an_interrupt_at_the_commit_of_a_hand_off_is_never_lost() {
    for millis in [0, 2, 5, 10, 20, 40, 80] {
        let chat = FullChat::new();
        let running = chat.resume();
        chat.gates[0].open();
        chat.await_request(SUMMARY);
        std::thread::sleep(Duration::from_millis(millis));
        running.interrupt();
        let links = chat.check_cancelled(&running.wait_for_end());
        assert!((1..=2).contains(&links), "{millis} ms: {links} links");
    }
}
