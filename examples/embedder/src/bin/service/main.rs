//! A skeleton of a service for many tenants in one process: directories as tenants, strict limits,
//! a policy, a queue, stores that open on first use, recovery at the start, an orderly end.
//!
//! `service TENANTS CACHE POLICY`: each directory in TENANTS is a tenant; CACHE keeps native code
//! and belongs to the operator alone; POLICY is the operator's policy. The service listens on a
//! port of the loopback interface and prints its address. `serve` has the protocol.

mod serve;
mod tenants;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use threadkeep::authority::{open_private_dir_ambient, read_ambient};
use threadkeep::driver::{StopLevel, stop_channel};
use threadkeep::engine::{CodeCache, Engine};
use threadkeep::limits::EngineLimits;
use threadkeep::policy::{Policy, TEXT_BYTES_MAX};
use threadkeep::storage::sqlite::{StorePool, StorePoolOptions};
use tokio::net::TcpListener;

/// Longest time for runs to record that they were stopped.
const SHUTDOWN_MAX: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(root), Some(cache), Some(file)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: service TENANTS CACHE POLICY".into());
    };
    let policy = String::from_utf8(read_ambient(Path::new(&file), TEXT_BYTES_MAX)?)?;
    let policy = Policy::parse(&policy, &file)?;
    let cache = CodeCache::new(open_private_dir_ambient(Path::new(&cache))?);
    let engine = Engine::new(EngineLimits::strict(), Some(&cache))?;
    let (stopper, stop) = stop_channel();
    let stores = StorePool::new(StorePoolOptions::service());
    let house = tenants::ServiceParts {
        engine,
        policy,
        stores: stores.clone(),
        stop: stop.clone(),
    };
    let tenants = Arc::new(tenants::open_all(&house, Path::new(&root))?);

    // Runs of dead processes are closed before new ones begin. A problem of one tenant is printed
    // and does not affect the others.
    for (name, tenant) in &*tenants {
        let ready = match tenant {
            Ok(tenant) => tenant
                .ensure_recovered()
                .await
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        if let Err(error) = ready {
            eprintln!("tenant {name}: {error}");
        }
    }
    stores.close_idle();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("listening on {}", listener.local_addr()?);

    let connections = serve::accept(listener, &tenants, &stop, wait_for_shutdown()).await;
    println!("shutting down");
    stopper.raise(StopLevel::Now);
    let ended = tokio::time::timeout(SHUTDOWN_MAX, connections.join_all()).await;
    for tenant in tenants.values().flatten() {
        tenant.flush().await;
    }
    println!(
        "{}",
        if ended.is_ok() {
            "all runs are written"
        } else {
            "some runs are left to recovery"
        }
    );
    Ok(())
}

/// Waits for Ctrl-C, or the signal of a supervisor.
async fn wait_for_shutdown() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
