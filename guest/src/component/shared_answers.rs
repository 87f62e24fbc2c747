//! Exports that answer through the entry point of another one.
//!
//! How an answer is written into memory is generated once for each export: 6,000 bytes for a
//! thread. So exports of equal answers share an entry point: each of these notes what is asked, in
//! place of the arguments that the other lacks, and enters there. They are skipped where the
//! bindings are generated.

#![allow(
    unsafe_code,
    reason = "entry points of the component, as the bindings generate them"
)]

use super::{ThreadsComponent, exported};
use exported::registry::{__post_return_get, _export_get_cabi};
use exported::runner::{__post_return_start, _export_start_cabi};
use std::cell::Cell;

/// A call that is answered as `registry.get` is: with the thread that it names.
pub enum ThreadCall {
    /// `registry.set-title`: the title.
    SetTitle(Option<String>),
    /// `history.fork`: version, key and change.
    Fork(u64, String, Option<String>),
}

thread_local! {
    static THREAD_CALL: Cell<Option<ThreadCall>> = const { Cell::new(None) };
    static RESUMES: Cell<bool> = const { Cell::new(false) };
}

/// Returns the call that entered at `registry.get`, if it is another one.
pub fn take_thread_call() -> Option<ThreadCall> {
    THREAD_CALL.take()
}

/// Returns true if the call that entered at `runner.start` is a `resume`.
pub fn is_resume() -> bool {
    RESUMES.take()
}

/// Takes over a text that the host has written.
///
/// # Safety
/// As the canonical ABI passes a string: UTF-8, allocated by this module, used once.
unsafe fn lift_text(text: *mut u8, bytes: usize) -> String {
    unsafe { String::from_raw_parts(text, bytes, bytes) }
}

/// As [`lift_text`], for an option.
///
/// # Safety
/// As there, where the tag is not 0.
unsafe fn lift_option(tag: i32, text: *mut u8, bytes: usize) -> Option<String> {
    (tag != 0).then(|| unsafe { lift_text(text, bytes) })
}

#[unsafe(export_name = "threadkeep:threads/registry@0.1.0#set-title")]
unsafe extern "C" fn set_title(
    thread: *mut u8,
    thread_bytes: usize,
    tag: i32,
    title: *mut u8,
    title_bytes: usize,
) -> *mut u8 {
    let title = unsafe { lift_option(tag, title, title_bytes) };
    THREAD_CALL.set(Some(ThreadCall::SetTitle(title)));
    unsafe { _export_get_cabi::<ThreadsComponent>(thread, thread_bytes) }
}

#[unsafe(export_name = "cabi_post_threadkeep:threads/registry@0.1.0#set-title")]
unsafe extern "C" fn free_set_title(answer: *mut u8) {
    unsafe { __post_return_get::<ThreadsComponent>(answer) }
}

#[unsafe(export_name = "threadkeep:threads/history@0.1.0#fork")]
unsafe extern "C" fn fork(
    thread: *mut u8,
    thread_bytes: usize,
    version: i64,
    key: *mut u8,
    key_bytes: usize,
    tag: i32,
    change: *mut u8,
    change_bytes: usize,
) -> *mut u8 {
    let (key, change) = unsafe {
        let change = lift_option(tag, change, change_bytes);
        (lift_text(key, key_bytes), change)
    };
    let call = ThreadCall::Fork(version.cast_unsigned(), key, change);
    THREAD_CALL.set(Some(call));
    unsafe { _export_get_cabi::<ThreadsComponent>(thread, thread_bytes) }
}

#[unsafe(export_name = "cabi_post_threadkeep:threads/history@0.1.0#fork")]
unsafe extern "C" fn free_fork(answer: *mut u8) {
    unsafe { __post_return_get::<ThreadsComponent>(answer) }
}

#[unsafe(export_name = "threadkeep:threads/runner@0.1.0#resume")]
unsafe extern "C" fn resume(
    thread: *mut u8,
    thread_bytes: usize,
    input_tag: i32,
    input: *mut u8,
    input_bytes: usize,
    holder: *mut u8,
    holder_bytes: usize,
    key: *mut u8,
    key_bytes: usize,
    about_tag: i32,
    about: *mut u8,
    about_bytes: usize,
) -> *mut u8 {
    RESUMES.set(true);
    unsafe {
        _export_start_cabi::<ThreadsComponent>(
            thread,
            thread_bytes,
            input_tag,
            input,
            input_bytes,
            holder,
            holder_bytes,
            key,
            key_bytes,
            about_tag,
            about,
            about_bytes,
        )
    }
}

#[unsafe(export_name = "cabi_post_threadkeep:threads/runner@0.1.0#resume")]
unsafe extern "C" fn free_resume(answer: *mut u8) {
    unsafe { __post_return_start::<ThreadsComponent>(answer) }
}
