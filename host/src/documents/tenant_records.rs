//! The records of a tenant, as its documents are made from them.

use super::DocumentError;
use crate::tenant::Tenant;
use crate::thread_files::{DocumentPiece, DocumentRecords, DocumentedThread, PieceRequest};
use crate::thread_path::path_of;
use crate::wit;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;

/// Makes the calls of a tenant from a thread that may block, such as one of the runtime's.
pub(super) struct TenantRecords {
    tenant: Tenant,
    runtime: Handle,
}

impl TenantRecords {
    /// The records of this tenant, over the current tokio runtime.
    pub(super) fn new(tenant: &Tenant) -> Self {
        Self {
            tenant: tenant.clone(),
            runtime: Handle::current(),
        }
    }
}

impl DocumentRecords for TenantRecords {
    type RecordError = DocumentError;

    fn read_thread(&self, thread: &str) -> Result<DocumentedThread, DocumentError> {
        let found = self.runtime.block_on(self.tenant.get(thread))?;
        Ok(document_thread(&found))
    }

    fn render_piece(&self, asked: PieceRequest<'_>) -> Result<DocumentPiece, DocumentError> {
        let PieceRequest {
            thread,
            document,
            at,
            after,
            cursor,
        } = asked;
        let cursor = cursor.map(str::to_owned);
        let piece = self.tenant.render(thread, document, at, after, cursor);
        let piece = self.runtime.block_on(piece)?;
        Ok(DocumentPiece {
            text: piece.text,
            version: piece.version,
            cursor: piece.cursor,
        })
    }

    fn read_blob(&self, chain: &str, hash: &str) -> Option<Vec<u8>> {
        match self.runtime.block_on(self.tenant.read_blob(chain, hash)) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                tracing::warn!(%error, "a blob that a transcript names cannot be read");
                None
            }
        }
    }

    fn now(&self) -> SystemTime {
        let now = self.tenant.context().clock.now();
        let since = Duration::new(u64::try_from(now.seconds).unwrap_or(0), now.nanos);
        SystemTime::UNIX_EPOCH
            .checked_add(since)
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// Returns what the documents of a thread need of its record.
fn document_thread(thread: &wit::Thread) -> DocumentedThread {
    DocumentedThread {
        id: thread.id.clone(),
        status: thread.status.clone(),
        cause: thread.cause.as_ref().map(|cause| cause.reason.clone()),
        version: thread.version,
        updated: (thread.updated.seconds, thread.updated.nanos),
        path: path_of(thread),
    }
}
