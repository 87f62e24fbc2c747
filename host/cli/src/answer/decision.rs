//! The need of a suspended thread, for a user; and the answer of `approve`, `deny` and `answer`
//! where the thread does not go on in this process.

use super::CommandAnswer;
use crate::exit::CommandExit;
use crate::json_text::describe_json;
use crate::screen::OutputScreen;
use serde::Serialize;
use serde_json::Value;
use threadkeep_units::status::has_ended;

/// The need of a suspended thread, as the component tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct ThreadNeeds(Value);

impl ThreadNeeds {
    /// Takes what the component tells; null for a thread that waits for nothing.
    pub fn new(told: Value) -> Self {
        Self(told)
    }

    /// Returns true if nothing is needed.
    pub fn is_none(&self) -> bool {
        self.0.is_null()
    }

    /// Ids of the calls that wait for a decision.
    pub fn calls(&self) -> Vec<String> {
        let calls = self.0["calls"].as_array().into_iter().flatten();
        let ids = calls.filter_map(|call| call["call"].as_str());
        ids.map(str::to_owned).collect()
    }

    /// Returns true if nothing is needed but a start.
    pub fn needs_start(&self) -> bool {
        self.0["start"].is_string()
    }

    /// Describes each call that waits for a decision on one line.
    pub fn describe_calls(&self) -> Vec<String> {
        let calls = self.0["calls"].as_array().into_iter().flatten();
        calls.map(describe_call).collect()
    }

    /// Describes the need on one line.
    pub fn describe(&self) -> String {
        let calls = self.describe_calls();
        if !calls.is_empty() {
            return format!("a decision about {}", calls.join(", "));
        }
        let raise = &self.0["raise"];
        if let (Some(cap), Some(above)) = (raise["cap"].as_str(), raise["above"].as_u64()) {
            return match cap {
                "spend" => format!("more spend than {}", crate::money::format_usd(above)),
                "duration" => format!("more duration than {} s", above.div_ceil(1_000)),
                cap => format!("more {cap} than {above}"),
            };
        }
        match self.0["start"].as_str() {
            Some(_) => "a resume".to_owned(),
            None => String::new(),
        }
    }
}

fn describe_call(call: &Value) -> String {
    let text = |name: &str| call[name].as_str().unwrap_or_default();
    let arguments = describe_json(text("arguments"));
    let described = format!("{} {} {arguments}", text("call"), text("name"));
    let described = described.trim_end();
    match call["arguments_bytes"].as_u64() {
        // Whoever decides must see that there is more, and where.
        Some(all) => format!(
            "{described}… (cut: of {all} bytes; `threadkeep transcript` shows all of the arguments)"
        ),
        None => described.to_owned(),
    }
}

/// The answer of `approve`, `deny` and `answer` with `--no-run`, and where another process holds
/// the thread or calls are left that nobody has decided about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionAnswer {
    /// The thread.
    pub thread_id: String,
    /// The same thread, if an earlier link of its chain was named.
    pub continued_in: Option<String>,
    /// `approve`, `deny` or `answer`.
    pub decision: String,
    /// The calls that were decided about.
    pub calls: Vec<String>,
    /// Its status now.
    pub status: String,
    /// The need of the thread, if it is suspended.
    pub waits_for: ThreadNeeds,
    /// Length of its history.
    pub version: u64,
    /// The exit code.
    pub exit: CommandExit,
}

impl CommandAnswer for DecisionAnswer {
    fn exit(&self) -> CommandExit {
        self.exit
    }

    fn print(&self, screen: &mut OutputScreen) {
        let id = &self.thread_id;
        screen.print_line(&describe_decision(id, &self.decision, &self.calls));
        if self.status == "running" {
            screen.note("the process that runs it goes on with it");
            return;
        }
        if has_ended(&self.status) {
            screen.note(&format!(
                "the thread is {}, and goes no further",
                self.status
            ));
            return;
        }
        for call in self.waits_for.describe_calls() {
            screen.note(&format!("waits: {call}"));
        }
        let next = match self.waits_for.calls().len() {
            0 => format!("threadkeep resume {id}"),
            calls => decision_advice(id, calls),
        };
        screen.note(&format!("next: {}", screen.next_step_for(&next)));
    }
}

/// Describes a decision that was made: `t: approved call_2_1`.
pub fn describe_decision(id: &str, decision: &str, calls: &[String]) -> String {
    let done = match decision {
        "approve" => "approved",
        "deny" => "denied",
        _ => "answered",
    };
    format!("{id}: {done} {}", calls.join(", "))
}

/// Advises how to decide about calls of a thread, of which so many wait.
pub fn decision_advice(id: &str, calls: usize) -> String {
    match calls {
        0 | 1 => format!("threadkeep approve {id}, or deny it, or answer it with a text"),
        _ => format!(
            "threadkeep approve {id} CALL, or deny or answer it, for each call; or threadkeep \
             approve {id} --all"
        ),
    }
}
