//! Random conversations in the normal form, as the component keeps them: see `provider_messages_of`
//! in `guest/core/src/history/message.rs` for the messages of an entry, and
//! `guest/core/src/runner/` for the order of entries.
//!
//! A history is an opening and replies. Each reply is followed by everything that came before the
//! next model call: the results of its calls, messages of the user, or nothing if the reply was
//! cut, withheld or empty and the run continued after it. So a model call can follow the opening
//! and every reply. `history_writer` turns a history into messages.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A conversation before it is written for one server.
#[derive(Debug, Clone)]
pub(super) struct RandomHistory {
    /// Messages of the user; each number is the number of its texts.
    pub opening: Vec<usize>,
    pub replies: Vec<RandomReply>,
}

/// A reply of the model and everything between it and the next model call.
#[derive(Debug, Clone)]
pub(super) struct RandomReply {
    pub parts: Vec<ReplyPart>,
    /// True for a reply that was cut or withheld: the run does not end with it, though it has no
    /// calls.
    pub is_cut: bool,
    /// Messages of the user after the reply and its results; each number is the number of its
    /// texts.
    pub mail: Vec<usize>,
    /// Versions of the thread since the previous entry.
    pub versions: u64,
}

#[derive(Debug, Clone)]
pub(super) enum ReplyPart {
    Words,
    Blank(&'static str),
    Thinking(ThinkingSource),
    Call(RandomCall),
}

/// The author of a block of thinking and the form in which it was kept.
#[derive(Debug, Clone, Copy)]
pub(super) enum ThinkingSource {
    /// This provider on OpenAI's wire: the field, and true if it sent `reasoning_details`.
    Own(&'static str, bool),
    /// Another provider on OpenAI's wire, with the same fields.
    Other(&'static str, bool),
    /// Anthropic's wire.
    Signed,
    Redacted,
    Unsigned,
    /// A `raw` that is not JSON.
    Broken,
    /// No `raw`.
    Bare,
}

#[derive(Debug, Clone)]
pub(super) struct RandomCall {
    pub name: String,
    pub arguments: &'static str,
    pub source: CallSource,
    pub result: ResultShape,
    /// Number of the results message that holds its result: refused at once, run, or waited for.
    pub round: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum CallSource {
    Own(IdShape, CallFields),
    Other(IdShape, CallFields),
    Broken,
    Bare,
}

/// The form of a provider's id. There are only a few numbers, so that ids repeat.
#[derive(Debug, Clone, Copy)]
pub(super) enum IdShape {
    Plain(u8),
    Kimi(u8),
    Long,
    Blank,
    Accented,
    Empty,
}

/// Fields that a provider sent with a call beside its id.
#[derive(Debug, Clone, Copy)]
pub(super) enum CallFields {
    None,
    Google,
    Gateway,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ResultShape {
    Completed,
    Failed,
    Silent(&'static str),
    Interrupted,
}

/// Generates a conversation.
pub(super) fn any_history() -> impl Strategy<Value = RandomHistory> {
    (vec(1..3_usize, 1..3), vec(any_reply(), 0..7))
        .prop_map(|(opening, replies)| RandomHistory { opening, replies })
}

fn any_reply() -> impl Strategy<Value = RandomReply> {
    let quiet = prop_oneof![
        4 => Just(ReplyPart::Words),
        1 => any_blank(),
        2 => any_thinking(),
    ];
    let calling = prop_oneof![
        2 => Just(ReplyPart::Words),
        1 => any_blank(),
        2 => any_thinking(),
        6 => any_call(),
    ];
    let parts = prop_oneof![
        1 => Just(Vec::new()),
        3 => vec(quiet, 1..4),
        4 => vec(calling, 1..8),
    ];
    let mail = prop_oneof![
        3 => Just(Vec::new()),
        2 => vec(1..3_usize, 1..3),
    ];
    (parts, any::<bool>(), mail, 1..4_u64).prop_map(|(mut parts, is_cut, mail, versions)| {
        keep_calls(&mut parts, 5);
        RandomReply {
            parts,
            is_cut,
            mail,
            versions,
        }
    })
}

fn keep_calls(parts: &mut Vec<ReplyPart>, calls_max: usize) {
    let mut calls = 0;
    parts.retain(|part| {
        calls += usize::from(matches!(part, ReplyPart::Call(_)));
        !matches!(part, ReplyPart::Call(_)) || calls <= calls_max
    });
}

fn any_blank() -> impl Strategy<Value = ReplyPart> {
    select(vec!["", " \n", "\t", "\u{a0}"]).prop_map(ReplyPart::Blank)
}

fn any_thinking() -> impl Strategy<Value = ReplyPart> {
    let own = (any_field(), any::<bool>());
    let other = (any_field(), any::<bool>());
    prop_oneof![
        4 => own.prop_map(|(field, details)| ThinkingSource::Own(field, details)),
        2 => other.prop_map(|(field, details)| ThinkingSource::Other(field, details)),
        3 => Just(ThinkingSource::Signed),
        1 => Just(ThinkingSource::Redacted),
        1 => Just(ThinkingSource::Unsigned),
        1 => Just(ThinkingSource::Broken),
        1 => Just(ThinkingSource::Bare),
    ]
    .prop_map(ReplyPart::Thinking)
}

fn any_field() -> impl Strategy<Value = &'static str> {
    select(vec!["reasoning_content", "reasoning", "content"])
}

fn any_call() -> impl Strategy<Value = ReplyPart> {
    let names = ["read_file", "functions.read", "", "Grüße 🙂", " "].map(str::to_owned);
    let names = names.into_iter().chain([65, 200].map(|n| "x".repeat(n)));
    let arguments = vec![
        "{}",
        r#"{"path":"a"}"#,
        r#" { "n": 1.0, "deep": [{"a": null}] } "#,
        "",
        r#"{"path": "#,
        "[1]",
        "null",
        r#""text""#,
        r#"{"a":1} {"b":2}"#,
    ];
    let results = vec![
        ResultShape::Completed,
        ResultShape::Failed,
        ResultShape::Silent(""),
        ResultShape::Silent(" \n"),
        ResultShape::Interrupted,
    ];
    let rounds = prop_oneof![4 => Just(1), 1 => Just(0), 1 => Just(2)];
    let names = select(names.collect::<Vec<_>>());
    (
        names,
        select(arguments),
        any_source(),
        select(results),
        rounds,
    )
        .prop_map(|(name, arguments, source, result, round)| {
            ReplyPart::Call(RandomCall {
                name,
                arguments,
                source,
                result,
                round,
            })
        })
}

fn any_source() -> impl Strategy<Value = CallSource> {
    let id = || {
        prop_oneof![
            6 => (0..4_u8).prop_map(IdShape::Plain),
            2 => (0..2_u8).prop_map(IdShape::Kimi),
            1 => select(vec![IdShape::Long, IdShape::Blank, IdShape::Accented, IdShape::Empty]),
        ]
    };
    let fields = || {
        select(vec![
            CallFields::None,
            CallFields::Google,
            CallFields::Gateway,
        ])
    };
    prop_oneof![
        5 => (id(), fields()).prop_map(|(id, fields)| CallSource::Own(id, fields)),
        3 => (id(), fields()).prop_map(|(id, fields)| CallSource::Other(id, fields)),
        1 => Just(CallSource::Broken),
        2 => Just(CallSource::Bare),
    ]
}
