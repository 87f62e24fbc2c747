//! The addresses that keys may be sent to, without a policy and with one.

use super::*;
use crate::environment::EnvironmentSnapshot;
use crate::policy::{NetworkReach, PolicyPreset};

fn environment(pairs: &[(&str, &str)]) -> EnvironmentSnapshot {
    let pairs = pairs.iter();
    EnvironmentSnapshot::from_pairs(
        pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    )
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

/// A provider's address and key, and a part of the error; empty if the key may be sent there.
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
        check_bound(base_url, key, &Policy::preset(PolicyPreset::Local), word);
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
        check_bound(base_url, key, &granted, word);
    }
    let other_wire = policy("providers: {p: {wire: anthropic, hosts: [evil.test]}}");
    check_bound(
        "https://evil.test",
        "sk-written",
        &other_wire,
        "speaks anthropic, not openai",
    );
    check_bound(
        "https://evil.test",
        "sk-written",
        &policy("providers: {p: }"),
        "its hosts (none)",
    );
}

/// Symptom: a grant of one team's address at a shared gateway granted the whole gateway. Cause: a
/// grant was scheme, host and port. Fix: a grant may have the beginning of a path. Kind: addresses
/// that begin like the granted one and lead elsewhere, with the operator's key.
#[test]
fn a_policy_binds_a_provider_and_its_key_below_a_path() {
    let granted = policy(
        "providers: {p: {hosts: [gw.test/team-a/v1, 'http://localhost:8000/x'], \
         keys: [OTHER_API_KEY]}}",
    );
    for (base_url, word) in [
        ("https://gw.test/team-a/v1", ""),
        ("https://gw.test/team-a/v1/", ""),
        ("https://gw.test/team-a/v1/sub", ""),
        ("http://localhost:8000/x", ""),
        (
            "https://gw.test",
            "https://gw.test with this path is not below one of its hosts \
             (https://gw.test/team-a/v1, ",
        ),
        ("https://gw.test/team-b/v1", "with this path is not below"),
        ("https://gw.test/team-a/v10", "with this path is not below"),
        (
            "https://gw.test/team-a/v1/../../team-b/v1",
            "with this path is not below",
        ),
        (
            "https://gw.test/team-a/v1/%2e%2e/%2e%2e/team-b",
            "with this path is not below",
        ),
        (
            "https://gw.test/team-a/v1\\..\\..\\team-b",
            "with this path is not below",
        ),
        (
            "https://gw.test/team-a/v1/..;/team-b",
            "with this path is not below",
        ),
        (
            "https://gw.test:8443/team-a/v1",
            "https://gw.test:8443 is not one of its hosts",
        ),
        (
            "http://gw.test/team-a/v1",
            "http://gw.test is not one of its hosts",
        ),
        (
            "https://evil.test/team-a/v1",
            "https://evil.test is not one of its hosts",
        ),
        ("https://gw.test@evil.test/team-a/v1", "an address is"),
        (
            "https://gw.test/team-a/v1?x=/team-b",
            "with this path is not below",
        ),
    ] {
        check_bound(base_url, "${OTHER_API_KEY}", &granted, word);
        check_bound(base_url, "sk-written-by-the-tenant", &granted, word);
    }
}

/// Columns: policy, a tenant's address, the permitted network addresses (`None` if refused).
const REACHED: &[(&str, &str, Option<NetworkReach>)] = {
    use NetworkReach::{Anywhere, Loopback, Public};
    const STRICT: &str = "preset: strict";
    const GRANTED: &str = "{preset: strict, providers: {p: {hosts: ['http://127.0.0.1:8000', \
                           'http://[fd00::1]', 'http://localhost', inner.test]}}}";
    const PRIVATE: &str = "{preset: strict, providers: {p: {\
                           hosts: [inner.test, 'http://localhost'], private: true}}}";
    &[
        ("preset: local", "http://127.0.0.1:8000", Some(Anywhere)),
        ("preset: local", "https://inner.test", Some(Anywhere)),
        (STRICT, "https://inner.test", Some(Public)),
        (STRICT, "https://8.8.8.8", Some(Public)),
        (STRICT, "http://127.0.0.1:8000", None),
        (STRICT, "http://127.9.9.9", None),
        (STRICT, "http://localhost", None),
        (STRICT, "http://LOCALHOST:1", None),
        (STRICT, "http://x.localhost", None),
        (STRICT, "http://0.0.0.0", None),
        (STRICT, "http://10.0.0.1", None),
        (STRICT, "http://172.16.9.9", None),
        (STRICT, "http://192.168.1.1", None),
        (STRICT, "http://169.254.169.254/latest", None),
        (STRICT, "http://[::1]", None),
        (STRICT, "http://[::]", None),
        (STRICT, "http://[fe80::1]", None),
        (STRICT, "http://[fd00::1]", None),
        (STRICT, "http://[::ffff:127.0.0.1]", None),
        (STRICT, "http://[::ffff:a00:1]", None),
        (GRANTED, "http://127.0.0.1:8000", Some(Anywhere)),
        (GRANTED, "http://[fd00:0::1]", Some(Anywhere)),
        (GRANTED, "http://localhost", Some(Loopback)),
        (GRANTED, "https://inner.test", Some(Public)),
        (GRANTED, "http://127.0.0.1:9000", None),
        (PRIVATE, "https://inner.test", Some(Anywhere)),
        (PRIVATE, "http://localhost", Some(Anywhere)),
        (PRIVATE, "http://10.0.0.1", None),
    ]
};

/// Symptom: under `preset: strict` a tenant reached the machine's own services. Cause: addresses
/// were not distinguished. Fix: those that are not public are refused unless they are granted.
#[test]
fn strict_refuses_addresses_that_are_not_public() {
    for (text, base_url, reach) in REACHED {
        let table = format!("providers:\n  p:\n    wire: openai\n    base_url: '{base_url}'\n");
        let table = ModelTable::load(Some(&table), environment(SECRETS)).expect("it is a table");
        let spec = table.restrict_to_policy(&policy(text)).provider("p");
        assert_eq!(
            spec.as_ref().ok().map(|spec| spec.reach),
            *reach,
            "{text} {base_url}"
        );
        if let Err(error) = spec {
            let said = error.to_string();
            let words = ["private address", "is not one of its hosts"];
            assert!(
                words.iter().any(|word| said.contains(word)),
                "{base_url}: {said}"
            );
        }
    }
}

/// Checks one provider of a tenant's table under a policy; no error may show a key.
fn check_bound(base_url: &str, key: &str, policy: &Policy, word: &str) {
    let text = format!(
        "providers:\n  p:\n    wire: openai\n    base_url: '{base_url}'\n    key: '{key}'\n"
    );
    let table = ModelTable::load(Some(&text), environment(SECRETS)).expect("it is a table");
    match table.restrict_to_policy(policy).provider("p") {
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
