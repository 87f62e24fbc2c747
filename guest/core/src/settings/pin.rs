//! The pin: the settings of a thread's runs, fixed at its first start. A file that changes while a
//! thread runs changes nothing for it.

use super::{
    CoordinationSettings, Directive, Model, PinnedSummary, ToolDef, WAIT_MILLIS_DEFAULT,
    check_approvals, check_known_fields, check_patterns, intersect_capabilities, is_granted,
    parse_approvals, parse_limits, parse_object, render_prompt, texts_field,
};
use crate::error::Error;
use crate::hash::sha256_text;
use crate::json::record;
use crate::ledger::UnknownBill;
use crate::limits::ThreadCaps;
use crate::money::NanoUsd;
use crate::thread::{CreatorOverrides, FORMAT};
use std::borrow::Cow;

/// Most bytes of a pin, which is one record. A pin with a longer prompt is refused with an error
/// about `prompt`.
pub const PIN_BYTES_MAX: usize = 900 << 10;

/// Settings by which the threads of a chain are continued and wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedContinuation {
    /// Context from which on a thread is handed off, in parts per million of the model's window.
    pub trigger: u64,
    /// Most tokens of summary and trailing messages that a hand-off carries over.
    pub ceiling: u64,
    /// Time that a `wait_threads` without a timeout waits, in milliseconds.
    pub wait: u64,
    /// The summary that a hand-off asks for; `None` for none.
    pub summary: Option<PinnedSummary>,
}

record!(PinnedContinuation { trigger, ceiling, wait, summary or nothing });

impl PinnedContinuation {
    /// Pins the settings of a tenant.
    pub fn new(settings: &CoordinationSettings, summary: Option<PinnedSummary>) -> Self {
        Self {
            trigger: settings.trigger,
            ceiling: settings.ceiling,
            wait: settings.wait,
            summary,
        }
    }
}

/// Prompt, model, tools and caps of a thread, as resolved at its first start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedSettings {
    /// Version of the record's format, [`FORMAT`].
    pub format: u32,
    /// The system prompt.
    pub prompt: String,
    /// The model.
    pub model: Model,
    /// The tools that are offered, in the catalog's order.
    pub tools: Vec<ToolDef>,
    /// The caps of the thread.
    pub limits: ThreadCaps,
    /// The capabilities of the thread: the tools it may call.
    pub capabilities: Vec<String>,
    /// Settings of continuation; `None` in pins of earlier programs.
    pub continuation: Option<PinnedContinuation>,
    /// Patterns of calls that need consent: those of the directive, and of the threads above.
    pub approvals: Vec<String>,
}

record!(PinnedSettings {
    format,
    prompt,
    model,
    tools,
    limits,
    capabilities,
    continuation or nothing,
    approvals or nothing
});

impl PinnedSettings {
    /// Returns the text that is stored, and its hash.
    pub fn to_text(&self) -> Result<(String, String), Error> {
        let text = crate::json::to_text(self);
        if text.len() > PIN_BYTES_MAX {
            let problem = format!(
                "with its tools is {} bytes, the most is {PIN_BYTES_MAX}",
                text.len()
            );
            return Err(Error::invalid("prompt", "", problem));
        }
        let hash = sha256_text(&text);
        Ok((text, hash))
    }

    /// Reads a stored pin, which its thread names by this hash.
    ///
    /// # Errors
    /// `ErrorKind::Corrupt` for a text of another hash: somebody edited it.
    pub fn from_text(hash: &str, text: &str) -> Result<Self, Error> {
        if sha256_text(text) != hash {
            let message = format!("the pin {hash} is not the text that has this hash");
            return Err(Error::corrupt(message));
        }
        crate::json::read(text).map_err(|e| Error::corrupt(format!("a pin cannot be read: {e}")))
    }

    /// Returns how the thread is continued. A pin of an earlier program has the defaults, with the
    /// thread's own model for summaries.
    pub fn continuation(&self) -> Cow<'_, PinnedContinuation> {
        match &self.continuation {
            Some(continuation) => Cow::Borrowed(continuation),
            None => {
                let settings = CoordinationSettings::default();
                let summary = PinnedSummary::builtin(self.model.clone(), settings.summary_tokens);
                Cow::Owned(PinnedContinuation::new(&settings, Some(summary)))
            }
        }
    }

    /// Returns the time that a wait takes which names no timeout, in milliseconds.
    pub fn wait_millis(&self) -> u64 {
        let pinned = self.continuation.as_ref();
        pinned.map_or(WAIT_MILLIS_DEFAULT, |continuation| continuation.wait)
    }

    /// Returns the texts that each request has beside its messages: the prompt, and of each tool
    /// its schema and description.
    pub fn fixed_texts(&self) -> impl Iterator<Item = &str> {
        let tools = self.tools.iter();
        let tools = tools.flat_map(|tool| [tool.schema.as_str(), tool.description.as_str()]);
        std::iter::once(self.prompt.as_str()).chain(tools)
    }

    /// Returns true if a call of the tool needs consent. `policy` are the operator's patterns, as
    /// they are now: nothing that a tenant pins takes one of them away.
    pub fn asks_for_consent(&self, tool: &ToolDef, policy: &[String]) -> bool {
        tool.consent || is_granted(&self.approvals, &tool.name) || is_granted(policy, &tool.name)
    }

    /// Returns the offered tool of this name.
    pub fn find_tool(&self, name: &str) -> Option<&ToolDef> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

/// The operator's policy: the bounds of all that the tenant's files ask.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// Caps that apply where nothing else sets one.
    pub preset: ThreadCaps,
    /// The operator's upper bound of each cap.
    pub limits: ThreadCaps,
    /// Capabilities that any thread may have; `None` allows every tool of the catalog.
    pub capabilities: Option<Vec<String>>,
    /// The charge for a call whose usage stays unknown.
    pub unknown_bill: UnknownBill,
    /// Patterns of calls that need a person's consent, in every thread.
    pub approvals: Vec<String>,
}

impl Policy {
    /// Reads the documents `preset` (`{"name"}`) and `policy` (`{"limits", "capabilities",
    /// "unknown_bill", "approvals"}`); both may be missing.
    pub fn parse(preset: Option<&str>, policy: Option<&str>) -> Result<Self, Error> {
        let mut parsed = Self {
            preset: ThreadCaps::LOCAL,
            ..Self::default()
        };
        if let Some(text) = preset {
            let fields = parse_object("preset", text)?;
            let name =
                super::text_field("preset", &fields, "name")?.unwrap_or_else(|| "local".into());
            parsed.preset = ThreadCaps::for_preset(&name).ok_or_else(|| {
                Error::invalid_name(
                    "preset.name",
                    &name,
                    "is not a preset",
                    &["local", "strict"],
                )
            })?;
        }
        if let Some(text) = policy {
            let fields = parse_object("policy", text)?;
            check_known_fields(
                "policy",
                &fields,
                &["limits", "capabilities", "unknown_bill", "approvals"],
            )?;
            parsed.approvals = parse_approvals("policy", &fields)?;
            parsed.limits = parse_limits("policy.limits", fields.get("limits"))?;
            if fields.contains_key("capabilities") {
                parsed.capabilities = Some(texts_field("policy", &fields, "capabilities")?);
            }
            if let Some(word) = super::text_field("policy", &fields, "unknown_bill")? {
                parsed.unknown_bill = parse_unknown_bill(&word)?;
            }
        }
        Ok(parsed)
    }

    /// Resolves the caps of a thread: preset, then directive, then overrides, each lowered to the
    /// operator's caps.
    pub fn resolve_caps(&self, directive: Option<&Directive>, overrides: ThreadCaps) -> ThreadCaps {
        let own = directive.map_or(ThreadCaps::NONE, |directive| directive.limits);
        self.preset
            .overridden_by(own)
            .overridden_by(overrides)
            .lowered_to(self.limits)
    }
}

/// Resolves the settings that a thread will run with. `catalog` is every tool of the host.
pub fn resolve_settings(
    directive: Option<&Directive>,
    inputs: &str,
    overrides: &CreatorOverrides,
    model: Model,
    catalog: Vec<ToolDef>,
    policy: &Policy,
    continuation: PinnedContinuation,
) -> Result<PinnedSettings, Error> {
    let allow_unpriced = directive.is_some_and(|directive| directive.allow_unpriced);
    if model.prices.is_none() && !allow_unpriced {
        let problem = "has no prices: give them in .ai/config/models.yaml, or set allow_unpriced \
                       in the directive";
        return Err(Error::invalid("model", &model.name, problem));
    }
    let asked = match directive {
        Some(directive) => directive.capabilities.clone(),
        None => overrides.capabilities.clone(),
    };
    let within = overrides.within.as_ref();
    let capabilities = match within {
        Some(within) => intersect_capabilities(&asked, &within.capabilities),
        None => asked.clone(),
    };
    let place = directive.map_or("draft".to_owned(), |directive| {
        format!("directives/{}", directive.name)
    });
    check_patterns((&place, "capabilities"), &asked, &catalog)?;
    let mut approvals = directive.map_or(Vec::new(), |directive| directive.approvals.clone());
    check_patterns((&place, "approvals"), &approvals, &catalog)?;
    check_draft_approvals(&overrides.approvals, &catalog)?;
    let inherited = within.iter().flat_map(|within| &within.approvals);
    for inherited in overrides.approvals.iter().chain(inherited) {
        if !approvals.contains(inherited) {
            approvals.push(inherited.clone());
        }
    }
    let allowed = |tool: &ToolDef| {
        is_granted(&capabilities, &tool.name)
            && policy
                .capabilities
                .as_ref()
                .is_none_or(|policy| is_granted(policy, &tool.name))
    };
    let limits = policy.resolve_caps(directive, overrides.limits);
    let limits = within.map_or(limits, |within| limits.lowered_to(within.limits));
    let named = named_spend(directive, overrides);
    let prompt = match directive {
        Some(directive) => render_prompt(&directive.body, &directive.resolve_inputs(inputs)?),
        None => String::new(),
    };
    Ok(PinnedSettings {
        format: FORMAT,
        prompt,
        tools: catalog.into_iter().filter(allowed).collect(),
        limits: match within {
            // Where nothing names a spend, the child draws on its parent's account, and only that
            // account bounds it. A copy of its parent's cap would stay when the account is raised.
            Some(_) if named.is_none() => ThreadCaps {
                spend: None,
                ..limits
            },
            _ => limits,
        },
        capabilities,
        model,
        continuation: Some(continuation),
        approvals,
    })
}

/// Checks the patterns of a draft as those of a directive are.
fn check_draft_approvals(patterns: &[String], catalog: &[ToolDef]) -> Result<(), Error> {
    check_approvals("draft", patterns)?;
    check_patterns(("draft", "approvals"), patterns, catalog)
}

/// Returns the spend that the creator, or else the directive, names for a thread. A child for which
/// one is named has an account of its own with that reserve; every other child draws on the account
/// of its parent.
pub fn named_spend(directive: Option<&Directive>, overrides: &CreatorOverrides) -> Option<NanoUsd> {
    let own = directive.and_then(|directive| directive.limits.spend);
    overrides.limits.spend.or(own)
}

/// Reads the policy's word for unknown bills.
fn parse_unknown_bill(word: &str) -> Result<UnknownBill, Error> {
    let problem = "is not how an unknown bill is charged: estimate or full";
    UnknownBill::from_word(word).ok_or_else(|| {
        Error::invalid_name("policy.unknown_bill", word, problem, &UnknownBill::WORDS)
    })
}
