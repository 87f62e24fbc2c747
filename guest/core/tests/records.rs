//! Pins the texts of records and entries. Every later version reads, hashes and compares byte for
//! byte a history that one version wrote. Texts may be added here and never change.

use threadkeep_core::history::{Entry, Event, provider_messages};
use threadkeep_core::json;
use threadkeep_core::plan::{LoadedThread, StoredRecord};
use threadkeep_core::runner::Attempt;
use threadkeep_core::settings::PinnedSettings;
use threadkeep_core::thread::{
    ChainRecord, ChargedAttempt, CreationRecord, ExternalHold, Head, StateRecord, ThreadRecord,
};
use threadkeep_core::transcript::{
    CHECKPOINT_END, CheckpointSource, PartialReply, checkpoint_head, jsonl, manifest,
    push_checkpoint_messages, thread_json,
};

/// A function that reads a text and writes it again.
macro_rules! rewrite {
    ($type:ty) => {
        |text| json::to_text(&json::read::<$type>(text).unwrap())
    };
}

/// Reads a text and writes it again.
type RewriteFn = fn(&str) -> String;

const RECORDS: [(RewriteFn, &str); 19] = [
    (
        rewrite!(ThreadRecord),
        concat!(
            r#"{"format":1,"id":"Research-1","directive":"research","parent":"p","#,
            r#""chain":"Research-1","previous":"a","next":"b","agent":"ann","task":"t","#,
            r#""title":"A \"title\" \\ \u0000\b\f\n\r\t\u001f/é漢🙂","model":"default","#,
            r#""limits":{"turns":1,"tokens":2,"spend":18446744073709551615,"spawns":4,"depth":5,"#,
            r#""duration":6},"capabilities":["execute.tool.*","x"],"overrides":{"model":"m","#,
            r#""limits":{"turns":null,"tokens":null,"spend":null,"spawns":null,"depth":null,"#,
            r#""duration":null},"capabilities":["c"]},"inputs":"{\"topic\":0.10}","pin":"00","#,
            r#""outcome":"completed","result":"\"done\"","created":{"seconds":-5,"#,
            r#""nanos":999999999}}"#
        ),
    ),
    (
        rewrite!(ThreadRecord),
        concat!(
            r#"{"format":1,"id":"chat-1","directive":null,"parent":null,"chain":"chat-1","#,
            r#""previous":null,"next":null,"agent":null,"task":null,"title":null,"#,
            r#""model":"default","limits":{"turns":null,"tokens":null,"spend":null,"#,
            r#""spawns":null,"depth":null,"duration":null},"capabilities":[],"#,
            r#""overrides":{"model":null,"limits":{"turns":null,"tokens":null,"spend":null,"#,
            r#""spawns":null,"depth":null,"duration":null},"capabilities":[]},"inputs":"{}","#,
            r#""pin":null,"outcome":null,"result":null,"created":{"seconds":1771322456,"#,
            r#""nanos":0}}"#
        ),
    ),
    (
        rewrite!(Head),
        concat!(
            r#"{"format":1,"status":"running","cause":{"reason":"limit","code":"turns_exceeded","#,
            r#""message":"m","value":25,"maximum":25},"run":2,"token":3,"holder":"h/1","#,
            r#""expiry":{"seconds":10,"nanos":1},"request":"r","due":1000,"recency":2000,"#,
            r#""step":{"version":7,"kind":"call-llm","started":{"seconds":1,"nanos":2},"#,
            r#""deadline":{"seconds":3,"nanos":4},"tries":1,"hash":"aa","output":4096,"#,
            r#""until":{"seconds":5,"nanos":6}},"round":{"version":7,"calls":[{"index":0,"#,
            r#""idempotent":true},{"index":4294967295,"idempotent":false}]},"hold":{"amount":5,"#,
            r#""prices":{"input":1,"output":2,"read":3,"write":4}},"counters":{"turns":1,"#,
            r#""usage":{"input":1,"output":2,"read":3,"write":4,"reasoning":5},"spend":6,"#,
            r#""duration":7,"run_turns":8,"run_tokens":9,"run_duration":10},"bad_rounds":1,"#,
            r#""lost":2,"context":3,"prefix":"bb","asked":true,"version":7,"hash":"cc","#,
            r#""intent":"cancel","mail_from":1,"mail_to":2,"limits":{"turns":0,"tokens":0,"#,
            r#""spend":0,"spawns":0,"depth":0,"duration":0},"session":"s","#,
            r#""updated":{"seconds":0,"nanos":0}}"#
        ),
    ),
    (
        rewrite!(Head),
        concat!(
            r#"{"format":1,"status":"created","cause":null,"run":0,"token":0,"holder":null,"#,
            r#""expiry":null,"request":null,"due":null,"recency":0,"step":null,"round":null,"#,
            r#""hold":null,"counters":{"turns":0,"usage":{"input":0,"output":0,"read":0,"#,
            r#""write":0,"reasoning":0},"spend":0,"duration":0,"run_turns":0,"run_tokens":0,"#,
            r#""run_duration":0},"bad_rounds":0,"lost":0,"context":0,"prefix":"","version":0,"#,
            r#""hash":"","intent":null,"mail_from":0,"mail_to":0,"limits":{"turns":null,"#,
            r#""tokens":null,"spend":null,"spawns":null,"depth":null,"duration":null},"#,
            r#""session":null,"updated":{"seconds":0,"nanos":0}}"#
        ),
    ),
    (
        rewrite!(ChainRecord),
        concat!(
            r#"{"format":1,"tip":"t","parent":"p","children":1,"forks":2,"#,
            r#""account":{"parent":"a","limit":1000000000,"spent":1,"held":2,"reserved":3,"#,
            r#""reported":4,"users":5,"frozen":true}}"#
        ),
    ),
    (
        rewrite!(PinnedSettings),
        concat!(
            r#"{"format":1,"prompt":"p","model":{"name":"m","provider":"q","window":200000,"#,
            r#""output":4096,"prices":{"input":150000000,"output":600000000,"read":75000000,"#,
            r#""write":150000000}},"tools":[{"name":"read_file","description":"d","#,
            r#""schema":"{\"type\":\"object\"}","idempotent":true,"consent":false,"#,
            r#""timeout":120000}],"limits":{"turns":25,"tokens":1000000,"spend":1000000000,"#,
            r#""spawns":50,"depth":10,"duration":1800000},"capabilities":["execute.tool.*"]}"#
        ),
    ),
    (
        rewrite!(Entry),
        concat!(
            r#"{"format":1,"version":7,"reason":"assistant-turn","time":{"seconds":1771322456,"#,
            r#""nanos":5000000},"run":1,"commit":"0123456789abcdef","previous":"dd","#,
            r#""answers":{"version":6,"hash":"ee"},"settled":{"version":6,"hold":100,"spend":90,"#,
            r#""how":"settled"},"admitted":{"hold":200,"output":4096,"request":"ff"},"#,
            r#""events":[{"type":"assistant_text","text":"t"},{"type":"partial","text":"u"}]}"#
        ),
    ),
    (
        rewrite!(Entry),
        concat!(
            r#"{"format":1,"version":1,"reason":"changed","time":{"seconds":0,"nanos":0},"#,
            r#""run":0,"commit":"","previous":"","events":[]}"#
        ),
    ),
    (
        rewrite!(ChainRecord),
        concat!(
            r#"{"format":1,"tip":"t","parent":"p","children":0,"forks":0,"#,
            r#""account":{"parent":null,"limit":null,"spent":0,"held":0,"reserved":0,"#,
            r#""reported":0,"users":0,"frozen":false},"above":["p","root"]}"#
        ),
    ),
    (
        rewrite!(Entry),
        concat!(
            r#"{"format":1,"version":7,"reason":"attempt","time":{"seconds":0,"nanos":0},"#,
            r#""run":1,"commit":"","previous":"","admitted":{"hold":200,"output":4096,"#,
            r#""request":"ff","key":"turn-1"},"charged":[{"version":6,"hold":100,"spend":100,"#,
            r#""how":"charged"}],"events":[]}"#
        ),
    ),
    (
        rewrite!(Entry),
        concat!(
            r#"{"format":1,"version":8,"reason":"user-message","time":{"seconds":0,"nanos":0},"#,
            r#""run":2,"commit":"","previous":"","answers":{"version":7,"hash":"aa"},"#,
            r#""about":{"origin":"acme","parent":{"run":3.0}},"events":[]}"#
        ),
    ),
    (
        rewrite!(ExternalHold),
        concat!(
            r#"{"version":7,"key":"turn-1","model":"m","amount":5,"prices":{"input":1,"#,
            r#""output":2,"read":3,"write":4},"tokens":9}"#
        ),
    ),
    (
        rewrite!(Attempt),
        r#"{"format":1,"version":7,"amount":5,"output":9,"estimate":"aa","bill":"bb"}"#,
    ),
    (
        rewrite!(ChargedAttempt),
        concat!(
            r#"{"version":7,"hold":{"amount":5,"prices":{"input":1,"output":2,"read":3,"#,
            r#""write":4}},"run":2,"tokens":9,"late":{"spend":4,"usage":{"input":1,"output":2,"#,
            r#""read":3,"write":4,"reasoning":0},"recorded":true}}"#
        ),
    ),
    (
        rewrite!(ThreadRecord),
        concat!(
            r#"{"format":1,"id":"link","directive":null,"parent":null,"chain":"root","#,
            r#""previous":"root","next":null,"base":{"length":7,"parts":[{"thread":"link","#,
            r#""from":8,"to":8,"hash":""},{"thread":"root","from":3,"to":7,"hash":"aa"}]},"#,
            r#""agent":null,"task":null,"title":null,"#,
            r#""model":"default","limits":{"turns":null,"tokens":null,"spend":null,"#,
            r#""spawns":null,"depth":null,"duration":null},"capabilities":[],"#,
            r#""overrides":{"model":null,"limits":{"turns":null,"tokens":null,"spend":null,"#,
            r#""spawns":null,"depth":null,"duration":null},"capabilities":[]},"inputs":"{}","#,
            r#""pin":null,"outcome":null,"result":null,"created":{"seconds":1771322456,"#,
            r#""nanos":0}}"#
        ),
    ),
    (
        rewrite!(CreationRecord),
        r#"{"format":1,"draft":"00ff","thread":"Research-1"}"#,
    ),
    (
        rewrite!(PinnedSettings),
        concat!(
            r#"{"format":1,"prompt":"p","model":{"name":"m","provider":"q","window":9,"#,
            r#""output":4,"prices":null},"tools":[],"limits":{"turns":null,"tokens":null,"#,
            r#""spend":null,"spawns":null,"depth":null,"duration":null},"capabilities":[],"#,
            r#""continuation":{"trigger":900000,"ceiling":16000,"wait":600000,"#,
            r#""summary":{"prompt":"s","model":{"name":"f","provider":"q","window":8,"output":3,"#,
            r#""prices":null},"tokens":4000,"turns":3,"spend":20000000}}}"#
        ),
    ),
    (
        rewrite!(StateRecord),
        concat!(
            r#"{"format":1,"document":{"thread":{"n":1.50},"run":{},"#,
            r#""tool_call":{"call_7_0":{"a":[]}}},"version":7}"#
        ),
    ),
    (
        rewrite!(Entry),
        concat!(
            r#"{"format":1,"version":7,"reason":"run-finished","time":{"seconds":0,"nanos":0},"#,
            r#""run":2,"commit":"","previous":"","ended":{"status":"killed","termination":"c","#,
            r#""turns":1,"tokens":2,"duration":3},"state":{"before":5,"snapshot":2,"#,
            r#""replaced":true,"patches":[{"scope":"tool-call","call":"call_6_0","patch":["#,
            r#"{"op":"add","path":"/a","value":1.0}]}],"operations":[{"scope":"thread","#,
            r#""op":"set-add","path":"/s","value":null}],"hash":"ff"},"state_at":5,"events":[]}"#
        ),
    ),
];

/// One event of each type, with the optional fields and without.
const EVENTS: [&str; 21] = [
    concat!(
        r#"{"type":"message","role":"user","content":[{"type":"text","text":"a\u0000b 漢🙂"},"#,
        r#"{"type":"image","blob":"ab","chain":"c","media":"image/png","size":9}],"id":"m1"}"#
    ),
    r#"{"type":"message","role":"assistant","content":[],"synthetic":true}"#,
    r#"{"type":"tool_use","name":"read","arguments":"{\"a\": 1.50}","id":"x"}"#,
    concat!(
        r#"{"type":"tool_result","version":7,"index":1,"name":"read","text":"t","failed":false,"#,
        r#""state":"done","cost":18446744073709551615}"#
    ),
    concat!(
        r#"{"type":"tool_result","version":7,"index":1,"name":"read","text":"t","failed":true,"#,
        r#""state":"denied","cost":0}"#
    ),
    concat!(
        r#"{"type":"tool_result","version":7,"index":1,"name":"read","text":"t","failed":true,"#,
        r#""state":"interrupted","cost":0,"blocks":[{"type":"blob","blob":"ab","#,
        r#""media":"text/plain","size":9},{"type":"image","blob":"cd","chain":"c","#,
        r#""media":"image/gif","size":8}]}"#
    ),
    r#"{"type":"assistant_text","text":"t"}"#,
    r#"{"type":"thinking","text":"t","raw":"{}"}"#,
    r#"{"type":"thinking","text":"t"}"#,
    concat!(
        r#"{"type":"result","model":"m","finish":"stop","usage":{"input":1,"output":2,"read":3,"#,
        r#""write":4,"reasoning":5},"spend":6,"duration":7,"estimated":false}"#
    ),
    concat!(
        r#"{"type":"suspended","cause":{"reason":"error","code":"c","message":"m","value":null,"#,
        r#""maximum":null}}"#
    ),
    r#"{"type":"resumed","code":"c"}"#,
    r#"{"type":"partial","text":"t"}"#,
    concat!(
        r#"{"type":"error","kind":"transient","code":"http_503","message":"m","attempt":2,"#,
        r#""retry":500}"#
    ),
    r#"{"type":"error","kind":"transient","code":"http_503","message":"m","attempt":2}"#,
    r#"{"type":"cancelled","by":"kill"}"#,
    concat!(
        r#"{"type":"raised","limits":{"turns":1,"tokens":null,"spend":null,"spawns":null,"#,
        r#""depth":null,"duration":null}}"#
    ),
    r#"{"type":"title","title":"t"}"#,
    r#"{"type":"title","title":null}"#,
    concat!(
        r#"{"type":"from_tomorrow","n":0.10,"list":[-0,-1,1e+400,18446744073709551616,true,null,"#,
        r#""",{},[]],"z":1,"a":{"b":2}}"#
    ),
    r#"{"type":"from_tomorrow"}"#,
];

/// Events that were added later.
const EVENTS_LATER: [&str; 9] = [
    concat!(
        r#"{"type":"usage_corrected","version":7,"charged":5,"spend":4,"usage":{"input":1,"#,
        r#""output":2,"read":3,"write":4,"reasoning":0}}"#
    ),
    r#"{"type":"note","name":"acme.step","body":{"n":0.10,"list":[-0,1e+400,null]}}"#,
    r#"{"type":"note","name":"acme.step","body":null}"#,
    r#"{"type":"context_injected","role":"user","text":"t"}"#,
    concat!(
        r#"{"type":"context_limit_reached","usage_ratio":912750,"tokens_used":3651,"#,
        r#""tokens_limit":4000}"#
    ),
    concat!(
        r#"{"type":"thread_handoff","new_thread_id":"t","trailing_turns":8,"#,
        r#""summary_generated":true,"summary_tokens":900}"#
    ),
    concat!(
        r#"{"type":"thread_handoff","new_thread_id":"t","trailing_turns":8,"#,
        r#""summary_generated":false,"summary_tokens":0,"summary_problem":"m"}"#
    ),
    concat!(
        r#"{"type":"thread_resumed","new_thread_id":"t","directive":"d","#,
        r#""message_preview":"m","reconstructed_turns":12}"#
    ),
    concat!(
        r#"{"type":"thread_resumed","new_thread_id":"t","directive":null,"#,
        r#""message_preview":"m","reconstructed_turns":12}"#
    ),
];

#[test]
fn records_and_entries_keep_their_bytes() {
    for (rewrite, text) in RECORDS {
        assert_eq!(rewrite(text), text);
    }
    for text in EVENTS.into_iter().chain(EVENTS_LATER) {
        assert_eq!(rewrite!(Event)(text), text);
    }
}

/// The words of each enum keep their spelling in records.
#[test]
fn words_keep_their_spelling() {
    let (head, entry) = (RECORDS[3].1, RECORDS[7].1);
    for status in [
        "created",
        "running",
        "waiting",
        "suspended",
        "idle",
        "completed",
        "error",
        "cancelled",
        "killed",
        "continued",
    ] {
        let text = head.replace("\"created\"", &format!("{status:?}"));
        assert_eq!(rewrite!(Head)(&text), text);
    }
    for reason in [
        "user-message",
        "assistant-turn",
        "tool-results",
        "attempt",
        "opened",
        "run-finished",
        "suspended",
        "error",
        "cancelled",
        "resumed",
        "handoff",
        "changed",
        "settled",
    ] {
        let text = entry.replace("\"changed\"", &format!("{reason:?}"));
        assert_eq!(rewrite!(Entry)(&text), text);
    }
    for kind in ["call-llm", "call-tools", "wait", "own-loop"] {
        let text = RECORDS[2].1.replace("\"call-llm\"", &format!("{kind:?}"));
        assert_eq!(rewrite!(Head)(&text), text);
    }
    for how in ["settled", "released", "charged"] {
        let text = RECORDS[6]
            .1
            .replace("\"how\":\"settled\"", &format!("\"how\":{how:?}"));
        assert_eq!(rewrite!(Entry)(&text), text);
    }
}

/// A field that was added later may be missing; a field of a later version is ignored.
#[test]
fn older_and_newer_texts_are_read() {
    let (without, with) = (
        concat!(
            r#"{"type":"tool_result","version":7,"index":1,"name":"r","text":"t","failed":true,"#,
            r#""state":"done","later":[1]}"#
        ),
        concat!(
            r#"{"type":"tool_result","version":7,"index":1,"name":"r","text":"t","failed":true,"#,
            r#""state":"done","cost":0}"#
        ),
    );
    assert_eq!(rewrite!(Event)(without), with);
    // Records that are kept for ever had no format at first.
    let text = r#"{"draft":"00ff","thread":"Research-1"}"#;
    let written = r#"{"format":1,"draft":"00ff","thread":"Research-1"}"#;
    assert_eq!(rewrite!(CreationRecord)(text), written);
    let text = r#"{"version":7,"amount":5,"output":9,"estimate":"aa"}"#;
    let written = r#"{"format":1,"version":7,"amount":5,"output":9,"estimate":"aa"}"#;
    assert_eq!(rewrite!(Attempt)(text), written);
    let shuffled = r#"{"text":"t","type":"partial"}"#;
    assert_eq!(
        rewrite!(Event)(shuffled),
        r#"{"type":"partial","text":"t"}"#
    );
    let unknown = r#"{"n":1,"type":"from_tomorrow","m":2}"#;
    assert_eq!(
        rewrite!(Event)(unknown),
        r#"{"type":"from_tomorrow","n":1,"m":2}"#
    );
    let title = r#"{"type":"title"}"#;
    assert_eq!(rewrite!(Event)(title), r#"{"type":"title","title":null}"#);
}

/// Broken texts are refused, never guessed at.
#[test]
fn broken_texts_are_refused() {
    let chain = RECORDS[4].1;
    for (from, to) in [
        ("\"forks\":2", "\"forks\":-2"),
        ("\"forks\":2", "\"forks\":2.0"),
        ("\"forks\":2", "\"forks\":\"2\""),
        ("\"forks\":2", "\"forks\":null"),
        ("\"forks\":2", "\"forks\":18446744073709551616"),
        ("\"forks\":2", "\"forks\":2,\"forks\":2"),
        ("\"forks\":2,", ""),
        ("\"users\":5", "\"users\":4294967296"),
        ("\"frozen\":true", "\"frozen\":1"),
        ("\"tip\":\"t\"", "\"tip\":\"\\ud800\""),
        ("}}", "}"),
        ("}}", "}} x"),
        ("{\"format\"", "[\"format\""),
    ] {
        let text = chain.replacen(from, to, 1);
        assert_ne!(text, chain);
        assert!(json::read::<ChainRecord>(&text).is_err(), "{text}");
    }
    for text in [
        r#"{"type":"message","role":"robot","content":[]}"#,
        r#"{"type":"partial"}"#,
        r#"{"type":"tool_use","name":"n","arguments":{},"id":"i"}"#,
        r#"{"type":"error","kind":"k","code":"c","message":"m","attempt":1,"retry":-1}"#,
    ] {
        assert!(json::read::<Event>(text).is_err(), "{text}");
    }
}

/// The messages for a provider, made from an entry with every kind of event.
#[test]
fn messages_keep_their_bytes() {
    let events = EVENTS.join(",");
    let text = RECORDS[7]
        .1
        .replace("\"events\":[]", &format!("\"events\":[{events}]"));
    let entry = Entry::from_text(&text).unwrap();
    assert_eq!(
        provider_messages(&entry),
        [
            concat!(
                r#"{"role":"user","content":[{"type":"text","text":"a\u0000b 漢🙂"},"#,
                r#"{"type":"image","blob":"ab","chain":"c","media":"image/png","size":9}]}"#
            ),
            concat!(
                r#"{"role":"assistant","content":[{"type":"tool_use","id":"call_1_2","#,
                r#""name":"read","arguments":"{\"a\": 1.50}"}]}"#
            ),
            concat!(
                r#"{"role":"tool","content":[{"type":"tool_result","id":"call_7_1","#,
                r#""name":"read","text":"t","failed":false},{"type":"tool_result","#,
                r#""id":"call_7_1","name":"read","text":"t","failed":true},"#,
                r#"{"type":"tool_result","id":"call_7_1","name":"read","text":"t","#,
                r#""failed":true,"images":[{"type":"image","blob":"cd","chain":"c","#,
                r#""media":"image/gif","size":8}]}]}"#
            ),
            concat!(
                r#"{"role":"assistant","content":[{"type":"text","text":"t"},{"type":"thinking","#,
                r#""text":"t","raw":"{}"},{"type":"thinking","text":"t"}]}"#
            ),
        ]
    );
}

/// Renders a whole checkpoint.
fn checkpoint(loaded: &LoadedThread, prompt: Option<&str>, entries: &[Entry]) -> String {
    let partial = PartialReply {
        text: "half a rep".to_owned(),
        output_max: Some(12),
    };
    let source = CheckpointSource {
        loaded,
        newest: true,
        saved_at: "now",
        prompt,
        approvals: &loaded.thread.value.overrides.approvals,
        partial: prompt.map(|_| &partial),
        round: None,
        state: None,
    };
    let (mut text, has_prompt) = checkpoint_head(source).unwrap();
    let mut first = !has_prompt;
    let mut push = |entry| push_checkpoint_messages(&mut text, entry, &mut first);
    entries.iter().for_each(&mut push);
    text + CHECKPOINT_END
}

#[test]
fn documents_keep_their_bytes() {
    fn with_store_version<T>(value: T) -> StoredRecord<T> {
        StoredRecord::new(1, value)
    }
    let load = |thread: usize, head: usize| LoadedThread {
        thread: with_store_version(json::read(RECORDS[thread].1).unwrap()),
        head: with_store_version(json::read(RECORDS[head].1).unwrap()),
        chain: with_store_version(json::read(RECORDS[4].1).unwrap()),
        above: Vec::new(),
        parent: None,
        state: None,
    };
    let events = EVENTS.join(",");
    let text = RECORDS[7]
        .1
        .replace("\"events\":[]", &format!("\"events\":[{events}]"));
    let entry = Entry::from_text(&text).unwrap();
    let (full, bare) = (load(0, 2), load(1, 3));
    let documents = [
        thread_json(&full).unwrap(),
        thread_json(&bare).unwrap(),
        checkpoint(&full, Some("Be brief."), std::slice::from_ref(&entry)),
        checkpoint(&bare, None, &[]),
        manifest(&full).unwrap(),
        manifest(&bare).unwrap(),
        jsonl(&entry).unwrap(),
    ];
    assert_eq!(documents.concat(), include_str!("documents.txt"));
}
