//! A snapshot of environment variables, and the replacement of their names in a text.
//!
//! A host reads the environment of its process and passes it on as a value; nothing here reads it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Most variables in an [`EnvironmentSnapshot`]; a shell has about a hundred. Further ones are left
/// out.
pub const VARIABLES_MAX: usize = 4_096;

/// Longest value that is kept, in bytes. Keys and addresses have less than a kilobyte.
pub const VARIABLE_BYTES_MAX: usize = 32 << 10;

/// Suffix of the variables that may hold a provider's key. The writer of the model table chooses
/// where a value is sent: it may name no other variable, and the policy binds the value to hosts.
pub const KEY_SUFFIX: &str = "_API_KEY";

/// Suffix of the variables that a provider's address may begin with.
pub const ADDRESS_SUFFIX: &str = "_BASE_URL";

/// Longest text that [`EnvironmentSnapshot::expand`] makes.
pub const EXPANDED_BYTES_MAX: usize = 64 << 10;

/// A snapshot of environment variables. Only `${NAME}` in the address and the key of a provider is
/// expanded from it; none of it enters the component. Its `Debug` shows no value.
///
/// The writer of `models.yaml` chooses where a variable is sent, so pass only what may be sent:
/// [`EnvironmentSnapshot::for_providers`] for the operator's own project,
/// [`EnvironmentSnapshot::with_only`] for others.
#[derive(Clone, Default)]
pub struct EnvironmentSnapshot {
    variables: Arc<BTreeMap<String, String>>,
}

/// Reason why a text cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(
    missing_docs,
    reason = "each variant's doc and message say what its fields are"
)]
#[non_exhaustive]
pub enum ExpandError {
    /// The variable does not exist, may not be used here, or is empty.
    #[error("the environment variable {name} is not set; set it, or write the value out")]
    Unset { name: String },
    /// `${` without `}`, or a name that no variable can have.
    #[error("\"${{\" must be followed by the name of an environment variable and \"}}\"")]
    Malformed,
    /// The text would be longer than [`EXPANDED_BYTES_MAX`].
    #[error("the text is longer than {EXPANDED_BYTES_MAX} bytes when its variables are replaced")]
    TooLong,
}

impl EnvironmentSnapshot {
    /// An environment of these variables; those that exceed the bounds are left out.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        let kept = pairs
            .into_iter()
            .filter(|(name, value)| is_variable_name(name) && value.len() <= VARIABLE_BYTES_MAX);
        Self {
            variables: Arc::new(kept.take(VARIABLES_MAX).collect()),
        }
    }

    /// A copy with only the variables of these names.
    pub fn with_only(&self, names: &[&str]) -> Self {
        self.filter_variables(|name| names.contains(&name))
    }

    /// Keeps the variables for providers, which end in [`KEY_SUFFIX`] or [`ADDRESS_SUFFIX`].
    pub fn for_providers(&self) -> Self {
        self.filter_variables(|name| is_key_variable(name) || is_address_variable(name))
    }

    fn filter_variables(&self, keep: impl Fn(&str) -> bool) -> Self {
        let kept = self.variables.iter().filter(|(name, _)| keep(name));
        Self {
            variables: Arc::new(
                kept.map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            ),
        }
    }

    /// The names of the variables that are set and not empty, in byte order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let set = self.variables.iter().filter(|(_, value)| !value.is_empty());
        set.map(|(name, _)| name.as_str())
    }

    /// The value of a variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// `text` with each `${NAME}` replaced. Values are not expanded again; a lone `$` is kept.
    pub fn expand(&self, text: &str) -> Result<String, ExpandError> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or(ExpandError::Malformed)?;
            if !is_variable_name(name) {
                return Err(ExpandError::Malformed);
            }
            let value = self.get(name).ok_or_else(|| ExpandError::Unset {
                name: name.to_owned(),
            })?;
            expanded.push_str(before);
            expanded.push_str(value);
            if expanded.len() > EXPANDED_BYTES_MAX {
                return Err(ExpandError::TooLong);
            }
            rest = after;
        }
        expanded.push_str(rest);
        if expanded.len() > EXPANDED_BYTES_MAX {
            Err(ExpandError::TooLong)
        } else {
            Ok(expanded)
        }
    }
}

/// True if the key of a provider may name this variable.
pub fn is_key_variable(name: &str) -> bool {
    name.ends_with(KEY_SUFFIX)
}

/// True if the address of a provider may name this variable.
pub fn is_address_variable(name: &str) -> bool {
    name.ends_with(ADDRESS_SUFFIX)
}

impl fmt::Debug for EnvironmentSnapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_set()
            .entries(self.variables.keys())
            .finish()
    }
}

fn is_variable_name(name: &str) -> bool {
    let valid = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    !name.is_empty()
        && name.len() <= 256
        && name.bytes().all(valid)
        && !name.as_bytes()[0].is_ascii_digit()
}

#[cfg(test)]
mod tests;
