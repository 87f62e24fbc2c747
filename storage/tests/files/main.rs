//! The store of files: against the store in memory, on a simulated disk under random schedules, and
//! with damaged files.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]
#![allow(
    clippy::disallowed_methods,
    reason = "the tests look at the files of stores in temporary directories"
)]

mod against_memory;
mod damaged_files;
mod failing_directory;
mod failing_operations;
mod processes;
mod random_numbers;
mod schedules;
mod simulated_disk;
mod sizes;
mod whole_copies;
