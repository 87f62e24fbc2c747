//! Ctrl-C as a stream: how often it was pressed is what it means.

use tokio::sync::mpsc;

/// Presses of Ctrl-C. While this lives they no longer end the process by themselves.
pub struct Interrupts {
    presses: mpsc::UnboundedReceiver<()>,
}

impl Interrupts {
    /// Listen. Where the system has no such signal, none ever comes.
    pub fn listen() -> Self {
        let (sender, presses) = mpsc::unbounded_channel();
        tokio::spawn(forward(sender));
        Self { presses }
    }

    /// The next press.
    pub async fn next(&mut self) {
        if self.presses.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
async fn forward(sender: mpsc::UnboundedSender<()>) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut interrupt) = signal(SignalKind::interrupt()) else {
        return;
    };
    while interrupt.recv().await.is_some() && sender.send(()).is_ok() {}
}

#[cfg(not(unix))]
async fn forward(sender: mpsc::UnboundedSender<()>) {
    while tokio::signal::ctrl_c().await.is_ok() && sender.send(()).is_ok() {}
}
