//! Bounds that the host and the store enforce by themselves, whatever the component decides:
//! ceilings, policy, quota.

mod blocking_book;
mod bounds;
mod cli;
pub mod fixture;
mod guard;
mod lowered_policy;
mod policy;
mod quota;
mod runs;

use threadkeep::wit;
use threadkeep::wit::runner::{Raised, SignalKind};

/// The signal that raises caps.
fn raise(caps: wit::Limits) -> SignalKind {
    let through = false;
    SignalKind::Raise(Raised { caps, through })
}
