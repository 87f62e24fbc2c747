//! Fields of a request: the name of its output limit, and the extra fields of calls that go back to
//! the provider.

use super::judged_project::{JudgedProject, ProjectPlan};
use serde_json::{Value, json};
use threadkeep_tests::binary;
use threadkeep_tests::judge::{
    JudgeServer, ServerAnswer, answer_in_order, call_reply, calls_chunk, finish_chunk,
    read_file_call, refuse, stream_reply, text_chunk, text_reply, thinking_chunk, usage_chunk,
};

const OLD_NAME: &str = "max_tokens";
const NEW_NAME: &str = "max_completion_tokens";

/// A judge that answers a request only if its output limit has this name and no other.
fn takes_limit_as(
    name: &'static str,
) -> impl Fn(usize, &Value, &str) -> ServerAnswer + Send + Sync + 'static {
    move |_, body, _| {
        let other = if name == OLD_NAME { NEW_NAME } else { OLD_NAME };
        if body.get(name).is_some() && body.get(other).is_none() {
            return text_reply("Done.");
        }
        let message = format!("Unsupported parameter: {other}; this model wants {name}.");
        let error = json!({"message": message, "type": "invalid_request_error", "param": other,
            "code": "unsupported_parameter"});
        refuse(400, &json!({"error": error}))
    }
}

/// Symptom: every request to a reasoning model was refused. Cause: the output limit was always sent
/// as `max_tokens`. Fix: the name of the model decides. Kind: a field that a model refuses.
#[test]
fn output_limit_travels_under_the_name_that_the_model_takes() {
    for (model, name) in [
        ("m", OLD_NAME),
        ("gpt-4o-mini", OLD_NAME),
        ("gpt-5", NEW_NAME),
        ("gpt-5-mini", NEW_NAME),
        ("openai/gpt-5-mini", NEW_NAME),
        ("o1", NEW_NAME),
        ("o3-mini", NEW_NAME),
        ("o4-mini", NEW_NAME),
    ] {
        let plan = ProjectPlan {
            model,
            ..ProjectPlan::default()
        };
        let judged = JudgedProject::new(&plan, takes_limit_as(name));
        let answer = judged.run();
        assert_eq!(answer["status"], "completed", "{model}: {answer}");
        assert_eq!(judged.server.requests()[0].body[name], 1_000, "{model}");
    }
}

/// Symptom, cause and fix as above, for a project without a table of its own. Kind: a field that a
/// model refuses.
#[test]
fn reasoning_models_of_the_built_in_table_answer() {
    let judged = JudgedProject::new(&ProjectPlan::default(), takes_limit_as(NEW_NAME));
    let table = judged.project.path().join(".ai/config/models.yaml");
    std::fs::remove_file(table).expect("it was there");
    for model in ["gpt-5", "gpt-5-mini", "gpt-5-nano", "o4-mini"] {
        let arguments = ["run", "go", "--model", model, "--json"];
        let mut command = judged.project.command(&arguments);
        let base_url = format!("http://{}/v1", judged.server.address());
        command
            .env("OPENAI_API_KEY", "sk-test-000000000000")
            .env("OPENAI_BASE_URL", base_url);
        let answer = binary::run_to_end(command).json();
        assert_eq!(answer["status"], "completed", "{model}: {answer}");
    }
}

/// Symptom: the first call of a tool worked, and the request with its result was refused for ever.
/// Cause: ids of calls were rewritten, and the server takes only ids of its own form. Fix: an id
/// goes back unchanged. Kind: ids that are rewritten on the way back.
#[test]
fn an_id_goes_back_to_the_server_that_gave_it() {
    for id in [
        "Ab3dEf9hZ",
        "call_00_x-y",
        "functions.read_file:0",
        "chatcmpl-tool-0123456789abcdef0123456789abcdef",
    ] {
        let call = read_file_call(0, "notes.txt", id);
        let answers = vec![call_reply(&[call]), text_reply("Done.")];
        let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
        let answer = judged.run();
        assert_eq!(answer["status"], "completed", "{id}: {answer}");
        let second = &judged.server.requests()[1];
        assert_eq!(second.call_ids(), [id]);
        let [(result, text)]: [(String, String); 1] =
            second.results().try_into().expect("one result");
        assert_eq!(result, id);
        assert!(text.contains("oats"), "{text}");
    }
}

/// Symptom: two results named the same call, so one of them was lost. Cause: a server gave an id
/// twice. Fix: the second call gets another id. Kind: ids that are not unique in a conversation.
#[test]
fn a_repeated_id_is_replaced_for_the_second_call() {
    let first = || read_file_call(0, "notes.txt", "same");
    let [again, beside] = [0, 1].map(|index| read_file_call(index, "other.txt", "same"));
    for (place, replies) in [
        (
            "in two replies",
            vec![call_reply(&[first()]), call_reply(&[again])],
        ),
        ("in one reply", vec![call_reply(&[first(), beside])]),
    ] {
        let last = replies.len();
        let answers = [replies, vec![text_reply("Done.")]].concat();
        let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
        let answer = judged.run();
        assert_eq!(answer["status"], "completed", "{place}: {answer}");
        let request = &judged.server.requests()[last];
        let ids: [String; 2] = request.call_ids().try_into().expect(place);
        assert_eq!(ids[0], "same", "{place}");
        assert_ne!(ids[0], ids[1], "{place}");
        let results = request.results();
        let named: Vec<&String> = results.iter().map(|(id, _)| id).collect();
        assert_eq!(named, [&ids[0], &ids[1]], "{place}");
        assert!(results[0].1.contains("oats"), "{place}: {results:?}");
        assert!(results[1].1.contains("tea"), "{place}: {results:?}");
    }
}

/// Symptom: a conversation could not move to another provider. Cause: ids that one server gives are
/// not valid for all. Fix: calls of another provider get ids of nine letters and digits, which
/// every server takes. Kind: ids of calls in a conversation of several providers.
#[test]
fn calls_of_another_provider_have_ids_that_every_server_takes() {
    let given = ["functions.read_file:0", "functions.read_file:1"];
    let calls = [
        read_file_call(0, "notes.txt", given[0]),
        read_file_call(1, "other.txt", given[1]),
    ];
    let answers = vec![call_reply(&calls), text_reply("Done.")];
    let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
    assert_eq!(judged.say("Look.").code, Some(0));
    let other = JudgeServer::start(answer_in_order(vec![text_reply("Done.")]));
    let use_model = |model: &str| {
        let [first, second] = [judged.server.address(), other.address()];
        let entry = "window: 32000, output: 1000, prices: {input: \"1\", output: \"2\"}";
        let models = format!(
            "providers:\n  p: {{wire: openai, base_url: \"http://{first}/v1\"}}\n  \
             q: {{wire: openai, base_url: \"http://{second}/v1\"}}\n\
             models:\n  m: {{provider: p, {entry}}}\n  n: {{provider: q, {entry}}}\n\
             tiers: {{default: {model}}}\n"
        );
        judged.project.write(".ai/config/models.yaml", &models);
    };
    use_model("n");
    let ran = judged.say("And now?");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let request = &other.requests()[0];
    let ids = request.call_ids();
    let is_plain = |id: &String| id.len() == 9 && id.bytes().all(|b| b.is_ascii_alphanumeric());
    assert!(ids.len() == 2 && ids.iter().all(is_plain), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
    let results = request.results();
    let named: Vec<&String> = results.iter().map(|(id, _)| id).collect();
    assert_eq!(named, [&ids[0], &ids[1]]);
    assert!(results[0].1.contains("oats"), "{results:?}");
    use_model("m");
    let ran = judged.say("And here?");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let requests = judged.server.requests();
    assert_eq!(requests[2].call_ids(), given, "its own ids go back to it");
}

/// Symptom: with servers that sign calls every loop of tools failed at its second request. Cause:
/// fields beside a call's function were dropped. Fix: they are kept and go back with the call, in
/// another process too. Kind: an opaque field of a call that must come back.
#[test]
fn opaque_call_fields_go_back_with_the_call() {
    for extra in [
        r#"{"google":{"thought_signature":"c2ln"}}"#,
        r#"{"b":{"signature":"A+/=\u0007ü"},"a":[null,true,1.50,12345678901234567890123]}"#,
    ] {
        let extra: Value = serde_json::from_str(extra).expect("it is JSON");
        let mut signed = read_file_call(0, "notes.txt", "k1");
        signed["extra_content"] = extra.clone();
        let plain = read_file_call(1, "other.txt", "k2");
        let answers = vec![call_reply(&[signed, plain]), text_reply("Done.")];
        let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
        let run = ["run", "go", "--id", "t", "--turns", "1"];
        assert_eq!(judged.project.json(&run)["exit"], 3);
        let raised = judged.project.json(&["raise", "t", "--turns", "5"]);
        assert_eq!(raised["exit"], 0, "{raised}");
        let answer = judged.project.json(&["resume", "t"]);
        assert_eq!(answer["status"], "completed", "{answer}");
        let second = &judged.server.requests()[1];
        let calls = second.calls();
        assert_eq!(calls[0]["extra_content"].to_string(), extra.to_string());
        assert!(calls[1].get("extra_content").is_none(), "{}", calls[1]);
    }
}

/// Symptom: thinking models refused the request after a call. Cause: they require the thinking that
/// led to it, and it was stored and not sent. Fix: it goes back with calls, unless the provider's
/// entry says otherwise. Kind: thinking that must, may or must not come back.
#[test]
fn thinking_goes_back_as_the_provider_entry_says() {
    for (keys, with_calls, with_text) in [
        ("", true, false),
        ("return_thinking: calls", true, false),
        ("return_thinking: never", false, false),
        ("return_thinking: always", true, true),
    ] {
        let looks = stream_reply(&[
            thinking_chunk("I should "),
            thinking_chunk("look."),
            calls_chunk(&[read_file_call(0, "notes.txt", "c0")]),
            finish_chunk("tool_calls"),
            usage_chunk(100, 10),
        ]);
        let plan = ProjectPlan {
            provider_keys: keys,
            ..ProjectPlan::default()
        };
        // The second reply has no thinking: `always` covers its message, too.
        let answers = vec![looks, text_reply("It is a list.")];
        let judged = JudgedProject::new(&plan, answer_in_order(answers));
        for line in ["Look.", "And now?"] {
            let ran = judged.say(line);
            assert_eq!(ran.code, Some(0), "{keys}: {ran:#?}");
        }
        let requests = judged.server.requests();
        let replies = requests[2].messages_of("assistant");
        let [calls, text]: [&Value; 2] = replies.try_into().expect(keys);
        let thinking = with_calls.then_some("I should look.");
        assert_eq!(calls["reasoning_content"].as_str(), thinking, "{keys}");
        assert_eq!(text["reasoning_content"].is_string(), with_text, "{keys}");
    }
}

/// Symptom, cause and fix as above. Kind: thinking under another name or with the text.
#[test]
fn thinking_beside_text_is_no_text_on_the_way_back() {
    let thinks = json!({"index": 0, "delta": {"reasoning": "hm", "content": null}});
    let answer = stream_reply(&[
        json!({"id": "c1", "choices": [thinks]}),
        text_chunk("Hello."),
        finish_chunk("stop"),
        usage_chunk(100, 10),
    ]);
    let answers = vec![answer, text_reply("Done.")];
    let judged = JudgedProject::new(&ProjectPlan::default(), answer_in_order(answers));
    for line in ["Hello?", "And now?"] {
        assert_eq!(judged.say(line).code, Some(0));
    }
    let second = &judged.server.requests()[1];
    let replies = second.messages_of("assistant");
    let [reply]: [&Value; 1] = replies.try_into().expect("one reply");
    assert_eq!(reply["content"], "Hello.");
}
