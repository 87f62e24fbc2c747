//! A tenant without a directory: store, library, model and tools are the embedder's own.

mod library;
mod model;
mod store;
mod tools;

use std::error::Error;
use std::sync::Arc;
use threadkeep::component::Context;
use threadkeep::driver::{Driver, Sink, Stop, fresh_nonce};
use threadkeep::engine::Engine;
use threadkeep::limits::Limits;
use threadkeep::models::{OneProvider, user_message};
use threadkeep::tenant::Tenant;
use threadkeep::tools::Tools;
use threadkeep::wit::registry::Draft;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let tools = Arc::new(tools::Desk);
    let library = library::Shelf {
        catalog: tools.catalog(),
    };
    let context = Context::new(Arc::new(store::MapStore::default()), Arc::new(library));
    let tenant = Tenant::new(Engine::new(Limits::strict(), None)?, context);

    let models = Arc::new(OneProvider::new(Arc::new(model::Clerk)));
    let driver = Driver::new(tenant.clone(), models, tools, &fresh_nonce()?);

    let thread = tenant.create(Draft::of("answer")).await?;
    let question = user_message("When are you open?");
    let ended = driver
        .run(&thread.id, Some(question), &Sink::none(), &Stop::never())
        .await?;
    println!("{}: {}", ended.status, ended.result.unwrap_or_default());

    let page = tenant.events(&thread.id, 0, 100).await?;
    let kinds: Vec<&str> = page
        .events
        .iter()
        .map(|event| event.kind.as_str())
        .collect();
    println!("{}", kinds.join(" "));
    Ok(())
}
