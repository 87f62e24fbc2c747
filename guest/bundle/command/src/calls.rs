//! Calls of the component: bindings, conversions, and the repetition of what may be repeated.

use std::thread::sleep;
use std::time::Duration;
use threadkeep_cli::contract::{CallError, CallRefusal, RefusalKind};
use threadkeep_cli::threads::CallResult;

mod bindings {
    #![allow(
        missing_docs,
        clippy::all,
        unsafe_code,
        reason = "generated from wit/, where the documentation is"
    )]
    wit_bindgen::generate!({
        path: ["../../../wit", "../wit"],
        inline: "
            package threadkeep:bundle-command;

            world command {
                import threadkeep:threads/clock@0.1.0;
                import threadkeep:threads/random@0.1.0;
                import threadkeep:threads/library@0.1.0;
                import threadkeep:threads/registry@0.1.0;
                import threadkeep:threads/history@0.1.0;
                import threadkeep:threads/ledger@0.1.0;
                import threadkeep:threads/continuation@0.1.0;
                import threadkeep:threads/transcript@0.1.0;
                import threadkeep:threads/runner@0.1.0;
                import threadkeep:threads/maintenance@0.1.0;
                import threadkeep:bundle/host@0.1.0;
            }
        ",
        world: "threadkeep:bundle-command/command",
        generate_all,
    });
}

pub use bindings::threadkeep::bundle::host as bundle_host;
pub use bindings::threadkeep::threads::{
    clock, continuation, history, ledger, library, maintenance, random, registry, runner,
    transcript, types,
};

threadkeep_cli::convert_records!();

/// Most repetitions of a call before its error counts.
const REPEATS_MAX: u32 = 8;
/// Pause before a call is repeated; it doubles.
const REPEAT_AFTER: Duration = Duration::from_millis(5);

/// Makes a call that may be repeated, and repeats it while other writers are faster or the store
/// cannot be reached.
///
/// # Errors
/// The refusal of the component.
pub fn call<A: ConvertRecord<B>, B>(export: impl Fn() -> Result<A, types::Error>) -> CallResult<B> {
    let (mut wait, mut repeats) = (REPEAT_AFTER, 0);
    loop {
        let refusal = match export() {
            Ok(answer) => return Ok(answer.convert()),
            Err(error) => refusal(error),
        };
        let transient = matches!(
            refusal.kind,
            RefusalKind::Unavailable | RefusalKind::Unknown
        );
        if !transient || repeats == REPEATS_MAX {
            return Err(CallError::Refused(refusal));
        }
        repeats += 1;
        sleep(wait);
        wait *= 2;
    }
}

/// Makes a call whose answer is read as the bindings have it.
///
/// # Errors
/// As [`call`].
pub fn call_plain<T>(export: impl Fn() -> Result<T, types::Error>) -> CallResult<T> {
    call(|| export().map(PlainAnswer))
}

/// An answer that is read as the bindings have it.
struct PlainAnswer<T>(T);

impl<T> ConvertRecord<T> for PlainAnswer<T> {
    fn convert(self) -> T {
        self.0
    }
}

fn refusal(error: types::Error) -> CallRefusal {
    CallRefusal::from_record(
        (&error.kind, error.code),
        (error.message, error.advice),
        error.thread,
        &error.details,
    )
}
