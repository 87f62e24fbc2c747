//! Conversions between WIT and the host's own types: exhaustive both ways, only in this file. Those
//! of the store, the library and the models are the same in every host
//! ([`convert_imports`](threadkeep_adapters::convert_imports)).

use crate::bindings::threadkeep::threads::{library, llm, storage, types};
use crate::clock::ClockTime;

threadkeep_adapters::convert_imports!();

pub(crate) fn time_to_wit(time: ClockTime) -> types::Instant {
    types::Instant {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}

pub(crate) fn time_from_wit(time: types::Instant) -> ClockTime {
    ClockTime {
        seconds: time.seconds,
        nanos: time.nanos,
    }
}
