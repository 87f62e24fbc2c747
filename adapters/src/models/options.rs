//! Settings to reach one provider over HTTP and to speak its dialect.

use super::dialect::{ANTHROPIC, ServerDialect};
use super::{ProviderTimeouts, SecretText};
use crate::library::models::ProviderSpec;
use crate::policy::NetworkReach;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The settings of one provider for an adapter over HTTP.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// The provider's name; initially the name of its wire. Data that a provider sent for itself
    /// alone (ids and signatures of calls, thinking) goes back to the provider of the same name and
    /// to no other.
    pub name: String,
    /// `http` or `https`; no user, query or fragment. On OpenAI's wire it includes the version:
    /// `https://api.openai.com/v1`; on Anthropic's the version is optional.
    pub base_url: String,
    /// The address as errors show it; `None` for `base_url` itself. A host that must not reveal the
    /// value of a variable puts the variable's name here.
    pub shown_url: Option<String>,
    /// The key, sent in the header that the dialect names. Local servers need none.
    pub key: Option<SecretText>,
    /// Network addresses that a connection may be made to.
    pub reach: NetworkReach,
    /// Timeouts of its calls.
    pub times: ProviderTimeouts,
    /// Demands and refusals of its servers.
    pub dialect: ServerDialect,
    /// Further headers, by name.
    pub headers: Vec<(String, SecretText)>,
    /// Query parameters of the address.
    pub query: Vec<(String, String)>,
    /// By model: fields that are added to the body of its requests, such as `temperature`.
    pub model_options: BTreeMap<String, Map<String, Value>>,
}

impl ProviderOptions {
    /// Makes the options of a provider of OpenAI's wire, without a key and in the dialect of its
    /// host.
    pub fn openai(base_url: impl Into<String>) -> Self {
        let base_url = base_url.into();
        let dialect = ServerDialect::for_address(&base_url);
        Self::with_dialect("openai", base_url, dialect)
    }

    /// Makes the options of a provider of Anthropic's wire, without a key.
    pub fn anthropic(base_url: impl Into<String>) -> Self {
        Self::with_dialect("anthropic", base_url.into(), ANTHROPIC)
    }

    /// Makes the options of a provider as the model table defines it.
    pub fn for_provider(spec: &ProviderSpec) -> Self {
        let (times, default) = (spec.settings.times, ProviderTimeouts::default());
        Self {
            name: spec.name.clone(),
            shown_url: Some(spec.shown_url.clone()),
            key: spec.key.clone(),
            reach: spec.reach,
            times: ProviderTimeouts {
                connect: times.connect.unwrap_or(default.connect),
                answer: times.answer.unwrap_or(default.answer),
                idle: times.idle.unwrap_or(default.idle),
            },
            dialect: spec.settings.dialect(spec.wire, &spec.base_url),
            headers: spec.headers.clone(),
            query: spec.settings.query.clone(),
            model_options: spec.model_options.clone(),
            ..Self::openai(&spec.base_url)
        }
    }

    fn with_dialect(name: &str, base_url: String, dialect: ServerDialect) -> Self {
        Self {
            name: name.to_owned(),
            base_url,
            shown_url: None,
            key: None,
            reach: NetworkReach::Anywhere,
            times: ProviderTimeouts::default(),
            dialect,
            headers: Vec::new(),
            query: Vec::new(),
            model_options: BTreeMap::new(),
        }
    }
}
