//! Tools of the host's catalog, and the capabilities that allow a thread to call them.

use super::{
    check_known_fields, flag_field, is_builtin_tool, parse_object, text_field, texts_field,
};
use crate::error::{ECHO_BYTES_MAX, Error, cut};
use crate::json::record::record;
use crate::json::{JsonObject, JsonValue};
use crate::limits::CAP_MAX;

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
    let fits = !name.is_empty() && name.len() <= 64;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if fits && name.bytes().all(allowed) {
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
    let matches_some = |pattern: &String| {
        let wanted = pattern.strip_prefix("rye.").unwrap_or(pattern);
        match wanted.strip_suffix('*') {
            Some(prefix) => {
                TOOL_CAPABILITY_PREFIX.starts_with(prefix)
                    || prefix.starts_with(TOOL_CAPABILITY_PREFIX)
            }
            None => {
                wanted.len() > TOOL_CAPABILITY_PREFIX.len()
                    && wanted.starts_with(TOOL_CAPABILITY_PREFIX)
            }
        }
    };
    match patterns.iter().find(|pattern| !matches_some(pattern)) {
        None => Ok(()),
        Some(pattern) => {
            let problem = "matches no tool: write execute.tool.NAME, with * for any ending";
            Err(Error::invalid(
                format!("{place}.approvals"),
                pattern,
                problem,
            ))
        }
    }
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
    for capability in capabilities {
        if capability.ends_with('*') || grants(capability) {
            continue;
        }
        let last = capability.rsplit('.').next().unwrap_or_default();
        let tool = capability.strip_prefix("rye.").unwrap_or(capability);
        let near = match tool.strip_prefix(TOOL_CAPABILITY_PREFIX) {
            Some(name) => threadkeep_units::nearest::nearest(name, names.iter().copied()),
            None => names.iter().copied().find(|name| *name == last),
        };
        if let Some(near) = near {
            return Err(Error::Invalid {
                field: format!("{place}.{field}"),
                value: cut(capability, ECHO_BYTES_MAX).to_owned(),
                problem: match field {
                    "capabilities" => "grants no tool that there is".to_owned(),
                    _ => "matches no tool that there is".to_owned(),
                },
                nearest: Some(format!("{TOOL_CAPABILITY_PREFIX}{near}")),
            });
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

    #[test]
    fn refuses_capabilities_that_can_only_be_a_slip() {
        let tool = |name: &str| ToolDef::parse(&format!(r#"{{"name":"{name}"}}"#)).unwrap();
        let catalog = [tool("read_file"), tool("search_files")];
        let check = |capability: &str| match check_patterns(
            ("directives/d", "capabilities"),
            &[capability.to_owned()],
            &catalog,
        ) {
            Ok(()) => None,
            Err(Error::Invalid { nearest, .. }) => nearest,
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
