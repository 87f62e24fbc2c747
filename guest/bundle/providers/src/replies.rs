//! Answers to the command: which replies the models gave.

use crate::exports::{bundle_host, llm};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

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
