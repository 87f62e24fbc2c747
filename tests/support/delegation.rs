//! Delegation for stores of tests that wrap another store and pass most calls on to it.

/// Passes calls of [`StorageBackend`](threadkeep::storage::StorageBackend) on to a field unchanged:
/// `delegate_calls!(inner: scan, read_log);` inside the `impl`. With `through`, a method of the
/// store passes each on, `fn serve<T>(&self, name, call: impl FnOnce(&Inner) -> Result<T, _>)`:
/// `delegate_calls!(through serve: get, scan);`. The name is that of the import in the contract.
#[macro_export]
macro_rules! delegate_calls {
    (through $serve:ident: $($call:ident),*) => {
        $($crate::delegate_calls!(@$call (store, $serve));)*
    };
    ($inner:tt: $($call:ident),*) => { $($crate::delegate_calls!(@$call $inner);)* };
    (@get $how:tt) => {
        fn get(
            &self,
            keys: &[::threadkeep::storage::RecordKey],
        ) -> Result<Vec<::threadkeep::storage::StoredRecord>, ::threadkeep::storage::StorageError> {
            $crate::delegate_calls!(@pass self, $how, "get", get(keys))
        }
    };
    (@scan $how:tt) => {
        fn scan(
            &self,
            collection: &str,
            start: &str,
            end: &str,
            limit: u32,
            reverse: bool,
        ) -> Result<::threadkeep::storage::RecordPage, ::threadkeep::storage::StorageError> {
            $crate::delegate_calls!(
                @pass self, $how, "scan", scan(collection, start, end, limit, reverse)
            )
        }
    };
    (@read_log $how:tt) => {
        fn read_log(
            &self,
            log: &str,
            partition: &str,
            start: u64,
            limit: u32,
            reverse: bool,
        ) -> Result<Vec<::threadkeep::storage::LogEntry>, ::threadkeep::storage::StorageError> {
            $crate::delegate_calls!(
                @pass self, $how, "read-log", read_log(log, partition, start, limit, reverse)
            )
        }
    };
    (@commit $how:tt) => {
        fn commit(
            &self,
            ops: &[::threadkeep::storage::CommitOp],
            closing: bool,
        ) -> Result<::threadkeep::storage::CommitOutcome, ::threadkeep::storage::StorageError> {
            $crate::delegate_calls!(@pass self, $how, "commit", commit(ops, closing))
        }
    };
    (@pass $self:ident, ($store:ident, $serve:ident), $name:literal, $call:ident($($with:expr),*)) => {
        $self.$serve(concat!("storage.", $name), |$store| $store.$call($($with),*))
    };
    (@pass $self:ident, $inner:tt, $name:literal, $call:ident($($with:expr),*)) => {
        $self.$inner.$call($($with),*)
    };
}
