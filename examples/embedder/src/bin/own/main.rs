//! A tenant without a directory: store, library, model and tools are the embedder's own.

mod library;
mod model;
mod store;
mod tools;

use std::error::Error;
use std::sync::Arc;
use threadkeep::component::TenantContext;
use threadkeep::driver::{Driver, EventSink, StopReceiver, fresh_nonce};
use threadkeep::engine::Engine;
use threadkeep::limits::EngineLimits;
use threadkeep::models::{OneProvider, user_message};
use threadkeep::tenant::Tenant;
use threadkeep::tools::ToolSet;
use threadkeep::wit::registry::Draft;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tools = Arc::new(tools::DeskTools);
    let library = library::JsonLibrary {
        catalog: tools.catalog(),
    };
    let context = TenantContext::new(Arc::new(store::MapStore::default()), Arc::new(library));
    let tenant = Tenant::new(Engine::new(EngineLimits::strict(), None)?, context);

    let models = Arc::new(OneProvider::new(Arc::new(model::ClerkModel)));
    let driver = Driver::new(tenant.clone(), models, tools, &fresh_nonce()?);

    let thread = tenant.create(Draft::for_directive("answer")).await?;
    let question = user_message("When are you open?");
    let ended = driver
        .run(
            &thread.id,
            Some(question),
            &EventSink::none(),
            &StopReceiver::never(),
        )
        .await?;
    println!("{}: {}", ended.status, ended.result.unwrap_or_default());

    let page = tenant.events(&thread.id, 0, 100, None).await?;
    let kinds: Vec<&str> = page
        .events
        .iter()
        .map(|event| event.kind.as_str())
        .collect();
    println!("{}", kinds.join(" "));
    Ok(())
}
