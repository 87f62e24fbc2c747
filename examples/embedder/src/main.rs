//! From an empty crate to a running tenant: opens a project directory and runs one of its
//! directives.

use std::error::Error;
use std::path::Path;
use threadkeep::authority::ProjectDir;
use threadkeep::driver::{EventSink, RunEvent, StopReceiver};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::wit::registry::Draft;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // One engine serves any number of tenants. Creating it compiles the component, which takes a
    // moment.
    let engine = Engine::new(EngineLimits::local(), None)?;
    // The directory is the tenant: its directives and models are read from it, its records are
    // written to it.
    let directory = ProjectDir::open_ambient(Path::new("project"))?;
    let options = ProjectOptions::new(Policy::preset(PolicyPreset::Local));
    let project = OpenProject::open(engine, &directory, options)?;

    let draft = Draft {
        inputs: Some(r#"{"file": "notes.txt"}"#.to_owned()),
        ..Draft::for_directive("describe")
    };
    let thread = project.tenant().create(draft).await?;

    let (sink, mut events) = EventSink::channel();
    let ended = project
        .driver()
        .run(&thread.id, None, &sink, &StopReceiver::never())
        .await?;
    while let Ok(event) = events.try_recv() {
        if let RunEvent::ToolStarted {
            name, arguments, ..
        } = event
        {
            println!("tool    {name} {arguments}");
        }
    }
    println!("status  {}", ended.status);
    println!("result  {}", ended.result.unwrap_or_default());
    println!(
        "spent   {} nano-USD in {} turns",
        ended.costs.spend_nanos, ended.costs.turns
    );
    Ok(())
}
