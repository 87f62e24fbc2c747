//! `.ai/config/models.yaml`: which models exist, what they cost, and by which provider each is reached.
//!
//! A model's document goes to the guest; a provider's address and key stay in the host. Prices are carried as the text
//! they were written in: arithmetic on them is the guest's. `${NAME}` is replaced in an address and a key, when a
//! provider is used and not before, so a missing key is no error for a project that never uses it; a name that may not
//! stand there is refused when the table is read. Where the value of a variable may be sent is not the table's to say:
//! see `access`.

mod access;
pub(crate) mod read;
mod settings;

use super::LibraryError;
use crate::authority::{Environment, ExpandError};
use crate::models::{CALL_TIME, IDLE_TIME, Secret};
use crate::policy::{Address, NetworkReach, Policy};
use access::Grants;
use serde_json::{Map, Value, json};
pub use settings::{ProviderSettings, ProviderTimes};
use std::collections::BTreeMap;
use std::time::Duration;
use threadkeep_units::nearest::nearest;

/// Most models in a table: the most names that the library hands out at once.
pub const MODELS_MAX: usize = 500;

/// Most providers in a table. Each is an address; people have a handful.
pub const PROVIDERS_MAX: usize = 64;

/// Most tiers in a table, for the same reason.
pub const TIERS_MAX: usize = 64;

/// Longest name of a model, provider or tier, in bytes. The longest in public catalogs have about 80.
pub const NAME_BYTES_MAX: usize = 128;

/// Most tokens that a window or an output maximum may have: a hundred times the largest window on sale, and small
/// enough that no sum of them overflows.
pub const TOKENS_MAX: u64 = 1_000_000_000;

/// Digits before and after the point of a price: a million dollars, a nano-dollar.
pub const PRICE_DIGITS_MAX: (usize, usize) = (7, 9);

/// Where the table comes from, as errors call it.
pub const PLACE: &str = ".ai/config/models.yaml";

const BUILT_IN: &str = include_str!("models_builtin.yaml");
const BUILT_IN_PLACE: &str = "the built-in model table";

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// Chat completions as OpenAI has them, and many others.
    OpenAi,
    /// Messages as Anthropic has them.
    Anthropic,
    /// Answers from a file; nothing leaves the machine.
    Scripted,
}

impl Wire {
    /// Every word for `wire`.
    pub const WORDS: [&str; 3] = ["openai", "anthropic", "scripted"];

    /// The word in a file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Scripted => "scripted",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::OpenAi, Self::Anthropic, Self::Scripted]
            .into_iter()
            .find(|wire| wire.as_str() == word)
    }

    /// The address when none is given.
    fn base_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Scripted => None,
        }
    }
}

/// A provider, ready for use.
#[derive(Debug, Clone)]
pub struct ProviderSpec {
    /// Its name in the table.
    pub name: String,
    /// How to speak to it.
    pub wire: Wire,
    /// Its address without a slash at the end; empty for [`Wire::Scripted`].
    pub base_url: String,
    /// Which network addresses it may be at.
    pub reach: NetworkReach,
    /// Its key, if it has one.
    pub key: Option<Secret>,
    /// Its address as it is written: a variable by its name, for errors.
    pub shown_url: String,
    /// How its servers are spoken to.
    pub settings: ProviderSettings,
    /// Further headers, with the variables in them replaced.
    pub headers: Vec<(String, Secret)>,
    /// By model: fields that are added to the body of its requests.
    pub model_options: BTreeMap<String, Map<String, Value>>,
    /// The file of answers of a scripted provider, relative to `.ai`.
    pub file: Option<String>,
}

/// A model, as it stands in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpec {
    /// Its name, here and on the provider's wire.
    pub name: String,
    /// The provider's name in the table.
    pub provider: String,
    /// Tokens that fit into one request and its reply, if known.
    pub window: Option<u64>,
    /// Most output tokens of one reply, if known.
    pub output: Option<u64>,
    /// Longest time of one call, if the provider's entry or the policy says.
    pub call_time: Option<Duration>,
    /// Most output tokens a second, if known: what a call is charged by that broke.
    pub rate: Option<u64>,
    /// Fields that are added to the body of its requests.
    pub options: Map<String, Value>,
    /// Prices; `None` if the file gives none: a thread must allow unpriced calls to use it.
    pub prices: Option<Prices>,
}

/// Decimal text, USD per million tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prices {
    /// Input that no cache is involved in.
    pub input: String,
    /// Output.
    pub output: String,
    /// Input read from the provider's cache, if it has a price of its own.
    pub read: Option<String>,
    /// Input written to the provider's cache, if it has a price of its own.
    pub write: Option<String>,
}

impl ModelSpec {
    /// The document for the guest (`wit/library.wit`). What is unknown is left out.
    pub fn document(&self) -> Value {
        let mut document = json!({"name": self.name, "provider": self.provider});
        if let Some(window) = self.window {
            document["window"] = window.into();
        }
        if let Some(output) = self.output {
            document["output"] = output.into();
        }
        if let Some(time) = self.call_time {
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            document["call_millis"] = millis.into();
        }
        if let Some(rate) = self.rate {
            document["rate"] = rate.into();
        }
        if let Some(prices) = &self.prices {
            document["prices"] = prices.document();
        }
        document
    }
}

impl Prices {
    fn document(&self) -> Value {
        let mut document = json!({"input": self.input, "output": self.output});
        for (kind, price) in [("read", &self.read), ("write", &self.write)] {
            if let Some(price) = price {
                document[kind] = price.as_str().into();
            }
        }
        document
    }
}

/// A provider as it was written: nothing replaced yet.
#[derive(Debug, Clone)]
struct ProviderEntry {
    wire: Wire,
    base_url: Option<String>,
    key: Option<String>,
    settings: ProviderSettings,
    file: Option<String>,
    /// File and line, for errors.
    place: String,
}

/// Where the value of a provider's field comes from. The value itself is never told: it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The field is not there.
    Absent,
    /// It is written out in the file.
    Written,
    /// It names these environment variables.
    Variables(Vec<String>),
}

impl Origin {
    fn of(text: Option<&str>) -> Self {
        let Some(text) = text else {
            return Self::Absent;
        };
        let ends = text.split("${").skip(1);
        let names: Vec<String> = ends
            .filter_map(|rest| rest.split_once('}'))
            .map(|(name, _)| name.to_owned())
            .collect();
        match names.is_empty() {
            true => Self::Written,
            false => Self::Variables(names),
        }
    }
}

/// A provider as the table names it, for a person who asks what is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderOrigins {
    /// Its name in the table.
    pub name: String,
    /// How it is spoken to.
    pub wire: Wire,
    /// Where its address comes from.
    pub base_url: Origin,
    /// Its address as it is written, a variable that is set by its name; empty if it has none that
    /// may be shown.
    pub shown_url: String,
    /// Where its key comes from.
    pub key: Origin,
}

/// The models, providers and tiers of a tenant.
#[derive(Debug, Clone)]
pub struct ModelTable {
    models: BTreeMap<String, ModelSpec>,
    tiers: BTreeMap<String, String>,
    providers: BTreeMap<String, ProviderEntry>,
    environment: Environment,
    /// What the operator's policy says of providers; `None` says nothing.
    grants: Option<Grants>,
    /// Name of the policy that refuses private addresses unless it grants them.
    private_refused_by: Option<String>,
    /// Name of the policy that bounds models or money, and so options.
    options_bound_by: Option<String>,
}

impl ModelTable {
    /// The table in `text`, the content of the file; the built-in one if there is no file.
    pub fn load(text: Option<&str>, environment: Environment) -> Result<Self, LibraryError> {
        match text {
            Some(text) => read::table(text, PLACE, environment),
            None => Self::built_in(environment),
        }
    }

    /// The table of a project without a file.
    pub fn built_in(environment: Environment) -> Result<Self, LibraryError> {
        read::table(BUILT_IN, BUILT_IN_PLACE, environment)
    }

    /// The model of this name, or the one that a tier of this name stands for.
    pub fn resolve(&self, name: &str) -> Option<&ModelSpec> {
        self.models
            .get(self.tiers.get(name).map_or(name, String::as_str))
    }

    /// The names of all models and tiers, in byte order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .models
            .keys()
            .chain(self.tiers.keys())
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }

    /// The names of all tiers, with the models that they stand for.
    pub fn tiers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tiers
            .iter()
            .map(|(tier, model)| (tier.as_str(), model.as_str()))
    }

    /// The model of exactly this name; a tier is none.
    pub fn model(&self, name: &str) -> Option<&ModelSpec> {
        self.models.get(name)
    }

    /// The same table with nothing in it but what the operator grants, at the operator's prices where there are some, and
    /// no longer times than the operator's.
    pub fn restricted(mut self, policy: &Policy) -> Self {
        let least = |own: Option<Duration>, most: Option<Duration>, usual: Duration| match most {
            Some(most) => Some(own.unwrap_or(usual).min(most)),
            None => own,
        };
        for entry in self.providers.values_mut() {
            let times = &mut entry.settings.times;
            times.idle = least(times.idle, policy.ceilings.idle_time_max, IDLE_TIME);
        }
        for model in self.models.values_mut() {
            model.call_time = least(model.call_time, policy.ceilings.call_time_max, CALL_TIME);
        }
        if let Some(granted) = &policy.providers {
            self.providers.retain(|name, _| granted.contains_key(name));
        }
        self.models.retain(|name, model| {
            policy.grants_model(name) && self.providers.contains_key(&model.provider)
        });
        for (name, prices) in policy.models.iter().flatten() {
            if let (Some(model), Some(_)) = (self.models.get_mut(name), prices) {
                model.prices.clone_from(prices);
            }
        }
        self.tiers
            .retain(|_, model| self.models.contains_key(model));
        self.grants = Grants::of(policy);
        let refuses = policy.refuses_private_addresses();
        self.private_refused_by = refuses.then(|| policy.name.clone());
        let bounds = policy.models.is_some()
            || policy.providers.is_some()
            || policy.ceilings.spend_nanos_max.is_some();
        if bounds || policy.limits.contains_key("spend") {
            // A rate that is too low would make broken calls cheap.
            self.models.values_mut().for_each(|model| model.rate = None);
        }
        self.options_bound_by = bounds.then(|| policy.name.clone());
        self
    }

    /// A provider with the variables in its address and key replaced.
    ///
    /// An address that is one unset variable is the wire's own. A key that names an unset variable is an error at any
    /// address: a server that needs no key is a provider without the field.
    pub fn provider(&self, name: &str) -> Result<ProviderSpec, LibraryError> {
        let entry = self
            .providers
            .get(name)
            .ok_or_else(|| self.unknown_provider(name))?;
        let base_url = self.base_url(entry)?;
        let key = self.key(entry)?;
        let headers = entry.settings.headers.iter();
        let headers = headers
            .map(|(header, text)| {
                let value = match Origin::of(Some(text)) {
                    Origin::Variables(_) => self.secret(entry, header, text)?,
                    Origin::Absent | Origin::Written => Secret::plain(text),
                };
                Ok((header.clone(), value))
            })
            .collect::<Result<_, LibraryError>>()?;
        self.check_access(name, entry, &base_url)?;
        let reach = self.reach(name, entry, &base_url)?;
        self.check_options(name, entry)?;
        let own = self.models.values().filter(|model| model.provider == name);
        Ok(ProviderSpec {
            name: name.to_owned(),
            wire: entry.wire,
            shown_url: self.shown_url(entry, &base_url),
            base_url,
            reach,
            key,
            settings: entry.settings.clone(),
            headers,
            model_options: own
                .filter(|model| !model.options.is_empty())
                .map(|model| (model.name.clone(), model.options.clone()))
                .collect(),
            file: entry.file.clone(),
        })
    }

    /// Refuses options of the provider's models that an operator who bounds models or money has not
    /// granted: they could choose another model, a dearer service or more replies than one.
    fn check_options(&self, name: &str, entry: &ProviderEntry) -> Result<(), LibraryError> {
        let Some(policy) = &self.options_bound_by else {
            return Ok(());
        };
        let own = self.models.values().filter(|model| model.provider == name);
        let mut options = own.flat_map(|model| model.options.keys().map(move |key| (model, key)));
        let strange = options.find(|(_, key)| !settings::GRANTED_OPTIONS.contains(&key.as_str()));
        match strange {
            None => Ok(()),
            Some((model, key)) => {
                let (model, granted) = (&model.name, settings::GRANTED_OPTIONS.join(", "));
                let problem = format!(
                    "the option {key} of {model} is not one that {policy} grants: {granted}"
                );
                Err(entry.invalid("options", key, problem))
            }
        }
    }

    /// Every provider, by name, with where its fields come from.
    pub fn providers(&self) -> impl Iterator<Item = ProviderOrigins> {
        self.providers.iter().map(|(name, entry)| ProviderOrigins {
            name: name.clone(),
            wire: entry.wire,
            base_url: Origin::of(entry.base_url.as_deref()),
            // What is no address may hold what nobody should read.
            shown_url: self
                .base_url(entry)
                .map(|url| self.shown_url(entry, &url))
                .unwrap_or_default(),
            key: Origin::of(entry.key.as_deref()),
        })
    }

    fn unknown_provider(&self, name: &str) -> LibraryError {
        let known = self.providers.keys().map(String::as_str);
        LibraryError::Invalid {
            place: PLACE.to_owned(),
            value: name.chars().take(NAME_BYTES_MAX).collect(),
            problem: match &self.grants {
                None => "there is no such provider".to_owned(),
                Some(grants) => format!(
                    "there is no such provider, or the operator's policy, {}, does not grant it",
                    grants.policy
                ),
            },
            nearest: nearest(name, known).map(str::to_owned),
        }
    }

    fn base_url(&self, entry: &ProviderEntry) -> Result<String, LibraryError> {
        let own = entry.wire.base_url().unwrap_or_default().to_owned();
        let Some(text) = &entry.base_url else {
            return Ok(own);
        };
        let url = match self.environment.expand(text) {
            Ok(url) => url,
            Err(ExpandError::Unset { name }) if is_only(text, &name) => return Ok(own),
            Err(error) => return Err(entry.invalid("base_url", text, error.to_string())),
        };
        match Address::of_url(&url) {
            Some(_) => Ok(url.trim_end_matches('/').to_owned()),
            // The text, not the value: the value may hold what nobody should read in an error.
            None => Err(entry.invalid(
                "base_url",
                text,
                "an address is https:// or http://, a host, perhaps a port and a path, and nothing else"
                    .to_owned(),
            )),
        }
    }

    /// The address as errors name it: as it is written, unless its variable is not set.
    fn shown_url(&self, entry: &ProviderEntry, base_url: &str) -> String {
        match &entry.base_url {
            Some(text) if self.environment.expand(text).is_ok() => text.clone(),
            _ => base_url.to_owned(),
        }
    }

    fn key(&self, entry: &ProviderEntry) -> Result<Option<Secret>, LibraryError> {
        let Some(text) = &entry.key else {
            return Ok(None);
        };
        let key = self.secret(entry, "key", text)?;
        match key.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Some(key)),
            false => Err(entry.invalid(
                "key",
                "",
                "a key has no spaces, line ends or special characters".to_owned(),
            )),
        }
    }

    /// The value of a field with the variables in it replaced.
    fn secret(
        &self,
        entry: &ProviderEntry,
        field: &str,
        text: &str,
    ) -> Result<Secret, LibraryError> {
        match self.environment.expand(text) {
            Ok(value) => Ok(Secret::new(value)),
            Err(ExpandError::Unset { name }) => {
                let problem = format!(
                    "the environment variable {name} is not set; set it, or leave {field} out if the server needs none"
                );
                Err(entry.invalid(field, "", problem))
            }
            Err(error) => Err(entry.invalid(field, "", error.to_string())),
        }
    }
}

impl ProviderEntry {
    fn invalid(&self, field: &str, value: &str, problem: String) -> LibraryError {
        LibraryError::Invalid {
            place: self.place.clone(),
            value: value.to_owned(),
            problem: format!("{field}: {problem}"),
            nearest: None,
        }
    }
}

/// True if the text is `${name}` and nothing else.
fn is_only(text: &str, name: &str) -> bool {
    text.strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        == Some(name)
}

#[cfg(test)]
mod tests;
