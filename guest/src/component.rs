//! The component's two sides: ports over its imports, and its exports over the service.

use crate::convert;
use crate::ports::{HostPorts, LibraryError, ScanPage, StepPerformer, StorageError, StoredItem};
use crate::service::runner::StepHandle;
use crate::service::{Error, ThreadService};
use threadkeep_core::plan::StoreWrite;
use threadkeep_core::runner::{CallBill, StepOutcome};
use threadkeep_core::thread::StepKind;
use threadkeep_core::time::UnixTime;

mod bindings {
    #![allow(
        missing_docs,
        clippy::all,
        unsafe_code,
        reason = "generated from wit/, where the documentation is"
    )]
    wit_bindgen::generate!({
        path: "../wit",
        world: "threads",
        generate_all,
        pub_export_macro: true,
        skip: ["set-title", "fork", "resume"],
    });
}
mod shared_answers;

pub use bindings::*;

use exports::threadkeep::threads as exported;
use shared_answers::ThreadCall;
use threadkeep::threads::{clock, library, llm, random, storage, tools, types};

/// The host's ports, over the component's imports.
pub struct ImportedHost;

impl HostPorts for ImportedHost {
    fn get(&self, keys: &[(&str, &str)]) -> Result<Vec<StoredItem>, StorageError> {
        let keys: Vec<storage::Key> = keys
            .iter()
            .map(|(collection, name)| convert::key(collection, name))
            .collect();
        let items = storage::get(&keys).map_err(convert::storage_error)?;
        Ok(items.into_iter().map(convert::item).collect())
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<ScanPage, StorageError> {
        let page = storage::scan(collection, start, end, limit, reverse)
            .map_err(convert::storage_error)?;
        let damaged = page.damaged.into_iter();
        Ok(ScanPage {
            items: page.items.into_iter().map(convert::item).collect(),
            damaged: damaged
                .map(|item| (item.name, convert::record_damage(item.why)))
                .collect(),
            cursor: page.cursor,
        })
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, StorageError> {
        let lines = storage::read_log(log, partition, start, limit, reverse)
            .map_err(convert::storage_error)?;
        Ok(lines
            .into_iter()
            .map(|line| (line.position, line.value))
            .collect())
    }

    fn commit(&self, writes: Vec<StoreWrite>, closing: bool) -> Result<bool, StorageError> {
        let ops: Vec<storage::Op> = writes.into_iter().map(convert::op).collect();
        let how = match closing {
            true => storage::CommitFlags::CLOSING,
            false => storage::CommitFlags::empty(),
        };
        storage::commit(&ops, how).map_err(convert::storage_error)
    }

    fn now(&self) -> UnixTime {
        convert::instant_in(clock::now())
    }

    fn random(&self, bytes: u32) -> String {
        random::bytes(bytes)
    }

    fn library(&self, kind: &str, names: &[&str]) -> Result<Vec<Option<String>>, LibraryError> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        library::get(kind, &names).map_err(convert::library_error)
    }

    fn library_names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        library::names(kind).map_err(convert::library_error)
    }
}

impl StepPerformer for ImportedHost {
    fn perform(&self, step: &StepHandle) -> Result<StepOutcome, Error> {
        if step.step.kind == Some(StepKind::CallTools) {
            return convert::round_outcome(tools::call(&convert::tool_calls(step)));
        }
        Ok(convert::model_outcome(llm::complete(&convert::request(
            step,
        ))))
    }
}

thread_local! {
    static SERVICE: ThreadService<ImportedHost> = const { ThreadService::new(ImportedHost) };
}

/// Calls the service for an export that names no thread.
fn call_service<T>(
    f: impl FnOnce(&ThreadService<ImportedHost>) -> Result<T, Error>,
) -> Result<T, types::Error> {
    call_with_errors(None, f)
}

/// Calls the service for an export that names a thread.
fn call_for<T>(
    thread: &str,
    f: impl FnOnce(&ThreadService<ImportedHost>) -> Result<T, Error>,
) -> Result<T, types::Error> {
    call_with_errors(Some(thread), f)
}

/// Calls the service; `f` also converts the answer, and `thread` is the id that the call names, for
/// the error. Not inlined, and without `map_err`: otherwise the generated code around it copies
/// each field of the answer once more.
#[inline(never)]
fn call_with_errors<T>(
    thread: Option<&str>,
    f: impl FnOnce(&ThreadService<ImportedHost>) -> Result<T, Error>,
) -> Result<T, types::Error> {
    match SERVICE.with(f) {
        Ok(answer) => Ok(answer),
        Err(error) => Err(convert::error(error, thread)),
    }
}

struct ThreadsComponent;

impl exported::registry::Guest for ThreadsComponent {
    fn create(
        draft: exported::registry::Draft,
        key: String,
    ) -> Result<types::Thread, types::Error> {
        call_service(|service| {
            let loaded = service.create(&convert::draft(draft, key)?)?;
            let details = service.details(&loaded)?;
            Ok(convert::thread(&loaded, details))
        })
    }

    fn get(thread: String) -> Result<types::Thread, types::Error> {
        let call = shared_answers::take_thread_call();
        call_for(&thread, |service| {
            let loaded = match call {
                None => service.load(&thread)?,
                Some(ThreadCall::SetTitle(title)) => {
                    // Read before the commit: no error after it may say that nothing was written.
                    let details = service.details(&service.load(&thread)?)?;
                    let loaded = service.set_title(&thread, title)?;
                    return Ok(convert::thread(&loaded, details));
                }
                // Its pin was read before the commit.
                Some(ThreadCall::Fork(version, key, change)) => {
                    service.fork(&thread, version, &key, change.as_deref())?
                }
            };
            let details = service.details(&loaded)?;
            Ok(convert::thread(&loaded, details))
        })
    }

    fn list(
        filter: exported::registry::Filter,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<exported::registry::RowPage, types::Error> {
        call_service(|service| {
            let filter = convert::filter(filter)?;
            let chosen = filter.as_ref().map(|(name, value)| (*name, value.as_str()));
            let (page, cursor) = service.list(chosen, limit, cursor)?;
            let needs = service.page_needs(&page)?;
            Ok(convert::row_page(page, needs, cursor))
        })
    }

    fn delete(_: String, _: Option<String>, _: Option<String>) -> Result<String, types::Error> {
        Err(convert::not_built_error("registry.delete"))
    }
}

impl exported::history::Guest for ThreadsComponent {
    fn load(
        thread: String,
        version: Option<u64>,
    ) -> Result<exported::history::Snapshot, types::Error> {
        call_for(&thread, |service| {
            let (loaded, version, hash) = service.snapshot(&thread, version)?;
            let details = service.details(&loaded)?;
            let state = service.state_at(&loaded, version)?;
            Ok(convert::snapshot(&loaded, details, version, hash, &state))
        })
    }

    fn entries(
        thread: String,
        after: u64,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<exported::history::EntryPage, types::Error> {
        call_for(&thread, |service| {
            let after = service.page_start(&thread, after, cursor)?;
            let (_, lines, cursor) = service.entries(&thread, after, None, limit)?;
            Ok(exported::history::EntryPage {
                entries: lines.into_iter().map(convert::entry_to_wit).collect(),
                cursor: convert::cursor(cursor),
            })
        })
    }

    fn open(
        thread: String,
        holder: String,
        deadline: types::Instant,
    ) -> Result<exported::history::Opened, types::Error> {
        let deadline = convert::deadline_in(deadline);
        call_for(&thread, |service| {
            let loaded = service.open(&thread, &holder, deadline);
            loaded.map(|loaded| convert::opened_to_wit(&loaded))
        })
    }

    fn append(
        thread: String,
        token: Option<u64>,
        expected: exported::history::Expected,
        change: exported::history::ChangeSet,
    ) -> Result<exported::history::Written, types::Error> {
        call_for(&thread, |service| {
            let change = convert::change_texts(change);
            let expected = convert::expected_version(expected);
            let written = service.append_change(&thread, token, expected, &change);
            written.map(|written| convert::append_to_wit(&written))
        })
    }

    fn close(
        thread: String,
        token: u64,
        outcome: String,
        result: Option<String>,
    ) -> Result<exported::history::Written, types::Error> {
        call_for(&thread, |service| {
            let written = service.close(&thread, token, &outcome, result);
            written.map(|written| convert::append_to_wit(&written))
        })
    }
}

impl exported::ledger::Guest for ThreadsComponent {
    fn account(thread: String) -> Result<types::Account, types::Error> {
        call_for(&thread, |service| {
            let loaded = service.account(&thread);
            loaded.map(|loaded| convert::account(&loaded))
        })
    }

    fn tree(
        thread: String,
        cursor: Option<String>,
    ) -> Result<exported::ledger::TreePage, types::Error> {
        call_for(&thread, |service| {
            let page = service.tree_page(&thread, cursor.as_deref())?;
            let unreadable = page.unreadable.into_iter();
            Ok(exported::ledger::TreePage {
                branches: convert::branches(&page.branches),
                unreadable: unreadable.map(convert::unreadable_to_wit).collect(),
                cursor: page.cursor,
            })
        })
    }

    fn charges(
        thread: String,
        after: u64,
        cursor: Option<String>,
    ) -> Result<exported::ledger::ChargePage, types::Error> {
        call_for(&thread, |service| {
            let after = service.page_start(&thread, after, cursor)?;
            service.charges(&thread, after).map(convert::charges)
        })
    }

    fn hold(
        thread: String,
        token: u64,
        key: String,
        estimate: exported::ledger::Estimate,
        deadline: types::Instant,
    ) -> Result<exported::ledger::Admission, types::Error> {
        let deadline = convert::deadline_in(deadline);
        let is_amount = matches!(estimate, exported::ledger::Estimate::Amount(_));
        call_for(&thread, |service| {
            let estimate = convert::estimate(estimate)?;
            let admission = service.hold(&thread, token, &key, &estimate, deadline);
            admission.map(|admission| convert::admission(admission, is_amount))
        })
    }

    fn settle(
        thread: String,
        version: u64,
        bill: exported::ledger::Bill,
    ) -> Result<u64, types::Error> {
        call_for(&thread, |service| {
            service.settle(&thread, version, convert::bill(bill)?)
        })
    }

    fn release(thread: String, version: u64) -> Result<u64, types::Error> {
        call_for(&thread, |service| {
            service.settle(&thread, version, CallBill::Nothing)
        })
    }
}

impl exported::continuation::Guest for ThreadsComponent {
    fn usage(thread: String) -> Result<String, types::Error> {
        call_for(&thread, |service| service.context_usage(&thread))
    }

    fn chain(thread: String, cursor: Option<String>) -> Result<String, types::Error> {
        call_for(&thread, |service| {
            service.chain_page(&service.load(&thread)?, cursor.as_deref())
        })
    }

    fn plan(thread: String) -> Result<String, types::Error> {
        call_for(&thread, |service| service.hand_off_plan(&thread))
    }
}

impl exported::transcript::Guest for ThreadsComponent {
    fn events(
        thread: String,
        after: u64,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<exported::transcript::EventPage, types::Error> {
        call_for(&thread, |service| {
            let after = service.page_start(&thread, after, cursor)?;
            let (_, lines, cursor) = service.entries(&thread, after, None, limit)?;
            Ok(exported::transcript::EventPage {
                events: lines.iter().flat_map(convert::events).collect(),
                cursor: convert::cursor(cursor),
            })
        })
    }

    fn messages(
        thread: String,
        after: u64,
        until: Option<u64>,
        cursor: Option<String>,
    ) -> Result<exported::transcript::MessagePage, types::Error> {
        call_for(&thread, |service| {
            let after = service.page_start(&thread, after, cursor)?;
            let (messages, cursor) = service.messages(&thread, after, until)?;
            Ok(exported::transcript::MessagePage {
                messages,
                cursor: convert::cursor(cursor),
            })
        })
    }

    fn render(
        thread: String,
        what: String,
        at: Option<u64>,
        after: u64,
        cursor: Option<String>,
    ) -> Result<exported::transcript::Piece, types::Error> {
        call_for(&thread, |service| {
            let piece = service.render(&thread, &what, at, after, cursor);
            piece.map(convert::piece_to_wit)
        })
    }

    fn search(_: String, _: String, _: u32, _: Option<String>) -> Result<String, types::Error> {
        Err(convert::not_built_error("transcript.search"))
    }
}

impl exported::runner::Guest for ThreadsComponent {
    fn start(
        thread: String,
        input: Option<String>,
        holder: String,
        key: String,
        about: Option<String>,
    ) -> Result<exported::runner::Handle, types::Error> {
        let (input, about) = (input.as_deref(), about.as_deref());
        let resumes = shared_answers::is_resume();
        call_for(&thread, |service| {
            let handed = match resumes {
                true => service.resume(&thread, input, &holder, &key, about),
                false => service.start(&thread, input, &holder, &key, about),
            };
            handed.map(convert::handle_to_wit)
        })
    }

    fn run(
        thread: String,
        input: Option<String>,
        holder: String,
        key: String,
        steps: u32,
    ) -> Result<String, types::Error> {
        call_for(&thread, |service| {
            service.run(&thread, input.as_deref(), (&holder, &key), steps)
        })
    }

    fn claim(
        thread: String,
        holder: String,
        proof: exported::runner::Proof,
    ) -> Result<exported::runner::Handle, types::Error> {
        call_for(&thread, |service| {
            let handed = service.claim(&thread, &holder, convert::proof(proof)?);
            handed.map(convert::handle_to_wit)
        })
    }

    fn submit(
        thread: String,
        token: u64,
        version: u64,
        outcome: exported::runner::Outcome,
        have: u64,
    ) -> Result<exported::runner::Step, types::Error> {
        call_for(&thread, |service| {
            let submission = convert::submission(token, version, outcome)?;
            let handed = service.submit(&thread, &submission, have);
            handed.map(|handed| convert::step(&handed))
        })
    }

    fn progress(
        thread: String,
        token: u64,
        partial: Option<String>,
    ) -> Result<exported::runner::News, types::Error> {
        let partial = partial.unwrap_or_default();
        call_for(&thread, |service| {
            let verdict = service.progress(&thread, token, &partial);
            verdict.map(convert::verdict_to_wit)
        })
    }

    fn signal(
        thread: String,
        key: String,
        what: exported::runner::SignalKind,
    ) -> Result<u64, types::Error> {
        call_for(&thread, |service| {
            let loaded = service.signal(&thread, &key, &convert::signal(what)?);
            loaded.map(|loaded| loaded.head.value.version)
        })
    }

    fn sweep(
        thread: String,
        cursor: Option<String>,
    ) -> Result<exported::runner::Swept, types::Error> {
        call_for(&thread, |service| {
            let page = service.sweep_page(&thread, cursor);
            page.map(convert::sweep_page_to_wit)
        })
    }

    fn ready(
        limit: u32,
        cursor: Option<String>,
        under: Option<String>,
    ) -> Result<exported::runner::DuePage, types::Error> {
        call_with_errors(under.as_deref(), |service| {
            let page = service.ready(limit, cursor, under.as_deref());
            page.map(|page| convert::due_page(&page))
        })
    }
}

impl exported::maintenance::Guest for ThreadsComponent {
    fn recover(
        dead: Vec<String>,
        cursor: Option<String>,
    ) -> Result<exported::maintenance::Recovery, types::Error> {
        call_service(|service| service.recover(&dead, cursor).map(convert::recovery))
    }

    fn stats(cursor: Option<String>) -> Result<exported::maintenance::Statistics, types::Error> {
        call_service(|service| service.stats(cursor).map(convert::statistics))
    }

    fn attest(_: String, _: u64, _: String) -> Result<String, types::Error> {
        Err(convert::not_built_error("maintenance.attest"))
    }
}

mod export {
    #![allow(unsafe_code, reason = "generated: the entry points of the component")]
    use super::{ThreadsComponent, bindings};
    bindings::export!(ThreadsComponent with_types_in bindings);
}
