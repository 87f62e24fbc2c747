//! The scripted provider through its public interface.

use super::*;
use crate::models::{FailureKind, ReplyBlock, ReplyDelta, Usage};
use std::time::Duration;
use threadkeep_storage::locks::SleepingMutex;

fn request(messages: &[&str]) -> CompletionRequest {
    let message = |(n, text): (usize, &&str)| {
        let role = if n % 2 == 0 { "user" } else { "assistant" };
        serde_json::json!({"role": role, "content": [{"type": "text", "text": text}]}).to_string()
    };
    CompletionRequest {
        model: "m".into(),
        system: "Be brief.".into(),
        tools: Vec::new(),
        messages: messages.iter().enumerate().map(message).collect(),
        images: Default::default(),
        output_max: 100,
        session: None,
    }
}

async fn ask(
    llm: &ScriptedProvider,
    request: &CompletionRequest,
) -> (Result<ModelCompletion, ModelFailure>, Vec<ReplyDelta>) {
    let deltas = SleepingMutex::new(Vec::new());
    let result = llm
        .complete(request, &|delta| deltas.lock().push(delta))
        .await;
    (result, deltas.into_inner())
}

fn code(result: Result<ModelCompletion, ModelFailure>) -> String {
    match result {
        Ok(completion) => completion.finish,
        Err(failure) => failure.code,
    }
}

#[tokio::test]
async fn a_whole_reply_streams_in_pieces() {
    let llm = ScriptedProvider::parse(
        r#"[{"thinking":"hmm","text":"Grüße","chunk":2,
             "calls":[{"name":"f","arguments":{"b":1.50,"a":"x"}},
                 {"name":"g","arguments":"{\"a\":"},{"name":"h"}]}]"#,
    )
    .unwrap();
    let (result, deltas) = ask(&llm, &request(&["Hi"])).await;
    let call = |n: u8, name: &str, arguments: &str| ReplyBlock::ToolUse {
        id: format!("scripted_{n}"),
        name: name.into(),
        arguments: arguments.into(),
        raw: None,
    };
    let completion = result.unwrap();
    let want = [
        ReplyBlock::Thinking {
            text: "hmm".into(),
            raw: None,
        },
        ReplyBlock::Text {
            text: "Grüße".into(),
        },
        call(0, "f", r#"{"b":1.50,"a":"x"}"#),
        call(1, "g", r#"{"a":"#),
        call(2, "h", "{}"),
    ];
    assert_eq!(completion.blocks, want);
    assert_eq!(completion.finish, "tool_use");
    let (text, thinking) = (
        |s: &str| ReplyDelta::Text(s.into()),
        |s: &str| ReplyDelta::Thinking(s.into()),
    );
    let call = |s: &str| ReplyDelta::ToolUse(s.into());
    let want = [
        thinking("hm"),
        thinking("m"),
        text("Gr"),
        text("üß"),
        text("e"),
        call("f"),
        call("g"),
        call("h"),
    ];
    assert_eq!(deltas, want);
}

#[tokio::test]
async fn usage_is_estimated_given_or_missing() {
    let request = request(&["Hi"]);
    let input = (request.system.len() + request.messages[0].len()) as u64 / 4;
    for (fields, want) in [
        (
            "",
            Some(Usage {
                input,
                output: 2,
                ..Usage::default()
            }),
        ),
        (r#","usage":"none""#, None),
        (
            r#","usage":{"input":5,"output":4,"read":3,"write":2,"reasoning":1}"#,
            Some(Usage {
                input: 5,
                output: 4,
                read: 3,
                write: 2,
                reasoning: 1,
            }),
        ),
    ] {
        let llm = ScriptedProvider::parse(&format!(r#"{{"text":"12345678"{fields}}}"#)).unwrap();
        assert_eq!(ask(&llm, &request).await.0.unwrap().usage, want, "{fields}");
    }
}

#[tokio::test]
async fn many_threads_and_a_resumed_process_share_one_script() {
    let script = r#"[{"text":"1","finish":"1"},{"text":"2","finish":"2"}]"#;
    let llm = ScriptedProvider::parse(script).unwrap();
    for turn in [request(&["a"]), request(&["b"])] {
        assert_eq!(code(ask(&llm, &turn).await.0), "1");
    }
    let resumed = ScriptedProvider::parse(script).unwrap();
    for llm in [&llm, &resumed] {
        assert_eq!(code(ask(llm, &request(&["a", "1", "go on"])).await.0), "2");
        let (result, deltas) = ask(llm, &request(&["a", "1", "b", "2", "c"])).await;
        let failure = result.unwrap_err();
        assert_eq!(
            (failure.kind, failure.code.as_str()),
            (FailureKind::Permanent, "script_ended")
        );
        assert_eq!(
            failure.message,
            "the script has no reply for request 3 of this conversation"
        );
        assert!(!failure.sent && deltas.is_empty());
    }
}

#[tokio::test]
async fn failures_count_the_tries_of_one_conversation() {
    let llm = ScriptedProvider::parse(
        r#"[{"fail":{"kind":"rate-limited","code":"x","message":"slow down",
                "retry_after_ms":1500,"times":2}},
            {"fail":{"code":"y","partial":"Hel","sent":false,"usage":{"input":7}},"text":"a"},
            {"text":"b"}]"#,
    )
    .unwrap();
    let mut lowered = request(&["a"]);
    lowered.output_max = 5;
    let failure = ask(&llm, &request(&["a"])).await.0.unwrap_err();
    let want = ModelFailure {
        kind: FailureKind::RateLimited,
        code: "x".into(),
        message: "slow down".into(),
        retry_after: Some(Duration::from_millis(1_500)),
        sent: true,
        refused: false,
        usage: None,
        partial: String::new(),
    };
    assert_eq!(failure, want);
    assert_eq!(code(ask(&llm, &lowered).await.0), "x");
    assert_eq!(
        code(ask(&llm, &request(&["another"])).await.0),
        "x",
        "another conversation has its own count"
    );
    let (result, deltas) = ask(&llm, &request(&["a"])).await;
    let failure = result.unwrap_err();
    assert_eq!(
        (
            failure.code.as_str(),
            failure.partial.as_str(),
            failure.sent
        ),
        ("y", "Hel", false)
    );
    assert_eq!(
        failure.usage,
        Some(Usage {
            input: 7,
            ..Usage::default()
        })
    );
    assert_eq!(deltas, [ReplyDelta::Text("Hel".into())]);
    assert_eq!(code(ask(&llm, &request(&["a"])).await.0), "stop");
    assert_eq!(code(ask(&llm, &request(&["a", "a", "b"])).await.0), "stop");
    assert_eq!(
        code(ask(&llm, &request(&["a"])).await.0),
        "x",
        "the count ended with the answer"
    );
}

#[tokio::test]
async fn a_part_of_its_own_for_a_child() {
    let llm = ScriptedProvider::parse(
        r###"[{"text":"p"},{"for":"You are a child","text":"c"},{"for":"## Hand","text":"h"}]"###,
    )
    .unwrap();
    let mut child = request(&["Hi"]);
    child.system = "You are a child.".into();
    for (request, want) in [
        (request(&["Hi"]), "p"),
        (child, "c"),
        (request(&["## Handoff"]), "h"),
    ] {
        let completion = ask(&llm, &request).await.0.unwrap();
        assert_eq!(completion.blocks, [ReplyBlock::Text { text: want.into() }]);
    }
}

#[tokio::test]
async fn delays_are_kept() {
    let llm =
        ScriptedProvider::parse(r#"{"text":"abc","chunk":1,"delay_ms":30,"pause_ms":20}"#).unwrap();
    let request = request(&["Hi"]);
    // The last delta is due after 70 ms; a shorter timer that was set before fires first.
    let sooner = tokio::time::sleep(Duration::from_millis(60));
    tokio::select! {
        biased;
        early = ask(&llm, &request) => panic!("{early:?}"),
        () = sooner => {}
    }
    assert!(ask(&llm, &request).await.0.is_ok());
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_refused() {
    let mut bad = request(&["a"]);
    bad.messages.push("{".into());
    let llm = ScriptedProvider::parse(r#"{"text":"a"}"#).unwrap();
    let failure = ask(&llm, &bad).await.0.unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.sent),
        ("request_unreadable", false)
    );
}
