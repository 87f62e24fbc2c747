//! One tenant of an engine: its context, its instances, and the component's exports as async
//! functions.
//!
//! Nothing that matters lives in an instance: a clean one is kept warm, and dropped after a trap or
//! limit, after a maximal number of calls, or when idle.

mod blobs;
mod chain_tip;
mod exports;
mod inner_calls;
mod store_reads;

use crate::bindings::Threads;
use crate::component::TenantContext;
use crate::engine::{Engine, InstanceState, TenantInstances, TenantLane};
use crate::error::CallError;
use crate::wit;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::Store;

pub use chain_tip::find_other_tip;
pub use inner_calls::InnerCalls;
pub use store_reads::HeadMark;

/// A tenant. Cheap to clone; clones share the instances and the lane of the engine's pool.
#[derive(Clone)]
pub struct Tenant {
    engine: Engine,
    context: TenantContext,
    lane: TenantLane,
    instances: Arc<TenantInstances>,
    /// True if calls compute on the thread that polls them.
    lends_thread: bool,
    /// Kept by every call under way, even if its caller is gone.
    _call_marker: Option<Arc<()>>,
}

/// Most threads of one page of `registry.list` and `runner.ready`: the component's bound.
pub const PAGE_THREADS_MAX: u32 = 100;

/// Most repetitions of a repeatable call before its error counts.
const REPEATS_MAX: u32 = 8;
/// Pause before a call is repeated; it doubles, with jitter.
const REPEAT_AFTER: Duration = Duration::from_millis(5);

/// Results of a recovery for the given holders.
#[derive(Debug, Clone, Default)]
pub struct RecoveryReport {
    /// Ids of the threads whose runs were closed.
    pub closed: Vec<String>,
    /// Threads with a lease that cannot be read: the lease may be of any of those holders.
    pub unreadable: Vec<wit::Unreadable>,
}

/// Results of a sweep over several threads.
#[derive(Debug, Clone, Default)]
pub struct SweepReport {
    /// Number of threads whose propagation was finished.
    pub swept_count: u64,
    /// Children whose missing or unreadable records prevent it: parents keep the propagation.
    pub unreadable: Vec<wit::Unreadable>,
}

/// Most holders in one call of `recover`.
const HOLDERS_PER_CALL_MAX: usize = 500;

/// The result of an export: its answer or its refusal, or a trap.
type ExportResult<T> = wasmtime::Result<Result<T, wit::ErrorRecord>>;

/// The answer of one call; `worn` if its instance served calls before, which may cause an error.
struct CallAnswer<T> {
    result: Result<T, CallError>,
    worn: bool,
}

impl Tenant {
    /// A tenant of an engine. The context is its identity: no call names a tenant.
    pub fn new(engine: Engine, context: TenantContext) -> Self {
        let (lane, instances) = engine.add_tenant();
        Self {
            engine,
            context,
            lane,
            instances,
            lends_thread: false,
            _call_marker: None,
        }
    }

    /// The same tenant, but each of its calls keeps a clone of `mark` until it is over.
    pub(crate) fn with_call_marker(&self, mark: &Arc<()>) -> Self {
        Self {
            _call_marker: Some(Arc::clone(mark)),
            ..self.clone()
        }
    }

    /// The same tenant, but each of its calls computes on the thread that polls it, which saves the
    /// way to a thread of the pool and back: about 10 microseconds, and several times that where
    /// sleeping cores are slow to wake.
    ///
    /// For a caller whose thread has nothing else to do: a poll takes as long as the call, which
    /// may wait for the store, and it ends with the call however late that is. Calls that are
    /// polled on one thread go one after the other, so they share no sync of the disk. What the
    /// tenant's context has (store, library, clock) is called on that thread, too, and must not
    /// block on a runtime that the thread belongs to.
    ///
    /// A call takes a thread of the pool all the same while calls of the tenant or of others wait
    /// for one or this tenant runs as many as it may, where the thread has less stack left than
    /// [`EngineLimits::stack_bytes_max`](crate::limits::EngineLimits::stack_bytes_max) and 1 MiB,
    /// and for a second after a call that computed long or was stopped by a limit. Calls on lent
    /// threads count as the tenant's, and not among the threads of the pool.
    #[must_use]
    pub fn on_calling_thread(&self) -> Self {
        Self {
            lends_thread: true,
            ..self.clone()
        }
    }

    /// The resources that the tenant's component may reach.
    pub fn context(&self) -> &TenantContext {
        &self.context
    }

    /// Number of warm instances.
    pub fn instances_warm(&self) -> usize {
        self.instances.warm_count()
    }

    /// Linear memory of the live instances, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.instances.memory_bytes()
    }

    /// Calls an export, and repeats it after contention with other writers (one always succeeds) or
    /// while the store cannot be reached. Every export may be repeated. An error that a worn
    /// instance may have caused is tried once more in a clean one. A lease of another holder is no
    /// contention.
    async fn call_with_retries<T, E>(&self, export: E) -> Result<T, CallError>
    where
        T: Send + 'static,
        E: Fn(&Threads, &mut Store<InstanceState>) -> ExportResult<T> + Send + Sync + 'static,
    {
        let export = Arc::new(export);
        let (mut wait, mut repeats, mut clean) = (REPEAT_AFTER, 0, false);
        loop {
            let call = Arc::clone(&export);
            let CallAnswer { result, worn } =
                self.call_in_instance(clean, move |c, s| call(c, s)).await;
            match result {
                Err(error) if worn && !clean && error.may_come_from_instance() => clean = true,
                Err(error) if error.is_transient() && repeats < REPEATS_MAX => {
                    repeats += 1;
                    tokio::time::sleep(wait + jitter(wait)).await;
                    wait *= 2;
                }
                result => return result,
            }
        }
    }

    /// Calls an export, once.
    async fn call_once<T, E>(&self, export: E) -> Result<T, CallError>
    where
        T: Send + 'static,
        E: FnOnce(&Threads, &mut Store<InstanceState>) -> ExportResult<T> + Send + 'static,
    {
        self.call_in_instance(false, export).await.result
    }

    /// Calls an export, in a warm instance unless `clean`.
    async fn call_in_instance<T, E>(&self, clean: bool, export: E) -> CallAnswer<T>
    where
        T: Send + 'static,
        E: FnOnce(&Threads, &mut Store<InstanceState>) -> ExportResult<T> + Send + 'static,
    {
        let tenant = self.clone();
        let call = move |deadline| tenant.call_on_thread(clean, deadline, export);
        let called = if self.lends_thread {
            self.engine.run_lent_call(self.lane, call).await
        } else {
            self.engine.run_call(self.lane, call).await
        };
        called.unwrap_or_else(|none| CallAnswer {
            result: Err(none.into()),
            worn: false,
        })
    }

    /// Calls an export on this thread.
    fn call_on_thread<T>(
        &self,
        clean: bool,
        deadline: Instant,
        export: impl FnOnce(&Threads, &mut Store<InstanceState>) -> ExportResult<T>,
    ) -> CallAnswer<T> {
        let warm = if clean {
            None
        } else {
            self.instances.take_warm()
        };
        let instance = match warm {
            Some(instance) => Ok(instance),
            None => self
                .engine
                .instantiate(&self.context, &self.instances, deadline),
        };
        let mut instance = match instance {
            Ok(instance) => instance,
            Err(trap) => {
                return CallAnswer {
                    result: Err(Self::trap_error(&trap)),
                    worn: false,
                };
            }
        };
        let worn = instance.calls > 0;
        if worn {
            instance.store.data_mut().meter.begin_call_until(deadline);
            instance.store.set_epoch_deadline(1);
        }
        instance.calls += 1;
        let result = match export(&instance.exports, &mut instance.store) {
            Ok(answer) => {
                self.instances.keep_warm(instance, self.engine.limits());
                answer.map_err(|record| CallError::Refused(record.into()))
            }
            Err(trap) => Err(Self::trap_error(&trap)),
        };
        CallAnswer { result, worn }
    }

    /// The error of a call that was stopped on this thread.
    fn trap_error(trap: &wasmtime::Error) -> CallError {
        Engine::mark_offender();
        CallError::from_trap(trap)
    }
}

/// A random time up to `most`; zero if the system has no random numbers.
pub(crate) fn jitter(most: Duration) -> Duration {
    let mut byte = [0_u8];
    match getrandom::fill(&mut byte) {
        Ok(()) => most * u32::from(byte[0]) / 255,
        Err(_) => Duration::ZERO,
    }
}

/// Exports that are called page after page.
impl Tenant {
    /// `runner.sweep`, page after page; returns the children that could not be notified.
    pub async fn sweep(&self, thread: &str) -> Result<Vec<wit::Unreadable>, CallError> {
        let (mut cursor, mut unreadable) = (None, Vec::new());
        loop {
            let (thread, from) = (thread.to_owned(), cursor);
            let page = self
                .call_with_retries(move |c, s| {
                    c.threadkeep_threads_runner()
                        .call_sweep(s, &thread, from.as_deref())
                })
                .await?;
            unreadable.extend(page.unreadable);
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(unreadable);
            }
        }
    }

    /// As [`Self::sweep`]; a thread with an unreadable history counts as not notified.
    pub(crate) async fn sweep_or_report(
        &self,
        thread: &str,
    ) -> Result<Vec<wit::Unreadable>, CallError> {
        match self.sweep(thread).await {
            Err(CallError::Refused(wit::Error::Corrupt(why))) => Ok(vec![wit::Unreadable {
                thread: thread.to_owned(),
                why: why.into(),
            }]),
            swept => swept,
        }
    }

    /// Finishes propagations, in the tree under one thread or in all, until only those to
    /// unreadable children are left.
    ///
    /// # Errors
    /// As `runner.ready` and `runner.sweep`.
    pub async fn sweep_all(&self, under: Option<&str>) -> Result<SweepReport, CallError> {
        let mut swept = SweepReport::default();
        let mut kept = HashSet::new();
        let (mut cursor, mut before) = (None, 0);
        loop {
            let page = self
                .ready(PAGE_THREADS_MAX, cursor, under.map(str::to_owned))
                .await?;
            for due in page.threads.iter().filter(|due| due.needs("sweep")) {
                if kept.contains(&due.thread) {
                    continue;
                }
                let unreadable = self.sweep_or_report(&due.thread).await?;
                swept.swept_count += 1;
                if !unreadable.is_empty() {
                    kept.insert(due.thread.clone());
                    swept.unreadable.extend(unreadable);
                }
            }
            cursor = page.cursor;
            if cursor.is_none() {
                // A child that was notified may have children of its own.
                if swept.swept_count == before {
                    return Ok(swept);
                }
                before = swept.swept_count;
            }
        }
    }

    /// Closes the runs of all these holders.
    ///
    /// # Errors
    /// If a call gives no answer. Runs closed before stay closed.
    pub async fn recover_all(&self, dead: &[String]) -> Result<RecoveryReport, CallError> {
        let mut recovered = RecoveryReport::default();
        for some in dead.chunks(HOLDERS_PER_CALL_MAX) {
            let mut cursor = None;
            loop {
                let page = self.recover(some.to_vec(), cursor).await?;
                recovered.closed.extend(page.closed);
                for thread in &page.unreadable {
                    let (thread, why) = (&thread.thread, &thread.why.message);
                    tracing::warn!(
                        ?thread,
                        ?why,
                        "a thread cannot be read, and its run not be closed"
                    );
                }
                recovered.unreadable.extend(page.unreadable);
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(recovered)
    }
}
