//! Directives: a prompt with inputs, and the fields of its front matter.

use super::{
    DirectiveSummary, check_known_fields, flag_field, parse_approvals, parse_limits, parse_object,
    text_field, texts_field,
};
use crate::error::Error;
use crate::json::{JsonObject, JsonValue};
use crate::limits::ThreadCaps;

/// Fields of front matter; any other is refused. Those from `name` on are for people and are not
/// read.
pub const FRONT_MATTER_FIELDS: [&str; 17] = [
    "model",
    "limits",
    "capabilities",
    "inputs",
    "allow_unpriced",
    "outputs",
    "hooks",
    "summary",
    "approvals",
    "name",
    "description",
    "version",
    "category",
    "author",
    "tags",
    "title",
    "id",
];

/// Fields that a later version gives a meaning. They are refused, because ignoring them would be a
/// promise that nothing keeps.
const UNSUPPORTED_FIELDS: [&str; 2] = ["outputs", "hooks"];

/// A task template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// Its name in the library.
    pub name: String,
    /// The system prompt of its threads, with `${inputs.name}` in it.
    pub body: String,
    /// The name of a model or tier.
    pub model: Option<String>,
    /// The caps that the directive sets.
    pub limits: ThreadCaps,
    /// The tools that the directive may call.
    pub capabilities: Vec<String>,
    /// The inputs that the directive declares.
    pub inputs: Vec<InputSpec>,
    /// True if the directive may use a model that has no prices.
    pub allow_unpriced: bool,
    /// The summary that a hand-off of its threads asks for.
    pub summary: DirectiveSummary,
    /// Patterns of calls that need a person's consent, as those of capabilities.
    pub approvals: Vec<String>,
}

/// One input of a directive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSpec {
    /// The name of the input.
    pub name: String,
    /// True if the input must be given.
    pub required: bool,
    /// The value of an input that is not given.
    pub default: Option<JsonValue<'static>>,
}

impl Directive {
    /// Reads `{"name", "body", "front": {...}}`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut fields = parse_object("directive", text)?;
        let name = text_field("directive", &fields, "name")?.unwrap_or_default();
        let body = text_field("directive", &fields, "body")?.unwrap_or_default();
        let place = format!("directives/{name}");
        let front = match fields.shift_remove("front") {
            None | Some(JsonValue::Null) => JsonObject::new(),
            Some(JsonValue::Object(front)) => front,
            Some(other) => {
                return Err(Error::invalid(
                    place,
                    &other.to_string(),
                    "front matter must be fields",
                ));
            }
        };
        check_known_fields(&place, &front, &FRONT_MATTER_FIELDS)?;
        if let Some(field) = UNSUPPORTED_FIELDS
            .iter()
            .find(|field| !is_empty_value(front.get(field)))
        {
            let problem = "is not supported by this version yet: take it out";
            return Err(Error::invalid(format!("{place}.{field}"), "", problem));
        }
        let directive = Self {
            body,
            model: parse_model(&place, &front)?,
            limits: parse_limits(&format!("{place}.limits"), front.get("limits"))?,
            capabilities: texts_field(&place, &front, "capabilities")?,
            inputs: parse_inputs(&place, front.get("inputs"))?,
            allow_unpriced: flag_field(&place, &front, "allow_unpriced")?,
            approvals: parse_approvals(&place, &front)?,
            summary: DirectiveSummary::parse(&format!("{place}.summary"), front.get("summary"))?,
            name,
        };
        directive.check_body(&place)?;
        Ok(directive)
    }

    /// Resolves the inputs of a thread: checks the given ones against the declared ones and fills
    /// in the defaults.
    pub fn resolve_inputs<'a>(&self, given: &'a str) -> Result<JsonObject<'a>, Error> {
        let mut given = if given.is_empty() {
            JsonObject::new()
        } else {
            parse_object("inputs", given)?
        };
        let names: Vec<&str> = self
            .inputs
            .iter()
            .map(|input| input.name.as_str())
            .collect();
        if let Some(name) = given.keys().find(|name| !names.contains(name)) {
            let problem = match names.is_empty() {
                true => format!("is not an input of {}, which takes none", self.name),
                false => format!(
                    "is not an input of {}, which takes {}",
                    self.name,
                    names.join(", ")
                ),
            };
            return Err(Error::invalid_name(
                format!("inputs.{name}"),
                name,
                &problem,
                &names,
            ));
        }
        let mut inputs = JsonObject::new();
        for spec in &self.inputs {
            match given
                .shift_remove(&spec.name)
                .or_else(|| spec.default.clone())
            {
                Some(value) => {
                    inputs.insert(spec.name.clone(), value);
                }
                None if spec.required => {
                    let problem = format!("is missing: {} needs it", self.name);
                    return Err(Error::invalid(format!("inputs.{}", spec.name), "", problem));
                }
                None => {}
            }
        }
        Ok(inputs)
    }

    /// Returns true if the body has the value of this input in it.
    pub fn refers_to_input(&self, input: &str) -> bool {
        let mut names = find_references(&self.body).into_iter();
        names.any(|name| name.strip_prefix("inputs.") == Some(input))
    }

    /// Refuses a body with a `${...}` that names no input.
    fn check_body(&self, place: &str) -> Result<(), Error> {
        let names: Vec<&str> = self
            .inputs
            .iter()
            .map(|input| input.name.as_str())
            .collect();
        for name in find_references(&self.body) {
            let input = name
                .strip_prefix("inputs.")
                .filter(|input| names.contains(input));
            if input.is_none() {
                let wanted = name.strip_prefix("inputs.").unwrap_or(name);
                let problem =
                    "the body refers to something that is not an input (write $${ for a plain ${)";
                return Err(Error::invalid_name(
                    format!("{place}: ${{{name}}}"),
                    wanted,
                    problem,
                    &names,
                ));
            }
        }
        Ok(())
    }
}

fn is_empty_value(value: Option<&JsonValue<'_>>) -> bool {
    match value {
        None | Some(JsonValue::Null) => true,
        Some(JsonValue::Array(items)) => items.is_empty(),
        Some(JsonValue::Object(fields)) => fields.is_empty(),
        Some(_) => false,
    }
}

fn parse_model(place: &str, front: &JsonObject<'_>) -> Result<Option<String>, Error> {
    match front.get("model") {
        Some(JsonValue::Object(table)) => {
            let place = format!("{place}.model");
            check_known_fields(&place, table, &["name", "tier"])?;
            match (
                text_field(&place, table, "name")?,
                text_field(&place, table, "tier")?,
            ) {
                (Some(_), Some(_)) => Err(Error::invalid(
                    place,
                    "",
                    "names a model and a tier: keep one",
                )),
                (name, tier) => Ok(name.or(tier)),
            }
        }
        _ => text_field(place, front, "model"),
    }
}

fn parse_inputs(place: &str, value: Option<&JsonValue<'_>>) -> Result<Vec<InputSpec>, Error> {
    let place = format!("{place}.inputs");
    let declared = match value {
        None | Some(JsonValue::Null) => return Ok(Vec::new()),
        Some(JsonValue::Object(declared)) => declared,
        Some(other) => {
            return Err(Error::invalid(
                place,
                &other.to_string(),
                "must be fields, one for each input",
            ));
        }
    };
    declared
        .iter()
        .map(|(name, spec)| {
            let place = format!("{place}.{name}");
            let empty = JsonObject::new();
            let spec = match spec {
                JsonValue::Null => &empty,
                JsonValue::Object(spec) => spec,
                other => {
                    return Err(Error::invalid(
                        place,
                        &other.to_string(),
                        "must be {required, default}",
                    ));
                }
            };
            check_known_fields(
                &place,
                spec,
                &["required", "default", "description", "type"],
            )?;
            let required = flag_field(&place, spec, "required")?;
            Ok(InputSpec {
                name: name.to_owned(),
                required,
                default: spec.get("default").cloned().map(JsonValue::into_owned),
            })
        })
        .collect()
}

/// Returns the names inside `${...}`, except those of `$${...}`.
fn find_references(body: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = body;
    while let Some((before, after)) = split_reference(rest) {
        if let (false, Some(end)) = (before.ends_with('$'), after.find('}')) {
            names.push(&after[..end]);
        }
        rest = after;
    }
    names
}

/// Returns what is before the first `${`, and what is after it. It looks for one character, because
/// to search for two would be 2,000 bytes of the component.
fn split_reference(text: &str) -> Option<(&str, &str)> {
    let mut braces = text.match_indices('{');
    braces.find_map(|(at, _)| Some((text[..at].strip_suffix('$')?, &text[at + 1..])))
}

/// Renders the prompt of a body with these inputs. Text is inserted as it is, other JSON as JSON, a
/// missing input as nothing. Inserted values are not expanded again. `$${` gives a plain `${`.
pub fn render_prompt(body: &str, inputs: &JsonObject<'_>) -> String {
    let mut prompt = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((before, after)) = split_reference(rest) {
        match (before.strip_suffix('$'), after.find('}')) {
            (Some(before), _) => {
                prompt.push_str(before);
                prompt.push_str("${");
                rest = after;
            }
            (None, Some(end)) => {
                prompt.push_str(before);
                match after[..end]
                    .strip_prefix("inputs.")
                    .and_then(|name| inputs.get(name))
                {
                    Some(JsonValue::String(text)) => prompt.push_str(text),
                    Some(JsonValue::Null) | None => {}
                    Some(value) => prompt.push_str(&value.to_string()),
                }
                rest = &after[end + 1..];
            }
            (None, None) => break,
        }
    }
    prompt.push_str(rest);
    prompt
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn parse_directive(front: &str, body: &str) -> Result<Directive, Error> {
        let body = crate::json::to_text(body);
        Directive::parse(&format!(r#"{{"name":"d","body":{body},"front":{front}}}"#))
    }

    #[test]
    fn fills_inputs_in() {
        let front =
            r#"{"inputs": {"topic": {"required": true}, "n": {"default": 3}, "note": null}}"#;
        let d = parse_directive(
            front,
            "On {${inputs.topic}}, ${inputs.n} times. ${inputs.note}$${x} $",
        )
        .unwrap();
        let inputs = d
            .resolve_inputs(r#"{"topic": "a ${inputs.n} 🙂"}"#)
            .unwrap();
        assert_eq!(
            render_prompt(&d.body, &inputs),
            "On {a ${inputs.n} 🙂}, 3 times. ${x} $"
        );
    }

    #[test]
    fn refuses_inputs_by_name() {
        let d = parse_directive(r#"{"inputs": {"topic": {"required": true}}}"#, "").unwrap();
        for (given, field, nearest) in [
            ("", "inputs.topic", None),
            (r#"{"topik": 1}"#, "inputs.topik", Some("topic")),
            ("[]", "inputs", None),
            ("{", "inputs", None),
        ] {
            let Err(ErrorKind::Invalid {
                field: f,
                nearest: n,
                ..
            }) = d.resolve_inputs(given).map_err(Error::into_kind)
            else {
                panic!("{given}")
            };
            assert_eq!((f.as_str(), n.as_deref()), (field, nearest));
        }
    }

    #[test]
    fn refuses_front_matter_that_nothing_reads() {
        for (front, body) in [
            (r#"{"modle": "x"}"#, ""),
            (r#"{"model": 4}"#, ""),
            (r#"{"model": {"name": "a", "tier": "b"}}"#, ""),
            (r#"{"capabilities": "execute.tool.*"}"#, ""),
            (r#"{"capabilities": [1]}"#, ""),
            (r#"{"inputs": ["a"]}"#, ""),
            (r#"{"inputs": {"a": {"requird": true}}}"#, ""),
            (r#"{"inputs": {"a": {"required": "yes"}}}"#, ""),
            (r#"{"hooks": [{"event": "limit"}]}"#, ""),
            (r#"{"limits": {"spend": -1}}"#, ""),
            ("{}", "${inputs.topic}"),
            ("{}", "${HOME}"),
        ] {
            assert!(
                matches!(
                    parse_directive(front, body).map_err(Error::into_kind),
                    Err(ErrorKind::Invalid { .. })
                ),
                "{front} {body}"
            );
        }
    }
}
