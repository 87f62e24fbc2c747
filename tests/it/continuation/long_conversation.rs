//! A conversation of two hundred turns in a window of four thousand tokens, against a third-party
//! model server over real HTTP. Half of it is Chinese, of which a character is a token.

use crate::component::project::open;
use cap_std::fs::Dir;
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::audit::audit;
use threadkeep::driver::{EndedRun, EventSink, RunEvent, StopReceiver};
use threadkeep::project::OpenProject;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit::{self, runner};
use threadkeep_tests::llmock::{LlmockServer, MockWire};

const WINDOW: u64 = 4_000;
const TURNS: usize = 200;
/// The operator writes after each so many turns.
const MESSAGE_EVERY: usize = 20;
/// Tool rounds of one run before its cap on turns is raised.
const TURNS_OF_DIRECTIVE: u32 = 25;
const SUMMARIES_MAX: usize = 120;

/// A project whose thread and whose summaries have a server each.
fn project(
    thread: &str,
    summaries: &str,
) -> (tempfile::TempDir, Arc<dyn StorageBackend>, OpenProject) {
    let temporary = tempfile::tempdir().unwrap();
    let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
    dir.create_dir_all(".ai/directives").unwrap();
    dir.create_dir_all(".ai/config").unwrap();
    let models = format!(
        r#"
providers:
  thread: {{wire: openai, base_url: "{thread}"}}
  summary: {{wire: openai, base_url: "{summaries}"}}
models:
  small: {{provider: thread, window: {WINDOW}, output: 300, prices: {{input: "1", output: "2"}}}}
  writer: {{provider: summary, window: 16000, output: 1000, prices: {{input: "1", output: "2"}}}}
tiers: {{default: small, fast: writer}}
"#
    );
    dir.write(".ai/config/models.yaml", models).unwrap();
    let directive = format!(
        "---\nlimits: {{turns: {TURNS_OF_DIRECTIVE}, spend: 5}}\n\
         capabilities: [execute.tool.read_file]\n---\nKeep the log of the voyage.\n"
    );
    dir.write(".ai/directives/voyage.md", directive).unwrap();
    dir.write("notes.txt", "海".repeat(60)).unwrap();
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let project = open(dir, Some(Arc::clone(&store)), &[]);
    (temporary, store, project)
}

/// A reply of some 130 tokens that calls a tool. It is one word, so that the server sends it at
/// once.
fn turn(n: usize) -> Value {
    let text = format!("turn{n:03}{}{}", "航".repeat(70), "x".repeat(200));
    let call = json!({"name": "read_file", "arguments": {"path": "notes.txt"}});
    json!({"type": "reply", "text": text, "tool_calls": [call]})
}

fn summary(n: usize) -> Value {
    json!({"type": "reply", "text": format!("summary{n:03}:{}", "s".repeat(300))})
}

/// Counts the tokens of a text: four ASCII characters make one, every other character is one.
fn count_tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    let others = text.chars().filter(|c| !c.is_ascii()).count() as u64;
    ascii.div_ceil(4) + others
}

/// Counts a request as it was sent: the texts, calls and results of all messages, and the schemas.
fn count_request(body: &Value) -> u64 {
    let mut tokens = body["tools"].as_array().map_or(0, |tools| {
        tools
            .iter()
            .map(|tool| count_tokens(&tool.to_string()))
            .sum()
    });
    for message in body["messages"].as_array().unwrap() {
        tokens += match &message["content"] {
            Value::String(text) => count_tokens(text),
            Value::Null => 0,
            blocks => count_tokens(&blocks.to_string()),
        };
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            tokens += count_tokens(call["function"]["name"].as_str().unwrap());
            tokens += count_tokens(call["function"]["arguments"].as_str().unwrap());
        }
    }
    tokens
}

/// Sends the operator's message to the thread in which the run is.
async fn write_message(project: &OpenProject, thread: &str, n: usize) {
    let content = json!({"role": "user", "content": format!("operator{n:03} asks: how far?")});
    let what = runner::SignalKind::Message(content.to_string());
    let sent = project
        .tenant()
        .signal(thread, &format!("m{n}"), what)
        .await;
    sent.unwrap();
}

/// Performs the run until it stops, and writes a message now and then.
///
/// Symptom: under load 199 turns of 200 were counted. Cause: the events and the end of the run were
/// awaited side by side, and the end was taken while events still waited. Fix: all events are read.
/// Kind: no other reader of events ends with the run.
async fn run(project: &OpenProject, thread: &str, turns: &mut usize) -> (EndedRun, usize) {
    let (sink, mut stream) = EventSink::channel();
    let (mut tip, mut handed_off) = (thread.to_owned(), 0);
    let driver = project.driver();
    let never = StopReceiver::never();
    let run = async {
        let ended = driver.run(thread, None, &sink, &never).await;
        // The loop below ends with the last event, and not with the run.
        drop(sink);
        ended.unwrap()
    };
    let follow = async {
        while let Some(event) = stream.recv().await {
            match event {
                RunEvent::HandedOff { to, .. } => {
                    handed_off += 1;
                    tip = to;
                }
                RunEvent::Turn { .. } => {
                    *turns += 1;
                    if turns.is_multiple_of(MESSAGE_EVERY) && *turns < TURNS {
                        write_message(project, &tip, *turns).await;
                    }
                }
                _ => {}
            }
        }
    };
    let (ended, ()) = tokio::join!(run, follow);
    (ended, handed_off)
}

async fn raise_turns(project: &OpenProject, thread: &str) {
    let caps = wit::Limits {
        turns: Some(1_000),
        tokens: Some(10_000_000),
        spend: None,
        spawns: None,
        depth: None,
        duration: Some(3_600_000),
    };
    let what = runner::SignalKind::Raise(runner::Raised {
        caps,
        through: false,
    });
    project
        .tenant()
        .signal(thread, "raise", what)
        .await
        .unwrap();
}

#[tokio::test]
async fn two_hundred_turns_run_to_completion_in_a_small_window() {
    let (Some(thread), Some(writer)) = (LlmockServer::start(), LlmockServer::start()) else {
        return;
    };
    let turns: Vec<Value> = (1..TURNS).map(turn).collect();
    let last = json!({"type": "reply", "text": "The voyage is over."});
    thread.queue_behaviors(&Value::from([turns, vec![last]].concat()));
    let summaries: Vec<Value> = (1..=SUMMARIES_MAX).map(summary).collect();
    writer.queue_behaviors(&Value::from(summaries));
    let wire = MockWire::OpenAi;
    let (_kept, store, project) = project(&thread.base_url(wire), &writer.base_url(wire));
    let draft = threadkeep_tests::fixture::draft(Some("voyage"));
    let first = project.tenant().create(draft).await.unwrap().id;
    let mut done = 0;
    let (stopped, before) = run(&project, &first, &mut done).await;
    let cause = stopped.cause.as_ref().map(|cause| cause.code.as_str());
    assert_eq!(cause, Some("turns_exceeded"), "{stopped:?}");
    raise_turns(&project, &stopped.thread).await;
    let (ended, after) = run(&project, &stopped.thread, &mut done).await;
    assert_eq!(ended.status, "completed", "{ended:?}");
    assert_eq!(done, TURNS);
    assert!(before + after >= 10, "{before} and {after} hand-offs");
    check_requests(&thread.requests(), &writer.requests(), before + after);
    check_chain(&project, &*store, (&first, &ended.thread), before + after).await;
    assert_eq!(thread.findings(), [] as [Value; 0]);
    assert_eq!(writer.findings(), [] as [Value; 0]);
}

/// Checks what the two servers were sent.
fn check_requests(turns: &[Value], summaries: &[Value], handed_off: usize) {
    assert_eq!((turns.len(), summaries.len()), (TURNS, handed_off));
    let counts = turns.iter().map(|request| count_request(&request["body"]));
    let largest = counts.max().unwrap();
    println!("{handed_off} hand-offs, the largest request has {largest} tokens");
    assert!(largest <= WINDOW, "{largest}");
    let sent = summaries[0]["body"]["messages"].to_string();
    assert!(
        sent.contains("turn001"),
        "the first summary is of the first link's text: {sent}"
    );
    let texts = turns
        .iter()
        .map(|request| request["body"]["messages"].to_string());
    let mut summary = 0;
    for text in texts {
        // Each later link opens with the summary of the one before, and with none that is older.
        let named: Vec<usize> = (1..=handed_off)
            .filter(|n| text.contains(&format!("summary{n:03}:")))
            .collect();
        assert!(named.len() <= 1, "{named:?}");
        let now = named.first().copied().unwrap_or(0);
        assert!(
            now == summary || now == summary + 1,
            "{now} after {summary}"
        );
        summary = now;
    }
    assert_eq!(summary, handed_off);
}

/// Checks that the chain, the account, the tree and the audit agree.
async fn check_chain(
    project: &OpenProject,
    store: &dyn StorageBackend,
    (first, tip): (&str, &str),
    handed_off: usize,
) {
    let tenant = project.tenant();
    let (mut links, mut cursor) = (Vec::new(), None);
    loop {
        let page: Value =
            serde_json::from_str(&tenant.chain(first, cursor).await.unwrap()).unwrap();
        links.extend(page["chain"].as_array().unwrap().clone());
        cursor = page["cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(links.len(), handed_off + 1);
    let mut spent = 0;
    let mut turns = 0;
    for link in &links {
        let thread = tenant
            .get(link["thread_id"].as_str().unwrap())
            .await
            .unwrap();
        spent += thread.cost.spend;
        turns += thread.cost.turns as usize;
    }
    assert_eq!(links.last().unwrap()["thread_id"], tip);
    assert_eq!(turns, TURNS, "a summary is no turn");
    let account = tenant.account(tip).await.unwrap();
    assert_eq!(
        (account.spent, account.held, account.reserved),
        (spent, 0, 0)
    );
    assert_eq!((account.chain.as_str(), account.users), (first, 0));
    let report = audit(store).unwrap();
    assert_eq!(report.findings, [], "{report:?}");
}
