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
        let policy = self.policy_with_preset()?;
        let (inputs, overrides) = (&draft.inputs, &draft.overrides);
        let pin = self.new_pin(directive.as_ref(), inputs, overrides, catalog, &policy)?;
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
    pub fn pin_for_start(
        &self,
        loaded: &LoadedThread,
        policy: &Policy,
    ) -> Result<PinForStart, Error> {
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
        let overrides = &thread.overrides;
        let pin = self.new_pin(directive.as_ref(), inputs, overrides, catalog, policy)?;
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
        Ok(self.cache_pin(hash, PinnedSettings::from_text(hash, &item.value)?))
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
            Err(error) => error.into_damage().map(|_| None),
        }
    }

    /// Reads the operator's policy, with the preset for threads that set no caps.
    pub(super) fn policy_with_preset(&self) -> Result<Policy, Error> {
        let settings = self.documents("settings", &["policy", "preset"])?;
        let [policy, preset] = [0, 1].map(|place| settings.get(place).and_then(Option::as_deref));
        Ok(Policy::parse(preset, policy)?)
    }

    /// Reads the operator's policy alone.
    #[inline(never)]
    pub(super) fn policy(&self) -> Result<Policy, Error> {
        let policy = self.document("settings", "policy")?;
        Ok(Policy::parse(None, policy.as_deref())?)
    }

    /// Returns the context with the caps that the operator sets now, whatever they were when the
    /// thread was created. Each decision by which a run goes on takes the lower of these and the
    /// thread's own caps; the thread's record keeps its own.
    pub fn with_operator_caps<'a>(
        &self,
        moment: DecisionContext<'a>,
    ) -> Result<DecisionContext<'a>, Error> {
        Ok(with_policy_caps(moment, &self.policy()?))
    }

    fn new_pin(
        &self,
        directive: Option<&Directive>,
        inputs: &str,
        overrides: &CreatorOverrides,
        catalog: Vec<ToolDef>,
        policy: &Policy,
    ) -> Result<PinnedSettings, Error> {
        let model = self.model(&model_name(directive, overrides))?;
        Ok(resolve_settings(
            directive, inputs, overrides, model, catalog, policy,
        )?)
    }

    /// Returns every tool of the host, and the built-in tools.
    fn catalog(&self) -> Result<Vec<ToolDef>, Error> {
        let documents = self.ports.library("tool", &[])?;
        let tools = documents.iter().flatten().map(|text| ToolDef::parse(text));
        let mut catalog = tools.collect::<Result<Vec<_>, _>>()?;
        catalog.extend(builtin_tools());
        Ok(catalog)
    }

    fn directive(&self, name: Option<&str>) -> Result<Option<Directive>, Error> {
        let Some(name) = name else { return Ok(None) };
        id::check_id("directive", name)?;
        match self.document("directive", name)? {
            Some(text) => Ok(Some(Directive::parse(&text)?)),
            None => Err(self.not_found("directive", name)?),
        }
    }

    pub(super) fn model(&self, name: &str) -> Result<Model, Error> {
        match self.document("model", name)? {
            Some(text) => Ok(Model::parse(&text)?),
            None => Err(self.not_found("model", name)?),
        }
    }

    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, Error> {
        Ok(self.documents(kind, &[name])?.pop().flatten())
    }

    /// Reads the documents of these names, one answer for each. An answer of any other length says
    /// nothing of any name, so it is refused.
    fn documents(&self, kind: &str, names: &[&str]) -> Result<Vec<Option<String>>, Error> {
        let documents = self.ports.library(kind, names)?;
        if documents.len() != names.len() {
            let message = format!(
                "the library gave {} answers for {} names of kind {kind}",
                documents.len(),
                names.len()
            );
            return Err(Error::BadAnswer(message));
        }
        Ok(documents)
    }

    fn not_found(&self, kind: &'static str, name: &str) -> Result<Error, Error> {
        let names = self.ports.library_names(kind)?;
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

/// Returns the context with the caps of a policy.
pub(super) fn with_policy_caps<'a>(
    moment: DecisionContext<'a>,
    policy: &Policy,
) -> DecisionContext<'a> {
    DecisionContext {
        ceiling: policy.limits,
        unknown_bill: policy.unknown_bill,
        ..moment
    }
}

fn model_name(directive: Option<&Directive>, overrides: &CreatorOverrides) -> String {
    overrides
        .model
        .clone()
        .or_else(|| directive.and_then(|directive| directive.model.clone()))
        .unwrap_or_else(|| DEFAULT_MODEL.to_owned())
}
