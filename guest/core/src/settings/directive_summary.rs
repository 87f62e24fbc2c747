//! The summary that a directive's front matter asks for.

use super::model::positive_field;
use super::{check_known_fields, text_field};
use crate::error::Error;
use crate::id;
use crate::json::JsonValue;

/// The key `summary` of a directive's front matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DirectiveSummary {
    /// The key is missing: the tenant's settings hold.
    #[default]
    BySettings,
    /// `false` or null: no summary.
    Nothing,
    /// A table: these fields instead of those of the settings.
    Fields {
        /// The model or tier.
        model: Option<String>,
        /// The name of the summary directive.
        directive: Option<String>,
        /// Most tokens that the summary is asked to have.
        tokens: Option<u64>,
    },
}

impl DirectiveSummary {
    /// Reads the key; `place` is its path for errors.
    pub(super) fn parse(place: &str, value: Option<&JsonValue<'_>>) -> Result<Self, Error> {
        let fields = match value {
            None => return Ok(Self::BySettings),
            Some(JsonValue::Null | JsonValue::Bool(false)) => return Ok(Self::Nothing),
            Some(JsonValue::Object(fields)) => fields,
            Some(other) => {
                let problem = "must be {model, directive, tokens}, or false for no summary";
                return Err(Error::invalid(place, &other.to_string(), problem));
            }
        };
        check_known_fields(place, fields, &["model", "directive", "tokens"])?;
        let directive = text_field(place, fields, "directive")?;
        if let Some(name) = &directive {
            id::check_id(&format!("{place}.directive"), name)?;
        }
        Ok(Self::Fields {
            model: text_field(place, fields, "model")?,
            directive,
            tokens: positive_field(place, fields, "tokens")?,
        })
    }
}
