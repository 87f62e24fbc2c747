//! Conversions between the bindings of a host's imports and the types of the store, the library and
//! the models, as a macro: every host's bindings have the same names and fields, and no type in
//! common.

/// Defines the functions that convert what the imports of the component take and answer:
/// `key_from_wit`, `op_from_wit`, `item_to_wit`, `page_to_wit`, `log_entry_to_wit`,
/// `outcome_to_wit`, `storage_error_to_wit`, `library_error_to_wit`, `completion_to_wit` and
/// `failure_to_wit`. The modules `types`, `storage`, `library` and `llm` of the bindings must be in
/// scope, and the crate depends on `threadkeep-storage`.
#[macro_export]
macro_rules! convert_imports {
    () => {
        $crate::convert_imports! { @storage }
        $crate::convert_imports! { @errors }
        $crate::convert_imports! { @models }

        fn failure_of(code: &str, message: String) -> types::Failure {
            types::Failure {
                code: code.to_owned(),
                message,
            }
        }
    };
    (@storage) => {
        pub(crate) fn key_from_wit(key: storage::Key) -> ::threadkeep_storage::RecordKey {
            ::threadkeep_storage::RecordKey {
                collection: key.collection,
                name: key.name,
            }
        }

        pub(crate) fn item_to_wit(item: ::threadkeep_storage::StoredRecord) -> storage::Item {
            let key = storage::Key {
                collection: item.key.collection,
                name: item.key.name,
            };
            storage::Item {
                key,
                version: item.version,
                value: item.value,
            }
        }

        pub(crate) fn page_to_wit(page: ::threadkeep_storage::RecordPage) -> storage::Page {
            let damaged = page.damaged.into_iter().map(|item| storage::Damaged {
                name: item.name,
                why: failure_of("damaged", item.message),
            });
            storage::Page {
                items: page.items.into_iter().map(item_to_wit).collect(),
                damaged: damaged.collect(),
                cursor: page.cursor,
            }
        }

        pub(crate) fn log_entry_to_wit(line: ::threadkeep_storage::LogEntry) -> storage::Line {
            storage::Line {
                position: line.position,
                value: line.value,
            }
        }

        fn expectation_from_wit(
            expect: storage::Expectation,
        ) -> ::threadkeep_storage::RecordExpectation {
            use ::threadkeep_storage::RecordExpectation;
            match expect {
                storage::Expectation::Any => RecordExpectation::Any,
                storage::Expectation::Absent => RecordExpectation::Absent,
                storage::Expectation::Version(version) => RecordExpectation::Version(version),
            }
        }

        pub(crate) fn op_from_wit(op: storage::Op) -> ::threadkeep_storage::CommitOp {
            use ::threadkeep_storage::CommitOp;
            match op {
                storage::Op::Check(op) => CommitOp::Check {
                    key: key_from_wit(op.key),
                    expect: expectation_from_wit(op.expect),
                },
                storage::Op::Put(op) => CommitOp::Put {
                    key: key_from_wit(op.key),
                    expect: expectation_from_wit(op.expect),
                    value: op.value,
                },
                storage::Op::Delete(key) => CommitOp::Delete {
                    key: key_from_wit(key),
                },
                storage::Op::Append(op) => CommitOp::Append {
                    log: op.log,
                    partition: op.partition,
                    at: op.at,
                    value: op.value,
                },
                storage::Op::Trim(op) => CommitOp::Trim {
                    log: op.log,
                    partition: op.partition,
                    below: op.below,
                },
            }
        }

        pub(crate) fn outcome_to_wit(outcome: ::threadkeep_storage::CommitOutcome) -> bool {
            match outcome {
                ::threadkeep_storage::CommitOutcome::Committed => true,
                ::threadkeep_storage::CommitOutcome::Conflict => false,
            }
        }
    };
    (@errors) => {
        pub(crate) fn storage_error_to_wit(
            error: ::threadkeep_storage::StorageError,
        ) -> storage::StorageError {
            use ::threadkeep_storage::StorageError;
            let failure = |code: &str| failure_of(code, error.to_string());
            match &error {
                StorageError::Unavailable { .. } => {
                    storage::StorageError::Unavailable(failure("unavailable"))
                }
                StorageError::OutcomeUnknown { .. } => {
                    storage::StorageError::OutcomeUnknown(failure("outcome-unknown"))
                }
                StorageError::QuotaExceeded { .. } => {
                    storage::StorageError::QuotaExceeded(failure("quota-exceeded"))
                }
                StorageError::TooLarge { what, .. } => {
                    storage::StorageError::TooLarge(failure(what))
                }
                StorageError::Corrupt { .. } => storage::StorageError::Corrupt(failure("corrupt")),
                StorageError::Other { code, .. } => storage::StorageError::Other(failure(code)),
            }
        }

        pub(crate) fn library_error_to_wit(
            error: $crate::library::LibraryError,
        ) -> library::LibraryError {
            use $crate::library::LibraryError;
            match error {
                LibraryError::Invalid {
                    place,
                    value,
                    problem,
                    nearest,
                } => library::LibraryError::Invalid(library::InvalidFile {
                    field: place,
                    value,
                    problem,
                    nearest,
                }),
                LibraryError::Unavailable { message } => {
                    library::LibraryError::Unavailable(failure_of("library", message))
                }
                LibraryError::Other { code, message } => {
                    library::LibraryError::Other(failure_of(code, message))
                }
            }
        }
    };
    (@models) => {
        fn usage_to_wit(usage: $crate::models::Usage) -> types::Usage {
            let $crate::models::Usage {
                input,
                output,
                read,
                write,
                reasoning,
            } = usage;
            types::Usage {
                input,
                output,
                read,
                write,
                reasoning,
            }
        }

        pub(crate) fn completion_to_wit(
            completion: &$crate::models::ModelCompletion,
        ) -> llm::Completion {
            llm::Completion {
                blocks: completion.blocks_to_json(),
                finish: completion.finish.clone(),
                usage: completion.usage.map(usage_to_wit),
                session: completion.session.clone(),
                id: completion.id.clone(),
                model: completion.model.clone(),
            }
        }

        pub(crate) fn failure_to_wit(failure: &$crate::models::ModelFailure) -> llm::LlmError {
            llm::LlmError {
                kind: failure.kind.as_str().to_owned(),
                code: failure.code.clone(),
                message: failure.message.clone(),
                retry: failure
                    .retry_after
                    .map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
                sent: failure.sent,
                refused: failure.refused,
                usage: failure.usage.map(usage_to_wit),
                partial: failure.partial.clone(),
            }
        }
    };
}
