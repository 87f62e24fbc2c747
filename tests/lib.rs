//! What the test suite shares: servers, stores and programs that tests start.

#[path = "support/llmock.rs"]
pub mod llmock;
#[path = "support/auditor.rs"]
pub mod auditor;
#[path = "support/faulty.rs"]
pub mod faulty;
#[path = "support/fixture.rs"]
pub mod fixture;
#[path = "support/native.rs"]
pub mod native;
#[path = "support/binary.rs"]
pub mod binary;
