//! A tree of three levels under one budget, in which the parent and its children hand off while
//! they wait for each other, against third-party model servers over real HTTP.

use crate::component::project::open;
use cap_std::fs::Dir;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use threadkeep::audit::audit;
use threadkeep::driver::{EventSink, RunEvent, StopReceiver};
use threadkeep::project::OpenProject;
use threadkeep::storage::StorageBackend;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_tests::llmock::{LlmockServer, MockWire};

const LEVELS: [&str; 3] = ["top", "mid", "leaf"];
/// Rounds of each thread: more than three windows of four thousand tokens.
const ROUNDS: usize = 28;

fn calls(text: &str, calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    json!({"type": "reply", "text": text, "tool_calls": calls})
}

/// Returns the replies of a level: it spawns the next, reads, waits for it, and ends.
fn replies(level: usize) -> Value {
    let read = ("read_file", json!({"path": "notes.txt"}));
    let name = LEVELS[level];
    let mut replies = Vec::new();
    if let Some(next) = LEVELS.get(level + 1) {
        let spawn = ("spawn_thread", json!({"directive": next}));
        replies.push(calls("begun", &[spawn, read.clone()]));
    }
    for n in 0..ROUNDS {
        let text = format!("{name}{n:02}{}{}", "航".repeat(80), "x".repeat(200));
        replies.push(calls(&text, std::slice::from_ref(&read)));
    }
    if level + 1 < LEVELS.len() {
        replies.push(calls("waiting", &[("wait_threads", json!({}))]));
    }
    replies.push(json!({"type": "reply", "text": format!("{name} is done")}));
    Value::from(replies)
}

fn project(
    servers: &[LlmockServer],
    summaries: &LlmockServer,
) -> (tempfile::TempDir, Arc<dyn StorageBackend>, OpenProject) {
    let temporary = tempfile::tempdir().unwrap();
    let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
    dir.create_dir_all(".ai/directives").unwrap();
    dir.create_dir_all(".ai/config").unwrap();
    let wire = MockWire::OpenAi;
    let mut providers = format!(
        "  writer: {{wire: openai, base_url: \"{}\"}}\n",
        summaries.base_url(wire)
    );
    let prices = "prices: {input: 1, output: 2}";
    let mut models =
        format!("  writer: {{provider: writer, window: 16000, output: 1000, {prices}}}\n");
    for (name, server) in LEVELS.iter().zip(servers) {
        let url = server.base_url(wire);
        providers += &format!("  {name}: {{wire: openai, base_url: \"{url}\"}}\n");
        models += &format!("  {name}: {{provider: {name}, window: 4000, output: 300, {prices}}}\n");
        let directive = format!(
            "---\nmodel: {name}\nlimits: {{turns: 100{}}}\ncapabilities: [execute.tool.read_file, \
             execute.tool.spawn_thread, execute.tool.wait_threads]\n---\nYou are {name}.\n",
            if *name == "top" { ", spend: 2" } else { "" }
        );
        dir.write(format!(".ai/directives/{name}.md"), directive)
            .unwrap();
    }
    let text =
        format!("providers:\n{providers}models:\n{models}tiers: {{default: top, fast: writer}}\n");
    dir.write(".ai/config/models.yaml", text).unwrap();
    dir.write("notes.txt", "海".repeat(60)).unwrap();
    let store: Arc<dyn StorageBackend> = Arc::new(MemoryStore::new());
    let project = open(dir, Some(Arc::clone(&store)), &[]);
    (temporary, store, project)
}

#[tokio::test]
async fn a_tree_completes_whose_threads_hand_off_while_they_wait() {
    let mut servers = Vec::new();
    for level in 0..LEVELS.len() {
        let Some(server) = LlmockServer::start() else {
            return;
        };
        server.queue_behaviors(&replies(level));
        servers.push(server);
    }
    let Some(writer) = LlmockServer::start() else {
        return;
    };
    let summaries =
        vec![json!({"type": "reply", "text": format!("summary:{}", "s".repeat(200))}); 60];
    writer.queue_behaviors(&Value::from(summaries));
    let (_kept, store, project) = project(&servers, &writer);
    let draft = threadkeep_tests::fixture::draft(Some("top"));
    let top = project.tenant().create(draft).await.unwrap().id;
    let (sink, mut stream) = EventSink::channel();
    let driver = project.driver();
    let ended = driver
        .run(&top, None, &sink, &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!(ended.status, "completed", "{ended:?}");
    drop((driver, sink));
    let mut handed_off = BTreeMap::new();
    while let Some(event) = stream.recv().await {
        let event = match event {
            RunEvent::Child { event, .. } => *event,
            event => event,
        };
        if let RunEvent::HandedOff { to, .. } = event {
            let thread = project.tenant().get(&to).await.unwrap();
            *handed_off.entry(thread.directive.unwrap()).or_insert(0) += 1;
        }
    }
    for level in LEVELS {
        let count = handed_off.get(level).copied().unwrap_or(0);
        assert!(
            count >= 2,
            "{level} handed off {count} times: {handed_off:?}"
        );
    }
    for (level, server) in LEVELS.iter().zip(&servers) {
        assert_eq!(server.pending(), [] as [Value; 0], "{level} has asked all");
        assert_eq!(server.findings(), [] as [Value; 0], "{level}");
    }
    check_money(&project, &*store, &top, handed_off.values().sum()).await;
}

/// Checks that one account has paid for all links of all chains, and that the audit agrees.
async fn check_money(
    project: &OpenProject,
    store: &dyn StorageBackend,
    top: &str,
    handed_off: usize,
) {
    let tenant = project.tenant();
    let (mut spent, mut threads, mut cursor) = (0, 0, None);
    loop {
        let filter = threadkeep::wit::registry::Filter::All;
        let page = tenant.list(filter, 100, cursor).await.unwrap();
        threads += page.threads.len();
        spent += page.threads.iter().map(|row| row.cost.spend).sum::<u64>();
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(threads, LEVELS.len() + handed_off);
    let account = tenant.account(top).await.unwrap();
    assert_eq!(
        (account.spent, account.held, account.reserved),
        (spent, 0, 0)
    );
    let report = audit(store).unwrap();
    assert_eq!(report.findings, [], "{report:?}");
}
