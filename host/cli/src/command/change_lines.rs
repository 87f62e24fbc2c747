//! The lines that `append` reads: events, patches, operations and a snapshot, one JSON object each.
//!
//! A line is told by the field that only its kind has: `type` an event, `patch` a patch, `op` an
//! operation, `snapshot` a whole document. Any other line is given to the component as an event,
//! which says what is wrong with it.

use crate::contract::{CallError, ChangeSet, RefusalKind};
use crate::exit::CommandFault;
use serde_json::Value;

/// The lines of one append, each with its number on standard input.
#[derive(Debug, Default)]
pub struct ChangeLines {
    events: Vec<(usize, String)>,
    patches: Vec<(usize, String)>,
    operations: Vec<(usize, String)>,
    snapshot: Option<(usize, String)>,
}

impl ChangeLines {
    /// Adds a line.
    ///
    /// # Errors
    /// For a second snapshot: which of two counts is nothing to guess.
    pub fn add(&mut self, number: usize, line: String) -> Result<(), CommandFault> {
        let parsed: Value = serde_json::from_str(&line).unwrap_or_default();
        let has = |field: &str| parsed.get(field).is_some();
        if has("type") {
            self.events.push((number, line));
        } else if has("patch") {
            self.patches.push((number, line));
        } else if has("op") {
            self.operations.push((number, line));
        } else if let Some(snapshot) = parsed.get("snapshot") {
            let given = (number, snapshot.to_string());
            if let Some((first, _)) = self.snapshot.replace(given) {
                let message = format!("lines {first} and {number} of standard input are snapshots");
                return Err(CommandFault::new("invalid", message).with_hint("give one at most"));
            }
        } else {
            self.events.push((number, line));
        }
        Ok(())
    }

    /// Returns the change that the lines are, as a request of this name.
    pub fn to_change(&self, request: String) -> ChangeSet {
        let texts = |lines: &[(usize, String)]| lines.iter().map(|line| line.1.clone()).collect();
        ChangeSet {
            events: texts(&self.events),
            patches: texts(&self.patches),
            operations: texts(&self.operations),
            snapshot: self.snapshot.as_ref().map(|line| line.1.clone()),
            request: Some(request),
        }
    }

    /// Replaces the place that the component refused by the line of standard input.
    pub fn with_line_number(&self, error: CallError) -> CallError {
        let (mut wrong, place) = match error {
            CallError::Refused(refusal) if refusal.kind == RefusalKind::Invalid => {
                let place = refusal.text("field").unwrap_or_default().to_owned();
                (refusal, place)
            }
            error => return error,
        };
        let kinds = [
            ("events[", &self.events),
            ("change.patches[", &self.patches),
            ("change.operations[", &self.operations),
        ];
        let mut found = kinds.iter().filter_map(|(prefix, lines)| {
            let (index, field) = split_place(&place, prefix)?;
            Some((lines.get(index)?.0, field.to_owned()))
        });
        let found = found.next().or_else(|| {
            let field = place.strip_prefix("change.snapshot")?;
            Some((self.snapshot.as_ref()?.0, format!("snapshot{field}")))
        });
        if let Some((line, field)) = found {
            let named = match field.as_str() {
                "" => format!("line {line} of standard input"),
                field => format!("line {line} of standard input: {field}"),
            };
            // The sentence begins with the field.
            wrong.message = wrong.message.replacen(&place, &named, 1);
            wrong.details["field"] = named.into();
        }
        CallError::Refused(wrong)
    }
}

/// Splits a place such as `events[1].type` into its index and the field within, which is empty for
/// the item itself.
fn split_place<'a>(place: &'a str, prefix: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = place.strip_prefix(prefix)?.split_once(']')?;
    let field = rest.strip_prefix('.').or(rest.is_empty().then_some(""))?;
    Some((index.parse().ok()?, field))
}

#[cfg(test)]
mod tests {
    use super::super::fault;
    use super::*;
    use crate::contract::CallRefusal;
    use serde_json::json;

    fn lines() -> ChangeLines {
        let mut lines = ChangeLines::default();
        for (number, line) in [
            (2, r#"{"type":"message"}"#),
            (3, r#"{"scope":"thread","patch":[]}"#),
            (4, "not JSON"),
            (6, r#"{"scope":"thread","op":"add","path":"/n","value":1}"#),
            (7, r#"{"snapshot":{"thread":{}}}"#),
        ] {
            lines.add(number, line.to_owned()).unwrap();
        }
        lines
    }

    #[test]
    fn lines_are_told_by_their_fields() {
        let change = lines().to_change("r".to_owned());
        assert_eq!(change.events.len(), 2);
        assert_eq!(change.patches.len(), 1);
        assert_eq!(change.operations.len(), 1);
        assert_eq!(change.snapshot.as_deref(), Some(r#"{"thread":{}}"#));
        let second = lines().add(9, r#"{"snapshot":{}}"#.to_owned());
        assert!(second.is_err());
    }

    #[test]
    fn errors_name_their_input_line() {
        for (field, problem, expected) in [
            (
                "events[1].type",
                " \"x\" is no event",
                "line 4 of standard input: type \"x\" is no event",
            ),
            (
                "events[0]",
                " is wrong",
                "line 2 of standard input is wrong",
            ),
            ("events[2]", " is wrong", "events[2] is wrong"),
            ("events", " are too many", "events are too many"),
            (
                "change.patches[0].patch[1]",
                " is wrong",
                "line 3 of standard input: patch[1] is wrong",
            ),
            (
                "change.operations[0].path",
                " is wrong",
                "line 6 of standard input: path is wrong",
            ),
            (
                "change.snapshot.run",
                " is wrong",
                "line 7 of standard input: snapshot.run is wrong",
            ),
        ] {
            let error = CallError::Refused(CallRefusal::from_record(
                ("invalid", String::new()),
                (format!("{field}{problem}"), String::new()),
                None,
                &json!({"field": field}).to_string(),
            ));
            let fault = fault::from_call(&lines().with_line_number(error));
            assert_eq!(fault.message, expected);
        }
    }
}
