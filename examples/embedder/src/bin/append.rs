//! An external loop: holds a thread and appends messages to its history without the runner.

use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use threadkeep::authority::ProjectDir;
use threadkeep::driver::{EventSink, StopReceiver, fresh_nonce};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::models::user_message;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::wit::ledger::{Bill, Estimate};
use threadkeep::wit::registry::Draft;

/// The time for which the lease lasts if this process dies.
const LEASE_TIME: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::new(EngineLimits::local(), None)?;
    let directory = ProjectDir::open_ambient(Path::new("project"))?;
    let options = ProjectOptions::new(Policy::preset(PolicyPreset::Local));
    let project = OpenProject::open(engine, &directory, options)?;
    let tenant = project.tenant();

    // A thread without a directive is a chat. No process holds it, so a message needs no token.
    let thread = tenant.create(Draft::default()).await?.id;
    let question = json!({"type": "message", "role": "user", "content": "What is in notes.txt?"});
    let said = tenant
        .append(&thread, None, 0, vec![question.to_string()])
        .await?;

    // A process that calls models and tools itself holds the thread: no other process can write.
    let holder = format!("{}/1", fresh_nonce()?);
    let deadline = tenant.context().clock.now().saturating_add(LEASE_TIME);
    let held = tenant
        .open_thread(&thread, &holder, deadline.into())
        .await?;
    let call = json!({"type": "tool_use", "name": "look", "arguments": "{}", "id": "a"});
    let result = json!({"type": "tool_result", "id": "a", "text": "oats, milk, coffee"});
    let reply = json!({"type": "message", "role": "assistant", "content": "A shopping list."});
    // Money first. It is set aside before anything is sent, so that no crash spends unseen.
    let estimate = Estimate::Amount(2_000_000);
    let asked = tenant
        .hold(&thread, held.token, "turn-1", estimate, deadline.into())
        .await?;
    // The cost of the provider's answer. A call that is not settled is charged by estimate, until
    // it is settled.
    let bill = Bill::Amount(1_250_000);
    let mut at = tenant.settle(&thread, asked.version, bill).await?;
    for events in [vec![call], vec![result], vec![reply]] {
        let events = events.iter().map(ToString::to_string).collect();
        at = tenant
            .append(&thread, Some(held.token), at, events)
            .await?
            .version;
    }
    tenant
        .close_thread(&thread, held.token, "idle", None)
        .await?;
    println!(
        "the question is version {}, the reply version {at}",
        said.version
    );

    // The runner continues where the loop has stopped: the model is sent the whole history.
    let more = user_message("Thank you. Is there milk?");
    let driver = project.driver();
    let ended = driver
        .run(
            &thread,
            Some(more),
            &EventSink::none(),
            &StopReceiver::never(),
        )
        .await?;
    println!("status  {}", ended.status);
    let sent = tenant.messages(&thread, 0, Some(at), None).await?;
    for message in sent.messages {
        println!("{message}");
    }
    Ok(())
}
