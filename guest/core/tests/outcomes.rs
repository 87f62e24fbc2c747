//! Pins the texts of outcomes, by whose hash a repeated result is known. Every later version hashes
//! what one version was given to the same value.

use threadkeep_core::json;
use threadkeep_core::ledger::Usage;
use threadkeep_core::money::NanoUsd;
use threadkeep_core::runner::{
    LlmCompletion, LlmFailure, ReplyBlock, StepOutcome, ToolOutcome, ToolState,
};

/// The hash of this text identifies a repeated result.
fn usage() -> Usage {
    Usage {
        input: 1,
        output: 2,
        read: 3,
        write: 4,
        reasoning: 5,
    }
}

fn failure() -> LlmFailure {
    LlmFailure {
        kind: "transient".into(),
        code: "c".into(),
        message: "m".into(),
        retry: Some(5),
        sent: true,
        refused: false,
        usage: Some(usage()),
        partial: "p".into(),
    }
}

fn completion() -> LlmCompletion {
    let thinking = |raw: Option<&str>| ReplyBlock::Thinking {
        text: "t".into(),
        raw: raw.map(str::to_owned),
    };
    let call = ReplyBlock::ToolUse {
        id: "i".into(),
        name: "n".into(),
        arguments: "{}".into(),
        raw: None,
    };
    let text = ReplyBlock::Text { text: "t".into() };
    LlmCompletion {
        blocks: vec![text, thinking(None), thinking(Some("{}")), call],
        finish: "stop".into(),
        usage: Some(usage()),
        session: Some("s".into()),
        ..LlmCompletion::default()
    }
}

#[test]
fn outcomes_keep_their_bytes() {
    let bare = LlmCompletion {
        blocks: Vec::new(),
        finish: "stop".into(),
        ..LlmCompletion::default()
    };
    let outcome = |state| ToolOutcome {
        version: 7,
        index: 1,
        state,
        failed: false,
        content: "c".into(),
        blocks: Vec::new(),
        cost: NanoUsd::new(9),
        patches: None,
        operations: None,
    };
    let outcomes = vec![outcome(ToolState::Done), outcome(ToolState::Interrupted)];
    for (outcome, text) in [
        (
            StepOutcome::Completion(completion()),
            concat!(
                r#"{"completion":{"blocks":[{"type":"text","text":"t"},{"type":"thinking","#,
                r#""text":"t","raw":null},{"type":"thinking","text":"t","raw":"{}"},"#,
                r#"{"type":"tool_use","id":"i","name":"n","arguments":"{}"}],"finish":"stop","#,
                r#""usage":{"input":1,"output":2,"read":3,"write":4,"reasoning":5},"#,
                r#""session":"s"}}"#
            ),
        ),
        (
            StepOutcome::Completion(bare),
            r#"{"completion":{"blocks":[],"finish":"stop","usage":null,"session":null}}"#,
        ),
        (
            StepOutcome::Failure(failure()),
            concat!(
                r#"{"failure":{"kind":"transient","code":"c","message":"m","retry":5,"#,
                r#""sent":true,"usage":{"input":1,"output":2,"read":3,"write":4,"reasoning":5},"#,
                r#""partial":"p"}}"#
            ),
        ),
        (
            StepOutcome::Stopped(LlmFailure::default()),
            concat!(
                r#"{"stopped":{"kind":"","code":"","message":"","retry":null,"sent":false,"#,
                r#""usage":null,"partial":""}}"#
            ),
        ),
        (
            StepOutcome::ToolOutcomes(outcomes),
            concat!(
                r#"{"outcomes":[{"version":7,"index":1,"state":"done","failed":false,"#,
                r#""content":"c","cost":9},{"version":7,"index":1,"state":"interrupted","#,
                r#""failed":false,"content":"c","cost":9}]}"#
            ),
        ),
        (StepOutcome::Waited, r#""waited""#),
    ] {
        assert_eq!(json::to_text(&outcome), text);
    }
}
