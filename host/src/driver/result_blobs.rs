//! The blobs of a tool's result: stored before the result is submitted, which then names them.

use crate::blobs::{StoredResult, UnstoredResult};
use crate::tenant::Tenant;
use crate::tools::ToolResult;
use crate::wit;

/// Stores the images of a result, and its text where the model is shown only a part; takes both out
/// of it. What is not stored is said in the text.
pub(super) async fn store_result_blobs(
    tenant: &Tenant,
    call: &wit::ToolCall,
    result: &mut ToolResult,
) -> StoredResult {
    let unstored = UnstoredResult {
        text: std::mem::take(&mut result.content),
        failed: result.failed,
        images: std::mem::take(&mut result.images),
        whole: result.whole.take(),
    };
    if !unstored.has_blobs() {
        return unstored.into();
    }
    let (thread, takes_images) = (call.thread.clone(), call.images);
    let lost = StoredResult::lost(&unstored);
    let stored = tenant.with_blobs(move |blobs| {
        let stored = blobs.store_result(&thread, takes_images, unstored);
        Ok(stored)
    });
    // Only a process that is ending has no thread to store them on.
    stored.await.unwrap_or(lost)
}
