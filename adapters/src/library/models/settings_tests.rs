//! Model options under a policy.

use super::super::ModelTable;
use crate::environment::EnvironmentSnapshot;
use crate::policy::Policy;

/// Symptom: a tenant's `options` chose another model, a dearer service or more replies than one.
/// Cause: they bypassed the operator's policy. Fix: if it bounds models or money, only options are
/// allowed that choose none of these. Kind: fields of a request that a tenant may set.
#[test]
fn options_that_choose_models_or_money_are_refused_under_a_policy() {
    let table = |options: &str, policy: &str| {
        let text = format!(
            "providers: {{p: {{wire: openai, base_url: \"http://127.0.0.1/v1\"}}}}\n\
             models: {{m: {{provider: p, options: {options}}}}}\n"
        );
        let table = ModelTable::load(Some(&text), EnvironmentSnapshot::default()).expect("a table");
        table.restrict_to_policy(&Policy::parse(policy, "the policy").expect("a policy"))
    };
    for (options, policy, refused) in [
        ("{models: [dear]}", "preset: local", false),
        ("{models: [dear]}", "models: {m: }", true),
        ("{service_tier: priority}", "ceilings: {spend: 1}", true),
        (
            "{best_of: 5}",
            "providers: {p: {hosts: [\"http://127.0.0.1\"]}}",
            true,
        ),
        (
            "{temperature: 1, reasoning_effort: low}",
            "models: {m: }",
            false,
        ),
    ] {
        let found = table(options, policy).provider("p");
        assert_eq!(found.is_err(), refused, "{options} {policy}");
        if let Err(error) = found {
            assert!(error.to_string().contains("the policy"), "{error}");
        }
    }
}
