//! Images through the library: messages of a caller, and events that a loop of its own appends.

use super::results::fetch;
use super::{BlobProject, png};
use threadkeep::blobs::BlobError;
use threadkeep::error::CallError;
use threadkeep::models::user_message_with_images;
use threadkeep::tools::ToolResult;
use threadkeep::wit;
use threadkeep::wit::{history, runner};

fn invalid_field<T: std::fmt::Debug>(result: Result<T, CallError>) -> String {
    match result {
        Err(CallError::Refused(wit::Error::Invalid(invalid))) => invalid.field,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_names_images_that_were_stored_before() {
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), None, "m").await;
    let tenant = project.project.tenant();
    let name = tenant.store_image("C", png(3, 9_000)).await.unwrap();
    let message = user_message_with_images(Some("What is it?"), std::slice::from_ref(&name));
    let ended = project.run(&message).await.unwrap();
    assert_eq!(ended.status, "idle", "{ended:?}");
    let stored = &project.events("message").await[0];
    assert_eq!(stored["content"][1]["blob"], name.hash.as_str(), "{stored}");
    assert_eq!(stored["content"][1]["chain"], "c", "{stored}");
    // Each token of the image is in the window before the provider has counted it.
    let context = tenant.get("c").await.unwrap().context;
    assert!(context >= 110, "{context}");
    let sent = tenant.messages("c", 0, None, None).await.unwrap();
    assert!(sent.messages[0].contains(&name.hash), "{:?}", sent.messages);
    assert_eq!(project.findings(), [""; 0]);
}

/// A name that nothing was stored under, bytes in place of a name, and an image for a model that
/// takes none are refused, each by its field, and nothing is written.
#[tokio::test(flavor = "multi_thread")]
async fn names_without_a_blob_are_refused() {
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), None, "m").await;
    let tenant = project.project.tenant();
    let name = tenant.store_image("c", png(3, 9_000)).await.unwrap();
    let before = tenant.get("c").await.unwrap().version;
    let message = |block: serde_json::Value| {
        serde_json::json!({"role": "user", "content": [block]}).to_string()
    };
    let block = |field: &str, value: serde_json::Value| {
        let mut block = name.image_block();
        block[field] = value;
        block
    };
    for (block, field) in [
        (block("blob", "0f".repeat(32).into()), "input.blob"),
        (
            block("blob", "0F".repeat(32).into()),
            "input.content[0].blob",
        ),
        (block("size", 9.into()), "input.size"),
        (
            block("media", "image/tiff".into()),
            "input.content[0].media",
        ),
        (block("chain", "c".into()), "input.content[0]"),
        (block("data", "aGk=".into()), "input.content[0].data"),
        (block("type", "blob".into()), "input.content[0]"),
    ] {
        let message = message(block);
        let started = tenant
            .start("c", Some(message.clone()), "h/1", "k", None)
            .await;
        assert_eq!(invalid_field(started), field, "{message}");
        let kind = runner::SignalKind::Message(message.clone());
        assert_eq!(
            invalid_field(tenant.signal("c", "k", kind).await),
            field,
            "{message}"
        );
        let mut event: serde_json::Value = serde_json::from_str(&message).unwrap();
        event["type"] = "message".into();
        let change = history::ChangeSet::of_events(vec![event.to_string()]);
        let appended = tenant
            .append_change("c", None, history::Expected::Any, change)
            .await;
        let field = field.replace("input", "events[0]");
        assert_eq!(invalid_field(appended), field, "{message}");
    }
    assert_eq!(tenant.get("c").await.unwrap().version, before);
    let blind = BlobProject::new(fetch(ToolResult::ok("ok")), None, "blind").await;
    let tenant = blind.project.tenant();
    let name = tenant.store_image("c", png(3, 9_000)).await.unwrap();
    let message = user_message_with_images(None, &[name]);
    let started = tenant.start("c", Some(message), "h/1", "k", None).await;
    assert_eq!(invalid_field(started), "model");
}

/// A loop of one's own appends messages and results with blobs.
#[tokio::test(flavor = "multi_thread")]
async fn appended_events_name_blobs() {
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), None, "m").await;
    let tenant = project.project.tenant();
    let image = tenant.store_image("c", png(4, 100)).await.unwrap();
    let text = tenant
        .store_blob("c", b"a long page".to_vec(), "text/plain")
        .await
        .unwrap();
    let events = [
        serde_json::json!({"type": "message", "role": "user", "content": "Fetch it."}),
        serde_json::json!({"type": "tool_use", "name": "fetch", "arguments": "{}", "id": "x"}),
        serde_json::json!({"type": "tool_result", "id": "x", "text": "a part",
            "blocks": [text.blob_block(), image.image_block()]}),
    ];
    let events = events.iter().map(ToString::to_string).collect();
    let change = history::ChangeSet::of_events(events);
    tenant
        .append_change("c", None, history::Expected::Any, change)
        .await
        .unwrap();
    let result = &project.events("tool_result").await[0];
    assert_eq!(result["blocks"][0]["chain"], "c", "{result}");
    let sent = tenant.messages("c", 0, None, None).await.unwrap();
    let results: serde_json::Value = serde_json::from_str(&sent.messages[2]).unwrap();
    let images = results["content"][0]["images"].as_array().unwrap();
    assert_eq!((images.len(), &images[0]["blob"]), (1, &image.hash.into()));
    assert_eq!(project.findings(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_image_is_not_stored_as_one() {
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), None, "m").await;
    let tenant = project.project.tenant();
    let text = tenant.store_image("c", b"<svg/>".to_vec()).await;
    assert!(matches!(text, Err(BlobError::NotAnImage)), "{text:?}");
    let large = tenant.store_image("c", png(1, 3_750_000)).await;
    assert!(
        matches!(large, Err(BlobError::ImageTooLarge { .. })),
        "{large:?}"
    );
    let larger = tenant.store_blob("c", vec![1; (20 << 20) + 1], "a/b").await;
    assert!(
        matches!(larger, Err(BlobError::TooLarge { .. })),
        "{larger:?}"
    );
    let empty = tenant.store_blob("c", Vec::new(), "a/b").await;
    assert!(matches!(empty, Err(BlobError::Empty)), "{empty:?}");
    let unknown = tenant.store_image("d", png(1, 9)).await;
    assert!(matches!(unknown, Err(BlobError::Call(_))), "{unknown:?}");
    let page = project.storage().scan("blob", "", "", 10, false).unwrap();
    assert!(page.items.is_empty());
}
