//! Delegation for stores of tests that wrap another store and pass most calls on to it.

/// Passes calls of [`StorageBackend`](threadkeep::storage::StorageBackend) on to a field unchanged:
/// `delegate_calls!(inner: scan, read_log);` inside the `impl`.
#[macro_export]
macro_rules! delegate_calls {
    ($inner:tt: $($call:ident),*) => { $($crate::delegate_calls!(@$call $inner);)* };
    (@get $inner:tt) => {
        fn get(
            &self,
            keys: &[::threadkeep::storage::RecordKey],
        ) -> Result<Vec<::threadkeep::storage::StoredRecord>, ::threadkeep::storage::StorageError> {
            self.$inner.get(keys)
        }
    };
    (@scan $inner:tt) => {
        fn scan(
            &self,
            collection: &str,
            start: &str,
            end: &str,
            limit: u32,
            reverse: bool,
        ) -> Result<::threadkeep::storage::RecordPage, ::threadkeep::storage::StorageError> {
            self.$inner.scan(collection, start, end, limit, reverse)
        }
    };
    (@read_log $inner:tt) => {
        fn read_log(
            &self,
            log: &str,
            partition: &str,
            start: u64,
            limit: u32,
            reverse: bool,
        ) -> Result<Vec<::threadkeep::storage::LogEntry>, ::threadkeep::storage::StorageError> {
            self.$inner.read_log(log, partition, start, limit, reverse)
        }
    };
    (@commit $inner:tt) => {
        fn commit(
            &self,
            ops: &[::threadkeep::storage::CommitOp],
            closing: bool,
        ) -> Result<::threadkeep::storage::CommitOutcome, ::threadkeep::storage::StorageError> {
            self.$inner.commit(ops, closing)
        }
    };
}
