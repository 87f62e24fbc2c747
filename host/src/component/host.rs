//! The imports of the component, implemented on an [`ImportView`]: translation and metering only.

use super::{ImportView, TenantContext, convert, size};
use crate::bindings::threadkeep::threads::{clock, library, llm, random, storage, tools, types};
use crate::library::{LibraryError, NAMES_MAX};
use crate::storage::{BoundedRecords, deadline};
use wasmtime::Result;

/// Most random bytes of one call: ids need eight.
const RANDOM_BYTES_MAX: u32 = 64;

impl ImportView<'_> {
    /// Serves an import: `bytes` is the size of its arguments, `size` measures its answer.
    fn serve<T>(
        &mut self,
        bytes: usize,
        import: impl FnOnce(&TenantContext) -> T,
        size: impl FnOnce(&T) -> usize,
    ) -> Result<T> {
        let entered = self.meter.enter_import(bytes)?;
        let context = self.context;
        let answer = deadline::serve_until(self.meter.deadline(), || import(context));
        self.meter.leave_import(entered, size(&answer))?;
        Ok(answer)
    }
}

impl types::Host for ImportView<'_> {}

impl storage::Host for ImportView<'_> {
    fn get(
        &mut self,
        keys: Vec<storage::Key>,
    ) -> Result<std::result::Result<Vec<storage::Item>, storage::StorageError>> {
        let keys: Vec<_> = keys.into_iter().map(convert::key_from_wit).collect();
        let items = self.serve(
            size::keys(&keys),
            |context| {
                context
                    .storage
                    .get(&keys)
                    .and_then(BoundedRecords::check_all_fit)
            },
            size::items,
        )?;
        Ok(items
            .map(|items| items.into_iter().map(convert::item_to_wit).collect())
            .map_err(convert::storage_error_to_wit))
    }

    fn scan(
        &mut self,
        collection: String,
        start: String,
        end: String,
        limit: u32,
        reverse: bool,
    ) -> Result<std::result::Result<storage::Page, storage::StorageError>> {
        let page = self.serve(
            size::texts(&[&collection, &start, &end]),
            |context| {
                let storage = &context.storage;
                storage.scan(&collection, &start, &end, limit, reverse)
            },
            size::page,
        )?;
        Ok(page
            .map(convert::page_to_wit)
            .map_err(convert::storage_error_to_wit))
    }

    fn read_log(
        &mut self,
        log: String,
        partition: String,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<std::result::Result<Vec<storage::Line>, storage::StorageError>> {
        let lines = self.serve(
            size::texts(&[&log, &partition]),
            |context| {
                let storage = &context.storage;
                storage.read_log(&log, &partition, start, limit, reverse)
            },
            size::lines,
        )?;
        Ok(lines
            .map(|lines| lines.into_iter().map(convert::log_entry_to_wit).collect())
            .map_err(convert::storage_error_to_wit))
    }

    fn commit(
        &mut self,
        ops: Vec<storage::Op>,
        how: storage::CommitFlags,
    ) -> Result<std::result::Result<bool, storage::StorageError>> {
        let ops: Vec<_> = ops.into_iter().map(convert::op_from_wit).collect();
        let closing = how.contains(storage::CommitFlags::CLOSING);
        let outcome = self.serve(
            size::ops(&ops),
            |context| context.storage.commit(&ops, closing),
            |_| 0,
        )?;
        Ok(outcome
            .map(convert::outcome_to_wit)
            .map_err(convert::storage_error_to_wit))
    }
}

impl clock::Host for ImportView<'_> {
    fn now(&mut self) -> Result<types::Instant> {
        let now = self.serve(0, |context| context.clock.now(), |_| 0)?;
        Ok(convert::time_to_wit(now))
    }
}

impl random::Host for ImportView<'_> {
    fn bytes(&mut self, count: u32) -> Result<String> {
        if count > RANDOM_BYTES_MAX {
            wasmtime::bail!(
                "random.bytes: {count} bytes were asked for, the most is {RANDOM_BYTES_MAX}"
            );
        }
        let mut bytes = [0_u8; RANDOM_BYTES_MAX as usize];
        let bytes = &mut bytes[..count as usize];
        self.serve(0, |context| context.random.fill(bytes), |_| 0)??;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl library::Host for ImportView<'_> {
    fn get(
        &mut self,
        kind: String,
        names: Vec<String>,
    ) -> Result<std::result::Result<Vec<Option<String>>, library::LibraryError>> {
        let documents = self.serve(
            size::texts(&[&kind]) + size::names(&names),
            |context| match names.len() {
                0..=NAMES_MAX => context.library.documents(&kind, &names),
                count => Err(too_many_names(count)),
            },
            size::documents,
        )?;
        Ok(documents.map_err(convert::library_error_to_wit))
    }

    fn names(
        &mut self,
        kind: String,
    ) -> Result<std::result::Result<Vec<String>, library::LibraryError>> {
        let names = self.serve(
            size::texts(&[&kind]),
            |context| context.library.names(&kind),
            size::listing,
        )?;
        Ok(names.map_err(convert::library_error_to_wit))
    }
}

fn too_many_names(count: usize) -> LibraryError {
    LibraryError::Other {
        code: "too-many-names",
        message: format!("{count} names were asked for at once, the most is {NAMES_MAX}"),
    }
}

/// The host's driver makes model and tool calls itself. Only the component's own loop
/// (`runner.run`) calls these imports: the engine links them anew ([`super::step_calls`]), and so
/// does an embedder with a linker of its own that wants it.
impl llm::Host for ImportView<'_> {
    fn complete(
        &mut self,
        _: llm::Request,
    ) -> Result<std::result::Result<llm::Completion, llm::LlmError>> {
        wasmtime::bail!("llm.complete: this linker has no models")
    }
}

impl tools::Host for ImportView<'_> {
    fn call(&mut self, _: Vec<types::ToolCall>) -> Result<Vec<types::ToolOutcome>> {
        wasmtime::bail!("tools.call: this linker has no tools")
    }
}
