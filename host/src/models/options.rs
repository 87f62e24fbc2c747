//! How to reach and to speak to one provider over HTTP.

use super::dialect::{ANTHROPIC, Dialect};
use super::{Secret, Times};
use crate::policy::NetworkReach;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Everything that an adapter over HTTP is told of its provider.
#[derive(Debug, Clone)]
pub struct ProviderOptions {
    /// Its name; the name of its wire at first. What a provider sent for itself alone (ids and
    /// signatures of calls, thinking) goes back to the provider of the same name and to no other.
    pub name: String,
    /// `http` or `https`; no user, query or fragment. On OpenAI's wire up to and including the
    /// version: `https://api.openai.com/v1`; on Anthropic's with or without it.
    pub base_url: String,
    /// The address as errors name it; `None` for `base_url` itself. A host that must not tell the
    /// value of a variable names the variable here.
    pub shown_url: Option<String>,
    /// Sent in the header that the dialect names. Local servers need none.
    pub key: Option<Secret>,
    /// Which network addresses a connection may be made to.
    pub reach: NetworkReach,
    /// How long it is waited for.
    pub times: Times,
    /// What its servers demand and refuse.
    pub dialect: Dialect,
    /// Further headers, by name.
    pub headers: Vec<(String, Secret)>,
    /// Query parameters of the address.
    pub query: Vec<(String, String)>,
    /// By model: fields that are added to the body of its requests, such as `temperature`.
    pub model_options: BTreeMap<String, Map<String, Value>>,
}

impl ProviderOptions {
    /// A provider of OpenAI's wire without a key, in the dialect that its host is known for.
    pub fn openai(base_url: impl Into<String>) -> Self {
        let base_url = base_url.into();
        let dialect = Dialect::of_address(&base_url);
        Self::with("openai", base_url, dialect)
    }

    /// A provider of Anthropic's wire without a key.
    pub fn anthropic(base_url: impl Into<String>) -> Self {
        Self::with("anthropic", base_url.into(), ANTHROPIC)
    }

    fn with(name: &str, base_url: String, dialect: Dialect) -> Self {
        Self {
            name: name.to_owned(),
            base_url,
            shown_url: None,
            key: None,
            reach: NetworkReach::Anywhere,
            times: Times::default(),
            dialect,
            headers: Vec::new(),
            query: Vec::new(),
            model_options: BTreeMap::new(),
        }
    }
}
