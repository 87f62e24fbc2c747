//! Children that share one budget, from the command line, with a model whose longest reply would
//! cost more than all of it.

use crate::cli::fixture::CliProject;
use serde_json::{Value, json};
use std::time::Duration;
use threadkeep_tests::judge::{
    JudgeServer, ServerAnswer, call_reply, finish_chunk, text_chunk, usage_chunk,
};

/// Long enough that the children's calls are under way together.
const CALL: Duration = Duration::from_millis(1_500);
const CHILDREN: usize = 5;

/// Returns true if a request comes from this directive, which its prompt names.
fn is_of(body: &Value, name: &str) -> bool {
    let prompt = format!("You are {name}.");
    body["messages"][0].to_string().contains(&prompt)
}

fn call(index: usize, name: &str, arguments: &Value) -> Value {
    json!({"index": index, "id": format!("c{index}"), "type": "function",
        "function": {"name": name, "arguments": arguments.to_string()}})
}

/// The model: the boss spawns all children in one reply, waits, and then says how many results it
/// read.
fn judge(_: usize, body: &Value, _: &str) -> ServerAnswer {
    let messages = body["messages"].as_array().expect("messages");
    if !is_of(body, "boss") {
        let name = (0..CHILDREN).find(|n| is_of(body, &format!("child{n}")));
        let text = format!("The result of child {}.", name.expect("a child"));
        return ServerAnswer::stream()
            .pause_for(CALL)
            .send_chunks(&[
                text_chunk(&text),
                finish_chunk("stop"),
                usage_chunk(200, 20),
            ])
            .send_done();
    }
    match messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .count()
    {
        0 => {
            let spawn = |n| {
                call(
                    n,
                    "spawn_thread",
                    &json!({"directive": format!("child{n}")}),
                )
            };
            call_reply(&(0..CHILDREN).map(spawn).collect::<Vec<_>>())
        }
        CHILDREN => call_reply(&[call(0, "wait_threads", &json!({}))]),
        _ => {
            let last = messages.last().expect("results").to_string();
            let has = |n: &usize| last.contains(&format!("The result of child {n}."));
            let read = (0..CHILDREN).filter(has).count();
            let text = format!("Read {read} results.");
            ServerAnswer::stream()
                .send_chunks(&[
                    text_chunk(&text),
                    finish_chunk("stop"),
                    usage_chunk(900, 10),
                ])
                .send_done()
        }
    }
}

fn project(address: &str) -> CliProject {
    let project = CliProject::empty();
    let models = format!(
        "providers: {{p: {{wire: openai, base_url: \"http://{address}/v1\"}}}}\n\
         models:\n  large: {{provider: p, window: 1000000, output: 128000, \
         prices: {{input: \"1.00\", output: \"10.00\"}}}}\n\
         tiers: {{default: large}}\n"
    );
    project.write(".ai/config/models.yaml", &models);
    let boss = "---\nlimits: {spend: 1.00}\ncapabilities: [execute.tool.*]\n---\nYou are boss.\n";
    project.write(".ai/directives/boss.md", boss);
    for n in 0..CHILDREN {
        let text = format!("---\n---\nYou are child{n}.\n");
        project.write(&format!(".ai/directives/child{n}.md"), &text);
    }
    project
}

/// Symptom: five children suspended at once with one per cent spent, and their parent ended without
/// their results. Cause: one attempt held all that was left. Kind: a shared budget whose users are
/// under way together.
#[test]
fn five_children_of_one_dollar_complete_with_a_model_that_may_cost_more() {
    let server = JudgeServer::start(judge);
    let project = project(&server.address());
    let document = project.json(&["run", "boss", "--id", "top"]);
    assert_eq!(document["status"], "completed", "{document}");
    assert_eq!(document["result"], "Read 5 results.");
    assert_eq!(document["exit"], 0);
    let tree = project.json(&["tree", "top"]);
    let threads = tree["threads"].as_array().expect("threads");
    assert_eq!(threads.len(), 1 + CHILDREN);
    assert!(
        threads.iter().all(|thread| thread["status"] == "completed"),
        "{tree}"
    );
    let audit = project.json(&["audit"]);
    assert_eq!(audit["findings"], json!([]));
    let asked = server.requests();
    assert_eq!(asked.len(), 3 + CHILDREN, "no call was asked twice");
}
