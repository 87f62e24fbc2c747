//! Ctrl-C and the request to end (SIGTERM) as a stream.

use tokio::sync::mpsc;

/// What reached the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C: how often it was pressed is what it means.
    Press,
    /// SIGTERM: as the first Ctrl-C, and no more however often it comes. Whoever sends it does not look on.
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
    for (kind, interrupt) in [
        (SignalKind::interrupt(), Interrupt::Press),
        (SignalKind::terminate(), Interrupt::Terminate),
    ] {
        let Ok(mut signals) = signal(kind) else {
            continue;
        };
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() && sender.send(interrupt).is_ok() {}
        });
    }
}

#[cfg(not(unix))]
fn forward(sender: mpsc::UnboundedSender<Interrupt>) {
    tokio::spawn(async move {
        while tokio::signal::ctrl_c().await.is_ok() && sender.send(Interrupt::Press).is_ok() {}
    });
}
