//! Model tables: accepted ones, refused ones, and the check that a key stays in the host.

mod provider_settings;

use super::*;
use crate::policy::PolicyPreset;

const FILE: &str = r#"
providers:
  openai: {wire: openai, base_url: "${OPENAI_BASE_URL}", key: "${OPENAI_API_KEY}"}
  mine: {wire: openai, base_url: "${MINE_BASE_URL}/v1/"}
  demo: {wire: scripted, file: answers.json}
models:
  gpt-4o-mini: {provider: openai, window: 128000, output: 16384,
      prices: {input: "0.15", cache_read: 0.0750, output: "0.60"}}
  meta/llama-3.1:8b: {provider: mine, output: 4096}
  script: {provider: demo, window: 1000, output: 100,
      prices: {input: 1, output: 2, cache_write: "0"}}
tiers: {default: gpt-4o-mini, fast: script}
"#;

fn environment(pairs: &[(&str, &str)]) -> EnvironmentSnapshot {
    EnvironmentSnapshot::from_pairs(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
}

fn table(pairs: &[(&str, &str)]) -> ModelTable {
    ModelTable::load(Some(FILE), environment(pairs)).expect("the file is valid")
}

#[test]
fn documents_for_the_guest() {
    let table = table(&[("OPENAI_API_KEY", "sk-hidden")]);
    let cases = [
        (
            "default",
            concat!(
                r#"{"name":"gpt-4o-mini","provider":"openai","window":128000,"output":16384,"#,
                r#""prices":{"input":"0.15","output":"0.60","read":"0.0750"}}"#
            ),
        ),
        (
            "meta/llama-3.1:8b",
            r#"{"name":"meta/llama-3.1:8b","provider":"mine","output":4096}"#,
        ),
        (
            "fast",
            concat!(
                r#"{"name":"script","provider":"demo","window":1000,"output":100,"#,
                r#""prices":{"input":"1","output":"2","write":"0"}}"#
            ),
        ),
    ];
    for (name, expected) in cases {
        assert_eq!(
            table
                .resolve(name)
                .map(|model| model.to_document().to_string())
                .as_deref(),
            Some(expected),
            "{name}"
        );
    }
    assert_eq!(table.resolve("slow"), None);
    assert_eq!(
        table.names(),
        [
            "default",
            "fast",
            "gpt-4o-mini",
            "meta/llama-3.1:8b",
            "script"
        ]
    );
    assert!(!format!("{table:?}").contains("sk-hidden"));
}

/// Columns: variables, a provider's name, its address and key or a part of the error.
type ProviderCase<'a> = (
    &'a [(&'a str, &'a str)],
    &'a str,
    Result<(&'a str, Option<&'a str>), &'a str>,
);

const ALL: &[(&str, &str)] = &[
    ("OPENAI_API_KEY", "sk-1"),
    ("OPENAI_BASE_URL", "https://models.test/v1/"),
    ("MINE_BASE_URL", "http://localhost:8000"),
];

const KEY: &[(&str, &str)] = &[("OPENAI_API_KEY", "sk-1")];

const PROVIDERS: &[ProviderCase<'_>] = &[
    (ALL, "openai", Ok(("https://models.test/v1", Some("sk-1")))),
    (ALL, "mine", Ok(("http://localhost:8000/v1", None))),
    (&[], "demo", Ok(("", None))),
    (
        KEY,
        "openai",
        Ok(("https://api.openai.com/v1", Some("sk-1"))),
    ),
    (
        &[("OPENAI_BASE_URL", "http://localhost:1")],
        "openai",
        Err("key: the environment variable OPENAI_API_KEY is not set"),
    ),
    (
        &[],
        "openai",
        Err("key: the environment variable OPENAI_API_KEY is not set"),
    ),
    (
        &[("OPENAI_API_KEY", "")],
        "openai",
        Err("OPENAI_API_KEY is not set"),
    ),
    (
        &[("OPENAI_API_KEY", "sk 1")],
        "openai",
        Err("key: a key has no spaces"),
    ),
    (
        &[("OPENAI_API_KEY", "sk\r\nx: y")],
        "openai",
        Err("key: a key has no spaces"),
    ),
    (
        &[],
        "mine",
        Err("base_url: the environment variable MINE_BASE_URL is not set"),
    ),
    (
        &[("OPENAI_BASE_URL", "file:///etc")],
        "openai",
        Err("https://"),
    ),
    (
        &[("OPENAI_BASE_URL", "https://")],
        "openai",
        Err("https://"),
    ),
    (
        &[("OPENAI_BASE_URL", "https:///x")],
        "openai",
        Err("https://"),
    ),
    (
        &[("OPENAI_BASE_URL", "https://x y")],
        "openai",
        Err("https://"),
    ),
    (&[], "opneai", Err("there is no such provider")),
];

#[test]
fn providers() {
    for (pairs, name, expected) in PROVIDERS {
        let provider = table(pairs).provider(name);
        match (provider, expected) {
            (Ok(provider), Ok((base_url, key))) => {
                assert_eq!(provider.base_url, *base_url);
                assert_eq!(provider.key.as_ref().map(SecretText::expose), *key);
                assert!(!format!("{provider:?}").contains("sk-1"));
            }
            (Err(error), Err(word)) => {
                assert!(error.to_string().contains(word), "{name}: {error}");
                assert!(
                    !format!("{error:?}").contains("sk"),
                    "an error shows a key: {error:?}"
                );
            }
            (provider, expected) => panic!("{name}: {provider:?}, expected {expected:?}"),
        }
    }
    let error = table(&[]).provider("opneai").map(|_| ());
    assert!(
        matches!(error, Err(LibraryError::Invalid { nearest: Some(near), .. }) if near == "openai")
    );
    assert_eq!(
        table(&[])
            .provider("demo")
            .map(|spec| spec.file)
            .ok()
            .flatten()
            .as_deref(),
        Some("answers.json")
    );
}

/// Columns: file, line of its fault, part of the sentence, suggested name.
type RefusedTable<'a> = (&'a str, usize, &'a str, Option<&'a str>);

const REFUSED: &[RefusedTable<'_>] = &[
    ("model: {}", 1, "not known here", Some("models")),
    ("- a", 1, "not a list", None),
    ("models: [a]", 1, "not a list", None),
    (
        "models:\n  m: fast",
        2,
        "models.m: keys with values are needed here, not text",
        None,
    ),
    (
        "models:\n  m: {}",
        2,
        "models.m.provider: text is needed",
        None,
    ),
    (
        "models:\n  m: {provider: opnai, output: 1}",
        2,
        "did you mean \"openai\"?",
        Some("openai"),
    ),
    (
        "models:\n  m o: {provider: openai, output: 1}",
        2,
        "a name has at most",
        None,
    ),
    (
        "models:\n  m: {provider: openai, ouptut: 1}",
        2,
        "not known here",
        Some("output"),
    ),
    ("models:\n  m: &x {provider: openai}", 2, "anchors", None),
    ("models: {a: 1, a: 2}", 1, "stands twice", None),
    ("providers:\n  p: {}", 2, "wire is missing", None),
    (
        "providers:\n  p: {wire: opena}",
        2,
        "a wire is one of",
        Some("openai"),
    ),
    ("providers:\n  p: {wire: scripted}", 2, "needs a file", None),
    (
        "providers:\n  p:\n    wire: openai\n    key: ${MOCK_KEY}",
        4,
        "the variable MOCK_KEY may not be used here; its name must end in _API_KEY",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    key: ${P_BASE_URL}",
        4,
        "its name must end in _API_KEY",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    base_url: https://x/${P_API_KEY}",
        4,
        "its name must end in _BASE_URL",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    base_url: https://x/?u=${P_BASE_URL}",
        4,
        "only a path may follow it",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    base_url: ${P_BASE_URL}.evil.test",
        4,
        "only a path may follow it",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    base_url: ${P_BASE_URL}/${Q_BASE_URL}",
        4,
        "only a path may follow it",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    base_url: http://x/${HOME}",
        4,
        "the variable HOME may not be used here",
        None,
    ),
    (
        "providers:\n  p: {wire: scripted, file: ''}",
        2,
        "not an empty one",
        None,
    ),
    (
        "providers:\n  p: {wire: scripted, file: a, key: b}",
        2,
        "not known here",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    api_key: x",
        4,
        "not known here",
        None,
    ),
    (
        "providers:\n  p:\n    wire: openai\n    key: 5",
        4,
        "text is needed here, not a number",
        None,
    ),
    (
        "providers: {}\nmodels: {m: {provider: openai, output: 1}}",
        2,
        "there is no provider",
        None,
    ),
    (
        "tiers:\n  fast: none",
        2,
        "there is no model \"none\"",
        None,
    ),
    (
        "models:\n  m: {provider: openai, output: 1}\ntiers: {fast: n}",
        3,
        "there is no model \"n\"",
        None,
    ),
    (
        "models:\n  mini: {provider: openai, output: 1}\ntiers: {fast: mni}",
        3,
        "did you mean \"mini\"?",
        Some("mini"),
    ),
    (
        "models:\n  m: {provider: openai, output: 1}\ntiers: {m: m}",
        3,
        "rename the tier",
        None,
    ),
];

/// The same for one additional field of a model.
const REFUSED_FIELDS: &[(&str, &str, Option<&str>)] = &[
    ("window: 0", "from 1 to", None),
    ("window: -5", "from 1 to", None),
    ("window: 1.5", "from 1 to", None),
    ("window: 1e5", "from 1 to", None),
    ("window: 1000000001", "from 1 to", None),
    ("window: \"128000\"", "from 1 to", None),
    ("prices: 3", "not a number", None),
    ("prices: {}", "input is missing", None),
    ("prices: {input: 1}", "output is missing", None),
    (
        "prices: {output: 1, cache_read: 1}",
        "input is missing",
        None,
    ),
    ("prices: {inptu: 1}", "not known here", Some("input")),
    ("prices: {input: -1}", "a price is digits", None),
    ("prices: {input: 1e-3}", "a price is digits", None),
    ("prices: {input: \"$1\"}", "a price is digits", None),
    ("prices: {input: \"1,5\"}", "a price is digits", None),
    ("prices: {input: \"\"}", "a price is digits", None),
    ("prices: {input: \".5\"}", "a price is digits", None),
    ("prices: {input: \"5.\"}", "a price is digits", None),
    ("prices: {input: 0.0000000001}", "a price is digits", None),
    ("prices: {input: 12345678}", "a price is digits", None),
    ("prices: {input: true}", "not true or false", None),
    (
        "prices: {input: .inf}",
        "not a number that can be stored",
        None,
    ),
];

#[test]
fn refusals() {
    for (text, line, word, near) in REFUSED {
        check_refused(text, *line, word, *near);
    }
    for (field, word, near) in REFUSED_FIELDS {
        let text = format!("models:\n  m: {{provider: openai, output: 1, {field}}}\n");
        check_refused(&text, 2, word, *near);
    }
}

fn check_refused(text: &str, line: usize, word: &str, near: Option<&str>) {
    let error = ModelTable::load(Some(text), EnvironmentSnapshot::default())
        .map(|_| ())
        .expect_err(text);
    let LibraryError::Invalid {
        place,
        problem,
        nearest,
        ..
    } = &error
    else {
        panic!("{text:?}: {error:?}");
    };
    assert_eq!(
        place,
        &format!("{TABLE_PLACE}:{line}"),
        "{text:?}: {problem}"
    );
    assert!(problem.contains(word), "{text:?}: {problem}");
    assert_eq!(nearest.as_deref(), near, "{text:?}: {problem}");
}

#[test]
fn limits() {
    let load =
        |text: String| ModelTable::load(Some(&text), EnvironmentSnapshot::default()).map(|_| ());
    let models = |n: usize| {
        "models:\n".to_owned()
            + &(0..n)
                .map(|i| format!(" m{i}: {{provider: openai, output: 1}}\n"))
                .collect::<String>()
    };
    let providers = |n: usize| {
        "providers:\n".to_owned()
            + &(0..n)
                .map(|i| format!(" p{i}: {{wire: openai}}\n"))
                .collect::<String>()
    };
    let tiers = |n: usize| {
        models(1) + "tiers:\n" + &(0..n).map(|i| format!(" t{i}: m0\n")).collect::<String>()
    };
    assert_eq!(load(models(MODELS_MAX)), Ok(()));
    assert!(load(models(MODELS_MAX + 1)).is_err());
    assert_eq!(load(providers(PROVIDERS_MAX)), Ok(()));
    assert!(load(providers(PROVIDERS_MAX + 1)).is_err());
    assert_eq!(load(tiers(TIERS_MAX)), Ok(()));
    assert!(load(tiers(TIERS_MAX + 1)).is_err());
    let named = |bytes: usize| {
        format!(
            "models:\n {}: {{provider: openai, output: {TOKENS_MAX}}}\n",
            "m".repeat(bytes)
        )
    };
    assert_eq!(load(named(NAME_BYTES_MAX)), Ok(()));
    assert!(load(named(NAME_BYTES_MAX + 1)).is_err());
}

#[test]
fn the_built_in_table() {
    let table = ModelTable::load(
        None,
        environment(&[("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")]),
    )
    .expect("valid");
    for name in ["default", "fast", "gpt-4o-mini", "claude-sonnet-5-5"] {
        let model = table.resolve(name).expect(name);
        assert!(
            model.window.is_some() && model.output.is_some() && model.prices.is_some(),
            "{name}"
        );
        assert!(table.provider(&model.provider).is_ok(), "{name}");
    }
    for (keys, model) in [
        (&[][..], "gpt-4o-mini"),
        (&[("ANTHROPIC_API_KEY", "k")], "claude-haiku-4-5"),
        (
            &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "")],
            "claude-haiku-4-5",
        ),
        (
            &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k")],
            "gpt-4o-mini",
        ),
    ] {
        let table = ModelTable::load(None, environment(keys)).expect("valid");
        for tier in ["default", "fast"] {
            assert_eq!(table.resolve(tier).expect(tier).name, model, "{keys:?}");
        }
    }
    let empty = ModelTable::load(Some(""), EnvironmentSnapshot::default())
        .expect("an empty file is a table without models");
    assert!(empty.names().is_empty());
}

fn policy(text: &str) -> Policy {
    Policy::parse(text, "the policy").expect("it is a policy")
}

#[test]
fn what_the_operator_allows() {
    let by_model = table(&[]).restrict_to_policy(&policy("models: {script: {}}"));
    assert_eq!(by_model.names(), ["fast", "script"]);
    let by_provider = table(&[]).restrict_to_policy(&policy("providers: {mine: {}}"));
    assert_eq!(by_provider.names(), ["meta/llama-3.1:8b"]);
    let error = by_provider.provider("demo").map(|_| ()).expect_err("gone");
    assert!(
        error.to_string().contains("the policy, does not grant it"),
        "{error}"
    );
    let all = table(&[]).restrict_to_policy(&Policy::preset(PolicyPreset::Local));
    assert_eq!(all.names(), table(&[]).names());
    let priced = policy("models: {script: {prices: {input: 7, output: 8}}, gpt-4o-mini: }");
    let priced = table(&[]).restrict_to_policy(&priced);
    let input = |name| {
        let prices = priced.model(name).and_then(|model| model.prices.clone());
        prices.map(|prices| prices.input)
    };
    assert_eq!(input("script").as_deref(), Some("7"), "the operator's");
    assert_eq!(
        input("gpt-4o-mini").as_deref(),
        Some("0.15"),
        "the tenant's own"
    );
    assert_eq!(input("fast"), None, "a tier is no model");
}
