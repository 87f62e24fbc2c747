//! Tools that the runner itself performs. They only read and change records of threads, in the
//! commit that records the reply. This module holds their definitions and parses their calls.
//!
//! A pin holds them as it holds any tool, so a capability grants each of them and `execute.tool.*`
//! grants all. A host's tool cannot have one of their names.

use super::builtin_tools::{TOOLS, WAIT_SECONDS_MARK, is_builtin_tool};
use super::{
    ToolDef, check_known_fields, flag_field, parse_limits, parse_object, text_field, texts_field,
};
use crate::error::Error;
use crate::json::{JsonObject, JsonValue};
use crate::limits::ThreadCaps;
use crate::thread::RESULT_BYTES_MAX;
use crate::thread::WAIT_MAX;

/// Longest time that a `wait_threads` may ask for, in seconds: a day.
pub const WAIT_SECONDS_MAX: u64 = 86_400;
/// Most messages that one `read_transcript` shows.
pub const READ_MESSAGES_MAX: u64 = 50;

/// Returns the tools that the runner itself performs. `wait` is the time in milliseconds that a
/// `wait_threads` without a timeout waits: the model is told.
pub fn builtin_tools(wait: u64) -> impl Iterator<Item = ToolDef> {
    let seconds = (wait / 1_000).to_string();
    TOOLS
        .iter()
        .map(move |(name, description, schema)| ToolDef {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
            schema: schema.replace(WAIT_SECONDS_MARK, &seconds),
            idempotent: true,
            consent: false,
            timeout: 0,
        })
}

/// A call of a tool that the runner itself performs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltinCall {
    /// Create a child.
    Spawn(Box<SpawnCall>),
    /// Wait for children.
    Wait(WaitCall),
    /// Return the status of a thread.
    Status(String),
    /// List descendants; of one status if it is named.
    List(Option<String>),
    /// Put a message into an inbox.
    Send(String, String),
    /// Go on with a thread that has ended, with a message.
    Resume(String, String),
    /// End a thread; at once if the flag is true.
    Stop(String, bool),
    /// Show the newest messages of a thread.
    Read(String, u64),
    /// Show results of children, from this byte of each on.
    Aggregate(Vec<String>, usize),
    /// List the links of a thread's chain, from this cursor on.
    Chain(String, Option<String>),
}

/// Arguments of `spawn_thread`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnCall {
    /// Name of the directive.
    pub directive: String,
    /// A JSON object, or empty.
    pub inputs: String,
    /// A model or tier.
    pub model: Option<String>,
    /// Title for people.
    pub title: Option<String>,
    /// Caps of the child.
    pub limits: ThreadCaps,
    /// Reserve the rest of the budget where the spend is more than that.
    pub clamp: bool,
}

/// Arguments of `wait_threads`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitCall {
    /// Ids of children, at most [`WAIT_MAX`]; none means all children of the caller.
    pub threads: Vec<String>,
    /// True if the first end is enough.
    pub any: bool,
    /// Longest wait, in milliseconds; `None` for that of the thread's settings.
    pub timeout: Option<u64>,
}

impl BuiltinCall {
    /// Parses the arguments of a call, a JSON object. Returns `None` if the name is not that of a
    /// builtin tool.
    pub fn parse(name: &str, arguments: &str) -> Option<Result<Self, Error>> {
        is_builtin_tool(name).then(|| Self::parse_arguments(name, arguments))
    }

    fn parse_arguments(name: &str, arguments: &str) -> Result<Self, Error> {
        let fields = parse_object(name, arguments)?;
        let known = |known: &[&str]| check_known_fields(name, &fields, known);
        match name {
            "spawn_thread" => {
                known(&["directive", "inputs", "model", "title", "limits", "clamp"])?;
                return parse_spawn(name, &fields);
            }
            "wait_threads" => {
                known(&["threads", "any", "timeout"])?;
                return parse_wait(name, &fields);
            }
            "list_threads" => {
                known(&["status"])?;
                return text_field(name, &fields, "status").map(Self::List);
            }
            "aggregate_results" => {
                known(&["threads", "from"])?;
                return parse_aggregate(name, &fields);
            }
            "send_message" | "resume_thread" => known(&["thread", "message"])?,
            "read_transcript" => known(&["thread", "last"])?,
            "get_chain" => known(&["thread", "cursor"])?,
            _ => known(&["thread"])?,
        }
        let thread = required_text(name, &fields, "thread")?;
        Ok(match name {
            "send_message" => Self::Send(thread, required_text(name, &fields, "message")?),
            "resume_thread" => Self::Resume(thread, required_text(name, &fields, "message")?),
            "cancel_thread" => Self::Stop(thread, false),
            "kill_thread" => Self::Stop(thread, true),
            "read_transcript" => Self::Read(
                thread,
                whole_number_field(name, &fields, "last", READ_MESSAGES_MAX)?.unwrap_or(10),
            ),
            "get_chain" => Self::Chain(thread, text_field(name, &fields, "cursor")?),
            _ => Self::Status(thread),
        })
    }
}

fn required_text(name: &str, fields: &JsonObject<'_>, field: &str) -> Result<String, Error> {
    match text_field(name, fields, field)? {
        Some(text) if !text.is_empty() => Ok(text),
        _ => Err(Error::invalid(format!("{name}.{field}"), "", "is missing")),
    }
}

/// Reads a number from 1 to `most`.
fn whole_number_field(
    name: &str,
    fields: &JsonObject<'_>,
    field: &str,
    most: u64,
) -> Result<Option<u64>, Error> {
    let value = match fields.get(field) {
        None | Some(JsonValue::Null) => return Ok(None),
        Some(value) => value,
    };
    match value.as_u64() {
        Some(number) if (1..=most).contains(&number) => Ok(Some(number)),
        _ => {
            let problem = format!("must be a whole number from 1 to {most}");
            Err(Error::invalid(
                format!("{name}.{field}"),
                &value.to_string(),
                problem,
            ))
        }
    }
}

fn thread_ids(name: &str, fields: &JsonObject<'_>) -> Result<Vec<String>, Error> {
    let mut ids: Vec<String> = Vec::new();
    for id in texts_field(name, fields, "threads")? {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    if ids.len() > WAIT_MAX {
        let problem = format!("names more than {WAIT_MAX} threads");
        return Err(Error::invalid(format!("{name}.threads"), "", problem));
    }
    Ok(ids)
}

fn parse_aggregate(name: &str, fields: &JsonObject<'_>) -> Result<BuiltinCall, Error> {
    let threads = thread_ids(name, fields)?;
    let from = whole_number_field(name, fields, "from", RESULT_BYTES_MAX as u64 * 2)?;
    if from.is_some() && threads.len() != 1 {
        let problem = "is of one thread: name it alone";
        return Err(Error::invalid(format!("{name}.from"), "", problem));
    }
    Ok(BuiltinCall::Aggregate(threads, from.unwrap_or(0) as usize))
}

fn parse_wait(name: &str, fields: &JsonObject<'_>) -> Result<BuiltinCall, Error> {
    let threads = thread_ids(name, fields)?;
    if threads.is_empty() && fields.contains_key("threads") {
        let problem = "must name the children to wait for";
        return Err(Error::invalid(format!("{name}.threads"), "", problem));
    }
    let seconds = whole_number_field(name, fields, "timeout", WAIT_SECONDS_MAX)?;
    Ok(BuiltinCall::Wait(WaitCall {
        threads,
        any: flag_field(name, fields, "any")?,
        timeout: seconds.map(|seconds| seconds * 1_000),
    }))
}

fn parse_spawn(name: &str, fields: &JsonObject<'_>) -> Result<BuiltinCall, Error> {
    let inputs = match fields.get("inputs") {
        None | Some(JsonValue::Null) => String::new(),
        Some(inputs) => inputs.to_string(),
    };
    Ok(BuiltinCall::Spawn(Box::new(SpawnCall {
        directive: required_text(name, fields, "directive")?,
        inputs,
        model: text_field(name, fields, "model")?,
        title: text_field(name, fields, "title")?,
        limits: parse_limits(&format!("{name}.limits"), fields.get("limits"))?,
        clamp: flag_field(name, fields, "clamp")?,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn refused_field(name: &str, arguments: &str) -> Option<String> {
        match BuiltinCall::parse(name, arguments).map(|call| call.map_err(Error::into_kind)) {
            Some(Err(ErrorKind::Invalid { field, .. })) => Some(field),
            Some(Ok(_)) => None,
            other => panic!("{name} {arguments}: {other:?}"),
        }
    }

    /// Symptom: a model was not told why its wait for a child that was interrupted does not end.
    #[test]
    fn the_description_of_a_wait_says_what_keeps_it_open() {
        let wait = TOOLS.iter().find(|(name, ..)| *name == "wait_threads");
        let (_, said, _) = wait.expect("it is one of them");
        assert!(said.contains("interrupted") && said.contains("keeps the wait open"));
    }

    #[test]
    fn the_schema_of_a_wait_alone_has_the_place_of_the_timeout() {
        for (name, _, schema) in TOOLS {
            let places = schema.matches(WAIT_SECONDS_MARK).count();
            assert_eq!(places, usize::from(name == "wait_threads"), "{name}");
        }
    }

    /// Name, arguments and the refused field.
    const CALLS: [(&str, &str, Option<&str>); 26] = [
        ("spawn_thread", r#"{"directive":"d"}"#, None),
        (
            "spawn_thread",
            r#"{"directive":"d","limits":{"spend":0.5},"clamp":true}"#,
            None,
        ),
        ("spawn_thread", "{}", Some("spawn_thread.directive")),
        (
            "spawn_thread",
            r#"{"directive":"d","limits":{"spend":-1}}"#,
            Some("spawn_thread.limits.spend"),
        ),
        (
            "spawn_thread",
            r#"{"directive":"d","limits":{"spend":1e3}}"#,
            Some("spawn_thread.limits.spend"),
        ),
        (
            "spawn_thread",
            r#"{"directive":"d","limits":{"spend":"NaN"}}"#,
            Some("spawn_thread.limits.spend"),
        ),
        (
            "spawn_thread",
            r#"{"directive":"d","limits":{"spend":0.0000000001}}"#,
            Some("spawn_thread.limits.spend"),
        ),
        (
            "spawn_thread",
            r#"{"directive":"d","limits":{"spend":99999999999999}}"#,
            Some("spawn_thread.limits.spend"),
        ),
        (
            "spawn_thread",
            r#"{"directive":"d","parent":"x"}"#,
            Some("spawn_thread.parent"),
        ),
        ("wait_threads", r#"{"threads":["a"]}"#, None),
        ("wait_threads", "{}", None),
        (
            "wait_threads",
            r#"{"threads":[]}"#,
            Some("wait_threads.threads"),
        ),
        (
            "wait_threads",
            r#"{"threads":["a"],"timeout":0}"#,
            Some("wait_threads.timeout"),
        ),
        (
            "wait_threads",
            r#"{"threads":["a"],"timeout":86401}"#,
            Some("wait_threads.timeout"),
        ),
        (
            "wait_threads",
            r#"{"threads":"a"}"#,
            Some("wait_threads.threads"),
        ),
        (
            "send_message",
            r#"{"thread":"a"}"#,
            Some("send_message.message"),
        ),
        (
            "read_transcript",
            r#"{"thread":"a","last":51}"#,
            Some("read_transcript.last"),
        ),
        ("kill_thread", "{}", Some("kill_thread.thread")),
        ("list_threads", "{}", None),
        ("aggregate_results", "{}", None),
        ("aggregate_results", r#"{"threads":["a"],"from":9}"#, None),
        (
            "aggregate_results",
            r#"{"threads":["a","b"],"from":9}"#,
            Some("aggregate_results.from"),
        ),
        ("thread_status", r#"{"id":"a"}"#, Some("thread_status.id")),
        ("get_chain", r#"{"thread":"a","cursor":"b"}"#, None),
        ("get_chain", "{}", Some("get_chain.thread")),
        (
            "get_chain",
            r#"{"thread":"a","cursor":1}"#,
            Some("get_chain.cursor"),
        ),
    ];

    #[test]
    fn calls_are_read_or_refused_by_field() {
        for (name, arguments, field) in CALLS {
            assert_eq!(
                refused_field(name, arguments).as_deref(),
                field,
                "{name} {arguments}"
            );
        }
        let many: Vec<String> = (0..33).map(|n| format!("\"t{n}\"")).collect();
        let many = format!(r#"{{"threads":[{}]}}"#, many.join(","));
        assert_eq!(
            refused_field("wait_threads", &many).as_deref(),
            Some("wait_threads.threads")
        );
        assert!(BuiltinCall::parse("read_file", "{}").is_none());
    }

    #[test]
    fn a_wait_names_each_thread_once_and_has_a_default() {
        let Some(Ok(BuiltinCall::Wait(waits))) =
            BuiltinCall::parse("wait_threads", r#"{"threads":["a","b","a"]}"#)
        else {
            panic!("it is a wait")
        };
        assert_eq!(waits.threads, ["a", "b"]);
        assert_eq!((waits.any, waits.timeout), (false, None));
    }

    #[test]
    fn what_is_offered_can_be_pinned() {
        for tool in builtin_tools(90_500) {
            super::super::check_tool_name("tools", &tool.name).unwrap();
            assert!(crate::json::parse(&tool.schema).is_ok(), "{}", tool.name);
            assert!(is_builtin_tool(&tool.name));
        }
    }
}
