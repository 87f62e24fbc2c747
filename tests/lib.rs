//! The shared parts of the test suite: servers, stores and programs that tests start.

#[path = "support/auditor.rs"]
pub mod auditor;
#[path = "support/binary.rs"]
pub mod binary;
#[path = "support/canned.rs"]
pub mod canned;
#[path = "support/corpus.rs"]
pub mod corpus;
#[path = "support/delegation.rs"]
pub mod delegation;
#[path = "support/faulty.rs"]
pub mod faulty;
#[path = "support/fixture.rs"]
pub mod fixture;
#[path = "support/interleaved_store.rs"]
pub mod interleaved_store;
#[path = "support/judge.rs"]
pub mod judge;
#[path = "support/llmock.rs"]
pub mod llmock;
#[path = "support/native.rs"]
pub mod native;
#[path = "support/programs.rs"]
pub mod programs;
#[path = "support/soak.rs"]
pub mod soak;
