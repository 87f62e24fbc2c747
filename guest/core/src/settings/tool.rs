//! Tools of the host's catalog, and the capabilities that allow a thread to call them.

use super::{
    check_known_fields, flag_field, is_builtin_tool, parse_object, text_field, texts_field,
};
use crate::error::Error;
use crate::json::record;
use crate::json::{JsonObject, JsonValue};
use crate::limits::CAP_MAX;
use threadkeep_units::tool_pattern::{
    TOOL_NAME_BYTES_MAX, find_pattern_problem, is_name_character,
};

/// Timeout of a tool whose catalog names none, in milliseconds.
pub const TOOL_MILLIS_DEFAULT: u64 = 120_000;

/// One tool, as a thread pins it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDef {
    /// Name of `[A-Za-z0-9_-]`, at most 64 bytes.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of its arguments, as text.
    pub schema: String,
    /// True if a call may be run twice.
    pub idempotent: bool,
    /// True if each call needs a person's consent.
    pub consent: bool,
    /// Timeout of a call, in milliseconds.
    pub timeout: u64,
}

record!(ToolDef {
    name,
    description,
    schema,
    idempotent,
    consent,
    timeout
});

impl ToolDef {
    /// Reads `{"name", "description", "schema", "idempotent", "consent", "timeout"}`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let fields = parse_object("tool", text)?;
        let name = text_field("tool", &fields, "name")?.unwrap_or_default();
        let place = format!("tools.{name}");
        check_known_fields(
            &place,
            &fields,
            &[
                "name",
                "description",
                "schema",
                "idempotent",
                "consent",
                "timeout",
            ],
        )?;
        check_tool_name("tools", &name)?;
        if is_builtin_tool(&name) {
            let problem = "is the name of a tool that threadkeep itself has: choose another";
            return Err(Error::invalid("tools", &name, problem));
        }
        let timeout = match fields.get("timeout") {
            None | Some(JsonValue::Null) => TOOL_MILLIS_DEFAULT,
            Some(value) => value.as_u64().filter(|n| *n <= CAP_MAX).ok_or_else(|| {
                Error::invalid(
                    format!("{place}.timeout"),
                    &value.to_string(),
                    "must be a number of milliseconds below 2^63",
                )
            })?,
        };
        Ok(Self {
            description: text_field(&place, &fields, "description")?.unwrap_or_default(),
            schema: match fields.get("schema") {
                None => r#"{"type":"object"}"#.into(),
                Some(JsonValue::String(text)) => text.to_string(),
                Some(schema) => schema.to_string(),
            },
            idempotent: flag_field(&place, &fields, "idempotent")?,
            consent: flag_field(&place, &fields, "consent")?,
            timeout,
            name,
        })
    }
}

/// Refuses a name that providers do not accept: they refuse a request that holds any other.
pub(crate) fn check_tool_name(place: &str, name: &str) -> Result<(), Error> {
    let fits = !name.is_empty() && name.len() <= TOOL_NAME_BYTES_MAX;
    if fits && name.chars().all(is_name_character) {
        return Ok(());
    }
    let problem = "a tool's name is 1 to 64 letters, digits, _ and -";
    Err(Error::invalid(place, name, problem))
}

/// Prefix of the capabilities that grant tools.
const TOOL_CAPABILITY_PREFIX: &str = "execute.tool.";

/// Returns true if one of the capabilities allows the tool: `execute.tool.<name>`, with `*` for any
/// ending. A leading `rye.` is accepted. No capability means no tool.
pub fn is_granted(capabilities: &[String], tool: &str) -> bool {
    let wanted = format!("{TOOL_CAPABILITY_PREFIX}{tool}");
    capabilities.iter().any(|capability| {
        let capability = capability.strip_prefix("rye.").unwrap_or(capability);
        match capability.strip_suffix('*') {
            Some(prefix) => wanted.starts_with(prefix),
            None => wanted == capability,
        }
    })
}

/// Returns the capabilities that both lists allow.
pub fn intersect_capabilities(own: &[String], within: &[String]) -> Vec<String> {
    let mut both: Vec<String> = Vec::new();
    for own in own {
        for within in within {
            let narrower = match (covers(within, own), covers(own, within)) {
                (true, _) => own,
                (false, true) => within,
                (false, false) => continue,
            };
            if !both.contains(narrower) {
                both.push(narrower.clone());
            }
        }
    }
    both
}

/// Returns true if one capability allows all that another does.
fn covers(wide: &str, narrow: &str) -> bool {
    let wide = wide.strip_prefix("rye.").unwrap_or(wide);
    let narrow = narrow.strip_prefix("rye.").unwrap_or(narrow);
    match wide.strip_suffix('*') {
        Some(prefix) => narrow
            .strip_suffix('*')
            .unwrap_or(narrow)
            .starts_with(prefix),
        None => wide == narrow,
    }
}

/// Reads the patterns of calls that need consent. One that can match no tool would leave calls
/// unasked about, so it is refused.
pub(crate) fn parse_approvals(place: &str, fields: &JsonObject<'_>) -> Result<Vec<String>, Error> {
    let patterns = texts_field(place, fields, "approvals")?;
    check_approvals(place, &patterns)?;
    Ok(patterns)
}

/// Refuses patterns of calls that need consent, as [`parse_approvals`] does.
pub(crate) fn check_approvals(place: &str, patterns: &[String]) -> Result<(), Error> {
    let problem_of = |pattern: &String| {
        let wanted = pattern.strip_prefix("rye.").unwrap_or(pattern);
        match (
            wanted.strip_prefix(TOOL_CAPABILITY_PREFIX),
            wanted.strip_suffix('*'),
        ) {
            (Some(tool), _) => find_pattern_problem(tool),
            (None, Some(prefix)) if TOOL_CAPABILITY_PREFIX.starts_with(prefix) => None,
            _ => Some("matches no tool: write execute.tool.NAME, with * for any ending".to_owned()),
        }
    };
    for pattern in patterns {
        if let Some(problem) = problem_of(pattern) {
            return Err(Error::invalid(
                format!("{place}.approvals"),
                pattern,
                problem,
            ));
        }
    }
    Ok(())
}

/// Shortest beginning that is compared: of two letters one may well be another.
const NEAR_BEGINNING_BYTES_MIN: usize = 3;

/// Returns what `beginning` was meant to be, if no name begins with it and it is nearly the
/// beginning of one.
fn find_near_beginning(beginning: &str, names: &[&str]) -> Option<String> {
    let matches_some = names.iter().any(|name| name.starts_with(beginning));
    if matches_some || beginning.len() < NEAR_BEGINNING_BYTES_MIN {
        return None;
    }
    let bytes = beginning.len();
    let mut cuts = Vec::new();
    for name in names {
        for end in [bytes, bytes + 1, bytes - 1] {
            cuts.extend(name.get(..end));
        }
    }
    let near = threadkeep_units::nearest::nearest(beginning, cuts.iter().copied())?;
    Some(format!("{TOOL_CAPABILITY_PREFIX}{near}*"))
}

/// Refuses a pattern that can only be a slip: it matches no tool of the catalog, and is a tool's
/// name, ends in one, or is nearly one. A pattern that matches nothing here and is near no name
/// may be meant for another host with other tools.
pub(crate) fn check_patterns(
    (place, field): (&str, &str),
    capabilities: &[String],
    catalog: &[ToolDef],
) -> Result<(), Error> {
    let names: Vec<&str> = catalog.iter().map(|tool| tool.name.as_str()).collect();
    let grants = |capability: &String| {
        let one = std::slice::from_ref(capability);
        names.iter().any(|name| is_granted(one, name))
    };
    // A capability that grants nothing is on the safe side, as the beginning of no name, too.
    let checks_beginnings = field == "approvals";
    for capability in capabilities {
        if grants(capability) {
            continue;
        }
        let last = capability.rsplit('.').next().unwrap_or_default();
        let tool = capability.strip_prefix("rye.").unwrap_or(capability);
        let name = tool.strip_prefix(TOOL_CAPABILITY_PREFIX);
        let near = match (name, capability.ends_with('*')) {
            (Some(name), true) if checks_beginnings => {
                find_near_beginning(name.trim_end_matches('*'), &names)
            }
            (_, true) => None,
            (Some(name), false) => threadkeep_units::nearest::nearest(name, names.iter().copied())
                .map(|near| format!("{TOOL_CAPABILITY_PREFIX}{near}")),
            (None, false) => names
                .iter()
                .find(|name| **name == last)
                .map(|near| format!("{TOOL_CAPABILITY_PREFIX}{near}")),
        };
        if let Some(near) = near {
            let problem = match field {
                "capabilities" => "grants no tool that there is",
                _ => "matches no tool that there is",
            };
            let error = Error::invalid(format!("{place}.{field}"), capability, problem);
            return Err(error.with_nearest(Some(&near)));
        }
    }
    Ok(())
}

/// Refuses capabilities that a caller asks for a new thread and would not get: any beside a
/// directive, which names its own, and one that grants no existing tool. Both would be ignored
/// otherwise. A pattern is accepted: it may match tools that come later.
pub fn check_draft_capabilities(
    directive: Option<&str>,
    capabilities: &[String],
    catalog: &[ToolDef],
) -> Result<(), Error> {
    if directive.is_none() {
        check_patterns(("draft", "capabilities"), capabilities, catalog)?;
    }
    for capability in capabilities {
        let refuse = |problem: String| Err(Error::invalid("capabilities", capability, problem));
        if let Some(directive) = directive {
            return refuse(format!("is for a chat: {directive} names its own"));
        }
        let wanted = capability.strip_prefix("rye.").unwrap_or(capability);
        let open = wanted.strip_suffix('*').is_some_and(|prefix| {
            TOOL_CAPABILITY_PREFIX.starts_with(prefix) || prefix.starts_with(TOOL_CAPABILITY_PREFIX)
        });
        let one = std::slice::from_ref(capability);
        if !open && !catalog.iter().any(|tool| is_granted(one, &tool.name)) {
            let names: Vec<&str> = catalog.iter().map(|tool| tool.name.as_str()).collect();
            let names = names.join(", ");
            return refuse(match names.as_str() {
                "" => "grants no tool: this host has none".to_owned(),
                names => {
                    format!("grants no tool: it is {TOOL_CAPABILITY_PREFIX} and one of {names}")
                }
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn refuses_capabilities_that_can_only_be_a_slip() {
        let tool = |name: &str| ToolDef::parse(&format!(r#"{{"name":"{name}"}}"#)).unwrap();
        let catalog = [tool("read_file"), tool("search_files")];
        let check = |capability: &str| match check_patterns(
            ("directives/d", "capabilities"),
            &[capability.to_owned()],
            &catalog,
        )
        .map_err(Error::into_kind)
        {
            Ok(()) => None,
            Err(ErrorKind::Invalid { nearest, .. }) => nearest,
            Err(other) => panic!("{other}"),
        };
        for (capability, meant) in [
            ("execute.tool.read_file", None),
            ("rye.execute.tool.read_file", None),
            ("execute.tool.*", None),
            ("execute.tool.none_*", None),
            ("execute.knowledge.*", None),
            ("rye.execute.tool.scraping.gmaps.scrape_gmaps", None),
            ("execute.tool.write_file", None),
            ("execute.tool.send_mail", None),
            ("", None),
            ("execute.tool.read_fil", Some("execute.tool.read_file")),
            ("rye.execute.tool.raed_file", Some("execute.tool.read_file")),
            (
                "execute.tool.Search_Files",
                Some("execute.tool.search_files"),
            ),
            ("read_file", Some("execute.tool.read_file")),
            ("excute.tool.read_file", Some("execute.tool.read_file")),
            ("tool.search_files", Some("execute.tool.search_files")),
        ] {
            assert_eq!(check(capability).as_deref(), meant, "{capability}");
        }
    }

    /// Symptom: calls that were to be asked about ran unasked: `re*d`, `**`, `reed_*`, `Read_*`.
    /// Cause: of a pattern that ends with `*` only the prefix `execute.tool.` was looked at. Fix:
    /// the whole form is checked, and a beginning is compared with the beginnings of names. Kind:
    /// patterns that decide which calls are asked about.
    #[test]
    fn a_pattern_of_approvals_that_can_only_be_a_slip_is_refused() {
        let tool = |name: &str| ToolDef::parse(&format!(r#"{{"name":"{name}"}}"#)).unwrap();
        let catalog = [tool("read_file"), tool("search_files")];
        let check = |pattern: &str| {
            let text = JsonValue::from(pattern.to_owned()).to_string();
            let fields = format!("{{\"approvals\":[{text}]}}");
            let Ok(JsonValue::Object(fields)) = crate::json::parse(&fields) else {
                panic!("{fields}");
            };
            let patterns = parse_approvals("d", &fields)?;
            check_patterns(("d", "approvals"), &patterns, &catalog)
        };
        for pattern in [
            "*",
            "execute.*",
            "execute.tool.*",
            "execute.tool.read_*",
            "rye.execute.tool.read_file",
            "execute.tool.send_mail",
            "execute.tool.send_*",
            "execute.tool.r*",
        ] {
            check(pattern).expect(pattern);
        }
        for (pattern, meant) in [
            ("", None),
            ("**", None),
            ("execute.tool.", None),
            ("execute.tool.**", None),
            ("execute.tool.re*d", None),
            ("execute.tool.*_file", None),
            ("execute.tool.read_file ", None),
            ("execute.tool.re\u{430}d_*", None),
            ("execute.tol.*", None),
            ("read_*", None),
            ("execute.tool.reed_*", Some("execute.tool.read_*")),
            ("execute.tool.Read_*", Some("execute.tool.read_*")),
            ("execute.tool.read-*", Some("execute.tool.read_*")),
            ("execute.tool.red_*", Some("execute.tool.read_*")),
            ("rye.execute.tool.raed_fil*", Some("execute.tool.read_fil*")),
            ("execute.tool.read_fil", Some("execute.tool.read_file")),
        ] {
            match check(pattern).map_err(Error::into_kind) {
                Err(ErrorKind::Invalid { field, nearest, .. }) => {
                    assert_eq!((field.as_str(), nearest.as_deref()), ("d.approvals", meant));
                }
                other => panic!("{pattern}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_asked_for_a_new_thread_is_granted_or_refused() {
        let tool = |name: &str| ToolDef::parse(&format!(r#"{{"name":"{name}"}}"#)).unwrap();
        let catalog = [tool("read_file"), tool("search_files")];
        for (capability, fits) in [
            ("execute.tool.read_file", true),
            ("rye.execute.tool.read_file", true),
            ("execute.tool.*", true),
            ("execute.tool.mcp_*", true),
            ("execute.*", true),
            ("*", true),
            ("execute.tool.write_file", false),
            ("execute.tols.*", false),
            ("read_*", false),
            ("read_file", false),
            ("", false),
        ] {
            let asked = [capability.to_owned()];
            assert_eq!(
                check_draft_capabilities(None, &asked, &catalog).is_ok(),
                fits,
                "{capability}"
            );
            assert!(
                check_draft_capabilities(Some("d"), &asked, &catalog).is_err(),
                "{capability}"
            );
        }
        check_draft_capabilities(Some("d"), &[], &catalog).unwrap();
    }

    #[test]
    fn a_child_can_do_what_both_allow() {
        let list = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        for (own, within, both) in [
            (
                vec!["execute.tool.*"],
                vec!["execute.tool.read_file"],
                vec!["execute.tool.read_file"],
            ),
            (
                vec!["execute.tool.read_file"],
                vec!["rye.execute.tool.*"],
                vec!["execute.tool.read_file"],
            ),
            (
                vec!["execute.tool.read_*"],
                vec!["execute.tool.read_f*"],
                vec!["execute.tool.read_f*"],
            ),
            (
                vec!["execute.tool.read_file"],
                vec!["execute.tool.write_file"],
                vec![],
            ),
            (
                vec!["execute.tool.read_*"],
                vec!["execute.tool.write_*"],
                vec![],
            ),
            (vec!["*"], vec![], vec![]),
        ] {
            assert_eq!(
                intersect_capabilities(&list(&own), &list(&within)),
                list(&both),
                "{own:?} {within:?}"
            );
        }
    }

    #[test]
    fn grants_by_name_and_star() {
        for (capability, tool, expected) in [
            ("execute.tool.read_file", "read_file", true),
            ("rye.execute.tool.read_file", "read_file", true),
            ("execute.tool.read_*", "read_file", true),
            ("execute.tool.*", "anything", true),
            ("execute.*", "anything", true),
            ("*", "anything", true),
            ("execute.tool.read", "read_file", false),
            ("execute.tool.read_file_", "read_file", false),
            ("read_file", "read_file", false),
            ("", "read_file", false),
            ("execute.knowledge.*", "read_file", false),
        ] {
            assert_eq!(
                is_granted(&[capability.to_owned()], tool),
                expected,
                "{capability} {tool}"
            );
        }
        assert!(!is_granted(&[], "read_file"));
    }
}
