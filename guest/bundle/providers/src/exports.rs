//! The imports of the component, as exports of this one: translation only.

use crate::{convert, file_tools, images, model, project, replies};
use threadkeep_adapters::library::{LibraryError, NAMES_MAX, TenantLibrary as _};
use threadkeep_adapters::models::FailureKind;
use threadkeep_storage::BoundedRecords;

mod bindings {
    #![allow(
        missing_docs,
        clippy::all,
        unsafe_code,
        reason = "generated from wit/, where the documentation is"
    )]
    wit_bindgen::generate!({
        path: ["../../../wit", "../wit"],
        inline: "
            package threadkeep:bundle-providers;

            world providers {
                export threadkeep:threads/types@0.1.0;
                export threadkeep:threads/storage@0.1.0;
                export threadkeep:threads/clock@0.1.0;
                export threadkeep:threads/random@0.1.0;
                export threadkeep:threads/library@0.1.0;
                export threadkeep:threads/llm@0.1.0;
                export threadkeep:threads/tools@0.1.0;
                export threadkeep:bundle/host@0.1.0;
            }
        ",
        world: "threadkeep:bundle-providers/providers",
    });
    export!(BundleProviders);
    use super::BundleProviders;
}

pub use bindings::exports::threadkeep::bundle::host as bundle_host;
pub use bindings::exports::threadkeep::threads::{
    clock, library, llm, random, storage, tools, types,
};

/// Most random bytes of one call: ids need eight.
const RANDOM_BYTES_MAX: u32 = 64;

/// All that the component imports; its state between calls is in [`project`].
struct BundleProviders;

impl storage::Guest for BundleProviders {
    fn get(keys: Vec<storage::Key>) -> Result<Vec<storage::Item>, storage::StorageError> {
        let keys: Vec<_> = keys.into_iter().map(convert::key_from_wit).collect();
        let found = project::store()
            .and_then(|store| store.get(&keys))
            .and_then(BoundedRecords::check_all_fit);
        let items = found.map_err(convert::storage_error_to_wit)?;
        Ok(items.into_iter().map(convert::item_to_wit).collect())
    }

    fn scan(
        collection: String,
        start: String,
        end: String,
        limit: u32,
        reverse: bool,
    ) -> Result<storage::Page, storage::StorageError> {
        project::store()
            .and_then(|store| store.scan(&collection, &start, &end, limit, reverse))
            .map(convert::page_to_wit)
            .map_err(convert::storage_error_to_wit)
    }

    fn read_log(
        log: String,
        partition: String,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<storage::Line>, storage::StorageError> {
        let lines = project::store()
            .and_then(|store| store.read_log(&log, &partition, start, limit, reverse))
            .map_err(convert::storage_error_to_wit)?;
        Ok(lines.into_iter().map(convert::log_entry_to_wit).collect())
    }

    fn commit(
        ops: Vec<storage::Op>,
        how: storage::CommitFlags,
    ) -> Result<bool, storage::StorageError> {
        let ops: Vec<_> = ops.into_iter().map(convert::op_from_wit).collect();
        let closing = how.contains(storage::CommitFlags::CLOSING);
        project::store()
            .and_then(|store| store.commit(&ops, closing))
            .map(convert::outcome_to_wit)
            .map_err(convert::storage_error_to_wit)
    }
}

impl clock::Guest for BundleProviders {
    fn now() -> types::Instant {
        convert::instant(std::time::SystemTime::now())
    }
}

impl random::Guest for BundleProviders {
    /// Answers fewer bytes than asked for where there are none, which the component refuses.
    fn bytes(count: u32) -> String {
        let mut bytes = vec![0; count.min(RANDOM_BYTES_MAX) as usize];
        match getrandom::fill(&mut bytes) {
            Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Err(_) => String::new(),
        }
    }
}

impl library::Guest for BundleProviders {
    fn get(kind: String, names: Vec<String>) -> Result<Vec<Option<String>>, library::LibraryError> {
        if names.len() > NAMES_MAX {
            let message = format!(
                "{} names were asked for at once, the most is {NAMES_MAX}",
                names.len()
            );
            let code = "too-many-names";
            return Err(convert::library_error_to_wit(LibraryError::Other {
                code,
                message,
            }));
        }
        let documents = project::library().documents(&kind, &names);
        documents.map_err(convert::library_error_to_wit)
    }

    fn names(kind: String) -> Result<Vec<String>, library::LibraryError> {
        let names = project::library().names(&kind);
        names.map_err(convert::library_error_to_wit)
    }
}

impl llm::Guest for BundleProviders {
    fn complete(request: llm::Request) -> Result<llm::Completion, llm::LlmError> {
        match model::complete(&request) {
            Ok(completion) => {
                replies::keep_reply(&request);
                Ok(convert::completion_to_wit(
                    &completion.without_empty_texts(),
                ))
            }
            Err(failure) => {
                // The answer of `runner.run` says that the run is suspended, and not why; a command
                // says it.
                let is_setup = failure.kind == FailureKind::Permanent && !failure.sent;
                if is_setup && !replies::is_command() {
                    eprintln!("threadkeep: {}", failure.message);
                }
                Err(convert::failure_to_wit(&failure))
            }
        }
    }
}

impl tools::Guest for BundleProviders {
    fn call(calls: Vec<types::ToolCall>) -> Vec<types::ToolOutcome> {
        calls.into_iter().map(file_tools::call).collect()
    }
}

impl bundle_host::Guest for BundleProviders {
    fn begin_command(names_files: bool) -> bundle_host::FileUse {
        replies::begin_command();
        if names_files {
            project::name_files_store();
        }
        bundle_host::FileUse {
            options: project::FILE_OPTIONS.to_owned(),
            file: project::FILE_NAME.to_owned(),
        }
    }

    fn set_rehearsal(rehearses: bool) {
        project::set_rehearsal(rehearses);
    }

    fn check_model(model: String) -> Result<(), bundle_host::ModelFault> {
        let made = model::make_provider(&model);
        made.map(drop).map_err(|failure| bundle_host::ModelFault {
            code: failure.code,
            message: failure.message,
        })
    }

    fn takes_images(model: String) -> bool {
        let table = project::library().models();
        table.is_ok_and(|table| table.takes_images(&model))
    }

    fn store_image(
        thread: String,
        bytes: Vec<u8>,
    ) -> Result<bundle_host::StoredImage, bundle_host::ImageFault> {
        images::store_image(&thread, &bytes)
    }

    fn take_replies() -> Vec<bundle_host::Reply> {
        replies::take_replies()
    }

    fn read_blob(chain: String, hash: String) -> Option<Vec<u8>> {
        images::read_blob(&chain, &hash)
    }
}
