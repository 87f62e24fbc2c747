//! The answers of `run` and `resume`, and the advice at their end.

use super::*;
use crate::screen::tests::screen;

fn answer(status: &str, code: Option<&str>) -> RunAnswer {
    RunAnswer {
        thread_id: "a-1".to_owned(),
        chain_id: "a-0".to_owned(),
        handed_off: vec!["a-0".to_owned()],
        run: 1,
        status: status.to_owned(),
        outcome: None,
        text: "Done.".to_owned(),
        result: Some(Value::from("Done.")),
        cause: code.map(|code| StatusCause {
            reason: "limit".to_owned(),
            code: code.to_owned(),
            message: "25 of 25 turns".to_owned(),
            failure: None,
        }),
        waits_for: ThreadNeeds::default(),
        bound: CapSource::Thread,
        payer: "a-1".to_owned(),
        wait: None,
        cost: ThreadCost {
            turns: 2,
            input_tokens: 250,
            output_tokens: 30,
            spend: 310_000,
        },
        tree_spend: Some(310_000),
        tree_threads: 1,
        tree_unreadable: Vec::new(),
        suspended: Vec::new(),
        suspended_left_out: 0,
        charged: Vec::new(),
        left_alone: Vec::new(),
        exit: CommandExit::from_status(status),
    }
}

#[test]
fn json_has_the_documented_names() {
    assert_eq!(
        serde_json::to_string(&answer("completed", None)).unwrap(),
        concat!(
            r#"{"thread_id":"a-1","chain_id":"a-0","handed_off":["a-0"],"run":1,"status":"completed","#,
            r#""outcome":null,"text":"Done.","result":"Done.","cause":null,"waits_for":null,"#
        )
        .to_owned()
            + concat!(
                r#""cost":{"turns":2,"input_tokens":250,"output_tokens":30,"#,
                r#""spend":"0.00031"},"tree_spend":"0.00031","#
            )
            + concat!(
                r#""tree_threads":1,"tree_unreadable":[],"suspended":[],"#,
                r#""suspended_left_out":0,"charged":[],"left_alone":[],"exit":0}"#
            )
    );
}

#[test]
fn a_person_sees_id_status_cost_and_what_to_do() {
    let (mut person, out, err) = screen(false, false);
    person.print_answer(&answer("suspended", Some("turns_exceeded")));
    assert_eq!(out.text(), "");
    assert_eq!(
        err.text(),
        "thread  a-1\nstatus  suspended (turns_exceeded): 25 of 25 turns\ncost    0.00031 USD \
         for 2 turns, 250 \
         input and 30 output tokens\nnext    threadkeep raise a-1 --turns N, then threadkeep \
         resume a-1\n"
    );
}

/// Symptom: the end of a run did not mention suspended children, nor their spend. Fix: it shows
/// both, with what to do. Kinds: a child that can be resumed, one that cannot, too many to
/// list.
#[test]
fn children_that_are_suspended_are_named_with_what_to_do() {
    let child = |id: &str, code: &str, payer: &str| SuspendedRow {
        thread_id: id.to_owned(),
        cause: answer("suspended", Some(code)).cause,
        next: suspended_advice(id, code, CapSource::Thread, payer, None),
    };
    let (mut person, _, err) = screen(false, false);
    person.print_answer(&RunAnswer {
        tree_spend: Some(910_000),
        tree_threads: 3,
        tree_unreadable: vec!["d".to_owned()],
        suspended: vec![
            child("b", "spend_exceeded", "a-1"),
            child("c", "window_exceeded", "c"),
        ],
        suspended_left_out: 2,
        ..answer("completed", None)
    });
    let expected = "\
thread  a-1
status  completed
cost    0.00031 USD for 2 turns, 250 input and 30 output tokens
tree    0.00091 USD for 3 threads, without d, which cannot be read
child   b is suspended (spend_exceeded): 25 of 25 turns
        next: threadkeep raise a-1 --spend USD, then threadkeep resume a-1
child   c is suspended (window_exceeded): 25 of 25 turns
child   2 more are suspended: threadkeep list --status suspended
";
    assert_eq!(err.text(), expected);
}

#[test]
fn a_wait_that_a_provider_asks_for_comes_before_the_resume() {
    let advised =
        |wait| suspended_advice("a", "provider_rate_limited", CapSource::Thread, "a", wait);
    assert_eq!(advised(None).unwrap(), "threadkeep resume a");
    let waits = advised(Some(900_000)).unwrap();
    assert_eq!(waits, "wait 15 min 0 s, then threadkeep resume a");
}

#[test]
fn nothing_is_suggested_about_a_thread_that_is_gone() {
    let (mut forgets, _, err) = screen(false, false);
    forgets.mark_threads_lost();
    forgets.print_answer(&answer("suspended", Some("turns_exceeded")));
    let said = err.text();
    assert!(
        said.contains("next    it was kept in memory and is gone now"),
        "{said}"
    );
    assert!(!said.contains("threadkeep raise"), "{said}");
}

#[test]
fn a_cap_of_the_policy_is_not_the_threads_to_raise() {
    for (bound, operator, raise) in [
        (CapSource::Thread, false, true),
        (CapSource::Policy, true, false),
        (CapSource::Both, true, true),
    ] {
        let stands = RunAnswer {
            bound,
            ..answer("suspended", Some("turns_exceeded"))
        };
        let next = stands.next_step().unwrap();
        assert_eq!(
            next.contains("raise limits.turns in the policy"),
            operator,
            "{next}"
        );
        assert_eq!(
            next.contains("threadkeep raise a-1 --turns N"),
            raise,
            "{next}"
        );
        assert!(next.ends_with("threadkeep resume a-1"), "{next}");
    }
}

/// Symptom: a person was told to mend what the provider refuses, where the operator's policy
/// had refused.
#[test]
fn what_is_out_of_reach_is_the_operator_s_to_grant() {
    let advice = |failure: &str| {
        let code = advised_code("provider_permanent", Some(failure));
        suspended_advice("a", code, CapSource::Thread, "a", None).unwrap_or_default()
    };
    let granted = advice("out_of_reach");
    assert!(
        granted.contains("operator") && granted.contains("policy"),
        "{granted}"
    );
    assert!(advice("bad_request").contains("the provider refuses"));
    // Symptom: the end of a run whose reply was too large offered a resume, which pays again.
    // Kind: the component's bound and the host's.
    let too_large = advice("reply_too_large");
    assert!(too_large.starts_with("ask for less: "), "{too_large}");
    assert!(!too_large.ends_with("threadkeep resume a"), "{too_large}");
}

#[test]
fn advice_follows_the_cause() {
    for (status, code, word) in [
        ("suspended", Some("budget"), Some("--spend")),
        ("suspended", Some("tokens_exceeded"), Some("--tokens")),
        ("suspended", Some("duration_exceeded"), Some("--duration")),
        ("suspended", Some("spawns_exceeded"), Some("--spawns")),
        ("suspended", Some("depth_exceeded"), Some("--depth")),
        (
            "suspended",
            Some("ceiling_spend"),
            Some("raise spend in the policy"),
        ),
        (
            "suspended",
            Some("ceiling_book"),
            Some("mend or remove the book"),
        ),
        ("suspended", Some("ceiling_models"), Some("grant the model")),
        (
            "suspended",
            Some("ceiling_unpriced"),
            Some("a price in the policy"),
        ),
        (
            "suspended",
            Some("ceiling_calls_per_minute"),
            Some("wait a minute, then"),
        ),
        (
            "suspended",
            Some("ceiling_run_time"),
            Some("threadkeep resume a-1"),
        ),
        (
            "suspended",
            Some("recovered"),
            Some("threadkeep resume a-1"),
        ),
        (
            "suspended",
            Some("provider_quota"),
            Some("top up the account at the provider"),
        ),
        (
            "suspended",
            Some("provider_permanent"),
            Some("mend what the provider refuses"),
        ),
        ("suspended", Some("provider_context_overflow"), None),
        ("suspended", Some("window_exceeded"), None),
        (
            "suspended",
            Some("handoff_impossible"),
            Some("threadkeep resume a-1 --message TEXT"),
        ),
        (
            "suspended",
            Some("reply_too_large"),
            Some("threadkeep resume a-1 --message TEXT"),
        ),
        ("cancelled", Some("cancelled"), None),
        ("completed", None, None),
    ] {
        let next = answer(status, code).next_step();
        assert_eq!(next.is_some(), word.is_some(), "{status} {code:?}");
        assert!(next.unwrap_or_default().contains(word.unwrap_or_default()));
    }
}
