//! Delegation for stores of tests that wrap another store and pass most calls on to it.

/// Passes calls of [`Storage`](threadkeep::storage::Storage) on to a field unchanged:
/// `hand_on!(inner: scan, read_log);` inside the `impl`.
#[macro_export]
macro_rules! hand_on {
    ($inner:tt: $($call:ident),*) => { $($crate::hand_on!(@$call $inner);)* };
    (@get $inner:tt) => {
        fn get(
            &self,
            keys: &[::threadkeep::storage::Key],
        ) -> Result<Vec<::threadkeep::storage::Item>, ::threadkeep::storage::StorageError> {
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
        ) -> Result<::threadkeep::storage::Page, ::threadkeep::storage::StorageError> {
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
        ) -> Result<Vec<::threadkeep::storage::Line>, ::threadkeep::storage::StorageError> {
            self.$inner.read_log(log, partition, start, limit, reverse)
        }
    };
    (@commit $inner:tt) => {
        fn commit(
            &self,
            ops: &[::threadkeep::storage::Op],
            closing: bool,
        ) -> Result<::threadkeep::storage::Outcome, ::threadkeep::storage::StorageError> {
            self.$inner.commit(ops, closing)
        }
    };
}
