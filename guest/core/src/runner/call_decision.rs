//! The decision of a person about a call, as a signal brings it.

use crate::error::Error;
use crate::hash::sha256;
use crate::history::{call_id, escaped_bytes, parse_call_id};
use crate::json;
use crate::settings::{check_known_fields, parse_object, text_field};
use crate::thread::DecisionVerdict;

/// Most bytes of the note of a decision, as JSON text: a few sentences.
pub const NOTE_BYTES_MAX: usize = 2 << 10;
/// Most bytes of an answer, as JSON text: a page of text, as a tool would give.
pub const ANSWER_TEXT_BYTES_MAX: usize = 64 << 10;
/// A decision of a person about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDecision {
    /// Version of the entry that holds the call.
    pub version: u64,
    /// Index of the call in it.
    pub index: u32,
    /// The decision.
    pub verdict: DecisionVerdict,
    /// A note, or the answer.
    pub text: Option<String>,
}

impl CallDecision {
    /// Reads `{"call", "approve", "note"?}` or `{"call", "answer"}`.
    ///
    /// # Errors
    /// `ErrorKind::Invalid` with the field that is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        const PLACE: &str = "signal.decision";
        let mended = json::mend_surrogates(text);
        let fields = parse_object(PLACE, &mended)?;
        check_known_fields(PLACE, &fields, &["call", "approve", "note", "answer"])?;
        let call = text_field(PLACE, &fields, "call")?.unwrap_or_default();
        let Some((version, index)) = parse_call_id(&call) else {
            let problem = "is not the id of a call, such as call_7_0";
            return Err(Error::invalid(format!("{PLACE}.call"), &call, problem));
        };
        let note = text_field(PLACE, &fields, "note")?.filter(|note| !note.is_empty());
        let answer = text_field(PLACE, &fields, "answer")?;
        let refuse = |field: &str, problem: &str| {
            Err(Error::invalid(format!("{PLACE}.{field}"), "", problem))
        };
        let (verdict, text, most) = match (fields.get("approve"), answer) {
            (None | Some(json::JsonValue::Null), None) => {
                return refuse("approve", "is missing: give true, false, or an answer");
            }
            (None | Some(json::JsonValue::Null), Some(_)) if note.is_some() => {
                return refuse(
                    "note",
                    "is for an approval or a denial: an answer says it all",
                );
            }
            (None | Some(json::JsonValue::Null), answer) => {
                (DecisionVerdict::Answer, answer, ANSWER_TEXT_BYTES_MAX)
            }
            (Some(_), Some(_)) => {
                return refuse("answer", "is given beside approve: give one of them");
            }
            (Some(json::JsonValue::Bool(true)), None) => {
                (DecisionVerdict::Approve, note, NOTE_BYTES_MAX)
            }
            (Some(json::JsonValue::Bool(false)), None) => {
                (DecisionVerdict::Deny, note, NOTE_BYTES_MAX)
            }
            (Some(_), None) => return refuse("approve", "must be true or false"),
        };
        if text.as_deref().map_or(0, escaped_bytes) > most {
            let field = match verdict {
                DecisionVerdict::Answer => "answer",
                DecisionVerdict::Approve | DecisionVerdict::Deny => "note",
            };
            return refuse(field, &format!("is longer than {most} bytes"));
        }
        Ok(Self {
            version,
            index,
            verdict,
            text,
        })
    }

    /// The id of its call.
    pub fn call_id(&self) -> String {
        call_id(self.version, self.index)
    }

    /// Returns a digest of the decision, to recognize a repeated one.
    pub fn digest(&self) -> String {
        sha256(&[
            "decision",
            &self.call_id(),
            self.verdict.as_str(),
            &json::to_text(&self.text),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn decisions_are_read_strictly() {
        let read = |text: &str| CallDecision::parse(text);
        let approve = read(r#"{"call":"call_7_0","approve":true}"#).unwrap();
        assert_eq!((approve.version, approve.index), (7, 0));
        assert_eq!(approve.verdict, DecisionVerdict::Approve);
        let deny = read(r#"{"call":"call_7_0","approve":false,"note":"no"}"#).unwrap();
        assert_eq!(
            (deny.verdict, deny.text.as_deref()),
            (DecisionVerdict::Deny, Some("no"))
        );
        let answer = read(r#"{"call":"call_17_3","answer":""}"#).unwrap();
        assert_eq!(
            (answer.verdict, answer.text.as_deref()),
            (DecisionVerdict::Answer, Some(""))
        );
        assert_ne!(approve.digest(), deny.digest());
    }

    #[test]
    fn wrong_decisions_are_named_by_their_field() {
        let read = |text: &str| CallDecision::parse(text);
        let long_note = format!(
            r#"{{"call":"call_7_0","approve":true,"note":"{}"}}"#,
            "x".repeat(NOTE_BYTES_MAX + 1)
        );
        let long_answer = format!(
            r#"{{"call":"call_7_0","answer":"{}"}}"#,
            "x".repeat(ANSWER_TEXT_BYTES_MAX + 1)
        );
        for (text, field) in [
            ("", "signal.decision"),
            ("[]", "signal.decision"),
            (r#"{"approve":true}"#, "signal.decision.call"),
            (
                r#"{"call":"toolu_1","approve":true}"#,
                "signal.decision.call",
            ),
            (
                r#"{"call":"call_7","approve":true}"#,
                "signal.decision.call",
            ),
            (
                r#"{"call":"call_07_0","approve":true}"#,
                "signal.decision.call",
            ),
            (
                r#"{"call":"call_7_+0","approve":true}"#,
                "signal.decision.call",
            ),
            (r#"{"call":7,"approve":true}"#, "signal.decision.call"),
            (r#"{"call":"call_7_0"}"#, "signal.decision.approve"),
            (
                r#"{"call":"call_7_0","approve":"yes"}"#,
                "signal.decision.approve",
            ),
            (
                r#"{"call":"call_7_0","approve":true,"answer":"a"}"#,
                "signal.decision.answer",
            ),
            (
                r#"{"call":"call_7_0","answer":"a","note":"n"}"#,
                "signal.decision.note",
            ),
            (
                r#"{"call":"call_7_0","approved":true}"#,
                "signal.decision.approved",
            ),
            (long_note.as_str(), "signal.decision.note"),
            (long_answer.as_str(), "signal.decision.answer"),
        ] {
            match read(text).map_err(Error::into_kind) {
                Err(ErrorKind::Invalid { field: wrong, .. }) => {
                    assert_eq!(wrong, field, "{text:.60}")
                }
                other => panic!("{text:.60}: {other:?}"),
            }
        }
    }
}
