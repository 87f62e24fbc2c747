//! A disk in memory on which several writers take turns: each operation of a directory is one step,
//! and a schedule decides whose step is next. A writer may be stopped for long or for ever, and the
//! power may fail.

use super::random_numbers::RandomNumbers;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use threadkeep_storage::directory::{DirectoryFile, EntryMetadata, FileDirectory};

/// The error of every operation of a writer that was killed.
pub const KILLED: &str = "the writer was killed";

/// The content of a file, whatever its names.
#[derive(Debug, Clone, Default)]
struct FileContent {
    bytes: Vec<u8>,
    /// Bytes that a loss of power leaves.
    durable: usize,
}

/// Names and contents.
#[derive(Debug, Clone, Default)]
pub struct DiskState {
    names: BTreeMap<String, usize>,
    /// The names that a loss of power leaves for sure.
    durable_names: BTreeMap<String, usize>,
    files: Vec<FileContent>,
    /// Operations so far.
    pub steps: u64,
}

impl DiskState {
    /// Loses what was not made durable: each change of a name by chance, and the end of contents.
    pub fn lose_power(&mut self, random: &mut RandomNumbers) {
        let changed: Vec<String> = self
            .names
            .keys()
            .chain(self.durable_names.keys())
            .cloned()
            .collect();
        for name in changed {
            let (now, durable) = (self.names.get(&name), self.durable_names.get(&name));
            if now != durable && random.once_in(2) {
                match durable.copied() {
                    Some(file) => self.names.insert(name, file),
                    None => self.names.remove(&name),
                };
            }
        }
        for file in &mut self.files {
            let lost = file.bytes.len() - file.durable;
            let kept = random.below(lost as u64 + 1) as usize;
            file.bytes
                .truncate(file.durable + if random.once_in(2) { kept } else { lost });
            file.durable = file.bytes.len();
        }
        self.durable_names = self.names.clone();
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        let missing = || io::Error::new(ErrorKind::NotFound, format!("{name} is not there"));
        self.names.get(name).copied().ok_or_else(missing)
    }

    fn add_name(&mut self, name: &str, file: usize) -> io::Result<()> {
        if self.names.contains_key(name) {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                format!("{name} is there"),
            ));
        }
        self.names.insert(name.to_owned(), file);
        Ok(())
    }
}

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    Open,
    Create,
    Link,
    Remove,
    List,
    Read,
    Write,
    Sync,
}

/// A stop of a writer before an operation, so that others get far ahead of it.
#[derive(Debug, Clone, Copy)]
struct PlannedStop {
    writer: usize,
    kind: StepKind,
    /// Operations of the kind that the writer does before.
    after: u64,
    /// Steps of others until it goes on.
    steps: u64,
    /// Steps after the stop began until the power fails: what the writer had done half is then
    /// what a loss of power meets.
    power_after: Option<u64>,
    /// Another writer, which is stopped soon afterwards, before it opens a file: both then meet
    /// what others did meanwhile.
    with: Option<usize>,
}

impl PlannedStop {
    fn draw(writers: usize, pairs: bool, random: &mut RandomNumbers) -> Self {
        let kinds = [
            StepKind::Link,
            StepKind::Link,
            StepKind::Remove,
            StepKind::List,
            StepKind::Sync,
            StepKind::Open,
            StepKind::Read,
            StepKind::Create,
        ];
        let writer = 1 + random.below(writers as u64) as usize;
        let other = match pairs {
            true => 1 + random.below(writers as u64) as usize,
            false => writer,
        };
        Self {
            writer,
            kind: kinds[random.below(kinds.len() as u64) as usize],
            after: random.below(12),
            steps: 60 + random.below(900),
            power_after: random.once_in(4).then(|| 1 + random.below(60)),
            with: (other != writer && random.once_in(2)).then_some(other),
        }
    }

    /// The stop of the other writer, where this one has begun.
    fn draw_second(&self, random: &mut RandomNumbers) -> Option<Self> {
        Some(Self {
            writer: self.with?,
            kind: StepKind::Open,
            after: random.below(4),
            steps: self.steps + random.below(60),
            power_after: None,
            with: None,
        })
    }
}

/// The order of steps: the writer that may do one, and those that wait.
#[derive(Debug, Default)]
struct TurnState {
    /// The writer that may do its step.
    granted: Option<usize>,
    /// Writers that wait for their turn, and what for.
    waiting: Vec<(usize, StepKind)>,
    /// Writers that are killed: each of their operations fails.
    killed: Vec<usize>,
    finished: usize,
}

/// A disk and its schedule.
#[derive(Debug, Default)]
pub struct SimulatedDisk {
    pub state: Mutex<DiskState>,
    turns: Mutex<TurnState>,
    changed: Condvar,
}

impl SimulatedDisk {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The disk as one writer sees it. Writer 0 takes no turns.
    pub fn directory(self: &Arc<Self>, writer: usize) -> Box<dyn FileDirectory> {
        let disk = Arc::clone(self);
        Box::new(SimulatedDirectory { disk, writer })
    }

    /// Runs writers 1 to `writers` until all are finished. `power` is the step at which all of them
    /// are killed; a stop may bring that step nearer. With `pairs` a stop of one writer may bring
    /// that of another. Returns true if the power is to be lost.
    pub fn run_schedule(
        self: &Arc<Self>,
        writers: usize,
        random: &mut RandomNumbers,
        (mut power, pairs): (Option<u64>, bool),
    ) -> bool {
        let mut steps = 0;
        // A writer that is stopped does no step until this one.
        let mut stopped = vec![0_u64; writers + 1];
        let mut plans: Vec<PlannedStop> = (0..1 + random.below(3))
            .map(|_| PlannedStop::draw(writers, pairs, random))
            .collect();
        loop {
            let mut turns = self.turns.lock().unwrap();
            while turns.granted.is_some() || turns.waiting.len() + turns.finished < writers {
                turns = self.changed.wait(turns).unwrap();
            }
            if turns.finished == writers {
                return power.is_some();
            }
            if power == Some(steps) {
                turns.killed = (1..=writers).collect();
            }
            turns.waiting.sort_unstable_by_key(|(writer, _)| *writer);
            let awake = turns.waiting.iter().copied();
            let awake: Vec<_> = awake
                .filter(|(writer, _)| stopped[*writer] <= steps)
                .collect();
            let (picked, kind) = match awake[..] {
                // All that are left are stopped: time passes.
                [] => turns.waiting[random.below(turns.waiting.len() as u64) as usize],
                _ => awake[random.below(awake.len() as u64) as usize],
            };
            let plan = plans
                .iter_mut()
                .find(|plan| plan.writer == picked && plan.kind == kind);
            if let Some(plan) = plan {
                if plan.after == 0 {
                    stopped[picked] = steps + plan.steps;
                    plan.after = u64::MAX;
                    let soon = plan.power_after.map(|after| steps + after);
                    power = [power, soon].into_iter().flatten().min();
                    let also = plan.draw_second(random);
                    plans.extend(also);
                    continue;
                }
                plan.after -= 1;
            }
            turns.waiting.retain(|(writer, _)| *writer != picked);
            turns.granted = Some(picked);
            steps += 1;
            self.changed.notify_all();
        }
    }

    /// A writer has done all that it does.
    pub fn finish_writer(&self) {
        self.turns.lock().unwrap().finished += 1;
        self.changed.notify_all();
    }

    /// Waits for the turn of a writer; returns the disk for one operation.
    fn begin_step(&self, writer: usize, kind: StepKind) -> io::Result<MutexGuard<'_, DiskState>> {
        if writer > 0 {
            let mut turns = self.turns.lock().unwrap();
            turns.waiting.push((writer, kind));
            self.changed.notify_all();
            while turns.granted != Some(writer) {
                turns = self.changed.wait(turns).unwrap();
            }
            if turns.killed.contains(&writer) {
                turns.granted = None;
                self.changed.notify_all();
                return Err(io::Error::other(KILLED));
            }
        }
        let mut state = self.state.lock().unwrap();
        state.steps += 1;
        Ok(state)
    }

    fn end_step(&self, writer: usize) {
        if writer > 0 {
            self.turns.lock().unwrap().granted = None;
            self.changed.notify_all();
        }
    }

    fn step<T>(
        &self,
        (writer, kind): (usize, StepKind),
        act: impl FnOnce(&mut DiskState) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.begin_step(writer, kind)?;
        let done = act(&mut state);
        drop(state);
        self.end_step(writer);
        done
    }
}

struct SimulatedDirectory {
    disk: Arc<SimulatedDisk>,
    writer: usize,
}

struct SimulatedFile {
    disk: Arc<SimulatedDisk>,
    writer: usize,
    file: usize,
}

impl SimulatedDirectory {
    fn file(&self, file: usize) -> Box<dyn DirectoryFile> {
        let (disk, writer) = (Arc::clone(&self.disk), self.writer);
        Box::new(SimulatedFile { disk, writer, file })
    }
}

impl FileDirectory for SimulatedDirectory {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        let file = self
            .disk
            .step((self.writer, StepKind::Open), |disk| disk.find(name))?;
        Ok(self.file(file))
    }

    fn create_new(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        let file = self.disk.step((self.writer, StepKind::Create), |disk| {
            let file = disk.files.len();
            disk.add_name(name, file)?;
            disk.files.push(FileContent::default());
            Ok(file)
        })?;
        Ok(self.file(file))
    }

    fn hard_link(&self, name: &str, second: &str) -> io::Result<()> {
        self.disk.step((self.writer, StepKind::Link), |disk| {
            let file = disk.find(name)?;
            disk.add_name(second, file)
        })
    }

    fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        self.disk.step((self.writer, StepKind::Link), |disk| {
            let file = disk.find(name)?;
            disk.names.remove(name);
            disk.names.insert(new_name.to_owned(), file);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.step((self.writer, StepKind::Remove), |disk| {
            disk.find(name)?;
            disk.names.remove(name);
            Ok(())
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.step((self.writer, StepKind::List), |disk| {
            Ok(disk.names.keys().cloned().collect())
        })
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        self.disk.step((self.writer, StepKind::Read), |disk| {
            let file = disk.find(name)?;
            Ok(EntryMetadata {
                is_file: true,
                is_directory: false,
                bytes: disk.files[file].bytes.len() as u64,
            })
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.step((self.writer, StepKind::Sync), |disk| {
            disk.durable_names = disk.names.clone();
            Ok(())
        })
    }
}

impl DirectoryFile for SimulatedFile {
    fn read_at(&mut self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let file = self.file;
        self.disk.step((self.writer, StepKind::Read), |disk| {
            let content = &disk.files[file].bytes;
            let start = (offset as usize).min(content.len());
            let end = start.saturating_add(bytes).min(content.len());
            Ok(content[start..end].to_vec())
        })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.file;
        self.disk.step((self.writer, StepKind::Write), |disk| {
            disk.files[file].bytes.extend_from_slice(bytes);
            Ok(())
        })
    }

    fn size(&mut self) -> io::Result<u64> {
        let file = self.file;
        self.disk.step((self.writer, StepKind::Read), |disk| {
            Ok(disk.files[file].bytes.len() as u64)
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        let file = self.file;
        self.disk.step((self.writer, StepKind::Sync), |disk| {
            disk.files[file].durable = disk.files[file].bytes.len();
            Ok(())
        })
    }
}
