//! `runner.run`, the driver's loop inside the component: beside the host's driver, in small parts,
//! and after calls that never came back.

mod both_ways;
mod lost_calls;
mod native_host;
mod run_host;
mod store_text;
