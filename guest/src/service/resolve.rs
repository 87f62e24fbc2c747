//! Resolves the settings of a thread: directive, model, tools and policy from the library, fixed in
//! a pin.

use super::{Error, ThreadService};
use crate::ports::HostPorts;
use std::rc::Rc;
use threadkeep_core::error::{ECHO_BYTES_MAX, Error as CoreError, cut};
use threadkeep_core::json::{JsonObject, JsonValue};
use threadkeep_core::plan::{DecisionContext, LoadedThread};
use threadkeep_core::settings::{
    Directive, Model, PinnedSettings, Policy, ToolDef, builtin_tools, check_draft_capabilities,
    named_spend, resolve_settings,
};
use threadkeep_core::thread::{CreatorOverrides, ResolvedDraft, ThreadDraft};
use threadkeep_core::{id, key};

/// The model of a thread that names none.
const DEFAULT_MODEL: &str = "default";

/// The pin of a thread, and its text and hash if it is a new one.
pub type PinForStart = (Rc<PinnedSettings>, Option<(String, String)>);

impl<P: HostPorts> ThreadService<P> {
    /// Checks a draft against the library and fills it in.
    pub fn resolve_draft(&self, draft: &ThreadDraft) -> Result<ResolvedDraft, Error> {
        let directive = self.directive(draft.directive.as_deref())?;
        let catalog = self.catalog()?;
        let asked = &draft.overrides.capabilities;
        check_draft_capabilities(draft.directive.as_deref(), asked, &catalog)?;
        let pin = self.new_pin(directive.as_ref(), &draft.inputs, &draft.overrides, catalog)?;
        pin.to_text()?;
        let inputs = match &directive {
            Some(directive) => directive.resolve_inputs(&draft.inputs)?,
            None if draft.inputs.is_empty() => JsonObject::new(),
            None => {
                return Err(
                    CoreError::invalid("inputs", &draft.inputs, "a chat takes no inputs").into(),
                );
            }
        };
        let named = named_spend(directive.as_ref(), &draft.overrides);
        Ok(ResolvedDraft {
            reserve: named.map(|named| named.min(pin.limits.spend.unwrap_or(named))),
            model: model_name(directive.as_ref(), &draft.overrides),
            limits: pin.limits,
            capabilities: pin.capabilities,
            inputs: JsonValue::Object(inputs).to_string(),
        })
    }

    /// Returns the pin of a thread, or a new one if it has none or is a chat whose files have
    /// changed.
    pub fn pin_for_start(&self, loaded: &LoadedThread) -> Result<PinForStart, Error> {
        let thread = &loaded.thread.value;
        let suspended =
            loaded.head.value.status == threadkeep_core::thread::ThreadStatus::Suspended;
        if thread.pin.is_some() && (thread.directive.is_some() || suspended) {
            return Ok((self.pin(loaded)?, None));
        }
        let directive = self.directive(thread.directive.as_deref())?;
        let inputs = if directive.is_some() {
            thread.inputs.as_str()
        } else {
            ""
        };
        let catalog = self.catalog()?;
        let pin = self.new_pin(directive.as_ref(), inputs, &thread.overrides, catalog)?;
        let (text, hash) = pin.to_text()?;
        if thread.pin.as_deref() == Some(&hash) {
            return Ok((self.pin(loaded)?, None));
        }
        Ok((self.cache_pin(&hash, pin), Some((text, hash))))
    }

    /// Returns the pin of a thread.
    pub fn pin(&self, loaded: &LoadedThread) -> Result<Rc<PinnedSettings>, Error> {
        let thread = &loaded.thread.value;
        let missing = || CoreError::Corrupt(format!("the pin of {} is missing", thread.id));
        let hash = thread.pin.as_deref().ok_or_else(missing)?;
        if let Some(pin) = self.cached_pin(hash) {
            return Ok(pin);
        }
        let name = key::join(&[&id::key(&thread.chain), hash]);
        let items = self.ports.get(&[(key::PIN, &name)])?;
        let item = items.first().ok_or_else(missing)?;
        Ok(self.cache_pin(hash, PinnedSettings::from_text(&item.value)?))
    }

    /// Returns the pin of a thread, or `None` if it was never started.
    pub fn pin_if_any(&self, loaded: &LoadedThread) -> Result<Option<Rc<PinnedSettings>>, Error> {
        let pinned = loaded.thread.value.pin.is_some();
        pinned.then(|| self.pin(loaded)).transpose()
    }

    /// Returns the tokens that the model of a thread takes, once it has a pin that can be read.
    pub fn window(&self, loaded: &LoadedThread) -> Result<Option<u64>, Error> {
        match self.pin_if_any(loaded) {
            Ok(pin) => Ok(pin.map(|pin| pin.model.window)),
            Err(error) => error.into_damage_message().map(|_| None),
        }
    }

    /// Reads the operator's policy, with the preset for threads that set no caps.
    fn policy(&self) -> Result<Policy, Error> {
        let preset = self.ports.library("settings", "preset")?;
        self.policy_with_preset(preset.first().map(String::as_str))
    }

    #[inline(never)]
    pub(super) fn policy_with_preset(&self, preset: Option<&str>) -> Result<Policy, Error> {
        let policy = self.ports.library("settings", "policy")?;
        Ok(Policy::parse(preset, policy.first().map(String::as_str))?)
    }

    /// Returns the context with the caps that the operator sets now, whatever they were when the
    /// thread was created. Each decision by which a run goes on takes the lower of these and the
    /// thread's own caps; the thread's record keeps its own.
    pub fn with_operator_caps<'a>(
        &self,
        moment: DecisionContext<'a>,
    ) -> Result<DecisionContext<'a>, Error> {
        let policy = self.policy_with_preset(None)?;
        Ok(DecisionContext {
            ceiling: policy.limits,
            unknown_bill: policy.unknown_bill,
            ..moment
        })
    }

    fn new_pin(
        &self,
        directive: Option<&Directive>,
        inputs: &str,
        overrides: &CreatorOverrides,
        catalog: Vec<ToolDef>,
    ) -> Result<PinnedSettings, Error> {
        let model = self.model(&model_name(directive, overrides))?;
        let policy = self.policy()?;
        Ok(resolve_settings(
            directive, inputs, overrides, model, catalog, &policy,
        )?)
    }

    /// Returns every tool of the host, and the built-in tools.
    fn catalog(&self) -> Result<Vec<ToolDef>, Error> {
        let names = self.ports.library("tool", "")?;
        let mut catalog = Vec::with_capacity(names.len());
        for name in &names {
            for text in self.ports.library("tool", name)? {
                catalog.push(ToolDef::parse(&text)?);
            }
        }
        catalog.extend(builtin_tools());
        Ok(catalog)
    }

    fn directive(&self, name: Option<&str>) -> Result<Option<Directive>, Error> {
        let Some(name) = name else { return Ok(None) };
        id::check_id("directive", name)?;
        match self.ports.library("directive", name)?.first() {
            Some(text) => Ok(Some(Directive::parse(text)?)),
            None => Err(self.not_found("directive", name)?),
        }
    }

    pub(super) fn model(&self, name: &str) -> Result<Model, Error> {
        match self.ports.library("model", name)?.first() {
            Some(text) => Ok(Model::parse(text)?),
            None => Err(self.not_found("model", name)?),
        }
    }

    fn not_found(&self, kind: &'static str, name: &str) -> Result<Error, Error> {
        let names = self.ports.library(kind, "")?;
        let nearest = threadkeep_units::nearest::nearest(name, names.iter().map(String::as_str))
            .map(str::to_owned);
        Ok(CoreError::NotFound {
            kind,
            name: cut(name, ECHO_BYTES_MAX).to_owned(),
            nearest,
        }
        .into())
    }
}

fn model_name(directive: Option<&Directive>, overrides: &CreatorOverrides) -> String {
    overrides
        .model
        .clone()
        .or_else(|| directive.and_then(|directive| directive.model.clone()))
        .unwrap_or_else(|| DEFAULT_MODEL.to_owned())
}
