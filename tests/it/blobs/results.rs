//! Large results of tools: the model is shown a part, the store has all of it.

use super::{BlobProject, png};
use std::sync::Arc;
use std::time::Duration;
use threadkeep::blobs::{BlobName, list_unreferenced_blobs};
use threadkeep::models::{BoxFuture, user_message};
use threadkeep::tools::{RESULT_BYTES_MAX, ToolEntry, ToolResult, ToolSet};

/// A tool `fetch` that answers with this result.
pub struct FetchTool(pub ToolResult);

impl ToolSet for FetchTool {
    fn catalog(&self) -> Vec<ToolEntry> {
        let time = Duration::from_secs(60);
        vec![ToolEntry::new(
            "fetch",
            "Fetches a page.",
            r#"{"type": "object"}"#,
            time,
        )]
    }

    fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
        Box::pin(async { self.0.clone() })
    }
}

pub fn fetch(result: ToolResult) -> Arc<FetchTool> {
    Arc::new(FetchTool(result))
}

fn page(bytes: usize) -> String {
    let lines = (0..).map(|n| format!("line {n} of the page é\n"));
    let mut text = String::new();
    for line in lines {
        if text.len() + line.len() > bytes {
            text.push_str(&"x".repeat(bytes - text.len()));
            return text;
        }
        text.push_str(&line);
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_is_shown_in_part_and_kept_whole() {
    for size in [RESULT_BYTES_MAX, RESULT_BYTES_MAX + 1, 300_000, 3 << 20] {
        let whole = page(size);
        let tools = fetch(ToolResult::ok(whole.clone()));
        let project = BlobProject::new(tools, None, "blind").await;
        let ended = project.run(&user_message("Fetch it.")).await.unwrap();
        assert_eq!(ended.status, "idle", "{ended:?}");
        let result = &project.events("tool_result").await[0];
        let (text, cut) = (result["text"].as_str().unwrap(), size > RESULT_BYTES_MAX);
        assert_eq!(result["failed"], false);
        assert_eq!(result["blocks"].is_array(), cut, "{size}");
        if cut {
            assert!(text.len() <= RESULT_BYTES_MAX + 200, "{}", text.len());
            assert!(text.starts_with(&whole[..60_000]));
            let name = BlobName::of(whole.as_bytes(), "text/plain");
            let note = format!("[all {size} bytes are kept as the blob {}]", name.short());
            assert!(
                text.ends_with(&note),
                "{note}: {}",
                &text[text.len() - 200..]
            );
            let block = &result["blocks"][0];
            assert_eq!(
                (&block["blob"], &block["chain"]),
                (&name.hash.into(), &"c".into())
            );
            let read = project
                .project
                .tenant()
                .read_blob("c", block["blob"].as_str().unwrap());
            assert!(read.await.unwrap() == whole.as_bytes());
        } else {
            assert_eq!(text, whole);
        }
        assert_eq!(project.findings(), [""; 0]);
        assert_eq!(list_unreferenced_blobs(project.storage()).unwrap(), []);
    }
}

/// The same bytes are stored once, also where two calls have them.
#[tokio::test(flavor = "multi_thread")]
async fn equal_bytes_are_stored_once() {
    let image = png(2, 500_000);
    let tools = fetch(ToolResult::ok("See:").with_image(image.clone()));
    let project = BlobProject::new(tools, None, "m").await;
    for _ in 0..2 {
        let ended = project.run(&user_message("Fetch it.")).await.unwrap();
        assert_eq!(ended.status, "idle", "{ended:?}");
    }
    let name = BlobName::of(&image, "image/png");
    for result in project.events("tool_result").await {
        assert_eq!(result["blocks"][0]["blob"], name.hash.as_str(), "{result}");
    }
    let page = project.storage().scan("blob", "", "", 10, false).unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.items[0].version, 1);
    assert_eq!(project.findings(), [""; 0]);
}
