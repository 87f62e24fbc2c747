//! The tip of a thread's chain, and the calls that are meant for it: between the look-up of a tip
//! and such a call, its run may go on in another thread.

use super::Tenant;
use crate::error::CallError;
use crate::wit::{self, runner};

/// Most times that one call follows a chain that goes on meanwhile.
const FOLLOWED_MAX: u32 = 16;

/// Returns the tip of the chain of a thread, if that is another thread.
pub fn find_other_tip(thread: &wit::Thread) -> Option<String> {
    let more = serde_json::from_str::<serde_json::Value>(&thread.more).ok()?;
    let tip = more["tip"].as_str()?;
    (thread.next.is_some() && tip != thread.id).then(|| tip.to_owned())
}

impl Tenant {
    /// Reads the tip of the chain of a thread; no link between them is read.
    pub async fn get_tip(&self, thread: &str) -> Result<wit::Thread, CallError> {
        let mut found = self.get(thread).await?;
        for _ in 0..FOLLOWED_MAX {
            let Some(tip) = find_other_tip(&found) else {
                break;
            };
            found = self.get(&tip).await?;
        }
        Ok(found)
    }

    /// Sends a signal to a tip. If it was continued meanwhile, `tip` becomes the thread that the
    /// signal was sent to.
    pub async fn signal_tip(
        &self,
        tip: &mut String,
        key: &str,
        what: runner::SignalKind,
    ) -> Result<u64, CallError> {
        let mut followed = 0;
        loop {
            match self.signal(tip, key, what.clone()).await {
                Err(error) => self.follow_tip(tip, &mut followed, error).await?,
                sent => return sent,
            }
        }
    }

    /// Sets or removes the title of a tip. If it was continued meanwhile, that of the new tip.
    pub async fn set_tip_title(
        &self,
        tip: &mut String,
        title: Option<String>,
    ) -> Result<wit::Thread, CallError> {
        let mut followed = 0;
        loop {
            match self.set_title(tip, title.clone()).await {
                Err(error) => self.follow_tip(tip, &mut followed, error).await?,
                titled => return titled,
            }
        }
    }

    /// Puts the tip of now in the place of one that was continued. Any other error is returned.
    async fn follow_tip(
        &self,
        tip: &mut String,
        followed: &mut u32,
        error: CallError,
    ) -> Result<(), CallError> {
        let CallError::Refused(wit::Error::Continued(succession)) = &error else {
            return Err(error);
        };
        if *followed == FOLLOWED_MAX {
            return Err(error);
        }
        *followed += 1;
        *tip = self.get_tip(&succession.next).await?.id;
        Ok(())
    }
}
