//! `run` and `resume`: where a run stands once nobody performs it any more.

use super::{Answer, counted, spend};
use crate::exit::Exit;
use crate::money;
use crate::screen::Screen;
use crate::table::{Side, Table};
use serde::Serialize;
use serde_json::Value;

/// What a thread has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Cost {
    /// Completed model calls.
    pub turns: u64,
    /// Tokens that models read, from caches too.
    pub input_tokens: u64,
    /// Tokens that models wrote.
    pub output_tokens: u64,
    /// Nano-USD; decimal text in JSON.
    #[serde(serialize_with = "spend")]
    pub spend: u64,
}

impl Cost {
    /// For a person, on one line.
    pub(super) fn shown(&self) -> String {
        format!(
            "{} for {}, {} input and {} output tokens",
            money::shown(self.spend),
            counted(self.turns, "turn"),
            self.input_tokens,
            self.output_tokens
        )
    }
}

/// What an operator has to do before a call that a ceiling has refused would pass.
pub fn lift(ceiling: &str) -> String {
    match ceiling {
        "book" => "let the operator mend or remove the book that the policy names".to_owned(),
        "models" => "let the operator grant the model in the policy".to_owned(),
        "unpriced" => {
            "let the operator give the model a price in the policy, or allow unpriced".to_owned()
        }
        "calls_per_minute" => "wait a minute".to_owned(),
        ceiling => format!("let the operator raise {ceiling} in the policy"),
    }
}

/// A cap of a thread that a run can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    /// Model calls of a run.
    Turns,
    /// Tokens of a run.
    Tokens,
    /// Money of a chain.
    Spend,
    /// Children of a chain.
    Spawns,
    /// Levels of children.
    Depth,
    /// Time of a run.
    Duration,
}

/// Whose cap a thread stands at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bound {
    /// Its own: `raise` lifts it.
    #[default]
    Thread,
    /// The operator's, which is lower: no `raise` passes it.
    Policy,
    /// Both, which are the same.
    Both,
}

impl Cap {
    /// The cap that the code of a cause names.
    pub fn of_code(code: &str) -> Option<Self> {
        Some(match code {
            "turns_exceeded" => Self::Turns,
            "tokens_exceeded" => Self::Tokens,
            "spend_exceeded" | "budget" => Self::Spend,
            "spawns_exceeded" => Self::Spawns,
            "depth_exceeded" => Self::Depth,
            "duration_exceeded" => Self::Duration,
            _ => return None,
        })
    }

    /// Its name, in a policy and a directive.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Tokens => "tokens",
            Self::Spend => "spend",
            Self::Spawns => "spawns",
            Self::Depth => "depth",
            Self::Duration => "duration",
        }
    }

    /// What to do about a thread that has reached it.
    pub fn advice(self, id: &str, bound: Bound) -> String {
        let option = match self {
            Self::Turns => "--turns N",
            Self::Tokens => "--tokens N",
            Self::Spend => "--spend USD",
            Self::Spawns => "--spawns N",
            Self::Depth => "--depth N",
            Self::Duration => "--duration TIME",
        };
        let lifted = lift(&format!("limits.{}", self.as_str()));
        match bound {
            Bound::Thread => format!("threadkeep raise {id} {option}, then threadkeep resume {id}"),
            Bound::Policy => format!("{lifted}, then threadkeep resume {id}"),
            Bound::Both => {
                format!("{lifted}, then threadkeep raise {id} {option} and threadkeep resume {id}")
            }
        }
    }
}

/// Why a thread stands where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// `limit`, `error`, `budget`, `approval`, `cancelled` or `killed`.
    pub reason: String,
    /// A stable code.
    pub code: String,
    /// A sentence.
    pub message: String,
}

/// What `run` and `resume` answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunAnswer {
    /// The thread.
    pub thread_id: String,
    /// Its status.
    pub status: String,
    /// How it ended, if it has.
    pub outcome: Option<String>,
    /// Text of the last reply.
    pub text: String,
    /// Its result, if it has one.
    pub result: Option<Value>,
    /// Why, for a status that has a reason.
    pub cause: Option<Cause>,
    /// Whose cap it stands at, if it is one.
    #[serde(skip)]
    pub bound: Bound,
    /// What the thread used.
    pub cost: Cost,
    /// How the process ends.
    pub exit: Exit,
}

impl Answer for RunAnswer {
    fn exit(&self) -> Exit {
        self.exit
    }

    /// The text was streamed: the rest goes beside it.
    fn print(&self, screen: &mut Screen) {
        let mut table = Table::new(&[Side::Left, Side::Left]);
        table.row(&["thread", &self.thread_id]);
        table.row(&["status", &self.standing()]);
        table.row(&["cost", &self.used()]);
        if let Some(next) = self.next() {
            table.row(&["next", screen.next_of(&next)]);
        }
        for line in table.lines() {
            screen.note(&line);
        }
    }
}

impl RunAnswer {
    fn standing(&self) -> String {
        match &self.cause {
            Some(cause) => format!("{} ({}): {}", self.status, cause.code, cause.message),
            None => self.status.clone(),
        }
    }

    fn used(&self) -> String {
        self.cost.shown()
    }

    /// What a person can do about a thread that is suspended.
    fn next(&self) -> Option<String> {
        let id = &self.thread_id;
        if self.status != "suspended" {
            return None;
        }
        let code = self.cause.as_ref()?.code.as_str();
        match code.strip_prefix("ceiling_") {
            // Each run has its own time.
            Some("run_time") => return Some(format!("threadkeep resume {id}")),
            Some(ceiling) => {
                return Some(format!("{}, then threadkeep resume {id}", lift(ceiling)));
            }
            None => {}
        }
        Some(match Cap::of_code(code) {
            Some(cap) => cap.advice(id, self.bound),
            // To go on would send the same request: what to do stands in the cause.
            None if code == "window_exceeded" => return None,
            None if code == "store_full" => {
                format!(
                    "free space or let the operator raise the quota, then threadkeep resume {id}"
                )
            }
            None => format!("threadkeep resume {id}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::tests::screen;

    fn answer(status: &str, code: Option<&str>) -> RunAnswer {
        RunAnswer {
            thread_id: "a-1".to_owned(),
            status: status.to_owned(),
            outcome: None,
            text: "Done.".to_owned(),
            result: Some(Value::from("Done.")),
            cause: code.map(|code| Cause {
                reason: "limit".to_owned(),
                code: code.to_owned(),
                message: "25 of 25 turns".to_owned(),
            }),
            bound: Bound::Thread,
            cost: Cost {
                turns: 2,
                input_tokens: 250,
                output_tokens: 30,
                spend: 310_000,
            },
            exit: Exit::of_status(status),
        }
    }

    #[test]
    fn json_has_the_documented_names() {
        assert_eq!(
            serde_json::to_string(&answer("completed", None)).unwrap(),
            r#"{"thread_id":"a-1","status":"completed","outcome":null,"text":"Done.","result":"Done.","cause":null,"#
                .to_owned()
                + r#""cost":{"turns":2,"input_tokens":250,"output_tokens":30,"spend":"0.00031"},"exit":0}"#
        );
    }

    #[test]
    fn a_person_sees_id_status_cost_and_what_to_do() {
        let (mut person, out, err) = screen(false, false);
        person.answer(&answer("suspended", Some("turns_exceeded")));
        assert_eq!(out.text(), "");
        assert_eq!(
            err.text(),
            "thread  a-1\nstatus  suspended (turns_exceeded): 25 of 25 turns\ncost    0.00031 USD for 2 turns, 250 \
             input and 30 output tokens\nnext    threadkeep raise a-1 --turns N, then threadkeep resume a-1\n"
        );
    }

    #[test]
    fn nothing_is_suggested_about_a_thread_that_is_gone() {
        let (mut forgets, _, err) = screen(false, false);
        forgets.forget();
        forgets.answer(&answer("suspended", Some("turns_exceeded")));
        let said = err.text();
        assert!(
            said.contains("next    it was kept in memory and is gone now"),
            "{said}"
        );
        assert!(!said.contains("threadkeep raise"), "{said}");
    }

    #[test]
    fn a_cap_of_the_policy_is_not_the_threads_to_raise() {
        for (bound, operator, raise) in [
            (Bound::Thread, false, true),
            (Bound::Policy, true, false),
            (Bound::Both, true, true),
        ] {
            let stands = RunAnswer {
                bound,
                ..answer("suspended", Some("turns_exceeded"))
            };
            let next = stands.next().unwrap();
            assert_eq!(
                next.contains("raise limits.turns in the policy"),
                operator,
                "{next}"
            );
            assert_eq!(
                next.contains("threadkeep raise a-1 --turns N"),
                raise,
                "{next}"
            );
            assert!(next.ends_with("threadkeep resume a-1"), "{next}");
        }
    }

    #[test]
    fn advice_follows_the_cause() {
        for (status, code, word) in [
            ("suspended", Some("budget"), Some("--spend")),
            ("suspended", Some("tokens_exceeded"), Some("--tokens")),
            ("suspended", Some("duration_exceeded"), Some("--duration")),
            ("suspended", Some("spawns_exceeded"), Some("--spawns")),
            ("suspended", Some("depth_exceeded"), Some("--depth")),
            (
                "suspended",
                Some("ceiling_spend"),
                Some("raise spend in the policy"),
            ),
            (
                "suspended",
                Some("ceiling_book"),
                Some("mend or remove the book"),
            ),
            ("suspended", Some("ceiling_models"), Some("grant the model")),
            (
                "suspended",
                Some("ceiling_unpriced"),
                Some("a price in the policy"),
            ),
            (
                "suspended",
                Some("ceiling_calls_per_minute"),
                Some("wait a minute, then"),
            ),
            (
                "suspended",
                Some("ceiling_run_time"),
                Some("threadkeep resume a-1"),
            ),
            (
                "suspended",
                Some("recovered"),
                Some("threadkeep resume a-1"),
            ),
            ("cancelled", Some("cancelled"), None),
            ("completed", None, None),
        ] {
            let next = answer(status, code).next();
            assert_eq!(next.is_some(), word.is_some(), "{status} {code:?}");
            assert!(next.unwrap_or_default().contains(word.unwrap_or_default()));
        }
    }
}
