//! A page of 50 of a million threads by every index, compared with one of a thousand.

use super::figures::{median, micros, ratio};
use super::size::{BenchSize, store};
use super::world::{self, DIRECTIVE_NAME};
use std::path::Path;
use std::time::{Duration, Instant};
use threadkeep_component::service::ThreadService;
use threadkeep_core::thread::{CreatorOverrides, ThreadDraft};
use threadkeep_tests::native::NativePorts;

/// Threads of a page.
const PAGE: u32 = 50;
/// Agents and tasks that the threads are distributed over.
const AGENTS: usize = 10;
/// Threads of the small store.
const FEW: usize = 1_000;
/// Pages that are read from the beginning of a list; each is measured.
const PAGES_IN: usize = 5;

/// A list: all, or an index and a value.
type PageFilter = Option<(&'static str, &'static str)>;

const LISTS: [(&str, PageFilter); 6] = [
    ("all, newest first", None),
    ("status", Some(("status", "created"))),
    ("directive", Some(("directive", DIRECTIVE_NAME))),
    ("agent", Some(("agent", "agent-3"))),
    ("task", Some(("task", "task-3"))),
    ("parent (nobody's)", Some(("parent", "bench-0-000000"))),
];

/// Prints one line for each index.
pub fn compare(size: BenchSize) {
    let many = size.scale_count(1_000_000);
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let few = filled_service(folders[0].path(), FEW.min(many));
    let full = filled_service(folders[1].path(), many);
    println!("a page of {PAGE} of {many} threads, median, beside one of {FEW}; flat is 1.00");
    for (name, filter) in LISTS {
        let mut times = [(); 2].map(|()| Vec::new());
        for _ in 0..size.steps(60) {
            for (place, keeper) in [&few, &full].into_iter().enumerate() {
                times[place].extend(time_pages(keeper, filter));
            }
        }
        let [few, full] = times.map(|mut times| median(&mut times));
        println!(
            "  {name:20} {:>10}   of few {:>10}   few/many {}",
            micros(full),
            micros(few),
            ratio(few, full)
        );
    }
}

/// Fills a store with so many threads, each created as a user creates it.
fn filled_service(folder: &Path, threads: usize) -> ThreadService<NativePorts> {
    let service = ThreadService::new(NativePorts::new(world::context(&store(folder))));
    for place in 0..threads {
        let draft = ThreadDraft {
            incomplete: false,
            key: None,
            id: None,
            directive: Some(DIRECTIVE_NAME.to_owned()),
            agent: Some(format!("agent-{}", place % AGENTS)),
            task: Some(format!("task-{}", place % AGENTS)),
            title: None,
            overrides: CreatorOverrides::default(),
            inputs: String::new(),
        };
        service.create(&draft).expect("created");
    }
    service
}

/// Returns the durations of the first pages; every page is full where there are enough threads.
fn time_pages(service: &ThreadService<NativePorts>, filter: PageFilter) -> Vec<Duration> {
    let (mut cursor, mut times) = (None, Vec::new());
    for _ in 0..PAGES_IN {
        let begun = Instant::now();
        let (_, next) = service.list(filter, PAGE, cursor).expect("a page");
        times.push(begun.elapsed());
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    times
}
