//! Rules that core, host and command line share, each written once: money, token prices, times as
//! text, JSON numbers as text, the characters that are escaped, the nearest of known names, the
//! names of the built-in tools and the form of patterns of them, the statuses that are ends, the
//! grace of a lease, the keys of the settings of coordination, the names of a project's stores, and
//! the versions along which a thread is read.
//!
//! Nothing here knows a record or a store, and nothing here does I/O.

pub mod believed;
pub mod builtin_tools;
pub mod coordination;
pub mod json_number;
pub mod lease_grace;
pub mod money;
pub mod nearest;
pub mod persistence;
pub mod price;
pub mod printable;
pub mod project_layout;
pub mod status;
pub mod thread_path;
pub mod time;
pub mod tool_pattern;
pub mod unknown_bill;
