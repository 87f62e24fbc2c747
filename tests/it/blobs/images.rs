//! Images through the command, against a server of each wire that keeps what it is sent.

use super::{base64, png};
use crate::cli::fixture::CliProject;
use crate::models::judged_project::ProjectPlan;
use serde_json::{Value, json};
use threadkeep_tests::binary;
use threadkeep_tests::judge::{
    JudgeServer, SeenRequest, ServerAnswer, answer_in_order, anthropic_events, call_reply,
    calls_chunk, chunk, finish_chunk, read_file_call, stream_reply, text_reply, usage_chunk,
};
use threadkeep_tests::llmock::MockWire;

pub const WIRES: [MockWire; 2] = [MockWire::OpenAi, MockWire::Anthropic];

pub fn call(wire: MockWire, path: &str) -> ServerAnswer {
    match wire {
        MockWire::OpenAi => call_reply(&[read_file_call(0, path, "c1")]),
        MockWire::Anthropic => {
            let block = json!({"type": "tool_use", "id": "t1", "name": "read_file", "input": {}});
            let arguments = json!({"path": path}).to_string();
            let mut events = anthropic_events("tool_use", "");
            events[1]["content_block"] = block;
            events[2]["delta"] = json!({"type": "input_json_delta", "partial_json": arguments});
            ServerAnswer::stream().send_events(&events)
        }
    }
}

pub fn reply(wire: MockWire, text: &str) -> ServerAnswer {
    match wire {
        MockWire::OpenAi => text_reply(text),
        MockWire::Anthropic => {
            ServerAnswer::stream().send_events(&anthropic_events("end_turn", text))
        }
    }
}

/// A project with `cat.png`, whose server gives these answers in order.
pub fn project(
    wire: MockWire,
    images: &str,
    answers: Vec<ServerAnswer>,
) -> (CliProject, JudgeServer) {
    let server = JudgeServer::start(answer_in_order(answers));
    let plan = ProjectPlan {
        model_keys: images,
        ..ProjectPlan::of_wire(wire)
    };
    let project = plan.make_project(&server.address());
    std::fs::write(project.path().join("cat.png"), png(1, 30_000)).expect("written");
    (project, server)
}

/// The images of a request, as its wire writes them, in order: media type and Base64.
pub fn images(wire: MockWire, request: &SeenRequest) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for message in request.messages() {
        let parts = message["content"].as_array().into_iter().flatten();
        for part in parts {
            let inside = part["content"].as_array().into_iter().flatten();
            found.extend(
                [part]
                    .into_iter()
                    .chain(inside)
                    .filter_map(|part| image(wire, part)),
            );
        }
    }
    found
}

fn image(wire: MockWire, part: &Value) -> Option<(String, String)> {
    match wire {
        MockWire::OpenAi => {
            let url = part["image_url"]["url"].as_str()?;
            let (media, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
            Some((media.to_owned(), data.to_owned()))
        }
        MockWire::Anthropic => {
            let source = Some(&part["source"]).filter(|source| source["type"] == "base64")?;
            let text = |field: &str| source[field].as_str().map(str::to_owned);
            Some((text("media_type")?, text("data")?))
        }
    }
}

pub fn cat() -> (String, String) {
    ("image/png".to_owned(), base64(&png(1, 30_000)))
}

/// The model reads a file that is an image; the next request carries its bytes, and the one after
/// that, too.
#[test]
fn read_file_shows_images_on_both_wires() {
    for wire in WIRES {
        let answers = vec![call(wire, "cat.png"), reply(wire, "A cat.")];
        let (project, server) = project(wire, "images: true", answers);
        let run = project.json(&["run", "go", "--id", "t"]);
        assert_eq!(run["outcome"], "completed", "{run}");
        let requests = server.requests();
        assert_eq!(images(wire, &requests[0]), []);
        assert_eq!(images(wire, &requests[1]), [cat()], "{}", wire.as_str());
        let text = requests[1].body.to_string();
        assert!(
            text.contains("cat.png is an image (image/png):"),
            "{wire:?}"
        );
        let name = threadkeep::blobs::BlobName::of(&png(1, 30_000), "image/png");
        // Documents name the image and have it beside them.
        let transcript = project.path().join(".ai/threads/t/transcript.md");
        let transcript = std::fs::read_to_string(transcript).expect("a transcript");
        let label = format!("\\[image png, 31 KB, {}]", name.short());
        assert!(transcript.contains(&label), "{label} in {transcript}");
        let file = format!(".ai/threads/t/blobs.d/{}.png", name.hash);
        let file = std::fs::read(project.path().join(file)).expect("a file");
        assert!(file == png(1, 30_000));
        assert_eq!(project.json(&["audit"])["exit"], 0);
        // A thread that goes on in a successor finds the image under the first link's chain.
        let resumed = project.json(&["resume", "t", "And its colour?"]);
        assert_eq!(resumed["status"], "completed", "{resumed}");
        let last = server.requests().pop().expect("a request");
        assert_eq!(images(wire, &last), [cat()], "{wire:?}");
        // A fork does as well, in a chain of its own.
        let fork = project.json(&["fork", "t"]);
        assert_eq!(fork["exit"], 0, "{fork}");
        let id = fork["thread"]["thread_id"].as_str().expect("an id");
        let forked = project.json(&["resume", id, "What was it?"]);
        assert_eq!(forked["exit"], 0, "{forked}");
        let last = server.requests().pop().expect("a request");
        assert_eq!(images(wire, &last), [cat()], "{wire:?}");
        assert_eq!(project.json(&["audit"])["exit"], 0);
    }
}

/// A model that takes no images is told so, nothing is stored, and the run goes on.
#[test]
fn a_model_without_images_is_told() {
    for wire in WIRES {
        let answers = vec![call(wire, "cat.png"), reply(wire, "A pity.")];
        let (project, server) = project(wire, "", answers);
        let run = project.json(&["run", "go", "--id", "t"]);
        assert_eq!(run["outcome"], "completed", "{run}");
        let requests = server.requests();
        assert_eq!(images(wire, &requests[1]), []);
        let text = requests[1].body.to_string();
        assert!(
            text.contains("the model of this thread takes no images"),
            "{text}"
        );
        let refused = project.json(&["run", "go", "--image", "cat.png"]);
        assert_eq!(refused["error"]["code"], "invalid", "{refused}");
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn images_of_the_command_line_are_sent_with_the_first_message() {
    for wire in WIRES {
        let (project, server) = project(wire, "images: true", vec![reply(wire, "A cat.")]);
        std::fs::write(project.path().join("dog.gif"), b"GIF89a....").expect("written");
        let arguments = ["run", "go", "--id", "t", "--message", "What are these?"];
        let files = ["--image", "cat.png", "--image", "dog.gif"];
        let run = project.json(&[&arguments[..], &files[..]].concat());
        assert_eq!(run["outcome"], "completed", "{run}");
        let dog = ("image/gif".to_owned(), base64(b"GIF89a...."));
        let seen = server.requests().pop().expect("a request");
        assert_eq!(images(wire, &seen), [cat(), dog], "{wire:?}");
        // Without a text the image alone is the message.
        let run = project.json(&["run", "go", "--image", "cat.png"]);
        assert_eq!(run["outcome"], "completed", "{run}");
        let seen = server.requests().pop().expect("a request");
        assert_eq!(images(wire, &seen), [cat()], "{wire:?}");
        let chat = project.command(&["chat", "--id", "c", "--image", "cat.png", "--json"]);
        let said = binary::run_with_input(chat, "What is it?\nAnd now?\n");
        assert_eq!(said.code, Some(0), "{said:?}");
        let requests = server.requests();
        let last = &requests[requests.len() - 2..];
        for request in last {
            assert_eq!(images(wire, request), [cat()], "{wire:?}");
        }
        // Nothing is created for a file that is no image.
        let before = project.json(&["list"])["threads"].clone();
        for (file, why) in [("notes.txt", "no png"), ("none.png", "none.png")] {
            let refused = project.json(&["run", "go", "--image", file]);
            let message = refused["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(why), "{refused}");
            assert_eq!(refused["exit"], 2, "{refused}");
        }
        assert_eq!(project.json(&["list"])["threads"], before);
    }
}

/// The window is full after a long message and an image: the summary is asked for by the image's
/// name alone, and the next link carries the image with the messages that it belongs to.
#[test]
fn a_hand_off_names_images_and_carries_them() {
    let counted = |text: &str, input: u64| {
        stream_reply(&[
            chunk(&json!({"role": "assistant", "content": text}), None),
            finish_chunk("stop"),
            usage_chunk(input, 10),
        ])
    };
    let wire = MockWire::OpenAi;
    let answers = vec![
        counted("Noted.", 15_300),
        stream_reply(&[
            calls_chunk(&[read_file_call(0, "cat.png", "c1")]),
            finish_chunk("tool_calls"),
            usage_chunk(15_500, 10),
        ]),
        counted("A cat.", 29_500),
        text_reply("They met a cat."),
        text_reply("No."),
    ];
    let (project, server) = project(wire, "images: true", answers);
    let capability = ["--capability", "execute.tool.read_file"];
    let chat = ["chat", "--id", "c", "--each-line"];
    let chat = project.command(&[&chat[..], &capability].concat());
    let long = "Remember this. ".repeat(4_000);
    let lines = format!("{long}\nLook at cat.png.\nIs it a dog?\n");
    let said = binary::run_with_input(chat, &lines);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let requests = server.requests();
    assert_eq!(requests.len(), 5, "{}", said.err);
    let name = threadkeep::blobs::BlobName::of(&png(1, 30_000), "image/png");
    let (summary, next) = (&requests[3], &requests[4]);
    assert_eq!(images(wire, summary), []);
    let label = format!("[image png, 31 KB, {}]", name.short());
    assert!(
        summary.body.to_string().contains(&label),
        "{}",
        summary.body
    );
    assert_eq!(images(wire, next), [cat()], "{}", next.body);
    assert!(!next.body.to_string().contains("Remember this"));
    assert_eq!(project.json(&["audit"])["exit"], 0);
    let chain = project.json(&["chain", "c"]);
    assert_eq!(chain["chain_length"], 2, "{chain}");
}

#[test]
fn message_and_resume_show_images() {
    for wire in WIRES {
        let answers = vec![reply(wire, "Two."), reply(wire, "One.")];
        let (project, server) = project(wire, "images: true", answers);
        std::fs::write(project.path().join("dog.gif"), b"GIF89a....").expect("written");
        let dog = ("image/gif".to_owned(), base64(b"GIF89a...."));
        project.json(&["create", "--id", "c"]);
        let sent = project.json(&["message", "c", "See?", "--image", "cat.png"]);
        assert_eq!(sent["exit"], 0, "{sent}");
        let more = project.json(&["resume", "c", "And it?", "--image", "dog.gif"]);
        assert_eq!(more["exit"], 0, "{more}");
        let mut shown = images(wire, &server.requests()[0]);
        shown.sort();
        let mut expected = [cat(), dog];
        expected.sort();
        assert_eq!(shown, expected);
        // A thread that has ended takes none, and is not resumed without what it was to be shown.
        let run = project.json(&["run", "go", "--id", "t"]);
        assert_eq!(run["outcome"], "completed", "{run}");
        for command in ["message", "resume"] {
            let refused = project.json(&[command, "t", "See?", "--image", "cat.png"]);
            assert_eq!(refused["exit"], 1, "{refused}");
            assert!(
                refused["error"].to_string().contains("completed"),
                "{refused}"
            );
        }
        assert_eq!(
            project.json(&["show", "t"])["thread"]["status"],
            "completed"
        );
        let missing = project.json(&["message", "c", "See?", "--image", "none.png"]);
        assert!(
            missing["error"].to_string().contains("none.png"),
            "{missing}"
        );
        assert_eq!(server.requests().len(), 2);
    }
}
