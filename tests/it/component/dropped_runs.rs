//! Dropped run futures and cancels: the request in flight is closed, and the thread's record stays
//! accurate.

use super::embedder_guarantees::HookedStore;
use super::fixture::{CountingTools, assert_sound, message, scripted_driver, tenant};
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::time::Duration;
use threadkeep::driver::{Driver, EventSink, StopLevel, StopReceiver, stop_channel};
use threadkeep::models::OneProvider;
use threadkeep::models::ProviderOptions;
use threadkeep::models::openai::OpenAiProvider;
use threadkeep::storage::CommitOp;
use threadkeep::storage::memory::MemoryStore;
use threadkeep::tenant::Tenant;
use threadkeep::wit::runner::SignalKind;
use threadkeep_tests::fixture::draft;

/// Turns with tools of both kinds, and an attempt that fails, then the end.
const SCRIPT: &str = r#"[
  {"text": "one", "calls": [{"name": "read", "arguments": {}}, {"name": "write", "arguments": {}}]},
  {"calls": [{"name": "nothing", "arguments": {}}]},
  {"text": "two", "pause_ms": 1, "chunk": 1, "calls": [{"name": "read", "arguments": {}}]},
  {"text": "done"}
]"#;

/// Number of runs dropped at each of their polls.
const ROUNDS: u32 = 3;

/// Longest wait for an event that a server sees: the machine may be busy.
const WAIT_TIME_MAX: Duration = Duration::from_secs(120);

/// Moment at which a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DropMoment {
    /// Right after a poll: the awaited work is under way.
    UnderWay,
    /// When it would be polled again: the awaited work is done, and its result is lost.
    Unheard,
}

/// Polls a future a limited number of times and then ends with `None`.
struct PollLimit<F> {
    run: Pin<Box<F>>,
    left: u32,
    when: DropMoment,
}

impl<F: Future> Future for PollLimit<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.run.as_mut().poll(context) {
            Poll::Pending if self.left == 0 && self.when == DropMoment::UnderWay => {
                Poll::Ready(None)
            }
            polled => polled.map(Some),
        }
    }
}

/// Drops a run after `polls` polls, recovers it and carries it to its end; returns false once the
/// run is over before that.
async fn drop_after(polls: u32, when: DropMoment) -> bool {
    let memory = Arc::new(MemoryStore::new());
    let tenant = tenant(Arc::<MemoryStore>::clone(&memory));
    let tools = Arc::<CountingTools>::default();
    let driver = scripted_driver(&tenant, SCRIPT, &tools, "one");
    let thread = tenant.create(draft(Some("work"))).await.unwrap().id;
    let (sink, stop) = (EventSink::none(), StopReceiver::never());
    let run = Box::pin(driver.run(&thread, None, &sink, &stop));
    let left = polls;
    let done = PollLimit { run, left, when }.await;
    if let Some(ended) = done {
        assert_eq!(ended.unwrap().status, "completed");
        assert!(
            driver.recover_lost().await.unwrap().is_empty(),
            "nothing is lost"
        );
        return false;
    }
    // A call of the dropped run may still be under way: the thread is sound at any moment.
    driver.recover_lost().await.unwrap();
    assert_sound(&*memory);
    let now = tenant.get(&thread).await.unwrap();
    assert!(
        ["created", "running", "suspended", "completed"].contains(&now.status.as_str()),
        "{when:?} after {polls} polls: {now:?}"
    );
    if now.outcome.is_none() {
        let ended = driver.run(&thread, None, &sink, &stop).await;
        let ended = ended.unwrap_or_else(|error| panic!("{when:?} after {polls} polls: {error}"));
        assert_eq!(ended.status, "completed", "{when:?} after {polls} polls");
    }
    driver.recover_lost().await.unwrap();
    assert_sound(&*memory);
    let writes = tools.writes.load(Ordering::SeqCst);
    assert!(writes <= 1, "{when:?} after {polls} polls: {writes} writes");
    true
}

#[tokio::test]
async fn run_dropped_after_any_poll_can_be_recovered() {
    for when in [DropMoment::UnderWay, DropMoment::Unheard] {
        let mut dropped = 0;
        for _ in 0..ROUNDS {
            let mut polls = 0;
            while drop_after(polls, when).await {
                polls += 1;
            }
            dropped += polls;
        }
        println!("dropped {dropped} times in {ROUNDS} rounds, {when:?}");
        // The scheduler decides the number of polls: a late poll finds several things done, most
        // often on a busy machine. A run that no longer consists of steps is polled once or twice.
        assert!(
            dropped > 2 * ROUNDS,
            "only {dropped} polls in {ROUNDS} rounds: is the run made of steps any more?"
        );
    }
}

/// A server that begins an answer and never goes on; it reports each request, and each connection
/// that is closed.
struct HangingServer {
    base_url: String,
    told: Receiver<&'static str>,
}

impl HangingServer {
    /// The thread waits for connections until the test process ends.
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (sender, told) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                read_until_closed(stream, &sender);
            }
        });
        Self { base_url, told }
    }

    fn driver(&self, tenant: &Tenant) -> Driver {
        let provider = OpenAiProvider::new(ProviderOptions::openai(&self.base_url)).unwrap();
        let models = Arc::new(OneProvider::new(Arc::new(provider)));
        Driver::new(
            tenant.clone(),
            models,
            Arc::<CountingTools>::default(),
            "one",
        )
    }

    /// Returns the next event that the server saw.
    async fn next_event(self) -> (&'static str, Self) {
        let waiting = tokio::task::spawn_blocking(move || {
            let saw = self
                .told
                .recv_timeout(WAIT_TIME_MAX)
                .expect("the server sees something");
            (saw, self)
        });
        waiting.await.unwrap()
    }
}

/// Reads until the other side closes: a client that goes on waiting never does.
fn read_until_closed(mut stream: TcpStream, told: &Sender<&'static str>) {
    let mut buffer = [0; 4096];
    let _ = stream.read(&mut buffer);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let hello = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"}}]}\n\n";
    let _ = stream.write_all(format!("{head}{hello}").as_bytes());
    let _ = told.send("request");
    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
    let _ = told.send("closed");
}

#[tokio::test]
async fn a_dropped_run_drops_its_request_and_is_charged() {
    let memory = Arc::new(MemoryStore::new());
    let tenant = tenant(Arc::<MemoryStore>::clone(&memory));
    let server = HangingServer::start();
    let driver = server.driver(&tenant);
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let running = {
        let (driver, thread) = (driver.clone(), thread.clone());
        tokio::spawn(async move {
            let (sink, stop) = (EventSink::none(), StopReceiver::never());
            driver.run(&thread, Some(message("hi")), &sink, &stop).await
        })
    };
    let (saw, server) = server.next_event().await;
    assert_eq!(saw, "request");
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(server.next_event().await.0, "closed");
    assert_eq!(driver.recover_lost().await.unwrap(), [&*thread]);
    assert!(driver.recover_lost().await.unwrap().is_empty(), "once");
    let now = tenant.get(&thread).await.unwrap();
    let cause = now.cause.expect("a suspended thread says why");
    assert_eq!(
        (now.status.as_str(), cause.code.as_str()),
        ("suspended", "recovered")
    );
    assert!(
        now.cost.spend > 0,
        "nobody knows what it used: it is charged in full"
    );
    assert_sound(&*memory);
}

#[tokio::test]
async fn a_cancel_from_elsewhere_drops_the_request_in_flight() {
    let memory = Arc::new(MemoryStore::new());
    let tenant = tenant(Arc::<MemoryStore>::clone(&memory));
    for (signal, status) in [
        (SignalKind::Cancel, "cancelled"),
        (SignalKind::Kill, "killed"),
    ] {
        let server = HangingServer::start();
        let driver = server.driver(&tenant);
        let thread = tenant.create(draft(None)).await.unwrap().id;
        let running = {
            let thread = thread.clone();
            tokio::spawn(async move {
                let (sink, stop) = (EventSink::none(), StopReceiver::never());
                let _ = driver.run(&thread, Some(message("hi")), &sink, &stop).await;
            })
        };
        let (saw, server) = server.next_event().await;
        assert_eq!(saw, "request");
        tenant.signal(&thread, "stop", signal).await.unwrap();
        assert_eq!(server.next_event().await.0, "closed", "{status}");
        running.await.unwrap();
        assert_eq!(tenant.get(&thread).await.unwrap().status, status);
        assert_sound(&*memory);
    }
}

/// Symptom: a person's cancel waited for the store. Cause: the driver awaited the commit of a
/// partial text beside the work, outside of the part that a cancel interrupts. Fix: the commit is
/// one of the futures that are awaited together.
#[tokio::test]
async fn a_slow_commit_of_a_partial_text_does_not_delay_a_cancel() {
    let (begun, seen) = channel();
    let (open, opened) = channel::<()>();
    let opened = std::sync::Mutex::new(opened);
    let slow = move |ops: &[CommitOp]| {
        let partial =
            |op: &CommitOp| matches!(op, CommitOp::Put { key, .. } if key.collection == "partial");
        if ops.iter().any(partial) {
            let _ = begun.send(());
            let _ = opened.lock().unwrap().recv();
        }
    };
    let tenant = tenant(Arc::new(HookedStore(MemoryStore::new(), slow)));
    let script = r#"[{"text": "Begun.", "chunk": 2, "pause_ms": 590000}]"#;
    let driver = scripted_driver(&tenant, script, &Arc::default(), "one");
    let thread = tenant.create(draft(None)).await.unwrap().id;
    let (stopper, stop) = stop_channel();
    let running = {
        let (driver, thread) = (driver.clone(), thread.clone());
        let run = async move {
            let input = Some(message("hi"));
            driver.run(&thread, input, &EventSink::none(), &stop).await
        };
        tokio::spawn(run)
    };
    let waiting =
        tokio::task::spawn_blocking(move || seen.recv_timeout(WAIT_TIME_MAX).map(|()| seen));
    let _seen = waiting.await.unwrap().expect("a partial text is kept");
    stopper.raise(StopLevel::Cancel);
    let ended = running.await.unwrap().unwrap();
    assert_eq!(ended.status, "suspended");
    drop(open);
    assert_sound(&*tenant.context().storage);
}
