//! Which keys may go where, without a policy and with one.

use super::*;
use crate::authority::Environment;
use crate::policy::Preset;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    let pairs = pairs.iter();
    Environment::from_pairs(pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
}

fn policy(text: &str) -> Policy {
    Policy::parse(text, "the policy").expect("it is a policy")
}

const SECRETS: &[(&str, &str)] = &[
    ("OPENAI_API_KEY", "sk-openai"),
    ("ANTHROPIC_API_KEY", "sk-anthropic"),
    ("OTHER_API_KEY", "sk-other"),
    ("SET_API_KEY", "sk-set"),
    ("SET_BASE_URL", "https://set.test:8443/v1"),
];

/// A provider's address and key, and a part of the error; empty if the key may go there.
const BOUND: &[(&str, &str, &str)] = &[
    ("https://api.openai.com/v1", "${OPENAI_API_KEY}", ""),
    ("https://API.openai.com:443", "${OPENAI_API_KEY}", ""),
    ("https://api.anthropic.com", "${ANTHROPIC_API_KEY}", ""),
    ("http://localhost:8000/v1", "${OPENAI_API_KEY}", ""),
    ("http://127.0.0.1:1", "${OTHER_API_KEY}", ""),
    ("https://set.test:8443/other", "${SET_API_KEY}", ""),
    ("${SET_BASE_URL}", "${SET_API_KEY}", ""),
    ("https://evil.test", "sk-written-by-the-tenant", ""),
    (
        "https://evil.test",
        "${OPENAI_API_KEY}",
        "OPENAI_API_KEY may go to https://api.openai.com",
    ),
    (
        "https://evil.test",
        "${OTHER_API_KEY}",
        "OTHER_API_KEY may go to the address in OTHER_BASE_URL",
    ),
    (
        "http://api.openai.com/v1",
        "${OPENAI_API_KEY}",
        "not to http://api.openai.com",
    ),
    (
        "https://api.openai.com:8443",
        "${OPENAI_API_KEY}",
        "not to https://api.openai.com:8443",
    ),
    (
        "https://api.openai.com.evil.test",
        "${OPENAI_API_KEY}",
        "may go to",
    ),
    (
        "https://api.openai.com",
        "${ANTHROPIC_API_KEY}",
        "may go to https://api.anthropic.com",
    ),
    (
        "https://set.test",
        "${SET_API_KEY}",
        "not to https://set.test",
    ),
    (
        "${SET_BASE_URL}",
        "${OPENAI_API_KEY}",
        "not to https://set.test:8443",
    ),
    (
        "https://api.openai.com",
        "${OPENAI_API_KEY}${OTHER_API_KEY}",
        "OTHER_API_KEY may go",
    ),
    (
        "https://api.openai.com@evil.test",
        "${OPENAI_API_KEY}",
        "an address is",
    ),
    (
        "https://evil.test\\@api.openai.com",
        "${OPENAI_API_KEY}",
        "an address is",
    ),
    (
        "https://evil.test#api.openai.com",
        "${OPENAI_API_KEY}",
        "an address is",
    ),
];

#[test]
fn a_key_goes_where_its_name_says_and_nowhere_else() {
    for (base_url, key, word) in BOUND {
        bound(base_url, key, &Policy::preset(Preset::Local), word);
    }
}

#[test]
fn a_policy_binds_wire_hosts_and_keys() {
    let granted = policy(
        "providers: {p: {wire: openai, hosts: [evil.test, api.openai.com], keys: [OTHER_API_KEY]}}",
    );
    for (base_url, key, word) in [
        ("https://evil.test/v1", "${OTHER_API_KEY}", ""),
        ("https://evil.test", "sk-written-by-the-tenant", ""),
        (
            "https://evil.test",
            "${OPENAI_API_KEY}",
            "OPENAI_API_KEY is not one of its keys",
        ),
        (
            "https://api.openai.com",
            "${OPENAI_API_KEY}",
            "by the operator's policy, the policy",
        ),
        (
            "https://set.test:8443",
            "sk-written",
            "https://set.test:8443 is not one of its hosts",
        ),
        ("http://evil.test", "sk-written", "is not one of its hosts"),
        (
            "http://localhost",
            "sk-written",
            "is not one of its hosts (https://evil.test, ",
        ),
    ] {
        bound(base_url, key, &granted, word);
    }
    let other_wire = policy("providers: {p: {wire: anthropic, hosts: [evil.test]}}");
    bound(
        "https://evil.test",
        "sk-written",
        &other_wire,
        "speaks anthropic, not openai",
    );
    bound(
        "https://evil.test",
        "sk-written",
        &policy("providers: {p: }"),
        "its hosts (none)",
    );
}

/// One provider of a tenant's table under a policy; no error shows a key.
fn bound(base_url: &str, key: &str, policy: &Policy, word: &str) {
    let text = format!(
        "providers:\n  p:\n    wire: openai\n    base_url: '{base_url}'\n    key: '{key}'\n"
    );
    let table = ModelTable::load(Some(&text), environment(SECRETS)).expect("it is a table");
    match table.restricted(policy).provider("p") {
        Ok(spec) => assert_eq!((word, spec.key.is_some()), ("", true), "{base_url} {key}"),
        Err(error) => {
            let said = error.to_string();
            assert!(
                !word.is_empty() && said.contains(word),
                "{base_url} {key}: {said}"
            );
            assert!(
                !format!("{error:?}").contains("sk-"),
                "an error shows a key: {error:?}"
            );
        }
    }
}
