//! `run` and `resume`: where a run stands once nobody performs it any more.

use super::{Answer, spend};
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
            table.row(&["next", &next]);
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
        let Cost {
            turns,
            input_tokens,
            output_tokens,
            spend,
        } = self.cost;
        let plural = if turns == 1 { "" } else { "s" };
        format!(
            "{} for {turns} turn{plural}, {input_tokens} input and {output_tokens} output tokens",
            money::shown(spend)
        )
    }

    /// What a person can do about a thread that is suspended.
    fn next(&self) -> Option<String> {
        let id = &self.thread_id;
        if self.status != "suspended" {
            return None;
        }
        let code = self.cause.as_ref()?.code.as_str();
        if let Some(ceiling) = code.strip_prefix("ceiling_") {
            return Some(format!(
                "let the operator raise {ceiling} in the policy, then threadkeep resume {id}"
            ));
        }
        let option = match code {
            "store_full" => {
                return Some(format!(
                    "free space or let the operator raise the quota, then threadkeep resume {id}"
                ));
            }
            "turns_exceeded" => "--turns N",
            "tokens_exceeded" => "--tokens N",
            "spend_exceeded" | "budget" => "--spend USD",
            "duration_exceeded" => "--duration TIME",
            _ => return Some(format!("threadkeep resume {id}")),
        };
        Some(format!(
            "threadkeep raise {id} {option}, then threadkeep resume {id}"
        ))
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
    fn advice_follows_the_cause() {
        for (status, code, word) in [
            ("suspended", Some("budget"), Some("--spend")),
            ("suspended", Some("tokens_exceeded"), Some("--tokens")),
            ("suspended", Some("duration_exceeded"), Some("--duration")),
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
