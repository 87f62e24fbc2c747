//! Runs of a component that is played: what is shown after each step, and what the answer says.

use super::*;
use crate::contract::{
    AccountRecord, CallBill, CallError, CallRefusal, ChangeSet, ChargePage, CommittedChange,
    CostEstimate, EntryPage, ExpectedVersion, HeldMoney, ListPage, OpenedThread, RunLease,
    RunRecord, SignalContent, ThreadBase, ThreadDraft, ThreadFilter, ThreadSnapshot, ThreadUsage,
    TokenUsage, TranscriptPiece, TreeBranch, TreePage, UnreadableThread,
};
use crate::screen::tests::screen;
use crate::threads::{HolderLife, block_on};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use threadkeep_adapters::blobs::BlobName;

/// One step of a played run: the threads and entries after it, and the answer about it.
struct PlayedStep {
    threads: Vec<Thread>,
    entries: Vec<(&'static str, Entry)>,
    answer: &'static str,
}

/// A project that knows the threads of the steps so far.
#[derive(Default)]
struct PlayedProject {
    steps: RefCell<VecDeque<PlayedStep>>,
    threads: RefCell<BTreeMap<String, Thread>>,
    entries: RefCell<Vec<(&'static str, Entry)>>,
    inputs: RefCell<Vec<Option<String>>>,
    waits: Cell<u32>,
    /// True if a resume without a message is refused, because nothing is to be answered.
    lacks_message: bool,
    refreshed: RefCell<Vec<String>>,
}

/// Defines calls that no run makes.
macro_rules! unplayed_calls {
    ($(fn $name:ident($($type:ty),*) -> $answer:ty;)*) => {$(
        async fn $name(&self, $(_: $type),*) -> CallResult<$answer> {
            Err(refuse_call())
        }
    )*};
}

fn refuse_call() -> CallError {
    CallError::Failed(CommandFault::new("unplayed", "no run makes this call"))
}

impl ProjectThreads for PlayedProject {
    unplayed_calls! {
        fn create(ThreadDraft) -> Thread;
        fn list(ThreadFilter, u32, Option<String>) -> ListPage;
        fn set_title(&str, Option<String>) -> Thread;
        fn load(&str, Option<u64>) -> ThreadSnapshot;
        fn open_thread(&str, &str, UnixTime) -> OpenedThread;
        fn append_change(&str, Option<u64>, ExpectedVersion, ChangeSet) -> CommittedChange;
        fn close_thread(&str, u64, &str, Option<String>) -> CommittedChange;
        fn fork_at(&str, u64, Option<String>) -> Thread;
        fn account(&str) -> AccountRecord;
        fn hold(&str, u64, &str, CostEstimate, UnixTime) -> HeldMoney;
        fn settle(&str, u64, CallBill) -> u64;
        fn release(&str, u64) -> u64;
        fn chain(&str, Option<String>) -> String;
        fn render(&str, &str, Option<u64>, u64, Option<String>) -> TranscriptPiece;
        fn signal(&str, &str, SignalContent) -> u64;
        fn sweep_all(Option<&str>) -> Vec<UnreadableThread>;
    }

    async fn get(&self, thread: &str) -> CallResult<Thread> {
        let found = self.threads.borrow().get(thread).cloned();
        found.ok_or_else(refuse_call)
    }

    async fn entries(
        &self,
        thread: &str,
        after: u64,
        _: u32,
        _: Option<String>,
    ) -> CallResult<EntryPage> {
        let entries = self.entries.borrow();
        let shown = entries
            .iter()
            .filter(|(of, entry)| *of == thread && entry.version > after);
        Ok(EntryPage {
            entries: shown.map(|(_, entry)| entry.clone()).collect(),
            cursor: None,
        })
    }

    async fn tree(&self, thread: &str, _: Option<String>) -> CallResult<TreePage> {
        let top = self.get(thread).await?;
        let branch = TreeBranch {
            spend: top.cost.spend,
            status: top.status,
            thread: top.id,
            ..TreeBranch::default()
        };
        Ok(TreePage {
            branches: vec![branch],
            ..TreePage::default()
        })
    }

    async fn charges(&self, _: &str, _: u64, _: Option<String>) -> CallResult<ChargePage> {
        Ok(ChargePage::default())
    }

    async fn store_image(&self, _: &str, _: Vec<u8>) -> Result<BlobName, CommandFault> {
        Err(fault::from_call(&refuse_call()))
    }

    fn takes_images(&self, _: &str) -> bool {
        false
    }

    fn library_names(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn policy_cap(&self, _: &str) -> Option<u64> {
        None
    }

    fn holder_life(&self, _: &RunLease) -> HolderLife {
        HolderLife::Unknown
    }

    fn is_empty(&self) -> bool {
        false
    }

    fn is_memory_only(&self) -> bool {
        false
    }

    fn now(&self) -> UnixTime {
        UnixTime::default()
    }

    fn random_digits(&self) -> String {
        "0".to_owned()
    }

    async fn refresh_documents(&self, _: &str, _: &mut OutputScreen) {}
}

impl InnerRuns for PlayedProject {
    async fn run_inside(
        &self,
        _: &str,
        input: Option<String>,
        holder: &str,
        steps: u32,
    ) -> CallResult<String> {
        assert_eq!((holder, steps), ("bundle-0/1", 1));
        let is_refused = self.lacks_message && input.as_deref() == Some(RESUMPTION_INPUT);
        self.inputs.borrow_mut().push(input);
        if is_refused {
            let details = r#"{"field":"input","value":"","problem":"is missing"}"#;
            let words = ("input is missing".to_owned(), String::new());
            let refusal =
                CallRefusal::from_record(("invalid", String::new()), words, None, details);
            return Err(CallError::Refused(refusal));
        }
        let Some(step) = self.steps.borrow_mut().pop_front() else {
            return Err(refuse_call());
        };
        let threads = step.threads.into_iter();
        self.threads
            .borrow_mut()
            .extend(threads.map(|thread| (thread.id.clone(), thread)));
        self.entries.borrow_mut().extend(step.entries);
        Ok(step.answer.to_owned())
    }

    async fn follow_step(&self, _: &Thread, _: &mut OutputScreen) {}

    async fn refresh_after_run(&self, thread: &str, _: &mut OutputScreen) {
        self.refreshed.borrow_mut().push(thread.to_owned());
    }

    fn wait_until(&self, _: Option<UnixTime>) {
        self.waits.set(self.waits.get() + 1);
    }
}

fn thread(id: &str, version: u64, status: &str, turns: u32) -> Thread {
    Thread {
        id: id.to_owned(),
        chain: "a".to_owned(),
        status: status.to_owned(),
        version,
        run: RunRecord {
            number: 1,
            ..RunRecord::default()
        },
        cost: ThreadUsage {
            turns,
            usage: TokenUsage {
                input: 10 * u64::from(turns),
                ..TokenUsage::default()
            },
            ..ThreadUsage::default()
        },
        ..Thread::default()
    }
}

fn entry(version: u64, events: &str) -> Entry {
    Entry {
        version,
        body: format!("{{\"events\":[{events}]}}"),
        ..Entry::default()
    }
}

fn play(steps: Vec<PlayedStep>, first: Thread) -> PlayedProject {
    let project = PlayedProject {
        steps: RefCell::new(steps.into()),
        ..PlayedProject::default()
    };
    let id = first.id.clone();
    project.threads.borrow_mut().insert(id, first);
    project
}

#[test]
fn a_run_is_shown_step_by_step_and_answered_from_its_records() {
    let tool = r#"{"type":"tool_use","name":"read_file","arguments":"{}","id":"x"}"#;
    let result = r#"{"type":"result","model":"m"}"#;
    let reply = r#"{"type":"assistant_text","text":"Let me look."}"#;
    let last =
        r#"{"type":"message","role":"assistant","content":[{"type":"text","text":"Oats."}]}"#;
    let done = r#"{"type":"tool_result","name":"read_file","text":"oats","failed":false}"#;
    let steps = vec![
        PlayedStep {
            threads: vec![thread("a", 2, "running", 1)],
            entries: vec![
                (
                    "a",
                    entry(1, r#"{"type":"message","role":"user","content":[]}"#),
                ),
                ("a", entry(2, &format!("{reply},{tool},{result}"))),
            ],
            answer: r#"{"state":"more","for":"steps","thread":"a","status":"running","steps":1}"#,
        },
        PlayedStep {
            threads: vec![thread("a", 3, "running", 1)],
            entries: vec![("a", entry(3, done))],
            answer: r#"{"state":"more","for":"time","until":{"seconds":5,"nanos":0},"thread":"a"}"#,
        },
        PlayedStep {
            threads: vec![thread("a", 4, "completed", 2)],
            entries: vec![("a", entry(4, &format!("{last},{result}")))],
            answer: r#"{"state":"finished","thread":"a","status":"completed","left":
                [{"thread":"b","kind":"busy","code":""}]}"#,
        },
    ];
    let first = Thread {
        run: RunRecord::default(),
        ..thread("a", 0, "created", 0)
    };
    let project = play(steps, first);
    let (mut screen, out, err) = screen(false, false);
    let order = RunOrder {
        thread: "a".to_owned(),
        input: Some("{}".to_owned()),
        ..RunOrder::default()
    };
    let performed = block_on(perform(&project, order, &mut screen)).unwrap();
    assert_eq!(out.text(), "Let me look.\nOats.\n");
    let expected = "run 1 of a\n\
        turn 1: 10 input and 0 output tokens, 0.00 USD\n  read_file {}\n  read_file done, 4 \
        bytes\n  waiting\nturn 2: 10 input and 0 output tokens, 0.00 USD\n";
    assert_eq!(err.text(), expected);
    let answer = performed.answer;
    assert_eq!(
        (answer.text.as_str(), answer.status.as_str()),
        ("Oats.", "completed")
    );
    assert_eq!((answer.exit, answer.cost.turns), (CommandExit::Done, 2));
    assert_eq!(answer.left_alone[0].message, "it could not be begun: busy");
    // The input is given once, and a wait is waited for.
    let inputs = project.inputs.borrow().clone();
    let expected = r#"{"id":"cli-0"}"#.to_owned();
    assert_eq!(inputs, [Some(expected), None, None]);
    assert_eq!(project.waits.get(), 1);
}

#[test]
fn a_hand_off_is_followed_and_its_cost_counted() {
    let handoff = r#"{"type":"thread_handoff","new_thread_id":"b"}"#;
    let linked = |version, status, turns| Thread {
        base: Some(ThreadBase {
            length: 1,
            ..ThreadBase::default()
        }),
        ..thread("b", version, status, turns)
    };
    let left = Thread {
        next: Some("b".to_owned()),
        more: r#"{"tip":"b"}"#.to_owned(),
        ..thread("a", 2, "continued", 3)
    };
    let steps = vec![PlayedStep {
        threads: vec![left, linked(2, "suspended", 1)],
        entries: vec![
            ("a", entry(2, handoff)),
            ("b", entry(2, r#"{"type":"suspended"}"#)),
        ],
        answer: r#"{"state":"more","for":"person","thread":"b","status":"suspended"}"#,
    }];
    let project = play(steps, thread("a", 1, "idle", 2));
    let (mut screen, _, err) = screen(false, false);
    let order = RunOrder {
        thread: "a".to_owned(),
        ..RunOrder::default()
    };
    let answer = block_on(perform(&project, order, &mut screen))
        .unwrap()
        .answer;
    assert!(err.text().contains("continued in b\n"), "{}", err.text());
    assert_eq!(
        (answer.thread_id.as_str(), answer.exit),
        ("b", CommandExit::Suspended)
    );
    assert_eq!(
        (answer.handed_off, answer.cost.turns),
        (vec!["a".to_owned()], 4)
    );
}

#[test]
fn a_thread_that_had_ended_goes_on_in_its_successor() {
    let resumed = r#"{"type":"thread_resumed","new_thread_id":"b","reconstructed_turns":2}"#;
    let old = Thread {
        next: Some("b".to_owned()),
        more: r#"{"tip":"b"}"#.to_owned(),
        ..thread("a", 4, "completed", 2)
    };
    let steps = vec![PlayedStep {
        threads: vec![old, thread("b", 5, "completed", 1)],
        entries: vec![("a", entry(4, resumed))],
        answer: r#"{"state":"finished","thread":"b","status":"completed"}"#,
    }];
    let project = play(steps, thread("a", 3, "completed", 2));
    let (mut screen, _, err) = screen(false, false);
    let order = RunOrder {
        thread: "a".to_owned(),
        input: Some("{}".to_owned()),
        resumes: Some("completed".to_owned()),
        ..RunOrder::default()
    };
    let performed = block_on(perform(&project, order, &mut screen)).unwrap();
    assert!(
        err.text().contains("a had completed: going on in b"),
        "{}",
        err.text()
    );
    let resumption = performed.resumption.unwrap();
    assert_eq!(
        (&*resumption.old_thread_id, &*resumption.new_thread_id),
        ("a", "b")
    );
    assert_eq!(resumption.reconstructed_turns, 2);
    assert_eq!(
        (
            performed.answer.handed_off.len(),
            performed.answer.cost.turns
        ),
        (0, 1)
    );
}

/// Symptom: `resume` of a cancelled thread without a message did nothing, because the loop begins
/// none that has ended; `run 0 of` the old thread was shown.
#[test]
fn a_cancelled_thread_that_is_resumed_without_a_message_goes_on_in_a_successor() {
    let resumed = r#"{"type":"thread_resumed","new_thread_id":"b","reconstructed_turns":0}"#;
    let old = Thread {
        next: Some("b".to_owned()),
        more: r#"{"tip":"b"}"#.to_owned(),
        run: RunRecord::default(),
        ..thread("a", 4, "cancelled", 0)
    };
    let first = Thread {
        run: RunRecord::default(),
        ..thread("a", 3, "cancelled", 0)
    };
    let reply = r#"{"type":"assistant_text","text":"Oats."}"#;
    let steps = vec![PlayedStep {
        threads: vec![old, thread("b", 2, "completed", 1)],
        entries: vec![("a", entry(4, resumed)), ("b", entry(2, reply))],
        answer: r#"{"state":"finished","thread":"b","status":"completed","steps":1}"#,
    }];
    let project = play(steps, first);
    let (mut screen, out, err) = screen(false, false);
    let order = RunOrder {
        thread: "a".to_owned(),
        resumes: Some("cancelled".to_owned()),
        ..RunOrder::default()
    };
    let performed = block_on(perform(&project, order, &mut screen)).unwrap();
    assert_eq!(out.text(), "Oats.\n");
    let expected = "a had been cancelled: going on in b\nrun 1 of b\n";
    assert!(err.text().starts_with(expected), "{}", err.text());
    assert_eq!(performed.resumption.unwrap().new_thread_id, "b");
    let resumption = Some(RESUMPTION_INPUT.to_owned());
    assert_eq!(project.inputs.borrow().clone(), [resumption]);
}

/// Symptom: the command ended with 0 and a summary, where the native program asks for the message.
#[test]
fn a_resume_that_needs_a_message_is_refused() {
    for status in ["idle", "suspended", "completed"] {
        let steps = vec![PlayedStep {
            threads: Vec::new(),
            entries: Vec::new(),
            answer: r#"{"state":"finished","thread":"a","status":"idle","steps":0}"#,
        }];
        let project = PlayedProject {
            lacks_message: true,
            ..play(steps, thread("a", 3, status, 1))
        };
        let (mut screen, _, err) = screen(false, false);
        let order = RunOrder {
            thread: "a".to_owned(),
            resumes: Some(status.to_owned()),
            ..RunOrder::default()
        };
        let fault = block_on(perform(&project, order, &mut screen)).unwrap_err();
        assert_eq!(
            (fault.code.as_str(), fault.exit),
            ("invalid", CommandExit::Error),
            "{status}"
        );
        assert_eq!(err.text(), "", "{status}");
    }
}

#[test]
fn an_error_of_a_step_names_the_thread_and_ends_the_command() {
    let project = play(Vec::new(), thread("a", 0, "created", 0));
    let (mut screen, _, _) = screen(false, false);
    let order = RunOrder {
        thread: "a".to_owned(),
        ..RunOrder::default()
    };
    let fault = block_on(perform(&project, order, &mut screen)).unwrap_err();
    assert_eq!(
        (fault.code.as_str(), fault.exit),
        ("unplayed", CommandExit::Error)
    );
}
