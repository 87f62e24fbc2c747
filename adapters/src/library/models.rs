//! The model table, `.ai/config/models.yaml`: models, their prices, and the provider of each.
//!
//! A model's document goes to the guest; a provider's address and key stay in the host. Prices are
//! carried as the text they were written in, because arithmetic on them is the guest's.
//!
//! `${NAME}` is replaced in an address and a key, when a provider is used and not before. So a
//! missing key is no error for a project that never uses the provider. A variable that is not
//! allowed in a field is refused when the table is read. The table does not decide where the value
//! of a variable may be sent: see `access`.

mod access;
mod settings;
pub(crate) mod table_reader;

use super::LibraryError;
use crate::environment::{EnvironmentSnapshot, ExpandError};
use crate::models::{CALL_TIME, IDLE_TIME, SecretText};
use crate::policy::{NetworkReach, Policy, ProviderAddress};
use access::PolicyGrants;
use serde_json::{Map, Value, json};
pub use settings::{ProviderSettings, TimeoutSettings};
use std::collections::BTreeMap;
use std::time::Duration;
use threadkeep_units::nearest::nearest;

/// Most models in a table, which is also the most names that the library returns at once.
pub const MODELS_MAX: usize = 500;

/// Most providers in a table. Each is an address; people have a handful.
pub const PROVIDERS_MAX: usize = 64;

/// Most tiers in a table, for the same reason.
pub const TIERS_MAX: usize = 64;

/// Longest name of a model, provider or tier, in bytes. The longest in public catalogs have about
/// 80.
pub const NAME_BYTES_MAX: usize = 128;

/// Most tokens that a window or an output maximum may have: a hundred times the largest window on
/// sale, and small enough that no sum of them overflows.
pub const TOKENS_MAX: u64 = 1_000_000_000;

/// Most digits before and after the point of a price: a million dollars, a nano-dollar.
pub const PRICE_DIGITS_MAX: (usize, usize) = (7, 9);

/// The source of the table, as errors name it.
pub const TABLE_PLACE: &str = ".ai/config/models.yaml";

/// The text of the table of a project without a file.
pub const BUILT_IN: &str = include_str!("models_builtin.yaml");
const BUILT_IN_PLACE: &str = "the built-in model table";

/// The variables with the keys of the built-in providers, each with the model that the tiers of the
/// built-in table name where it is the first that is set. The cheapest of each that follows
/// instructions well; the first stands where no key is set.
const BUILT_IN_DEFAULTS: [(&str, &str); 2] = [
    ("OPENAI_API_KEY", "gpt-4o-mini"),
    ("ANTHROPIC_API_KEY", "claude-haiku-4-5"),
];

/// The variables with the keys of the built-in providers, in the order of preference.
pub fn built_in_keys() -> impl Iterator<Item = &'static str> {
    BUILT_IN_DEFAULTS.into_iter().map(|(key, _)| key)
}

/// Returns the model that the tiers of the built-in table name.
pub fn built_in_default(environment: &EnvironmentSnapshot) -> &'static str {
    let mut defaults = BUILT_IN_DEFAULTS.into_iter();
    let set = defaults.find(|(key, _)| environment.get(key).is_some());
    set.unwrap_or(BUILT_IN_DEFAULTS[0]).1
}

/// The protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireProtocol {
    /// OpenAI's chat completions, which many other servers speak too.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Answers from a file; nothing leaves the machine.
    Scripted,
}

impl WireProtocol {
    /// Every word for `wire`.
    pub const WORDS: [&str; 3] = ["openai", "anthropic", "scripted"];

    /// Returns the word in a file.
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

    /// Returns the address that holds if none is given.
    fn default_base_url(self) -> Option<&'static str> {
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
    /// The protocol.
    pub wire: WireProtocol,
    /// Its address without a slash at the end; empty for [`WireProtocol::Scripted`].
    pub base_url: String,
    /// The network addresses that it may be at.
    pub reach: NetworkReach,
    /// The key, if it has one.
    pub key: Option<SecretText>,
    /// The address as it is written, with variables by name, for errors: the value of a variable
    /// may be the operator's own.
    pub shown_url: String,
    /// The settings of the protocol.
    pub settings: ProviderSettings,
    /// Further headers, with the variables in them replaced.
    pub headers: Vec<(String, SecretText)>,
    /// By model: fields that are added to the body of its requests.
    pub model_options: BTreeMap<String, Map<String, Value>>,
    /// The file of answers of a scripted provider, relative to `.ai`.
    pub file: Option<String>,
}

/// A model of the table.
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
    /// Longest time of one call, if the provider's entry or the policy sets one.
    pub call_time: Option<Duration>,
    /// Most output tokens a second, if known. A broken call is charged by it.
    pub rate: Option<u64>,
    /// True if it takes images.
    pub images: bool,
    /// Fields that are added to the body of its requests.
    pub options: Map<String, Value>,
    /// Prices. `None` if the file gives none: a thread must then allow unpriced calls to use the
    /// model.
    pub prices: Option<ModelPrices>,
}

/// Prices of a model as decimal text, USD per million tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPrices {
    /// Price of input that no cache is involved in.
    pub input: String,
    /// Price of output.
    pub output: String,
    /// Price of input read from the provider's cache, if it differs.
    pub read: Option<String>,
    /// Price of input written to the provider's cache, if it differs.
    pub write: Option<String>,
}

impl ModelSpec {
    /// Returns the document for the guest (`wit/library.wit`). Unknown values are left out.
    pub fn to_document(&self) -> Value {
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
        if self.images {
            document["images"] = true.into();
        }
        if let Some(prices) = &self.prices {
            document["prices"] = prices.to_document();
        }
        document
    }
}

impl ModelPrices {
    fn to_document(&self) -> Value {
        let mut document = json!({"input": self.input, "output": self.output});
        for (kind, price) in [("read", &self.read), ("write", &self.write)] {
            if let Some(price) = price {
                document[kind] = price.as_str().into();
            }
        }
        document
    }
}

/// A provider as it was written, with no variable replaced yet.
#[derive(Debug, Clone)]
struct ProviderEntry {
    wire: WireProtocol,
    base_url: Option<String>,
    key: Option<String>,
    settings: ProviderSettings,
    file: Option<String>,
    /// File and line, for errors.
    place: String,
}

/// The source of a provider's field. The value is not included, because it may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldOrigin {
    /// The field is missing.
    Absent,
    /// The value is written out in the file.
    Written,
    /// The value names these environment variables.
    Variables(Vec<String>),
}

impl FieldOrigin {
    fn from_text(text: Option<&str>) -> Self {
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
    /// The protocol.
    pub wire: WireProtocol,
    /// Source of its address.
    pub base_url: FieldOrigin,
    /// The address as it is written, with variables that are set by name; empty if it has none that
    /// may be shown.
    pub shown_url: String,
    /// Source of its key.
    pub key: FieldOrigin,
}

/// The models, providers and tiers of a tenant.
#[derive(Debug, Clone)]
pub struct ModelTable {
    models: BTreeMap<String, ModelSpec>,
    tiers: BTreeMap<String, String>,
    providers: BTreeMap<String, ProviderEntry>,
    environment: EnvironmentSnapshot,
    /// The provider grants of the operator's policy; `None` if the policy does not mention
    /// providers.
    grants: Option<PolicyGrants>,
    /// Name of the policy that refuses private addresses unless it grants them.
    private_refused_by: Option<String>,
    /// Name of the policy that bounds models or money, and therefore options.
    options_bound_by: Option<String>,
}

impl ModelTable {
    /// Parses the table in `text`, the content of the file. `None` means the built-in table.
    pub fn load(
        text: Option<&str>,
        environment: EnvironmentSnapshot,
    ) -> Result<Self, LibraryError> {
        match text {
            Some(text) => table_reader::read_table(text, TABLE_PLACE, environment),
            None => Self::built_in(environment),
        }
    }

    /// Returns the table of a project without a file. Its tiers name a model of a provider whose
    /// key is set: the first run needs nothing else.
    pub fn built_in(environment: EnvironmentSnapshot) -> Result<Self, LibraryError> {
        let default = built_in_default(&environment);
        let mut table = table_reader::read_table(BUILT_IN, BUILT_IN_PLACE, environment)?;
        for model in table.tiers.values_mut() {
            default.clone_into(model);
        }
        Ok(table)
    }

    /// Returns the model of this name, or the model of the tier with this name.
    pub fn resolve(&self, name: &str) -> Option<&ModelSpec> {
        self.models
            .get(self.tiers.get(name).map_or(name, String::as_str))
    }

    /// Returns true if the model or tier of this name takes images, as its entry says.
    pub fn takes_images(&self, name: &str) -> bool {
        self.resolve(name).is_some_and(|spec| spec.images)
    }

    /// Returns the names of all models and tiers, in byte order.
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

    /// Returns the names of all tiers, each with its model.
    pub fn tiers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tiers
            .iter()
            .map(|(tier, model)| (tier.as_str(), model.as_str()))
    }

    /// Returns the model of exactly this name; tiers are not considered.
    pub fn model(&self, name: &str) -> Option<&ModelSpec> {
        self.models.get(name)
    }

    /// Restricts the table to what the operator grants. The operator's prices replace the table's,
    /// and no time is longer than the operator's.
    pub fn restrict_to_policy(mut self, policy: &Policy) -> Self {
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
        self.grants = PolicyGrants::from_policy(policy);
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

    /// Returns a provider with the variables in its address and key replaced.
    ///
    /// An address that consists of one unset variable becomes the wire's own. A key that names an
    /// unset variable is always an error: a provider whose server needs no key leaves the field
    /// out.
    pub fn provider(&self, name: &str) -> Result<ProviderSpec, LibraryError> {
        let entry = self
            .providers
            .get(name)
            .ok_or_else(|| self.unknown_provider(name))?;
        let base_url = self.expand_base_url(entry)?;
        let key = self.read_key(entry)?;
        let headers = entry.settings.headers.iter();
        let headers = headers
            .map(|(header, text)| {
                let value = match FieldOrigin::from_text(Some(text)) {
                    FieldOrigin::Variables(_) => self.expand_secret(entry, header, text)?,
                    FieldOrigin::Absent | FieldOrigin::Written => SecretText::plain(text),
                };
                Ok((header.clone(), value))
            })
            .collect::<Result<_, LibraryError>>()?;
        self.check_access(name, entry, &base_url)?;
        let reach = self.permitted_reach(name, entry, &base_url)?;
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

    /// Refuses options of the provider's models that are not granted by an operator who bounds
    /// models or money. They could choose another model, a dearer service or more replies than one.
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

    /// Returns every provider, by name, with the sources of its fields.
    pub fn providers(&self) -> impl Iterator<Item = ProviderOrigins> {
        self.providers.iter().map(|(name, entry)| ProviderOrigins {
            name: name.clone(),
            wire: entry.wire,
            base_url: FieldOrigin::from_text(entry.base_url.as_deref()),
            // A text that is not an address may be a secret.
            shown_url: self
                .expand_base_url(entry)
                .map(|url| self.shown_url(entry, &url))
                .unwrap_or_default(),
            key: FieldOrigin::from_text(entry.key.as_deref()),
        })
    }

    fn unknown_provider(&self, name: &str) -> LibraryError {
        let known = self.providers.keys().map(String::as_str);
        LibraryError::Invalid {
            place: TABLE_PLACE.to_owned(),
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

    fn expand_base_url(&self, entry: &ProviderEntry) -> Result<String, LibraryError> {
        let own = entry.wire.default_base_url().unwrap_or_default().to_owned();
        let Some(text) = &entry.base_url else {
            return Ok(own);
        };
        let url = match self.environment.expand(text) {
            Ok(url) => url,
            Err(ExpandError::Unset { name }) if is_single_variable(text, &name) => return Ok(own),
            Err(error) => return Err(entry.invalid("base_url", text, error.to_string())),
        };
        match ProviderAddress::from_url(&url) {
            Some(_) => Ok(url.trim_end_matches('/').to_owned()),
            // The error shows the text, not the value, which may be a secret.
            None => Err(entry.invalid(
                "base_url",
                text,
                "an address is https:// or http://, a host, perhaps a port and a path, and nothing \
                 else"
                    .to_owned(),
            )),
        }
    }

    /// Returns the address as errors show it: as it is written, unless its variable is not set.
    fn shown_url(&self, entry: &ProviderEntry, base_url: &str) -> String {
        match &entry.base_url {
            Some(text) if self.environment.expand(text).is_ok() => text.clone(),
            _ => base_url.to_owned(),
        }
    }

    fn read_key(&self, entry: &ProviderEntry) -> Result<Option<SecretText>, LibraryError> {
        let Some(text) = &entry.key else {
            return Ok(None);
        };
        let key = self.expand_secret(entry, "key", text)?;
        match key.expose().bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Some(key)),
            false => Err(entry.invalid(
                "key",
                "",
                "a key has no spaces, line ends or special characters".to_owned(),
            )),
        }
    }

    /// Returns the value of a field with the variables in it replaced.
    fn expand_secret(
        &self,
        entry: &ProviderEntry,
        field: &str,
        text: &str,
    ) -> Result<SecretText, LibraryError> {
        match self.environment.expand(text) {
            Ok(value) => Ok(SecretText::new(value)),
            Err(ExpandError::Unset { name }) => {
                let problem = format!(
                    "the environment variable {name} is not set; set it, or leave {field} out if \
                     the server needs none"
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

/// Returns true if the text is `${name}` and nothing else.
fn is_single_variable(text: &str, name: &str) -> bool {
    text.strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
        == Some(name)
}

#[cfg(test)]
mod tests;
