//! The stop of a run by its caller: once to cancel, twice to stop at once.

use tokio::sync::watch;

/// Urgency of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum StopLevel {
    /// No stop.
    #[default]
    Run,
    /// A cancel was signalled: drop a model call, let tools finish.
    Cancel,
    /// Drop everything under way.
    Now,
}

/// The sending end of a stop: raises the level.
#[derive(Debug)]
pub struct StopSender {
    sender: watch::Sender<StopLevel>,
}

impl StopSender {
    /// Raises the level; it never falls.
    pub fn raise(&self, level: StopLevel) {
        self.sender.send_if_modified(|now| {
            let higher = level > *now;
            *now = level.max(*now);
            higher
        });
    }

    /// The current level.
    pub fn level(&self) -> StopLevel {
        *self.sender.borrow()
    }
}

/// The receiving end of a stop: watches the level.
#[derive(Debug, Clone)]
pub struct StopReceiver {
    receiver: watch::Receiver<StopLevel>,
    /// Keeps the channel open if there is no [`StopSender`].
    _kept_sender: Option<std::sync::Arc<watch::Sender<StopLevel>>>,
}

impl StopReceiver {
    /// Returns a stop that is never raised. A cancel or kill of the thread by `runner.signal` still
    /// ends the run.
    pub fn never() -> Self {
        let (sender, receiver) = watch::channel(StopLevel::Run);
        Self {
            receiver,
            _kept_sender: Some(std::sync::Arc::new(sender)),
        }
    }

    /// The current level.
    pub fn level(&self) -> StopLevel {
        *self.receiver.borrow()
    }

    /// Waits until the level is at least this; for ever if the stopper is gone.
    pub async fn wait_for_level(&mut self, level: StopLevel) {
        if self.receiver.wait_for(|now| *now >= level).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Makes both ends of a stop.
pub fn stop_channel() -> (StopSender, StopReceiver) {
    let (sender, receiver) = watch::channel(StopLevel::Run);
    (
        StopSender { sender },
        StopReceiver {
            receiver,
            _kept_sender: None,
        },
    )
}
