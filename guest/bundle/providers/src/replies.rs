//! Answers to the command: which replies the models gave, and the bytes of blobs.

use crate::exports::{bundle_host, llm};
use crate::project;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use threadkeep_adapters::blobs;

/// Most replies that are kept until the command takes them: far more than one step has.
const REPLIES_MAX: usize = 1_000;

/// The replies that the command has not taken. A function that is invoked without the command is
/// asked by nobody.
static REPLIES: Mutex<VecDeque<bundle_host::Reply>> = Mutex::new(VecDeque::new());

/// True if the command runs, and not a function that is invoked without it.
static IS_COMMAND: AtomicBool = AtomicBool::new(false);

/// Keeps that the command runs.
pub fn begin_command() {
    IS_COMMAND.store(true, Ordering::Relaxed);
}

/// Returns true if the command runs.
pub fn is_command() -> bool {
    IS_COMMAND.load(Ordering::Relaxed)
}

/// Keeps that an attempt was answered.
pub fn keep_reply(asked: &llm::Request) {
    let mut replies = REPLIES.lock().unwrap_or_else(PoisonError::into_inner);
    if replies.len() == REPLIES_MAX {
        replies.pop_front();
    }
    replies.push_back(bundle_host::Reply {
        thread: asked.thread.clone(),
        attempt: asked.attempt,
    });
}

/// Takes the replies that were kept.
pub fn take_replies() -> Vec<bundle_host::Reply> {
    let mut replies = REPLIES.lock().unwrap_or_else(PoisonError::into_inner);
    replies.drain(..).collect()
}

/// Reads a blob; `None` if the store cannot give it, of which standard error tells.
pub fn read_blob(chain: &str, hash: &str) -> Option<Vec<u8>> {
    let store = project::store().map_err(blobs::BlobError::<Infallible>::from);
    match store.and_then(|store| blobs::read_blob(&*store, chain, hash)) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            eprintln!("threadkeep: the blob {hash} cannot be read: {error}");
            None
        }
    }
}
