//! Each field of a policy bounds the values that a tenant's files ask for: with the field, less is
//! granted or the request is refused; without it, all of it is granted. The page about policies
//! documents every field.

use super::raise;
use crate::component::project::{describe_draft, engine, project_dir};
use std::sync::Arc;
use threadkeep::authority::ProjectDir;
use threadkeep::error::CallError;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::wit;
use threadkeep::wit::registry::Draft;

const MODELS: &str = r#"
providers: {local: {wire: scripted, file: script.json}}
models:
  tiny: {provider: local, window: 32000, output: 1000, prices: {input: "1.00", output: "2.00"}}
tiers: {default: tiny}
"#;

/// Opens a tenant's project under a policy, with a directive that asks for everything.
fn open_under_policy(policy: Policy) -> (tempfile::TempDir, OpenProject) {
    let (kept, dir) = project_dir(MODELS);
    dir.write(".ai/script.json", r#"[{"text": "Done."}]"#)
        .unwrap();
    let greedy = "---\ncapabilities: ['execute.tool.*']\nlimits: \
                  {turns: 900, tokens: 9000000, spend: 90, \
                  spawns: 900, depth: 90, duration: 9000}\n---\nTake all.\n";
    dir.write(".ai/directives/greedy.md", greedy).unwrap();
    let options = ProjectOptions {
        store: Some(Arc::new(MemoryStore::new())),
        ..ProjectOptions::new(policy)
    };
    (
        kept,
        OpenProject::open(engine(), &ProjectDir::from_dir(dir), options).unwrap(),
    )
}

fn parse_policy(text: &str) -> Policy {
    Policy::parse(text, "policy.yaml").unwrap()
}

fn greedy_draft() -> Draft {
    Draft {
        directive: Some("greedy".to_owned()),
        inputs: None,
        ..describe_draft()
    }
}

fn caps(limits: &wit::Limits) -> [Option<u64>; 6] {
    let wit::Limits {
        turns,
        tokens,
        spend,
        spawns,
        depth,
        duration,
    } = *limits;
    let [turns, spawns, depth] = [turns, spawns, depth].map(|count| count.map(u64::from));
    [turns, tokens, spend, spawns, depth, duration]
}

#[tokio::test]
async fn every_cap_of_a_policy_lowers_what_a_directive_asks_and_refuses_to_be_raised() {
    let (_kept, project) = open_under_policy(Policy::preset(PolicyPreset::Local));
    let asked = caps(
        &project
            .tenant()
            .create(greedy_draft())
            .await
            .unwrap()
            .limits,
    );
    let dollars = 1_000_000_000;
    let expected = [900, 9_000_000, 90 * dollars, 900, 90, 9_000_000].map(Some);
    assert_eq!(asked, expected, "nothing bounds it");
    for (at, (name, text, most)) in [
        ("turns", "3", 3),
        ("tokens", "4", 4),
        ("spend", "0.05", 50_000_000),
        ("spawns", "5", 5),
        ("depth", "2", 2),
        ("duration", "1.5", 1_500),
    ]
    .into_iter()
    .enumerate()
    {
        let (_kept, project) =
            open_under_policy(parse_policy(&format!("limits: {{{name}: {text}}}")));
        let thread = project.tenant().create(greedy_draft()).await.unwrap();
        let mut lowered = expected;
        lowered[at] = Some(most);
        assert_eq!(caps(&thread.limits), lowered, "{name}");
        let mut raised = [None; 6];
        raised[at] = Some(most + 1);
        let [turns, tokens, spend, spawns, depth, duration] = raised;
        let count = |cap: Option<u64>| cap.map(|cap| u32::try_from(cap).unwrap());
        let more = wit::Limits {
            turns: count(turns),
            tokens,
            spend,
            spawns: count(spawns),
            depth: count(depth),
            duration,
        };
        let signal = raise(more);
        let refused = project
            .tenant()
            .signal(&thread.id, "r", signal)
            .await
            .unwrap_err();
        let said = refused.to_string();
        assert!(said.contains(&format!("limits.{name} ")), "{said}");
        assert!(said.contains("that the operator's policy allows"), "{said}");
    }
}

#[tokio::test]
async fn preset_sets_caps_that_a_directive_leaves_open() {
    for (preset, turns) in [("local", 25), ("strict", 10)] {
        let (_kept, project) = open_under_policy(parse_policy(&format!("preset: {preset}")));
        let chat = Draft {
            directive: None,
            ..greedy_draft()
        };
        let thread = project.tenant().create(chat).await.unwrap();
        assert_eq!(thread.limits.turns, Some(turns), "{preset}");
    }
}

#[tokio::test]
async fn models_and_providers_that_are_not_granted_are_refused_by_the_name_of_the_policy() {
    for (text, words) in [
        (
            "models: {tinny: }",
            "model \"tiny\" is not granted by the operator's policy, policy.yaml",
        ),
        ("models: {}", "it grants none"),
        ("providers: {other: }", "provider \"local\" is not granted"),
    ] {
        let (_kept, project) = open_under_policy(parse_policy(text));
        let refused = project.tenant().create(greedy_draft()).await;
        let Err(CallError::Refused(wit::Error::Invalid(invalid))) = &refused else {
            panic!("{text}: {refused:?}");
        };
        let said = refused.as_ref().unwrap_err().to_string();
        assert!(said.contains(words), "{text}: {said}");
        let near = (text == "models: {tinny: }").then_some("tinny");
        assert_eq!(invalid.nearest.as_deref(), near, "{text}");
    }
    for text in [
        "models: {tiny: }",
        "providers: {local: }",
        "providers: {local: {wire: scripted}}",
    ] {
        let (_kept, project) = open_under_policy(parse_policy(text));
        assert!(
            project.tenant().create(greedy_draft()).await.is_ok(),
            "{text}"
        );
        assert!(project.check_model("default").is_ok(), "{text}");
    }
    let (_kept, project) = open_under_policy(parse_policy("providers: {local: {wire: openai}}"));
    let failure = project.check_model("default").unwrap_err();
    assert!(
        failure.message.contains("speaks openai, not scripted"),
        "{failure}"
    );
}

/// The tools that a thread of `greedy` is offered in its first step.
async fn offered_tools(policy: Policy) -> Vec<String> {
    let (_kept, project) = open_under_policy(policy);
    let tenant = project.tenant();
    let thread = tenant.create(greedy_draft()).await.unwrap();
    let handle = tenant
        .start(&thread.id, None, "h/1", "k", None)
        .await
        .unwrap();
    let request = handle.step.request.expect("a model call");
    request.tools.into_iter().map(|tool| tool.name).collect()
}

#[tokio::test]
async fn tools_that_are_not_granted_are_not_offered() {
    let all = offered_tools(Policy::preset(PolicyPreset::Local)).await;
    assert_eq!(all[..3], ["list_files", "read_file", "search_files"]);
    assert_eq!(all.len(), 14, "and the built-in ones: {all:?}");
    assert_eq!(
        offered_tools(parse_policy("tools: [read_file, 'list_*']")).await,
        ["list_files", "read_file", "list_threads"]
    );
    assert!(offered_tools(parse_policy("tools: []")).await.is_empty());
}

#[test]
fn the_page_about_policies_has_every_key() {
    let page = include_str!("../../../docs/policy.md");
    let example = page
        .split("```yaml policy.yaml\n")
        .nth(1)
        .expect("an example");
    let example = example.split("```").next().expect("it ends");
    let Policy {
        name: _,
        preset,
        limits,
        models,
        tools,
        approvals,
        providers,
        ceilings,
        unknown_bill,
        quota_bytes,
        book,
    } = parse_policy(example);
    assert_eq!((preset.as_str(), limits.len()), ("strict", 6));
    let lists = (
        models.map(|m| m.len()),
        tools.map(|t| t.len()),
        providers.map(|p| p.len()),
    );
    assert_eq!(lists, (Some(2), Some(2), Some(4)));
    assert_eq!(approvals, ["send_*", "spawn_thread"]);
    assert_eq!(
        (quota_bytes, book.as_deref()),
        (Some(500_000_000), Some("used.json"))
    );
    for (name, value) in ceilings.named_values() {
        assert_eq!(value.is_some(), name != "unpriced", "{name}: {value:?}");
    }
    assert!(example.contains("unpriced: false"));
    assert_eq!(unknown_bill.as_str(), "estimate");
}
