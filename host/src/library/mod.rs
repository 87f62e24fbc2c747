//! Definitions from a tenant's files and the operator's policy, as `threadkeep-adapters` reads
//! them, and the directory of a native host that it reads them from.

mod granted;

pub use granted::GrantedLibrary;
pub use threadkeep_adapters::library::*;
