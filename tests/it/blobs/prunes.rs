//! Blobs that nothing names are removed after a day, and no others.

use super::results::fetch;
use super::{BlobProject, png};
use crate::cli::fixture::CliProject;
use crate::component::project::engine;
use cap_std::fs::Dir;
use serde_json::{Value, json};
use std::sync::Arc;
use threadkeep::blobs::{BlobName, BlobWrite, write_blob};
use threadkeep::clock::{ClockTime, HostClock, ManualClock, SystemClock};
use threadkeep::component::TenantContext;
use threadkeep::models::{user_message, user_message_with_images};
use threadkeep::storage::sqlite::{SqliteOptions, SqliteStore};
use threadkeep::storage::{RecordKey, StorageBackend};
use threadkeep::tenant::Tenant;
use threadkeep::tools::ToolResult;
use threadkeep::wit::runner::SignalKind;

fn hours_from_now(hours: i64) -> ClockTime {
    let now = SystemClock.now();
    ClockTime {
        seconds: now.seconds + hours * 3_600,
        ..now
    }
}

/// The tenant of a project as it is after some hours.
fn tenant_after(project: &BlobProject, hours: i64) -> Tenant {
    let context = project.project.tenant().context();
    let storage = Arc::clone(&context.storage);
    let mut later = TenantContext::new(storage, Arc::clone(&context.library));
    later.clock = Arc::new(ManualClock::new(hours_from_now(hours)));
    Tenant::new(engine(), later)
}

/// Chain and hash of the blobs that a pruning names or removes.
async fn prune(tenant: &Tenant, dry_run: bool) -> Vec<(String, String)> {
    let pruned = tenant.prune_blobs(None, dry_run).await.unwrap();
    let pruned = pruned.into_iter();
    pruned.map(|blob| (blob.chain, blob.hash)).collect()
}

/// A fork rests on the history of another chain, and so on its blobs; a link of a chain names those
/// of its chain.
#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_a_fork_or_a_link_shares_stay() {
    let project = BlobProject::new(fetch(ToolResult::ok("ok")), None, "m").await;
    let tenant = project.project.tenant();
    let shared = tenant.store_image("c", png(1, 700_000)).await.unwrap();
    let message = user_message_with_images(Some("See?"), std::slice::from_ref(&shared));
    project.run(&message).await.unwrap();
    let version = tenant.get("c").await.unwrap().version;
    let fork = tenant.fork_at("c", version, None).await.unwrap().id;
    // The same bytes under the chain of the fork: nothing names these.
    tenant.store_image(&fork, png(1, 700_000)).await.unwrap();
    tenant.signal("c", "k", SignalKind::Kill).await.unwrap();
    let loose = tenant.store_image(&fork, png(2, 10)).await.unwrap();
    let waiting = tenant.store_image(&fork, png(3, 10)).await.unwrap();
    let message = user_message_with_images(None, std::slice::from_ref(&waiting));
    let message = SignalKind::Message(message);
    tenant.signal(&fork, "m", message).await.unwrap();

    let (young, old) = (tenant_after(&project, 23), tenant_after(&project, 25));
    assert_eq!(prune(&young, false).await, [], "their messages may come");
    let key = fork.to_lowercase();
    let mut expected = [
        (key.clone(), shared.hash.clone()),
        (key, loose.hash.clone()),
    ];
    expected.sort();
    assert_eq!(prune(&old, true).await, expected);
    assert!(tenant.read_blob(&fork, &loose.hash).await.is_ok());
    assert_eq!(prune(&old, false).await, expected, "what was named");
    assert_eq!(prune(&old, false).await, []);
    for hash in [&shared.hash, &loose.hash] {
        assert!(tenant.read_blob(&fork, hash).await.is_err());
    }
    assert!(tenant.read_blob("c", &shared.hash).await.is_ok());
    assert!(tenant.read_blob(&fork, &waiting.hash).await.is_ok());
    assert_eq!(project.findings(), [""; 0]);
    // A message cannot name what was removed, until it is stored again.
    let message = user_message_with_images(None, std::slice::from_ref(&loose));
    let named = || SignalKind::Message(message.clone());
    assert!(tenant.signal(&fork, "n", named()).await.is_err());
    tenant.store_image(&fork, png(2, 10)).await.unwrap();
    tenant.signal(&fork, "n", named()).await.unwrap();
    let text = user_message("And?");
    let more = SignalKind::Message(text);
    tenant.signal(&fork, "o", more).await.unwrap();
    assert_eq!(project.findings(), [""; 0]);
    assert_eq!(prune(&old, true).await, []);
}

/// Stores a blob that nothing names in the store of a command's project, two days ago.
pub fn plant_old_blob(project: &CliProject, chain: &str, bytes: &[u8]) -> BlobName {
    let path = project.path().join(".ai/threads");
    let dir = Dir::open_ambient_dir(path, cap_std::ambient_authority()).unwrap();
    let store = SqliteStore::open(&dir, "registry.db", SqliteOptions::local()).unwrap();
    let record = store.get(&[RecordKey::new("chain", chain)]).unwrap();
    let version = record.first().expect("the chain is there").version;
    let (bytes, then) = ((bytes, "text/plain"), hours_from_now(-48));
    match write_blob(&store, (chain, version), bytes, then).unwrap() {
        BlobWrite::Stored(name) => name,
        BlobWrite::ChainMoved => panic!("nobody else writes"),
    }
}

#[test]
fn the_command_removes_exactly_what_its_rehearsal_named() {
    let project = CliProject::new();
    for id in ["one", "two"] {
        project.json(&["create", "--id", id]);
    }
    let one = plant_old_blob(&project, "one", b"loose");
    let two = plant_old_blob(&project, "two", b"loose as well");
    let row = |chain: &str, name: &BlobName| {
        json!({
            "chain_root_id": chain, "blob": name.hash, "bytes": name.size,
            "reason": "unreferenced"
        })
    };
    let all = json!([row("one", &one), row("two", &two)]);
    let blobs = |arguments: &[&str]| -> Value { project.json(arguments)["blobs"].clone() };
    assert_eq!(blobs(&["prune", "--dry-run"]), all);
    let told = project.run(&["prune", "--dry-run"]);
    let line = format!("blob {} of one, 5 bytes: no history", one.hash);
    assert!(told.out.contains(&line), "{}", told.out);
    assert!(
        told.err.contains("2 blobs would be removed"),
        "{}",
        told.err
    );
    assert_eq!(blobs(&["prune", "two"]), json!([row("two", &two)]));
    assert_eq!(blobs(&["prune", "--dry-run"]), json!([row("one", &one)]));
    assert_eq!(blobs(&["prune"]), json!([row("one", &one)]));
    assert_eq!(blobs(&["prune"]), json!([]));
    assert_eq!(project.json(&["audit"])["findings"], json!([]));
}
