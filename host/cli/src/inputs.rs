//! Inputs and messages of a run, from the command line to the JSON that a thread takes.

use crate::exit::CommandFault;
use serde_json::{Map, Value, json};

/// Merges `--inputs` (a JSON object as text) and `--input NAME=VALUE` (values are texts) into one
/// JSON object; empty if there are none.
///
/// # Errors
/// A usage fault, if `--inputs` is no object, or a name is given twice.
pub fn merge_inputs(
    inputs: Option<&str>,
    pairs: &[(String, String)],
) -> Result<String, CommandFault> {
    let mut object = match inputs.map(serde_json::from_str) {
        None => Map::new(),
        Some(Ok(Value::Object(object))) => object,
        Some(Ok(other)) => {
            let message = format!("--inputs must be a JSON object, and not {}", kind(&other));
            return Err(CommandFault::usage(message)
                .with_hint(r#"for example --inputs '{"topic": "bees"}'"#));
        }
        Some(Err(error)) => {
            return Err(
                CommandFault::usage(format!("--inputs is not JSON: {error}"))
                    .with_hint("quote it for the shell: --inputs '{\"topic\": \"bees\"}'"),
            );
        }
    };
    for (name, value) in pairs {
        if object.insert(name.clone(), value.as_str().into()).is_some() {
            return Err(
                CommandFault::usage(format!("the input {name:?} is given twice"))
                    .with_hint("give it once, with --input or in --inputs"),
            );
        }
    }
    Ok(match object.is_empty() {
        true => String::new(),
        false => Value::Object(object).to_string(),
    })
}

/// Converts a text to a user's message.
///
/// # Errors
/// A usage fault, if the text is empty or blank.
pub fn user_message(text: &str) -> Result<String, CommandFault> {
    if text.trim().is_empty() {
        return Err(
            CommandFault::usage("the message is empty").with_hint("say something, or leave it out")
        );
    }
    Ok(json!({"role": "user", "content": [{"type": "text", "text": text}]}).to_string())
}

/// Parses `NAME=VALUE` of `--input`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("an input is NAME=VALUE, such as topic=bees".to_owned()),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(given: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        given.iter().map(own).collect()
    }

    #[test]
    fn both_ways_of_giving_inputs_meet() {
        assert_eq!(merge_inputs(None, &[]).unwrap(), "");
        assert_eq!(merge_inputs(Some("{}"), &[]).unwrap(), "");
        assert_eq!(
            merge_inputs(Some(r#"{"n": 1.50, "a": [2]}"#), &pairs(&[("b", "x=y")])).unwrap(),
            r#"{"n":1.50,"a":[2],"b":"x=y"}"#
        );
    }

    #[test]
    fn invalid_inputs_are_refused() {
        for inputs in ["", "[]", "7", "null", "{", r#"{"a": 1} x"#] {
            assert!(merge_inputs(Some(inputs), &[]).is_err(), "{inputs:?}");
        }
        let twice = merge_inputs(Some(r#"{"a": 1}"#), &pairs(&[("a", "2")]));
        assert!(twice.unwrap_err().message.contains("twice"));
        assert!(merge_inputs(None, &pairs(&[("a", "1"), ("a", "1")])).is_err());
        for text in ["", "topic", "=x"] {
            assert!(pair(text).is_err(), "{text:?}");
        }
        assert!(user_message(" \n").is_err());
    }

    #[test]
    fn a_message_keeps_its_text() {
        let text = user_message("say \"hi\"\n漢").unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["content"][0]["text"], "say \"hi\"\n漢");
        assert_eq!(value["role"], "user");
    }
}
