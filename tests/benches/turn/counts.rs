//! Where a turn goes, in figures that no other load of the machine changes: instructions of the
//! guest, imports, and what passes between the component and its store.

use super::direct::{self, DirectRun};
use super::native::script;
use super::world::BenchCandidate;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use threadkeep::engine::COMPONENT;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::storage::{
    CommitOp, CommitOutcome, LogEntry, RecordKey, RecordPage, StorageBackend, StorageError,
    StoredRecord,
};

/// Steps before counting begins: the memories of the instance are filled.
const WARM_STEPS: usize = 10;

/// A store that counts its calls and the texts that pass.
struct MeasuredStore {
    store: MemoryStore,
    counted: StoreFigures,
}

/// Counts of what passes between a component and its store.
#[derive(Default)]
struct StoreFigures {
    /// Calls that read.
    reads: AtomicU64,
    /// Bytes of the texts that were read.
    read_bytes: AtomicU64,
    /// Values in the JSON of those texts: objects, lists, texts, numbers and words.
    read_nodes: AtomicU64,
    /// Commits.
    commits: AtomicU64,
    /// Bytes of the texts that were written.
    written_bytes: AtomicU64,
    /// Values in the JSON of those texts.
    written_nodes: AtomicU64,
}

/// Returns the number of values in a JSON text.
fn count_nodes(text: &str) -> u64 {
    fn count(value: &serde_json::Value) -> u64 {
        1 + match value {
            serde_json::Value::Array(items) => items.iter().map(count).sum(),
            serde_json::Value::Object(fields) => fields.values().map(count).sum(),
            _ => 0,
        }
    }
    serde_json::from_str(text).map_or(0, |value| count(&value))
}

impl StoreFigures {
    fn count_read<'a>(&self, texts: impl Iterator<Item = &'a String>) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        for text in texts {
            self.read_bytes
                .fetch_add(text.len() as u64, Ordering::Relaxed);
            self.read_nodes
                .fetch_add(count_nodes(text), Ordering::Relaxed);
        }
    }

    /// Returns the figures so far, in the order of the table.
    fn figures(&self) -> [u64; 6] {
        [
            &self.reads,
            &self.read_bytes,
            &self.read_nodes,
            &self.commits,
            &self.written_bytes,
            &self.written_nodes,
        ]
        .map(|figure| figure.load(Ordering::Relaxed))
    }
}

impl StorageBackend for MeasuredStore {
    fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        let records = self.store.get(keys)?;
        self.counted
            .count_read(records.iter().map(|record| &record.value));
        Ok(records)
    }

    fn scan(
        &self,
        collection: &str,
        start: &str,
        end: &str,
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        let page = self.store.scan(collection, start, end, limit, reverse)?;
        self.counted
            .count_read(page.items.iter().map(|record| &record.value));
        Ok(page)
    }

    fn read_log(
        &self,
        log: &str,
        partition: &str,
        start: u64,
        limit: u32,
        reverse: bool,
    ) -> Result<Vec<LogEntry>, StorageError> {
        let lines = self.store.read_log(log, partition, start, limit, reverse)?;
        self.counted
            .count_read(lines.iter().map(|line| &line.value));
        Ok(lines)
    }

    fn commit(&self, ops: &[CommitOp], closing: bool) -> Result<CommitOutcome, StorageError> {
        let counted = &self.counted;
        counted.commits.fetch_add(1, Ordering::Relaxed);
        for op in ops {
            let (CommitOp::Put { value, .. } | CommitOp::Append { value, .. }) = op else {
                continue;
            };
            counted
                .written_bytes
                .fetch_add(value.len() as u64, Ordering::Relaxed);
            counted
                .written_nodes
                .fetch_add(count_nodes(value), Ordering::Relaxed);
        }
        self.store.commit(ops, closing)
    }
}

/// Counts `steps` steps of the component, those with a reply and those with a tool's result apart,
/// and prints the figures of one. With the variable `THREADKEEP_BENCH_BUILD` it counts another
/// build of the component, too.
pub fn print(steps: usize) {
    println!("where a turn goes: counted, for one commit of the component");
    println!(
        "  {:24} {:>12} {:>7} {:>5} {:>10} {:>10} {:>7} {:>13} {:>13}",
        "step",
        "instructions",
        "imports",
        "reads",
        "read bytes",
        "read nodes",
        "commits",
        "written bytes",
        "written nodes"
    );
    print_build("", COMPONENT, steps);
    if let Some(build) = direct::other_build() {
        print_build(", other build", &build, steps);
    }
}

fn print_build(name: &str, build: &[u8], steps: usize) {
    let counting = Arc::new(MeasuredStore {
        store: MemoryStore::new(),
        counted: StoreFigures::default(),
    });
    let storage: Arc<dyn StorageBackend> = Arc::<MeasuredStore>::clone(&counting);
    let mut run = DirectRun::start_counted(&storage, build);
    let (mut sums, mut counted) = ([[0_u64; 8]; 2], [0_u64; 2]);
    for step in 0..WARM_STEPS + steps {
        let (blocks, content) = script(step);
        let (fuel, before) = (run.instructions_left(), counting.counted.figures());
        run.step(step, &blocks, &content);
        if step < WARM_STEPS {
            continue;
        }
        let sum = &mut sums[step % 2];
        counted[step % 2] += 1;
        sum[0] += fuel - run.instructions_left();
        sum[1] += u64::from(run.host_calls());
        let after = counting.counted.figures();
        for (sum, (after, before)) in sum[2..].iter_mut().zip(after.into_iter().zip(before)) {
            *sum += after - before;
        }
    }
    for (kind, (sum, counted)) in ["a reply", "a tool's result"]
        .iter()
        .zip(sums.into_iter().zip(counted))
    {
        let [
            fuel,
            imports,
            reads,
            bytes,
            nodes,
            commits,
            written,
            written_nodes,
        ] = sum.map(|sum| sum / counted.max(1));
        println!(
            "  {:24} {fuel:>12} {imports:>7} {reads:>5} {bytes:>10} {nodes:>10} {commits:>7} \
             {written:>13} {written_nodes:>13}",
            format!("{kind}{name}")
        );
    }
}
