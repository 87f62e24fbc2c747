//! The operator's ceilings, as a policy sets them. A host holds them on every call that passes.

use std::time::Duration;

/// Bounds on what may pass through the host. `None` sets no bound, zero lets nothing pass. Money,
/// calls and bytes are totals of all runs of a tenant since its book was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCeilings {
    /// Money for models, in nano-USD, by the operator's prices and the usage that providers report.
    pub spend_nanos_max: Option<u64>,
    /// True if a model without a price of the operator may be called beside a ceiling of money. It
    /// is counted as a call of unknown cost.
    pub unpriced: bool,
    /// Model calls.
    pub model_calls_max: Option<u64>,
    /// Bytes to and from models: prompts, messages, schemas, and answers as they come over the
    /// wire. A call is admitted only if the largest answer would still fit
    /// (`models::answer_bytes_max`).
    pub model_bytes_max: Option<u64>,
    /// Tool calls.
    pub tool_calls_max: Option<u64>,
    /// Bytes of arguments and results. A call is admitted only if the largest result would still
    /// fit (`tools::RESULT_BYTES_MAX`).
    pub tool_bytes_max: Option<u64>,
    /// Bytes of the arguments of one tool call.
    pub argument_bytes_max: Option<u64>,
    /// Model and tool calls a minute, by the host's clock. That many may be made at once; then one
    /// for each share of the minute. A call that comes too early waits for its slot, at most
    /// a minute and half of its own time, and is refused if that is not enough.
    pub calls_per_minute_max: Option<u64>,
    /// Time from the first step of a run to its last, waits included. Calls still under way then
    /// are dropped.
    pub run_time_max: Option<Duration>,
    /// Time of one model call, from asking to the end of its reply.
    pub call_time_max: Option<Duration>,
    /// Time between two parts of a reply that streams. Providers of the tenant's own table are held
    /// to it.
    pub idle_time_max: Option<Duration>,
    /// Runs at the same time.
    pub runs_max: Option<u64>,
}

impl HostCeilings {
    /// No ceilings at all.
    pub const fn none() -> Self {
        Self {
            spend_nanos_max: None,
            unpriced: false,
            model_calls_max: None,
            model_bytes_max: None,
            tool_calls_max: None,
            tool_bytes_max: None,
            argument_bytes_max: None,
            calls_per_minute_max: None,
            run_time_max: None,
            call_time_max: None,
            idle_time_max: None,
            runs_max: None,
        }
    }

    /// Every ceiling as a policy file names it, and its value if it is set: money in nano-USD, time
    /// in seconds.
    pub fn named_values(&self) -> [(&'static str, Option<String>); 12] {
        let Self {
            spend_nanos_max,
            unpriced,
            model_calls_max,
            model_bytes_max,
            tool_calls_max,
            tool_bytes_max,
            argument_bytes_max,
            calls_per_minute_max,
            run_time_max,
            call_time_max,
            idle_time_max,
            runs_max,
        } = *self;
        let number = |value: Option<u64>| value.map(|value| value.to_string());
        let time = |time: Option<Duration>| time.map(|time| format!("{} s", time.as_secs_f64()));
        [
            ("spend", number(spend_nanos_max)),
            ("unpriced", unpriced.then(|| "allowed".to_owned())),
            ("model_calls", number(model_calls_max)),
            ("model_bytes", number(model_bytes_max)),
            ("tool_calls", number(tool_calls_max)),
            ("tool_bytes", number(tool_bytes_max)),
            ("argument_bytes", number(argument_bytes_max)),
            ("calls_per_minute", number(calls_per_minute_max)),
            ("run_time", time(run_time_max)),
            ("call_time", time(call_time_max)),
            ("idle_time", time(idle_time_max)),
            ("runs", number(runs_max)),
        ]
    }
}
