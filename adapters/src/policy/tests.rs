//! Tests of policy files: every key, and refusals with their line and the nearest name.

use super::*;
use std::time::Duration;

const FULL: &str = r#"
preset: strict
limits: {turns: 20, tokens: 400000, spend: 0.50, spawns: 3, depth: 2, duration: 600}
models:
  gpt-4o-mini: {prices: {input: "0.15", cache_read: "0.075", output: "0.60"}}
  gpt-4o:
tools: [read_file, "list_*"]
providers:
  openai: {wire: openai, hosts: [api.openai.com], keys: [OPENAI_API_KEY]}
  local: {hosts: ["http://127.0.0.1:11434"], private: true}
ceilings:
  spend: 5.00
  unpriced: true
  model_calls: 1
  model_bytes: 2
  tool_calls: 3
  tool_bytes: 4
  argument_bytes: 5
  calls_per_minute: 6
  run_time: 7.5
  call_time: 60
  idle_time: 0.5
  runs: 8
quota: 1000
book: used.json
"#;

fn parse_ok(text: &str) -> Policy {
    Policy::parse(text, "policy.yaml").expect(text)
}

#[test]
fn every_key_is_read() {
    let policy = parse_ok(FULL);
    let ceilings = HostCeilings {
        spend_nanos_max: Some(5_000_000_000),
        unpriced: true,
        model_calls_max: Some(1),
        model_bytes_max: Some(2),
        tool_calls_max: Some(3),
        tool_bytes_max: Some(4),
        argument_bytes_max: Some(5),
        calls_per_minute_max: Some(6),
        run_time_max: Some(Duration::from_millis(7_500)),
        call_time_max: Some(Duration::from_secs(60)),
        idle_time_max: Some(Duration::from_millis(500)),
        runs_max: Some(8),
    };
    assert_eq!(policy.ceilings, ceilings);
    let texts = (
        policy.name.as_str(),
        policy.preset.as_str(),
        policy.book.as_deref(),
    );
    assert_eq!(texts, ("policy.yaml", "strict", Some("used.json")));
    assert_eq!(policy.quota_bytes, Some(1_000));
    assert_eq!(
        policy.to_guest_document().to_string(),
        concat!(
            r#"{"limits":{"turns":20,"tokens":400000,"spend":0.50,"spawns":3,"depth":2,"#,
            r#""duration":600},"capabilities":["execute.tool.read_file","execute.tool.list_*"]}"#
        )
    );
    let models = policy.models.expect("granted");
    assert_eq!(models.keys().collect::<Vec<_>>(), ["gpt-4o", "gpt-4o-mini"]);
    assert_eq!(models["gpt-4o"], None);
    assert_eq!(
        models["gpt-4o-mini"]
            .as_ref()
            .map(|prices| prices.output.as_str()),
        Some("0.60")
    );
    let providers = policy.providers.expect("granted");
    let openai = &providers["openai"];
    assert_eq!(
        (openai.wire, openai.keys.len()),
        (Some(WireProtocol::OpenAi), 1)
    );
    assert_eq!(openai.hosts[0].to_string(), "https://api.openai.com");
    assert_eq!((openai.private, providers["local"].private), (false, true));
    assert_eq!(
        (providers["local"].wire, providers["local"].keys.len()),
        (None, 0)
    );
}

#[test]
fn omitted_keys_come_from_preset() {
    let cases = [
        ("", PolicyPreset::Local),
        ("{}", PolicyPreset::Local),
        ("preset: local", PolicyPreset::Local),
        ("preset: strict", PolicyPreset::Strict),
    ];
    for (text, preset) in cases {
        let expected = Policy {
            name: "policy.yaml".to_owned(),
            ..Policy::preset(preset)
        };
        assert_eq!(parse_ok(text), expected, "{text:?}");
    }
    assert_eq!(parse_ok("preset: strict\nquota: null").quota_bytes, None);
    assert_eq!(parse_ok("tools: []").tools, Some(Vec::new()));
    assert!(!parse_ok("tools: []").grants_tool("read_file"));
    assert!(!parse_ok("models: {}").grants_model("gpt-4o"));
}

/// A file, the line of its error, a part of the sentence, and the suggested name.
type RefusedPolicy<'a> = (&'a str, usize, &'a str, Option<&'a str>);

const REFUSED: &[RefusedPolicy<'_>] = &[
    ("modles: {}", 1, "not known here", Some("models")),
    ("- a", 1, "not a list", None),
    (
        "preset: strikt",
        1,
        "a preset is one of local, strict",
        Some("strict"),
    ),
    ("limits: {turn: 1}", 1, "limits.turn:", Some("turns")),
    ("limits: {turns: -1}", 1, "a whole number", None),
    ("limits: {turns: 1.5}", 1, "a whole number", None),
    ("limits: {spend: cheap}", 1, "a decimal", None),
    ("limits:\n  spend: 0.0000000001", 2, "limits.spend", None),
    ("models: [gpt-4o]", 1, "keys with values", None),
    (
        "models:\n  a: {price: 1}",
        2,
        "not known here",
        Some("prices"),
    ),
    (
        "models:\n  a: {prices: {input: 1}}",
        2,
        "output is missing",
        None,
    ),
    ("tools: read_file", 1, "a list of at most", None),
    ("tools: [1]", 1, "text is needed", None),
    (
        "providers:\n  p: {host: [a]}",
        2,
        "not known here",
        Some("hosts"),
    ),
    (
        "providers:\n  p: {wire: opena}",
        2,
        "a wire is one of",
        Some("openai"),
    ),
    (
        "providers:\n  p: {hosts: ['a/../b']}",
        2,
        "a host is such as",
        None,
    ),
    (
        "providers:\n  p: {hosts: ['*']}",
        2,
        "a host is such as",
        None,
    ),
    (
        "providers:\n  p: {keys: [HOME]}",
        2,
        "ends in _API_KEY",
        None,
    ),
    ("unknown_bill: fll", 1, "estimate, full", Some("full")),
    ("unknown_bill: 7", 1, "text is needed", None),
    ("ceilings: {spent: 1}", 1, "ceilings.spent", Some("spend")),
    ("ceilings: {spend: -1}", 1, "a decimal", None),
    ("ceilings: {unpriced: 1}", 1, "true or false", None),
    (
        "providers:\n  p: {private: yes please}",
        2,
        "true or false",
        None,
    ),
    ("ceilings: {model_calls: many}", 1, "a whole number", None),
    ("ceilings: {run_time: 5m}", 1, "a decimal", None),
    ("quota: 1GB", 1, "a whole number", None),
    (
        "book: ../used.json",
        1,
        "the name of a file beside the policy",
        None,
    ),
    ("book: .used", 1, "the name of a file", None),
    ("preset: [", 2, "column", None),
];

#[test]
fn refusals() {
    for (text, line, word, near) in REFUSED {
        let error = Policy::parse(text, "policy.yaml")
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
        assert_eq!(place, &format!("policy.yaml:{line}"), "{text:?}: {problem}");
        assert!(problem.contains(word), "{text:?}: {problem}");
        assert_eq!(nearest.as_deref(), *near, "{text:?}: {problem}");
    }
    let many: Vec<String> = (0..=NAMES_MAX).map(|n| format!("t{n}")).collect();
    let list = |names: &[String]| Policy::parse(&format!("tools: [{}]", names.join(", ")), "p");
    assert!(list(&many[1..]).is_ok());
    assert!(list(&many).is_err());
}
