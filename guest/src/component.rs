//! The component's two sides: ports over its imports, and its exports over the service.

use crate::convert;
use crate::ports::{HostPorts, LibraryError, ScanPage, StorageError, StoredItem};
use crate::service::ThreadService;
use threadkeep_core::plan::StoreWrite;
use threadkeep_core::runner::CallBill;
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
    });
}
pub use bindings::*;

use exports::threadkeep::threads as exported;
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
            damaged: damaged.map(|item| (item.name, item.why.message)).collect(),
            cursor: page.cursor,
        })
    }

    fn read_history(
        &self,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<(u64, String)>, StorageError> {
        let log = threadkeep_core::key::HISTORY;
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

/// Keeps `llm` and `tools` in the import list. The runner's own loop will call them. A host links
/// all that the world names from the first day, so adding the loop breaks no host.
#[used]
static KEPT_IMPORTS: KeptImports = (llm::complete, tools::call);

type KeptImports = (
    fn(&llm::Request) -> Result<llm::Completion, llm::Error>,
    fn(&[types::ToolCall]) -> Vec<types::ToolOutcome>,
);

thread_local! {
    static SERVICE: ThreadService<ImportedHost> = const { ThreadService::new(ImportedHost) };
}

fn call_service<T>(
    f: impl FnOnce(&ThreadService<ImportedHost>) -> Result<T, crate::service::Error>,
) -> Result<T, types::Error> {
    SERVICE.with(|service| f(service).map_err(convert::error))
}

struct ThreadsComponent;

impl exported::registry::Guest for ThreadsComponent {
    fn create(draft: exported::registry::Draft) -> Result<types::Thread, types::Error> {
        let draft = convert::draft(draft);
        call_service(|service| service.create(&draft)).map(|loaded| convert::thread(&loaded))
    }

    fn get(id: String) -> Result<types::Thread, types::Error> {
        call_service(|service| service.load(&id)).map(|loaded| convert::thread(&loaded))
    }

    fn list(
        filter: exported::registry::Filter,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<exported::registry::Page, types::Error> {
        let filter = convert::filter(filter);
        let chosen = filter.as_ref().map(|(name, value)| (*name, value.as_str()));
        let (many, cursor) = call_service(|service| service.list(chosen, limit, cursor))?;
        Ok(exported::registry::Page {
            threads: many.threads.iter().map(convert::thread).collect(),
            unreadable: many
                .unreadable
                .into_iter()
                .map(convert::unreadable)
                .collect(),
            cursor,
        })
    }

    fn set_title(id: String, title: Option<String>) -> Result<types::Thread, types::Error> {
        call_service(|service| service.set_title(&id, title)).map(|loaded| convert::thread(&loaded))
    }
}

impl exported::history::Guest for ThreadsComponent {
    fn load(id: String, version: Option<u64>) -> Result<exported::history::Snapshot, types::Error> {
        call_service(|service| {
            let loaded = service.load(&id)?;
            let newest = loaded.head.value.version;
            let version = version.unwrap_or(newest);
            let hash = match version {
                0 => String::new(),
                version if version == newest => loaded.head.value.hash.clone(),
                version => match service
                    .entries(&id, version - 1, Some(version), 1)?
                    .1
                    .first()
                {
                    Some(line) => threadkeep_core::history::Entry::hash_of(&line.text),
                    None => String::new(),
                },
            };
            Ok(exported::history::Snapshot {
                thread: convert::thread(&loaded),
                version,
                hash,
                state: "{}".to_owned(),
            })
        })
    }

    fn entries(
        id: String,
        after: u64,
        limit: u32,
    ) -> Result<exported::history::Page, types::Error> {
        let (_, lines, cursor) = call_service(|service| service.entries(&id, after, None, limit))?;
        Ok(exported::history::Page {
            entries: lines.into_iter().map(convert::entry).collect(),
            cursor,
        })
    }

    fn open(
        thread: String,
        holder: String,
        deadline: types::Instant,
    ) -> Result<exported::history::Opened, types::Error> {
        let deadline = convert::instant_in(deadline);
        call_service(|service| service.open(&thread, &holder, deadline))
            .map(|loaded| convert::opened_to_wit(&loaded))
    }

    fn append(
        thread: String,
        token: Option<u64>,
        expected: u64,
        change: exported::history::ChangeSet,
    ) -> Result<exported::history::Written, types::Error> {
        call_service(|service| service.append(&thread, token, expected, &change.events))
            .map(|written| convert::append_to_wit(&written))
    }

    fn close(
        thread: String,
        token: u64,
        outcome: String,
        result: Option<String>,
    ) -> Result<exported::history::Written, types::Error> {
        call_service(|service| service.close(&thread, token, &outcome, result))
            .map(|written| convert::append_to_wit(&written))
    }
}

impl exported::ledger::Guest for ThreadsComponent {
    fn account(thread: String) -> Result<types::Account, types::Error> {
        call_service(|service| service.account(&thread)).map(|loaded| convert::account(&loaded))
    }

    fn tree(
        thread: String,
        cursor: Option<String>,
    ) -> Result<exported::ledger::TreePage, types::Error> {
        let page = call_service(|service| service.tree_page(&thread, cursor.as_deref()))?;
        Ok(exported::ledger::TreePage {
            branches: convert::branches(&page.branches),
            unreadable: page
                .unreadable
                .into_iter()
                .map(convert::unreadable)
                .collect(),
            cursor: page.cursor,
        })
    }

    fn charges(thread: String, after: u64) -> Result<exported::ledger::ChargePage, types::Error> {
        call_service(|service| service.charges(&thread, after)).map(convert::charges)
    }

    fn hold(
        thread: String,
        token: u64,
        key: String,
        estimate: exported::ledger::Estimate,
        deadline: types::Instant,
    ) -> Result<exported::ledger::Admission, types::Error> {
        let (asked, deadline) = (convert::estimate(estimate), convert::instant_in(deadline));
        call_service(|service| service.hold(&thread, token, &key, &asked, deadline))
            .map(convert::admission)
    }

    fn settle(
        thread: String,
        version: u64,
        bill: exported::ledger::Bill,
    ) -> Result<u64, types::Error> {
        call_service(|service| service.settle(&thread, version, convert::bill(bill)))
    }

    fn release(thread: String, version: u64) -> Result<u64, types::Error> {
        call_service(|service| service.settle(&thread, version, CallBill::Nothing))
    }
}

impl exported::transcript::Guest for ThreadsComponent {
    fn events(
        id: String,
        after: u64,
        limit: u32,
    ) -> Result<exported::transcript::EventPage, types::Error> {
        call_service(|service| {
            let (_, lines, cursor) = service.entries(&id, after, None, limit)?;
            Ok(exported::transcript::EventPage {
                events: lines.iter().flat_map(convert::events).collect(),
                cursor,
            })
        })
    }

    fn messages(
        id: String,
        after: u64,
        until: u64,
    ) -> Result<exported::transcript::MessagePage, types::Error> {
        let (messages, cursor) = call_service(|service| service.messages(&id, after, until))?;
        Ok(exported::transcript::MessagePage { messages, cursor })
    }

    fn render(
        id: String,
        what: String,
        after: u64,
    ) -> Result<exported::transcript::Piece, types::Error> {
        let piece = call_service(|service| service.render(&id, &what, after))?;
        Ok(exported::transcript::Piece {
            text: piece.text,
            version: piece.version,
            cursor: piece.cursor,
        })
    }
}

impl exported::runner::Guest for ThreadsComponent {
    fn start(
        thread: String,
        input: Option<String>,
        holder: String,
        key: String,
    ) -> Result<exported::runner::Handle, types::Error> {
        call_service(|service| service.start(&thread, input.as_deref(), &holder, &key))
            .map(convert::handle_to_wit)
    }

    fn claim(
        thread: String,
        holder: String,
        proof: exported::runner::Proof,
    ) -> Result<exported::runner::Handle, types::Error> {
        call_service(|service| service.claim(&thread, &holder, convert::proof(proof)))
            .map(convert::handle_to_wit)
    }

    fn submit(
        thread: String,
        token: u64,
        version: u64,
        outcome: exported::runner::Outcome,
        have: u64,
    ) -> Result<exported::runner::Step, types::Error> {
        call_service(|service| {
            let submission = convert::submission(token, version, outcome)?;
            service.submit(&thread, &submission, have)
        })
        .map(|handed| convert::step(&handed))
    }

    fn progress(
        thread: String,
        token: u64,
        partial: String,
    ) -> Result<exported::runner::News, types::Error> {
        call_service(|service| service.progress(&thread, token, &partial))
            .map(convert::verdict_to_wit)
    }

    fn signal(
        thread: String,
        id: String,
        what: exported::runner::SignalKind,
    ) -> Result<u64, types::Error> {
        call_service(|service| service.signal(&thread, &id, &convert::signal(what)?))
            .map(|loaded| loaded.head.value.version)
    }

    fn sweep(
        thread: String,
        cursor: Option<String>,
    ) -> Result<exported::runner::Swept, types::Error> {
        call_service(|service| service.sweep_page(&thread, cursor)).map(convert::sweep_page_to_wit)
    }

    fn ready(
        limit: u32,
        cursor: Option<String>,
        under: Option<String>,
    ) -> Result<exported::runner::DuePage, types::Error> {
        let (due, cursor) = call_service(|service| service.ready(limit, cursor, under.as_deref()))?;
        Ok(exported::runner::DuePage {
            threads: due.iter().map(convert::due).collect(),
            cursor,
        })
    }
}

impl exported::maintenance::Guest for ThreadsComponent {
    fn recover(
        dead: Vec<String>,
        cursor: Option<String>,
    ) -> Result<exported::maintenance::Recovery, types::Error> {
        call_service(|service| service.recover(&dead, cursor)).map(convert::recovery)
    }

    fn stats(cursor: Option<String>) -> Result<exported::maintenance::Statistics, types::Error> {
        let (counts, cursor) = call_service(|service| service.stats(cursor))?;
        let counts = counts
            .into_iter()
            .map(|(status, threads)| exported::maintenance::Count { status, threads })
            .collect();
        Ok(exported::maintenance::Statistics { counts, cursor })
    }
}

mod export {
    #![allow(unsafe_code, reason = "generated: the entry points of the component")]
    use super::{ThreadsComponent, bindings};
    bindings::export!(ThreadsComponent with_types_in bindings);
}
