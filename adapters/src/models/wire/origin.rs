//! Data that only its provider understands: stored as `raw` beside a block, and sent back to the
//! same provider, which is named as in the model table. Signed thinking on Anthropic's wire is the
//! exception: it is kept as it came, without a name, and sent to every provider of that wire.
//!
//! The ids of calls are our own in histories and for tools, because models repeat theirs. A
//! provider is sent its own id again, because some lose the conversation without it.

use serde::{Deserialize, Serialize};
use serde_json::value::Value;
use std::collections::BTreeSet;

/// Fields of a call, beside its id and function, that must be sent back with it: Google's
/// signatures travel in them.
pub(in crate::models) const CALL_FIELDS: [&str; 2] = ["extra_content", "provider_specific_fields"];

/// Longest id of a call that is sent back. Some gateways put a signature into it.
const ID_BYTES_MAX: usize = 16 << 10;

/// The `raw` of a call.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::models) struct CallOrigin {
    /// Name of the provider in the model table.
    pub provider: String,
    /// The id that the provider gave the call.
    #[serde(default)]
    pub id: String,
    /// The fields of [`CALL_FIELDS`] that the provider sent.
    #[serde(flatten)]
    pub fields: serde_json::Map<String, Value>,
}

impl CallOrigin {
    /// Parses the `raw` of a block. `None` if it does not name a provider.
    pub fn read(raw: Option<&str>) -> Option<Self> {
        let mut origin: Self = serde_json::from_str(raw?).ok()?;
        origin
            .fields
            .retain(|name, _| CALL_FIELDS.contains(&name.as_str()));
        (!origin.provider.is_empty()).then_some(origin)
    }

    /// Writes the `raw` of a block.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The `raw` of thinking on OpenAI's wire.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::models) struct ThinkingOrigin {
    /// Name of the provider in the model table.
    pub provider: String,
    /// The field that its text came in.
    pub field: String,
    /// The `reasoning_details` of routers, put together from their pieces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<serde_json::Map<String, Value>>,
}

impl ThinkingOrigin {
    /// Parses the `raw` of a block. `None` if it does not name a provider.
    pub fn read(raw: Option<&str>) -> Option<Self> {
        let origin: Self = serde_json::from_str(raw?).ok()?;
        (!origin.provider.is_empty()).then_some(origin)
    }

    /// Writes the `raw` of a block.
    pub fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Chooses the id under which each call of a conversation is sent. It is the provider's own, if
/// this provider gave one that is valid and unused in the conversation; else a short one made from
/// the stored id, which every server accepts.
#[derive(Debug)]
pub(in crate::models) struct CallIds<'a> {
    provider: &'a str,
    is_valid: fn(&str) -> bool,
    used: BTreeSet<String>,
}

impl<'a> CallIds<'a> {
    /// Starts with no id used. `is_valid` tells which ids this wire accepts.
    pub fn new(provider: &'a str, is_valid: fn(&str) -> bool) -> Self {
        Self {
            provider,
            is_valid,
            used: BTreeSet::new(),
        }
    }

    /// Returns the id of the call that is `ours` in the conversation. Calls are asked for in order,
    /// so that an id stays the same as the conversation grows.
    pub fn choose_id(&mut self, ours: &str, origin: Option<&CallOrigin>) -> String {
        let own = origin
            .filter(|origin| origin.provider == self.provider)
            .map(|origin| origin.id.as_str())
            .filter(|id| !id.is_empty() && id.len() <= ID_BYTES_MAX && (self.is_valid)(id))
            .filter(|id| !self.used.contains(*id));
        let id = own.map_or_else(|| self.make_id(ours), str::to_owned);
        self.used.insert(id.clone());
        id
    }

    fn make_id(&self, ours: &str) -> String {
        let mut text = ours.to_owned();
        loop {
            let id = short_id(&text);
            if !self.used.contains(&id) {
                return id;
            }
            text.push('+');
        }
    }
}

/// Returns nine letters and digits, the same for the same text: the one form that Mistral's servers
/// accept.
fn short_id(text: &str) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    // FNV-1a: only its spread matters here.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    let mut id = String::with_capacity(9);
    for _ in 0..9 {
        id.push(char::from(DIGITS[(hash % 62) as usize]));
        hash /= 62;
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(provider: &str, id: &str) -> CallOrigin {
        CallOrigin {
            provider: provider.into(),
            id: id.into(),
            ..CallOrigin::default()
        }
    }

    #[test]
    fn a_providers_own_id_goes_back_to_it_alone_and_once() {
        let mut ids = CallIds::new("p", |id| id.bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(
            ids.choose_id("call_3_0", Some(&origin("p", "functions.f:0"))),
            "functions.f:0"
        );
        for (ours, origin) in [
            ("call_3_1", Some(origin("p", "functions.f:0"))),
            ("call_3_2", Some(origin("other", "x1"))),
            ("call_3_3", Some(origin("p", ""))),
            ("call_3_4", Some(origin("p", "not valid"))),
            ("call_3_5", None),
        ] {
            let id = ids.choose_id(ours, origin.as_ref());
            assert_eq!(id.len(), 9, "{ours}: {id}");
            assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
            assert_eq!(id, short_id(ours), "{ours} keeps its id");
        }
        let taken = short_id("call_9_0");
        assert_eq!(ids.choose_id("x", Some(&origin("p", &taken))), taken);
        assert_ne!(ids.choose_id("call_9_0", None), taken);
    }
}
