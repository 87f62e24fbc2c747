//! The cost of a call that an embedder's tool reports: it is settled on the thread's account and
//! counts against the operator's ceiling.

use super::project::{engine, project_dir};
use std::sync::Arc;
use std::time::Duration;
use threadkeep::authority::ProjectDir;
use threadkeep::driver::{EndedRun, EventSink, StopReceiver};
use threadkeep::models::BoxFuture;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::tools::{TOOL_COST_NANOS_MAX, ToolEntry, ToolResult, ToolSet};
use threadkeep::wit::registry::Draft;
use threadkeep_core::money::NanoUsd;

/// A tool whose call costs this much.
struct PaidTool(u64);

impl ToolSet for PaidTool {
    fn catalog(&self) -> Vec<ToolEntry> {
        let schema = r#"{"type": "object"}"#;
        let time = Duration::from_secs(5);
        vec![ToolEntry::new("fetch", "Fetches a page.", schema, time).idempotent()]
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async { ToolResult::failure("no such page").with_cost(self.0) })
    }
}

const MODELS: &str = "providers: {s: {wire: scripted, file: s.json}}\n\
                      models:\n  m: {provider: s, window: 8000, output: 100, \
                      prices: {input: \"1\", output: \"1\"}}\n\
                      tiers: {default: m}\n";

/// Two rounds with one paid call each, and a last reply; a turn costs 110,000 nano-USD.
const SCRIPT: &str = r#"[
  {"calls": [{"name": "fetch", "arguments": {}}], "usage": {"input": 100, "output": 10}},
  {"calls": [{"name": "fetch", "arguments": {}}], "usage": {"input": 100, "output": 10}},
  {"text": "It is gone.", "usage": {"input": 100, "output": 10}}]"#;
const TURN_NANOS: u64 = 110_000;

/// Runs a chat whose two calls cost this much each.
async fn run_with_cost(nanos: u64, policy: Policy) -> (tempfile::TempDir, OpenProject, EndedRun) {
    let (temporary, dir) = project_dir(MODELS);
    dir.write(".ai/s.json", SCRIPT).unwrap();
    let options = ProjectOptions {
        tools: vec![Arc::new(PaidTool(nanos))],
        ..ProjectOptions::new(policy)
    };
    let project = OpenProject::open(engine(), &ProjectDir::from_dir(dir), options).unwrap();
    let draft = Draft {
        id: Some("paid".to_owned()),
        capabilities: vec!["execute.tool.*".to_owned()],
        ..Draft::default()
    };
    project.tenant().create(draft).await.unwrap();
    let input = Some(threadkeep::models::user_message("Fetch it."));
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let ended = project.driver().run("paid", input, &sink, &stop).await;
    (temporary, project, ended.unwrap())
}

async fn result_costs(project: &OpenProject) -> Vec<u64> {
    let page = project.tenant().events("paid", 0, 100, None).await.unwrap();
    let results = page.events.iter().filter(|one| one.kind == "tool_result");
    let bodies = results.map(|one| serde_json::from_str::<serde_json::Value>(&one.body).unwrap());
    bodies.map(|body| body["cost"].as_u64().unwrap()).collect()
}

/// Symptom: a tool of an embedder could not report what its call cost: the driver always said 0.
#[tokio::test(flavor = "multi_thread")]
async fn a_reported_cost_is_settled_with_the_result() {
    let (_temporary, project, ended) =
        run_with_cost(2_000_000, Policy::preset(PolicyPreset::Local)).await;
    assert_eq!(ended.status, "idle", "{ended:?}");
    let expected = 2 * 2_000_000 + 3 * TURN_NANOS;
    assert_eq!(ended.costs.spend_nanos, expected);
    let account = project.tenant().account("paid").await.unwrap();
    assert_eq!((account.spent, account.held), (expected, 0));
    assert_eq!(result_costs(&project).await, [2_000_000; 2]);
    let report = project.audit().await.unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_cost_is_cut_at_the_most_of_one_call() {
    assert_eq!(NanoUsd::new(TOOL_COST_NANOS_MAX), NanoUsd::BILL_MAX);
    let (_temporary, project, ended) =
        run_with_cost(u64::MAX, Policy::preset(PolicyPreset::Local)).await;
    let costs = result_costs(&project).await;
    assert!(!costs.is_empty(), "{ended:?}");
    assert!(
        costs.iter().all(|cost| *cost == TOOL_COST_NANOS_MAX),
        "{costs:?}"
    );
    let report = project.audit().await.unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_cost_counts_against_the_operators_ceiling() {
    let policy = "preset: local\nceilings: {spend: 0.005}\n\
                  providers: {s: {wire: scripted}}\n\
                  models: {m: {prices: {input: \"1\", output: \"1\"}}}\n";
    let policy = Policy::parse(policy, "policy.yaml").unwrap();
    let (_temporary, _project, ended) = run_with_cost(6_000_000, policy).await;
    let cause = ended.cause.unwrap();
    assert_eq!(cause.code, "ceiling_spend", "{cause:?}");
    assert_eq!(ended.costs.turns, 1, "the second model call is refused");
}
