//! Parsing of a model table from YAML: every key known, every value of its type, every name
//! defined.

use super::{
    FieldOrigin, MODELS_MAX, ModelPrices, ModelSpec, ModelTable, NAME_BYTES_MAX, PRICE_DIGITS_MAX,
    PROVIDERS_MAX, ProviderEntry, TIERS_MAX, TOKENS_MAX, WireProtocol, settings,
};
use crate::environment::{self, EnvironmentSnapshot};
use crate::library::{LibraryError, front_matter, yaml};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use threadkeep_units::nearest::{nearest, suggestion};

/// Reads a whole table. `place` names the text in errors.
pub(super) fn read_table(
    text: &str,
    place: &str,
    environment: EnvironmentSnapshot,
) -> Result<ModelTable, LibraryError> {
    let reader = ConfigReader { text, place };
    let value = reader.parse()?;
    let empty = Map::new();
    let root = match &value {
        Value::Null => &empty,
        value => reader.expect_object(&[], value)?,
    };
    reader.check_keys(&[], root, &["providers", "models", "tiers"])?;
    let providers = match root.get("providers") {
        Some(value) => reader.read_providers(value)?,
        None => built_in_providers(place)?,
    };
    let models = reader.read_models(root.get("models"), &providers)?;
    let tiers = reader.read_tiers(root.get("tiers"), &models)?;
    Ok(ModelTable {
        models,
        tiers,
        providers,
        environment,
        grants: None,
        private_refused_by: None,
        options_bound_by: None,
    })
}

/// Returns the providers of a file that lists none: the two that need nothing but a key.
fn built_in_providers(place: &str) -> Result<BTreeMap<String, ProviderEntry>, LibraryError> {
    if place == super::BUILT_IN_PLACE {
        return Ok(BTreeMap::new());
    }
    Ok(ModelTable::built_in(EnvironmentSnapshot::default())?.providers)
}

/// Reads a YAML text and reports errors with their line. Policies are read with it as well.
pub(crate) struct ConfigReader<'a> {
    /// The whole text.
    pub(crate) text: &'a str,
    /// Name of the text in errors.
    pub(crate) place: &'a str,
}

/// The keys that lead to a value.
pub(crate) type KeyPath<'a> = &'a [&'a str];

impl ConfigReader<'_> {
    /// Parses the whole text.
    pub(crate) fn parse(&self) -> Result<Value, LibraryError> {
        yaml::parse(self.text, 1).map_err(|error| LibraryError::Invalid {
            place: format!("{}:{}", self.place, error.line),
            value: String::new(),
            problem: format!("column {}: {}", error.column, error.problem),
            nearest: None,
        })
    }

    fn place_of(&self, path: KeyPath<'_>) -> String {
        format!("{}:{}", self.place, yaml::line_of(self.text, 1, path))
    }

    pub(crate) fn invalid(
        &self,
        path: KeyPath<'_>,
        value: &str,
        problem: String,
        nearest: Option<&str>,
    ) -> LibraryError {
        LibraryError::Invalid {
            place: self.place_of(path),
            value: value.chars().take(NAME_BYTES_MAX).collect(),
            problem: if path.is_empty() {
                problem
            } else {
                format!("{}: {problem}", path.join("."))
            },
            nearest: nearest.map(str::to_owned),
        }
    }

    pub(crate) fn expect_object<'v>(
        &self,
        path: KeyPath<'_>,
        value: &'v Value,
    ) -> Result<&'v Map<String, Value>, LibraryError> {
        value.as_object().ok_or_else(|| {
            self.invalid(
                path,
                "",
                format!(
                    "keys with values are needed here, not {}",
                    front_matter::value_noun(value)
                ),
                None,
            )
        })
    }

    /// Refuses every key that is not among `keys`.
    pub(crate) fn check_keys(
        &self,
        path: KeyPath<'_>,
        table: &Map<String, Value>,
        keys: &[&str],
    ) -> Result<(), LibraryError> {
        let Some(unknown) = table.keys().find(|key| !keys.contains(&key.as_str())) else {
            return Ok(());
        };
        let near = nearest(unknown, keys.iter().copied());
        let known = keys.join(", ");
        let hint = suggestion(unknown, keys.iter().copied());
        let problem = format!("this key is not known here; the keys are {known}{hint}");
        Err(self.invalid(&[path, &[unknown]].concat(), unknown, problem, near))
    }

    /// Returns the entries of a section, which is a table of named items, at most `most`.
    pub(crate) fn read_section<'v>(
        &self,
        name: &str,
        value: Option<&'v Value>,
        most: usize,
    ) -> Result<Vec<(&'v str, &'v Value)>, LibraryError> {
        let entries = match value {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(value) => self.expect_object(&[name], value)?,
        };
        if entries.len() > most {
            return Err(self.invalid(
                &[name],
                "",
                format!("there are {}; the most is {most}", entries.len()),
                None,
            ));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@+-".contains(&byte);
        let bad = entries
            .keys()
            .find(|key| key.len() > NAME_BYTES_MAX || !key.bytes().all(allowed));
        match bad {
            Some(key) => {
                let problem = format!(
                    "a name has at most {NAME_BYTES_MAX} letters, digits and . _ : / @ + -"
                );
                Err(self.invalid(&[name, key], key, problem, None))
            }
            None => Ok(entries
                .iter()
                .map(|(key, value)| (key.as_str(), value))
                .collect()),
        }
    }

    pub(crate) fn expect_text<'v>(
        &self,
        path: KeyPath<'_>,
        value: &'v Value,
    ) -> Result<&'v str, LibraryError> {
        match value.as_str() {
            Some(text) if !text.is_empty() => Ok(text),
            _ => Err(self.invalid(
                path,
                "",
                format!("text is needed here, not {}", found_noun(value)),
                None,
            )),
        }
    }

    pub(crate) fn optional_text(
        &self,
        path: KeyPath<'_>,
        table: &Map<String, Value>,
    ) -> Result<Option<String>, LibraryError> {
        let value = path.last().and_then(|key| table.get(*key));
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(value) => self
                .expect_text(path, value)
                .map(|text| Some(text.to_owned())),
        }
    }

    fn read_providers(
        &self,
        value: &Value,
    ) -> Result<BTreeMap<String, ProviderEntry>, LibraryError> {
        let section = self.read_section("providers", Some(value), PROVIDERS_MAX)?;
        section
            .into_iter()
            .map(|(name, value)| Ok((name.to_owned(), self.read_provider(name, value)?)))
            .collect()
    }

    fn read_provider(&self, name: &str, value: &Value) -> Result<ProviderEntry, LibraryError> {
        let path: KeyPath<'_> = &["providers", name];
        let table = self.expect_object(path, value)?;
        let wire = self.read_wire(path, table)?;
        let mut keys = vec!["wire"];
        match wire {
            WireProtocol::Scripted => keys.push("file"),
            WireProtocol::OpenAi | WireProtocol::Anthropic => keys.extend(settings::PROVIDER_KEYS),
        }
        self.check_keys(path, table, &keys)?;
        let field = |key| self.optional_text(&["providers", name, key], table);
        let entry = ProviderEntry {
            wire,
            base_url: field("base_url")?,
            key: field("key")?,
            settings: self.read_settings(name, table, wire)?,
            file: field("file")?,
            place: self.place_of(path),
        };
        self.check_address(&["providers", name, "base_url"], entry.base_url.as_deref())?;
        self.check_variables(
            &["providers", name, "key"],
            entry.key.as_deref(),
            environment::KEY_SUFFIX,
        )?;
        match (&entry.file, wire) {
            (None, WireProtocol::Scripted) => Err(self.invalid(
                path,
                "",
                "a scripted provider needs a file of answers; add file".to_owned(),
                None,
            )),
            _ => Ok(entry),
        }
    }

    /// Refuses a variable that is not allowed in this field. It would otherwise look like an unset
    /// one.
    pub(super) fn check_variables(
        &self,
        path: KeyPath<'_>,
        text: Option<&str>,
        suffix: &str,
    ) -> Result<(), LibraryError> {
        let FieldOrigin::Variables(names) = FieldOrigin::from_text(text) else {
            return Ok(());
        };
        match names.iter().find(|name| !name.ends_with(suffix)) {
            None => Ok(()),
            Some(name) => {
                let problem = format!(
                    "the variable {name} may not be used here; its name must end in {suffix}"
                );
                Err(self.invalid(path, name, problem, None))
            }
        }
    }

    /// Checks the use of a variable in an address. It must be the beginning, and only a path may
    /// follow.
    fn check_address(&self, path: KeyPath<'_>, text: Option<&str>) -> Result<(), LibraryError> {
        self.check_variables(path, text, environment::ADDRESS_SUFFIX)?;
        let Some((before, rest)) = text.and_then(|text| text.split_once("${")) else {
            return Ok(());
        };
        let behind = rest.split_once('}').map_or("", |(_, behind)| behind);
        if before.is_empty()
            && (behind.is_empty() || behind.starts_with('/'))
            && !behind.contains("${")
        {
            return Ok(());
        }
        let problem = "a variable is the beginning of an address; only a path may follow it";
        Err(self.invalid(path, "", problem.to_owned(), None))
    }

    /// Checks that a word is one of a few.
    pub(crate) fn check_word(
        &self,
        path: KeyPath<'_>,
        word: &str,
        noun: &str,
        words: &[&str],
    ) -> Result<String, LibraryError> {
        if words.contains(&word) {
            return Ok(word.to_owned());
        }
        let hint = suggestion(word, words.iter().copied());
        let problem = format!("a {noun} is one of {}{hint}", words.join(", "));
        let near = nearest(word, words.iter().copied());
        Err(self.invalid(path, word, problem, near))
    }

    pub(crate) fn read_wire(
        &self,
        path: KeyPath<'_>,
        table: &Map<String, Value>,
    ) -> Result<WireProtocol, LibraryError> {
        let words = WireProtocol::WORDS.join(", ");
        let missing = || format!("wire is missing; it is one of {words}");
        let Some(value) = table.get("wire") else {
            return Err(self.invalid(path, "", missing(), None));
        };
        let path = [path, &["wire"]].concat();
        let word = self.check_word(
            &path,
            self.expect_text(&path, value)?,
            "wire",
            &WireProtocol::WORDS,
        )?;
        WireProtocol::from_word(&word).ok_or_else(|| self.invalid(&path, &word, missing(), None))
    }

    fn read_models(
        &self,
        value: Option<&Value>,
        providers: &BTreeMap<String, ProviderEntry>,
    ) -> Result<BTreeMap<String, ModelSpec>, LibraryError> {
        let section = self.read_section("models", value, MODELS_MAX)?;
        section
            .into_iter()
            .map(|(name, value)| Ok((name.to_owned(), self.read_model(name, value, providers)?)))
            .collect()
    }

    fn read_model(
        &self,
        name: &str,
        value: &Value,
        providers: &BTreeMap<String, ProviderEntry>,
    ) -> Result<ModelSpec, LibraryError> {
        let path: KeyPath<'_> = &["models", name];
        let table = self.expect_object(path, value)?;
        self.check_keys(
            path,
            table,
            &[
                "provider", "window", "output", "rate", "images", "options", "prices",
            ],
        )?;
        let provider = table.get("provider").unwrap_or(&Value::Null);
        let provider = self.check_defined(
            &["models", name, "provider"],
            provider,
            providers.keys(),
            "provider",
        )?;
        Ok(ModelSpec {
            name: name.to_owned(),
            call_time: providers
                .get(&provider)
                .and_then(|provider| provider.settings.times.whole),
            options: self.read_options(name, table.get("options"))?,
            provider,
            window: self.read_tokens(&["models", name, "window"], table.get("window"))?,
            output: self.read_tokens(&["models", name, "output"], table.get("output"))?,
            rate: self.read_tokens(&["models", name, "rate"], table.get("rate"))?,
            images: self
                .read_flag(&["models", name, "images"], table.get("images"))?
                .unwrap_or_default(),
            prices: self.read_prices(name, table.get("prices"))?,
        })
    }

    /// Checks a name that must be defined in another section.
    fn check_defined<'n>(
        &self,
        path: KeyPath<'_>,
        value: &Value,
        names: impl Iterator<Item = &'n String> + Clone,
        noun: &str,
    ) -> Result<String, LibraryError> {
        let name = self.expect_text(path, value)?;
        if names.clone().any(|known| known == name) {
            return Ok(name.to_owned());
        }
        let names = names.map(String::as_str);
        let hint = suggestion(name, names.clone());
        Err(self.invalid(
            path,
            name,
            format!("there is no {noun} \"{name}\" in this file{hint}"),
            nearest(name, names),
        ))
    }

    fn read_tokens(
        &self,
        path: KeyPath<'_>,
        value: Option<&Value>,
    ) -> Result<Option<u64>, LibraryError> {
        match value {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(tokens) if (1..=TOKENS_MAX).contains(&tokens) => Ok(Some(tokens)),
                _ => {
                    let problem =
                        format!("a whole number of tokens from 1 to {TOKENS_MAX} is needed here");
                    Err(self.invalid(path, &value.to_string(), problem, None))
                }
            },
        }
    }

    /// Reads prices. Input and output must have one as soon as anything has one.
    pub(crate) fn read_prices(
        &self,
        model: &str,
        value: Option<&Value>,
    ) -> Result<Option<ModelPrices>, LibraryError> {
        let path: KeyPath<'_> = &["models", model, "prices"];
        let table = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => self.expect_object(path, value)?,
        };
        self.check_keys(
            path,
            table,
            &["input", "output", "cache_read", "cache_write"],
        )?;
        let price =
            |kind: &str| self.read_price(&["models", model, "prices", kind], table.get(kind));
        let needed = |kind: &str| {
            let problem = || format!("{kind} is missing: a price in USD per million tokens");
            price(kind)?.ok_or_else(|| self.invalid(path, "", problem(), None))
        };
        Ok(Some(ModelPrices {
            input: needed("input")?,
            output: needed("output")?,
            read: price("cache_read")?,
            write: price("cache_write")?,
        }))
    }

    /// Reads a price as it is written, quoted or not.
    fn read_price(
        &self,
        path: KeyPath<'_>,
        value: Option<&Value>,
    ) -> Result<Option<String>, LibraryError> {
        let text = match value {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => {
                let problem = format!(
                    "a price such as \"0.15\" is needed here, not {}",
                    front_matter::value_noun(other)
                );
                return Err(self.invalid(path, "", problem, None));
            }
        };
        if is_price(&text) {
            return Ok(Some(text));
        }
        let (whole, fraction) = PRICE_DIGITS_MAX;
        let problem = format!(
            "a price is digits with an optional point, such as \"0.15\": at most {whole} before \
             the point and \
             {fraction} after it, in USD per million tokens"
        );
        Err(self.invalid(path, &text, problem, None))
    }

    fn read_tiers(
        &self,
        value: Option<&Value>,
        models: &BTreeMap<String, ModelSpec>,
    ) -> Result<BTreeMap<String, String>, LibraryError> {
        let mut tiers = BTreeMap::new();
        for (name, value) in self.read_section("tiers", value, TIERS_MAX)? {
            let path: KeyPath<'_> = &["tiers", name];
            if models.contains_key(name) {
                return Err(self.invalid(
                    path,
                    name,
                    "a model has this name; rename the tier".to_owned(),
                    None,
                ));
            }
            tiers.insert(
                name.to_owned(),
                self.check_defined(path, value, models.keys(), "model")?,
            );
        }
        Ok(tiers)
    }
}

fn is_price(text: &str) -> bool {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let digits = |part: &str, most: usize| {
        (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    digits(whole, PRICE_DIGITS_MAX.0)
        && fraction.is_none_or(|part| digits(part, PRICE_DIGITS_MAX.1))
}

fn found_noun(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "an empty one",
        other => front_matter::value_noun(other),
    }
}
