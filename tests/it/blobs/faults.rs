//! Faults around blobs: a store that is full, a thread that has ended, bytes that were edited, and
//! blobs that nothing names.

use super::results::fetch;
use super::{BlobProject, png};
use std::sync::Arc;
use threadkeep::blobs::{BlobError, list_unreferenced_blobs};
use threadkeep::models::{user_message, user_message_with_images};
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{CommitOp, RecordExpectation, RecordKey, StorageBackend, StorageQuota};
use threadkeep::tools::ToolResult;
use threadkeep::wit::runner::SignalKind;
use threadkeep_tests::edited_log::EditedLog;

fn quota(limit_bytes: u64) -> StorageQuota {
    StorageQuota {
        limit_bytes,
        closing_margin_bytes: 1 << 20,
    }
}

/// The tool has run: its result is recorded, and says what could not be kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_loses_the_blob_and_not_the_result() {
    let page = "line\n".repeat(400_000);
    let image = png(5, 1_000_000);
    let result = ToolResult::ok(page).with_image(image);
    let store = Arc::new(MemoryStore::with_quota(quota(400_000)));
    let project = BlobProject::new(fetch(result), Some(store.clone()), "m").await;
    let ended = project.run(&user_message("Fetch it.")).await.unwrap();
    assert_eq!(ended.status, "idle", "{ended:?}");
    let result = &project.events("tool_result").await[0];
    let text = result["text"].as_str().unwrap();
    assert_eq!(result["failed"], true);
    assert!(result["blocks"].is_null(), "{}", result["blocks"]);
    for said in [
        "is not shown: the store is full",
        "[the rest is not kept: the store is full]",
    ] {
        assert!(text.contains(said), "{said}: {}", &text[text.len() - 400..]);
    }
    assert!(text.starts_with("line\n"));
    assert_eq!(project.findings(), [""; 0]);
    // With room again, the same call goes on where it was stopped.
    store.set_quota(None);
    project.run(&user_message("Fetch it again.")).await.unwrap();
    let result = &project.events("tool_result").await[1];
    assert_eq!(
        result["blocks"].as_array().map(Vec::len),
        Some(2),
        "{}",
        result["failed"]
    );
    assert_eq!(project.findings(), [""; 0]);
    assert_eq!(list_unreferenced_blobs(project.storage()).unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_has_ended_takes_no_blob() {
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), None, "m").await;
    let tenant = project.project.tenant();
    tenant.signal("c", "k", SignalKind::Kill).await.unwrap();
    match tenant.store_image("c", png(1, 100)).await {
        Err(BlobError::Ended { status, .. }) => assert_eq!(status, "killed"),
        other => panic!("{other:?}"),
    }
    let page = project.storage().scan("blob", "", "", 10, false).unwrap();
    assert!(page.items.is_empty());
}

/// A crash after the blob and before its message leaves the blob, which is listed until a message
/// names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_blob_without_a_message_is_listed() {
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), None, "m").await;
    let tenant = project.project.tenant();
    let name = tenant.store_image("c", png(6, 700_000)).await.unwrap();
    let listed = list_unreferenced_blobs(project.storage()).unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|blob| (&*blob.chain, &blob.hash, blob.size))
        .collect();
    assert_eq!(listed, [("c", &name.hash, name.size)]);
    assert_eq!(project.findings(), [""; 0]);
    // The message waits in the inbox: the blob is in use.
    let message = user_message_with_images(Some("See?"), &[name]);
    tenant
        .signal("c", "k", SignalKind::Message(message))
        .await
        .unwrap();
    assert_eq!(list_unreferenced_blobs(project.storage()).unwrap(), []);
}

/// The text of a blob was edited in the store: its bytes reach no model, the model is told, and the
/// audit names it.
#[tokio::test(flavor = "multi_thread")]
async fn edited_bytes_reach_no_model() {
    let store = Arc::new(EditedLog::default());
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), Some(store.clone()), "m").await;
    let tenant = project.project.tenant();
    let image = png(7, 1_000);
    let name = tenant.store_image("c", image.clone()).await.unwrap();
    let line = super::base64(&image);
    let edited = format!("{}AAAA", &line[..line.len() - 4]);
    store.edit(&line, &edited);
    match tenant.read_blob("c", &name.hash).await {
        Err(BlobError::Damaged { problem, .. }) => {
            assert_eq!(problem, "its bytes are not those of its name");
        }
        other => panic!("{:?}", other.map(|bytes| bytes.len())),
    }
    let message = user_message_with_images(Some("What is it?"), std::slice::from_ref(&name));
    let ended = project.run(&message).await.unwrap();
    assert_eq!(ended.status, "idle", "{ended:?}");
    let findings = project.findings();
    assert!(
        findings
            .iter()
            .any(|found| found.contains(&name.hash) && found.contains("changed")),
        "{findings:?}"
    );
}

/// A blob that an entry names is gone, or its record says another size.
#[tokio::test(flavor = "multi_thread")]
async fn the_audit_finds_blobs_that_are_gone() {
    let store = Arc::new(MemoryStore::new());
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), Some(store.clone()), "m").await;
    let tenant = project.project.tenant();
    let image = png(8, 1_000);
    let name = tenant.store_image("c", image).await.unwrap();
    let message = user_message_with_images(None, std::slice::from_ref(&name));
    project.run(&message).await.unwrap();
    assert_eq!(project.findings(), [""; 0]);
    let key = RecordKey::new("blob", format!("c\u{1}{}", name.hash));
    let put = |value: &str| CommitOp::Put {
        key: key.clone(),
        expect: RecordExpectation::Any,
        value: value.to_owned(),
    };
    let orphan = RecordKey::new("blob", format!("gone\u{1}{}", name.hash));
    let record = r#"{"size":1008,"media":"image/png","parts":1,"written":0}"#;
    for (ops, expected) in [
        (
            vec![CommitOp::Delete { key: key.clone() }],
            "which the entry 1 names",
        ),
        (
            vec![put(
                r#"{"size":9,"media":"image/png","parts":1,"written":1}"#,
            )],
            "bytes of the blob",
        ),
        (
            vec![put(
                r#"{"size":1008,"media":"image/png","parts":3,"written":3}"#,
            )],
            "lines of the blob",
        ),
        (
            vec![CommitOp::Put {
                key: orphan,
                expect: RecordExpectation::Absent,
                value: record.to_owned(),
            }],
            "the chain of the blob",
        ),
    ] {
        store.commit(&ops, true).unwrap();
        let findings = project.findings();
        assert!(
            findings.iter().any(|found| found.contains(expected)),
            "{expected}: {findings:?}"
        );
    }
}
