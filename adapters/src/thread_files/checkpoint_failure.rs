//! The end of a thread whose checkpoint must be saved and cannot be.

use std::error::Error;

/// Code of the cause of a thread that has ended because its checkpoint could not be saved.
pub const CHECKPOINT_FAILED: &str = "checkpoint_failed";

/// Longest message of such a cause, in bytes.
const MESSAGE_BYTES_MAX: usize = 900;

/// Returns the failure that such a thread ends with, as the signal `fail` takes it.
pub fn describe_checkpoint_failure(error: &dyn Error) -> String {
    let mut message = format!("its checkpoint must be saved and cannot be: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        // Some errors say what their source says.
        let told = cause.to_string();
        if !message.ends_with(&told) {
            message = format!("{message}: {told}");
        }
        source = cause.source();
    }
    let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
    serde_json::json!({"code": CHECKPOINT_FAILED, "message": &message[..end]}).to_string()
}
