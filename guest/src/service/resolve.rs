//! Resolves the settings of a thread: directive, model, tools and policy from the library, fixed in
//! a pin.

use super::{Error, ErrorKind, ThreadService};
use crate::ports::{HostPorts, LibraryError};
use std::rc::Rc;
use threadkeep_core::continuation::usage_json;
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::json::{JsonObject, JsonValue};
use threadkeep_core::plan::{DecisionContext, LoadedThread};
use threadkeep_core::settings::{
    CoordinationSettings, Directive, Model, PinnedContinuation, PinnedSettings, PinnedSummary,
    Policy, SummaryChoice, ToolDef, builtin_tools, check_draft_capabilities, named_spend,
    resolve_settings,
};
use threadkeep_core::thread::{CreatorOverrides, ResolvedDraft, ThreadDraft, ThreadStatus};
use threadkeep_core::{id, key};
use threadkeep_units::coordination::SUMMARY_TIER;

/// The model of a thread that names none.
const DEFAULT_MODEL: &str = "default";

/// The pin of a thread, and its text and hash if it is a new one.
pub type PinForStart = (Rc<PinnedSettings>, Option<(String, String)>);

/// The settings that hold for every thread of a tenant: the operator's and its own.
pub struct TenantSettings {
    /// The operator's policy, with the preset for threads that set no caps.
    pub policy: Policy,
    coordination: CoordinationSettings,
}

/// The directives that a thread's settings are made from.
struct ThreadDirectives {
    /// The thread's own; `None` for a chat.
    own: Option<Directive>,
    /// The summary that its hand-off asks for, with the tenant's directive for it if there is one.
    summary: Option<(SummaryChoice, Option<Directive>)>,
}

impl<P: HostPorts> ThreadService<P> {
    /// Checks a draft against the library and fills it in.
    pub fn resolve_draft(&self, draft: &ThreadDraft) -> Result<ResolvedDraft, Error> {
        let settings = self.tenant_settings(true)?;
        let directives = self.directives(draft.directive.as_deref(), &settings)?;
        let catalog = self.catalog(&settings)?;
        let asked = &draft.overrides.capabilities;
        check_draft_capabilities(draft.directive.as_deref(), asked, &catalog)?;
        let (inputs, overrides) = (&draft.inputs, &draft.overrides);
        let pin = self.new_pin(&directives, inputs, overrides, catalog, &settings)?;
        pin.to_text()?;
        let directive = directives.own;
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
        settings: &TenantSettings,
    ) -> Result<PinForStart, Error> {
        let thread = &loaded.thread.value;
        if keeps_pin(loaded) {
            return Ok((self.pin(loaded)?, None));
        }
        let directives = self.directives(thread.directive.as_deref(), settings)?;
        let inputs = if directives.own.is_some() {
            thread.inputs.as_str()
        } else {
            ""
        };
        let catalog = self.catalog(settings)?;
        let overrides = &thread.overrides;
        let pin = self.new_pin(&directives, inputs, overrides, catalog, settings)?;
        let (text, hash) = pin.to_text()?;
        if thread.pin.as_deref() == Some(&hash) {
            return Ok((self.pin(loaded)?, None));
        }
        Ok((self.cache_pin(&hash, pin), Some((text, hash))))
    }

    /// Returns the pin of a thread.
    pub fn pin(&self, loaded: &LoadedThread) -> Result<Rc<PinnedSettings>, Error> {
        let hash = loaded.thread.value.pin.as_deref();
        match hash.and_then(|hash| self.cached_pin(hash)) {
            Some(pin) => Ok(pin),
            None => self.read_pin(loaded).map(|(pin, _)| pin),
        }
    }

    /// Reads the pin of a thread, with its text.
    pub(super) fn read_pin(
        &self,
        loaded: &LoadedThread,
    ) -> Result<(Rc<PinnedSettings>, String), Error> {
        let thread = &loaded.thread.value;
        let missing = || CoreError::corrupt(format!("the pin of {} is missing", thread.id));
        let hash = thread.pin.as_deref().ok_or_else(missing)?;
        let name = key::join(&[&id::key(&thread.chain), hash]);
        let items = self.ports.get(&[(key::PIN, &name)])?;
        let item = items.into_iter().next().ok_or_else(missing)?;
        let pin = PinnedSettings::from_text(hash, &item.value)?;
        Ok((self.cache_pin(hash, pin), item.value))
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

    /// Returns how full the window of a thread's model is, as JSON.
    pub fn context_usage(&self, thread: &str) -> Result<String, Error> {
        let loaded = self.load(thread)?;
        let pin = self.pin_if_any(&loaded)?;
        Ok(usage_json(&loaded.head.value, pin.as_deref()))
    }

    /// Reads the settings that hold for every thread of the tenant; `all` of them, or those of the
    /// operator alone for a thread that keeps its pin: a file of the tenant that is broken since
    /// does not stop it.
    pub(super) fn tenant_settings(&self, all: bool) -> Result<TenantSettings, Error> {
        let names: &[&str] = match all {
            true => &["policy", "preset", "coordination"],
            false => &["policy", "preset"],
        };
        let settings = self.documents("settings", names)?;
        let document = |place: usize| settings.get(place).and_then(Option::as_deref);
        Ok(TenantSettings {
            policy: Policy::parse(document(1), document(0))?,
            coordination: CoordinationSettings::parse(document(2))?,
        })
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
        directives: &ThreadDirectives,
        inputs: &str,
        overrides: &CreatorOverrides,
        catalog: Vec<ToolDef>,
        settings: &TenantSettings,
    ) -> Result<PinnedSettings, Error> {
        let own = directives.own.as_ref();
        let chosen = directives.summary.as_ref();
        let writer = chosen.map(|(choice, directive)| choice.model_name(directive.as_ref()));
        let (model, found) = self.models(&model_name(own, overrides), writer)?;
        let mut summary = None;
        if let (Some((choice, directive)), Some(name)) = (chosen, writer) {
            let unpriced = own.is_some_and(|own| own.allow_unpriced);
            let model = SummaryChoice::choose_model(name, found, &model, unpriced)?;
            summary = Some(PinnedSummary::new(choice, directive.as_ref(), model)?);
        }
        let continuation = PinnedContinuation::new(&settings.coordination, summary);
        let policy = &settings.policy;
        Ok(resolve_settings(
            own,
            inputs,
            overrides,
            model,
            catalog,
            policy,
            continuation,
        )?)
    }

    /// Reads the model of a thread and that of its summaries, at once. Where the tenant has no
    /// model of the tier for summaries, or may not use it, there is no second one.
    fn models(&self, own: &str, summary: Option<&str>) -> Result<(Model, Option<Model>), Error> {
        let names: Vec<&str> = [own].into_iter().chain(summary).collect();
        let documents = match self.documents("model", &names) {
            Err(error)
                if summary == Some(SUMMARY_TIER)
                    && matches!(
                        error.kind(),
                        ErrorKind::Library(LibraryError::Invalid { .. })
                    ) =>
            {
                self.documents("model", &[own])?
            }
            documents => documents?,
        };
        let mut documents = documents.into_iter();
        let Some(text) = documents.next().flatten() else {
            return Err(self.not_found("model", own)?);
        };
        let model = Model::parse(&text)?;
        match (summary, documents.next().flatten()) {
            (Some(_), Some(text)) => Ok((model, Some(Model::parse(&text)?))),
            (None | Some(SUMMARY_TIER), _) => Ok((model, None)),
            (Some(name), None) => Err(self.not_found("model", name)?),
        }
    }

    /// Returns every tool of the host, and the built-in tools.
    fn catalog(&self, settings: &TenantSettings) -> Result<Vec<ToolDef>, Error> {
        let documents = self.ports.library("tool", &[])?;
        let tools = documents.iter().flatten().map(|text| ToolDef::parse(text));
        let mut catalog = tools.collect::<Result<Vec<_>, _>>()?;
        catalog.extend(builtin_tools(settings.coordination.wait));
        Ok(catalog)
    }

    /// Reads the directive of a thread and that of its summaries: at once, unless the first names
    /// another for the second.
    fn directives(
        &self,
        name: Option<&str>,
        settings: &TenantSettings,
    ) -> Result<ThreadDirectives, Error> {
        if let Some(name) = name {
            id::check_id("directive", name)?;
        }
        let coordination = &settings.coordination;
        let expected = coordination.summary_directive.as_deref();
        let names: Vec<&str> = name.into_iter().chain(expected).collect();
        let mut documents = match names.is_empty() {
            true => Vec::new(),
            false => self.documents("directive", &names)?,
        };
        let for_summary = expected.and_then(|_| documents.pop().flatten());
        let own = match (name, documents.pop().flatten()) {
            (None, _) => None,
            (Some(_), Some(text)) => Some(Directive::parse(&text)?),
            (Some(name), None) => return Err(self.not_found("directive", name)?),
        };
        let Some(choice) = coordination.choose_summary(own.as_ref()) else {
            return Ok(ThreadDirectives { own, summary: None });
        };
        let document = match expected == Some(choice.directive.as_str()) {
            true => for_summary,
            false => self.document("directive", &choice.directive)?,
        };
        let directive = match document {
            Some(text) => Some(Directive::parse(&text)?),
            None if choice.is_builtin() => None,
            None => return Err(self.not_found("directive", &choice.directive)?),
        };
        Ok(ThreadDirectives {
            own,
            summary: Some((choice, directive)),
        })
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
            return Err(ErrorKind::BadAnswer(message).into());
        }
        Ok(documents)
    }

    fn not_found(&self, kind: &'static str, name: &str) -> Result<Error, Error> {
        let names = self.ports.library_names(kind)?;
        let nearest = threadkeep_units::nearest::nearest(name, names.iter().map(String::as_str))
            .map(str::to_owned);
        Ok(CoreError::not_found(kind, name, nearest).into())
    }
}

/// Returns true if a start of the thread keeps its pin, whatever its files say now.
pub(super) fn keeps_pin(loaded: &LoadedThread) -> bool {
    let thread = &loaded.thread.value;
    let suspended = loaded.head.value.status == ThreadStatus::Suspended;
    thread.pin.is_some() && (thread.directive.is_some() || suspended)
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
