//! The imports of the component over a [`View`]. Translation and nothing else.

use super::{View, convert};
use crate::bindings::threadkeep::threads::{clock, library, llm, random, storage, tools, types};
use wasmtime::Result;

/// Most random bytes of one call: ids need eight.
const RANDOM_BYTES_MAX: u32 = 64;

impl types::Host for View<'_> {}

impl storage::Host for View<'_> {
    fn get(
        &mut self,
        keys: Vec<storage::Key>,
    ) -> Result<std::result::Result<Vec<storage::Item>, storage::Error>> {
        let keys: Vec<_> = keys.into_iter().map(convert::key_in).collect();
        Ok(self
            .context
            .storage
            .get(&keys)
            .map(|items| items.into_iter().map(convert::item).collect())
            .map_err(convert::storage_error))
    }

    fn scan(
        &mut self,
        collection: String,
        start: String,
        end: String,
        limit: u32,
        reverse: bool,
    ) -> Result<std::result::Result<storage::Page, storage::Error>> {
        let page = self
            .context
            .storage
            .scan(&collection, &start, &end, limit, reverse);
        Ok(page.map(convert::page).map_err(convert::storage_error))
    }

    fn read_log(
        &mut self,
        log: String,
        partition: String,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<std::result::Result<Vec<storage::Line>, storage::Error>> {
        let lines = self
            .context
            .storage
            .read_log(&log, &partition, start, limit, reverse);
        Ok(lines
            .map(|lines| lines.into_iter().map(convert::line).collect())
            .map_err(convert::storage_error))
    }

    fn commit(
        &mut self,
        ops: Vec<storage::Op>,
        closing: bool,
    ) -> Result<std::result::Result<storage::Outcome, storage::Error>> {
        let ops: Vec<_> = ops.into_iter().map(convert::op_in).collect();
        Ok(self
            .context
            .storage
            .commit(&ops, closing)
            .map(convert::outcome)
            .map_err(convert::storage_error))
    }
}

impl clock::Host for View<'_> {
    fn now(&mut self) -> Result<types::Instant> {
        Ok(convert::instant(self.context.clock.now()))
    }
}

impl random::Host for View<'_> {
    fn bytes(&mut self, count: u32) -> Result<String> {
        if count > RANDOM_BYTES_MAX {
            wasmtime::bail!(
                "random.bytes: {count} bytes were asked for, the most is {RANDOM_BYTES_MAX}"
            );
        }
        let mut bytes = [0_u8; RANDOM_BYTES_MAX as usize];
        let bytes = &mut bytes[..count as usize];
        self.context.random.fill(bytes)?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl library::Host for View<'_> {
    fn get(
        &mut self,
        kind: String,
        name: String,
    ) -> Result<std::result::Result<Vec<String>, library::Error>> {
        Ok(self
            .context
            .library
            .get(&kind, &name)
            .map_err(convert::library_error))
    }
}

/// A host with a driver of its own answers these itself; the component's own loop, which would call them, comes later.
impl llm::Host for View<'_> {
    fn complete(
        &mut self,
        _: llm::Request,
    ) -> Result<std::result::Result<llm::Completion, llm::Error>> {
        wasmtime::bail!("llm.complete: this host drives model calls itself")
    }
}

impl tools::Host for View<'_> {
    fn call(&mut self, _: Vec<types::ToolCall>) -> Result<Vec<types::ToolOutcome>> {
        wasmtime::bail!("tools.call: this host drives tool calls itself")
    }
}
