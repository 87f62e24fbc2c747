//! Ctrl-C and the requests to end (SIGTERM, and SIGHUP of a terminal that goes away) as a stream.

#[cfg(unix)]
use std::path::Path;
#[cfg(unix)]
use threadkeep::authority;
use tokio::sync::mpsc;

/// What reached the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C: how often it was pressed is what it means.
    Press,
    /// SIGTERM or SIGHUP: the run is suspended, and no more however often it comes. Its sender does not look on.
    Terminate,
}

/// What reaches the process. While this lives none of it ends the process by itself.
pub struct Interrupts {
    waiting: mpsc::UnboundedReceiver<Interrupt>,
}

impl Interrupts {
    /// Listen. Where the system has no such signals, none ever comes.
    pub fn listen() -> Self {
        let (sender, waiting) = mpsc::unbounded_channel();
        forward(sender);
        Self { waiting }
    }

    /// The next one.
    pub async fn next(&mut self) -> Interrupt {
        match self.waiting.recv().await {
            Some(interrupt) => interrupt,
            None => std::future::pending().await,
        }
    }
}

/// The handlers are there when this returns: what comes after it is not lost.
#[cfg(unix)]
fn forward(sender: mpsc::UnboundedSender<Interrupt>) {
    use tokio::signal::unix::{SignalKind, signal};
    let hangup = (!ignores_hangup()).then_some((SignalKind::hangup(), Interrupt::Terminate));
    let others = [
        (SignalKind::interrupt(), Interrupt::Press),
        (SignalKind::terminate(), Interrupt::Terminate),
    ];
    for (kind, interrupt) in others.into_iter().chain(hangup) {
        let Ok(mut signals) = signal(kind) else {
            continue;
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(interrupt).is_ok() {}
        });
    }
}

/// Whether whoever started the process asked it to outlive its terminal, as `nohup` does: listening would undo that. Only
/// Linux says.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    /// A page or two; the kernel writes it.
    const STATUS_BYTES_MAX: u64 = 64 << 10;
    let status = authority::read_ambient(Path::new("/proc/self/status"), STATUS_BYTES_MAX);
    let status = String::from_utf8(status.unwrap_or_default()).unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 is the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(not(unix))]
fn forward(sender: mpsc::UnboundedSender<Interrupt>) {
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && sender.send(Interrupt::Press).is_ok() {}
    });
}
