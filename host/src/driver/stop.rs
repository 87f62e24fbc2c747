//! How a person stops a run: once to cancel, twice to stop at once.

use tokio::sync::watch;

/// How urgently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum StopLevel {
    /// Go on.
    #[default]
    Run,
    /// A cancel was signalled: drop a model call, let tools finish.
    Cancel,
    /// Drop whatever runs.
    Now,
}

/// Raises the level.
#[derive(Debug)]
pub struct Stopper {
    sender: watch::Sender<StopLevel>,
}

impl Stopper {
    /// Raise the level; it never falls.
    pub fn raise(&self, level: StopLevel) {
        self.sender.send_if_modified(|now| {
            let higher = level > *now;
            *now = level.max(*now);
            higher
        });
    }

    /// The level now.
    pub fn level(&self) -> StopLevel {
        *self.sender.borrow()
    }
}

/// Watches the level.
#[derive(Debug, Clone)]
pub struct Stop {
    receiver: watch::Receiver<StopLevel>,
    /// Keeps the channel of a stop that nobody raises open.
    _own: Option<std::sync::Arc<watch::Sender<StopLevel>>>,
}

impl Stop {
    /// A run that nobody stops from here. (Signals still reach it.)
    pub fn never() -> Self {
        let (sender, receiver) = watch::channel(StopLevel::Run);
        Self {
            receiver,
            _own: Some(std::sync::Arc::new(sender)),
        }
    }

    /// The level now.
    pub fn level(&self) -> StopLevel {
        *self.receiver.borrow()
    }

    /// Wait until the level is at least this; for ever if nobody can raise it any more.
    pub async fn reached(&mut self, level: StopLevel) {
        if self.receiver.wait_for(|now| *now >= level).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Both ends.
pub fn stopper() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(StopLevel::Run);
    (
        Stopper { sender },
        Stop {
            receiver,
            _own: None,
        },
    )
}
