//! Ctrl-C and requests to end (SIGTERM, and SIGHUP when the terminal closes) as a stream.

#[cfg(unix)]
use std::path::Path;
#[cfg(unix)]
use threadkeep::authority;
use tokio::sync::mpsc;

/// An interrupt of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessInterrupt {
    /// Ctrl-C; its meaning depends on the number of presses.
    Press,
    /// SIGTERM or SIGHUP: suspends the run, and nothing more however often it comes. Its sender
    /// does not watch the screen.
    Terminate,
}

/// The interrupts of the process. While this lives, no interrupt ends the process by itself.
pub struct InterruptStream {
    waiting: mpsc::UnboundedReceiver<ProcessInterrupt>,
}

impl InterruptStream {
    /// Installs the handlers. Where the system has no such signals, none ever comes.
    pub fn listen() -> Self {
        let (sender, waiting) = mpsc::unbounded_channel();
        forward(sender);
        Self { waiting }
    }

    /// Waits for the next interrupt.
    pub async fn next(&mut self) -> ProcessInterrupt {
        match self.waiting.recv().await {
            Some(interrupt) => interrupt,
            None => std::future::pending().await,
        }
    }
}

/// Installs the handlers before it returns: no signal after that is lost.
#[cfg(unix)]
fn forward(sender: mpsc::UnboundedSender<ProcessInterrupt>) {
    use tokio::signal::unix::{SignalKind, signal};
    let hangup = (!ignores_hangup()).then_some((SignalKind::hangup(), ProcessInterrupt::Terminate));
    let others = [
        (SignalKind::interrupt(), ProcessInterrupt::Press),
        (SignalKind::terminate(), ProcessInterrupt::Terminate),
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

/// Returns true if the process was started to outlive its terminal, as by `nohup`: a SIGHUP handler
/// would undo that. Only Linux tells.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    /// Most bytes of the status file: the kernel writes a page or two.
    const STATUS_BYTES_MAX: u64 = 64 << 10;
    let status = authority::read_ambient(Path::new("/proc/self/status"), STATUS_BYTES_MAX);
    let status = String::from_utf8(status.unwrap_or_default()).unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 is the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}

#[cfg(not(unix))]
fn forward(sender: mpsc::UnboundedSender<ProcessInterrupt>) {
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && sender.send(ProcessInterrupt::Press).is_ok()
        {
        }
    });
}
