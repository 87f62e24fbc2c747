//! `budget` and `tree`: the money of an external loop from a shell.

use super::fixture::{CliProject, MODELS};
use super::refusals::{RefusalCase, check};
use serde_json::{Value, json};

/// A chat held by an external loop, in a project with a priced and an unpriced model.
struct ShellLoop {
    project: CliProject,
    thread: String,
    token: String,
    holder: String,
}

impl ShellLoop {
    fn open() -> Self {
        let project = CliProject::new();
        let free = "models:\n  free: {provider: local, window: 32000, output: 1000}";
        project.write(".ai/config/models.yaml", &MODELS.replace("models:", free));
        project.json(&["create", "--id", "talk"]);
        let opened = project.json(&["open", "talk"]);
        let text = |name: &str| opened[name].as_str().expect("a text").to_owned();
        Self {
            token: text("token"),
            holder: text("holder"),
            thread: "talk".to_owned(),
            project,
        }
    }

    fn ask(&self, arguments: &[&str]) -> Value {
        self.project.json(arguments)
    }

    fn hold(&self, key: &str, rest: &[&str]) -> Value {
        let first = ["budget", "hold", &self.thread, key, "--token", &self.token];
        self.ask(&[&first, rest].concat())
    }

    /// Holds a call and returns its number.
    fn hold_call(&self, key: &str, rest: &[&str]) -> String {
        let held = self.hold(key, rest);
        assert_eq!(held["exit"], 0, "{held}");
        held["call"].to_string()
    }

    fn settle(&self, call: &str, rest: &[&str]) -> Value {
        self.ask(&[&["budget", "settle", &self.thread, call], rest].concat())
    }

    /// The records that a refused call must not change.
    fn state(&self) -> (Value, Value) {
        let shown = ["budget", "show", &self.thread];
        (self.ask(&shown), self.ask(&["show", &self.thread]))
    }

    /// The figures of the account as text: limit, spent, held, reserved, remaining, debt.
    fn figures(&self) -> [String; 6] {
        let shown = self.ask(&["budget", "show", &self.thread]);
        ["limit", "spent", "held", "reserved", "remaining", "debt"].map(|name| {
            let figure = shown["account"][name].as_str();
            figure.expect("a decimal").to_owned()
        })
    }
}

/// The figures of an account without children.
fn figures(limit: &str, spent: &str, held: &str, remaining: &str) -> [String; 6] {
    [limit, spent, held, "0.00", remaining, "0.00"].map(str::to_owned)
}

#[test]
fn a_call_is_held_settled_and_shown_to_the_nano() {
    let host = ShellLoop::open();
    assert_eq!(host.figures(), figures("1.00", "0.00", "0.00", "1.00"));
    let tokens = ["--model", "tiny", "--input", "100", "--output", "300"];
    let held = host.hold("turn-1", &tokens);
    assert_eq!(
        (&held["amount"], &held["output"], &held["key"]),
        (&json!("0.0007"), &json!(300), &json!("turn-1"))
    );
    assert_eq!(host.hold("turn-1", &tokens), held, "asked again");
    let money = host.hold_call("turn-2", &["--amount", "0.000000007"]);
    let expected = figures("1.00", "0.00", "0.000700007", "0.999299993");
    assert_eq!(host.figures(), expected);

    let call = held["call"].to_string();
    let usage = ["--input", "50", "--output", "20", "--cache-read", "10"];
    let settled = host.settle(&call, &usage);
    assert_eq!(settled["exit"], 0, "{settled}");
    assert_eq!(host.settle(&call, &usage), settled, "told again");
    let released = host.ask(&["budget", "release", "talk", &money]);
    assert_eq!(released["exit"], 0, "{released}");
    // The other kinds of tokens are priced as input, because the file gives them no price.
    assert_eq!(host.figures(), figures("1.00", "0.0001", "0.00", "0.9999"));
    let shown = host.ask(&["budget", "show", "talk"]);
    assert_eq!(shown["cost"]["spend"], "0.0001");
    assert_eq!(shown["cost"]["turns"], 1);

    // A person gets the number alone on standard output, and the rest on standard error.
    let arguments = ["budget", "hold", "talk", "turn-3", "--amount", "0.25"];
    let mut command = host.project.command(&arguments);
    command.env("THREADKEEP_TOKEN", &host.token);
    let ran = threadkeep_tests::binary::run_to_end(command);
    let call: u64 = ran.out.trim().parse().expect("a number");
    assert_eq!(ran.err, "0.25 USD are set aside for turn-3 of talk\n");
    let told = host.project.run(&[
        "budget",
        "settle",
        "talk",
        &call.to_string(),
        "--amount",
        "0.1",
    ]);
    assert_eq!((told.code, told.out.as_str()), (Some(0), ""));
    let shown = host.project.run(&["budget", "show", "talk"]).out;
    let expected = "\
thread     talk
status     running
own cost   0.1001 USD for 2 turns, 60 input and 20 output tokens
account    its own
limit      1.00
spent      0.1001 with descendants
held       0.00 for calls
reserved   0.00 for children
remaining  0.8999 [##--------]
";
    assert_eq!(shown, expected);
}

/// Each invalid amount has its own exit code, and changes nothing.
#[test]
fn invalid_amounts_are_not_held() {
    let host = ShellLoop::open();
    let before = host.state();
    let hold = ["budget", "hold", "talk", "next", "--token", &host.token];
    for (amount, exit, words) in [
        ("null", 2, &["usage", "plain decimal"][..]),
        ("NaN", 2, &["usage", "plain decimal"]),
        ("inf", 2, &["usage", "plain decimal"]),
        ("1e3", 2, &["usage", "plain decimal"]),
        ("1,5", 2, &["usage", "plain decimal"]),
        ("", 2, &["usage"]),
        ("-1", 2, &["usage", "-1"]),
        ("0.0000000001", 2, &["usage", "nine decimals"]),
        ("18446744073.709551616", 2, &["usage", "too large"]),
        ("18446744073.709551615", 1, &["invalid", "estimate.amount"]),
        ("1000000.000000001", 1, &["invalid", "1000000.00 USD"]),
        ("1.000000001", 3, &["exceeded", "1.00 USD are left"]),
    ] {
        let arguments = [&hold[..], &["--amount", amount]].concat();
        check(&host.project, &[(&arguments, exit, words)]);
    }
    assert_eq!(host.state(), before, "nothing was written");
    // Zero is a valid amount.
    assert_eq!(host.hold("free", &["--amount", "0"])["amount"], "0.00");
}

#[test]
fn calls_that_cannot_be_held() {
    let host = ShellLoop::open();
    host.hold_call("first", &["--amount", "0.5"]);
    let before = host.state();
    let hold = ["budget", "hold", "talk", "next", "--token", &host.token];
    let cases: [RefusalCase<'_>; 9] = [
        (&[], 2, &["usage", "--amount"]),
        (&["--model", "tiny"], 2, &["usage", "--input"]),
        (&["--input", "1", "--output", "1"], 2, &["usage"]),
        (&["--amount", "1", "--model", "tiny"], 2, &["usage"]),
        (
            &["--amount", "0.51"],
            3,
            &["exceeded", "raise talk --spend"],
        ),
        (&["--amount", "0.1", "--for", "0"], 1, &["deadline"]),
        (&["--amount", "0.1", "--for", "61m"], 1, &["deadline"]),
        (
            &["--model", "tinny", "--input", "1", "--output", "1"],
            1,
            &["not-found", "did you mean tiny?"],
        ),
        (
            &["--model", "free", "--input", "1", "--output", "1"],
            1,
            &["invalid", "no prices", "models.yaml"],
        ),
    ];
    for (rest, exit, words) in cases {
        let arguments = [&hold[..], rest].concat();
        check(&host.project, &[(&arguments, exit, words)]);
    }
    let (long, token) = ("x".repeat(129), host.token.as_str());
    for (thread, key, token, exit, words) in [
        ("talk", "", token, 1, &["invalid", "key"][..]),
        ("talk", &long, token, 1, &["invalid", "key"]),
        ("talk", "a\nb", token, 1, &["invalid", "key"]),
        ("talk", "first", token, 4, &["conflict", "another estimate"]),
        ("talk", "k", "talk#99", 4, &["fenced"]),
        ("talk", "k", "other#1", 2, &["usage", "not of talk"]),
        ("talk", "k", "1", 2, &["usage", "THREAD#NUMBER"]),
        ("talk", "k", "", 2, &["usage"]),
        ("talq", "k", "talq#1", 1, &["did you mean talk?"]),
    ] {
        let hold = ["budget", "hold", thread, key, "--amount", "0.1", "--token"];
        let arguments = [&hold[..], &[token]].concat();
        check(&host.project, &[(&arguments, exit, words)]);
    }
    let without: &[&str] = &["budget", "hold", "talk", "k", "--amount", "1"];
    check(&host.project, &[(without, 2, &["THREADKEEP_TOKEN"])]);
    assert_eq!(host.state(), before, "nothing was written");
}

#[test]
fn repeated_and_conflicting_bills() {
    let host = ShellLoop::open();
    let [settled, released, open] =
        ["a", "b", "c"].map(|key| host.hold_call(key, &["--amount", "0.2"]));
    let tokens = ["--model", "tiny", "--input", "1", "--output", "1"];
    let of_tokens = host.hold_call("d", &tokens);
    assert_eq!(host.settle(&settled, &["--amount", "0.1"])["exit"], 0);
    let gone = host.ask(&["budget", "release", "talk", &released]);
    assert_eq!(gone["exit"], 0);
    let before = host.state();
    let other: &[&str] = &["conflict", "bill"];
    let usage = ["--input", "1", "--output", "1"];
    let cases: [(&str, &[&str], i64, &[&str]); 15] = [
        (&settled, &["--amount", "0.100000001"], 4, other),
        (&settled, &usage, 4, other),
        (&released, &["--amount", "0.1"], 4, other),
        (&released, &usage, 4, other),
        (&open, &usage, 1, &["invalid", "tell the amount"]),
        (&open, &["--amount", "1000000.1"], 1, &["invalid", "bill"]),
        (&open, &["--amount", "-0.1"], 2, &["usage"]),
        (&open, &["--amount", "1e-3"], 2, &["usage", "plain decimal"]),
        (&open, &["--amount", "0.1", "--input", "1"], 2, &["usage"]),
        (&of_tokens, &["--input", "1"], 2, &["usage", "--output"]),
        (
            &of_tokens,
            &["--input", "-1", "--output", "1"],
            2,
            &["usage"],
        ),
        (
            &of_tokens,
            &["--input", "1.5", "--output", "1"],
            2,
            &["usage"],
        ),
        (&of_tokens, &[], 2, &["usage", "--amount"]),
        ("1", &["--amount", "0.1"], 1, &["invalid", "version"]),
        ("99", &["--amount", "0.1"], 1, &["invalid", "version"]),
    ];
    for (call, rest, exit, words) in cases {
        let arguments = [&["budget", "settle", "talk", call], rest].concat();
        check(&host.project, &[(&arguments, exit, words)]);
    }
    check(
        &host.project,
        &[
            (&["budget", "release", "talk", &settled], 4, other),
            (&["budget", "release", "talk", "x"], 2, &["usage"]),
            (&["budget", "release", "talq", "1"], 1, &["not-found"]),
            (&["budget", "show", "talq"], 1, &["did you mean talk?"]),
            (&["budget", "show", "../talk"], 1, &["invalid"]),
            (&["tree", "talq"], 1, &["did you mean talk?"]),
            (
                &["tree", "talk", "--cursor", "x"],
                1,
                &["invalid", "cursor"],
            ),
        ],
    );
    assert_eq!(host.state(), before, "nothing was written");
}

/// A bill above its hold and above the account's money is recorded, and owed.
#[test]
fn a_bill_larger_than_its_hold_is_owed_until_the_limit_is_raised() {
    let host = ShellLoop::open();
    let call = host.hold_call("a", &["--amount", "0.2"]);
    assert_eq!(host.settle(&call, &["--amount", "1.600003"])["exit"], 0);
    let owing = ["1.00", "1.600003", "0.00", "0.00", "0.00", "0.600003"];
    assert_eq!(host.figures(), owing.map(str::to_owned));
    let shown = host.project.run(&["budget", "show", "talk"]).out;
    let line = "remaining  owes 0.600003 [##########]";
    assert!(shown.contains(line), "{shown}");
    let denied = host.hold("b", &["--amount", "0"]);
    assert_eq!(denied["exit"], 3, "{denied}");
    let raised = host.ask(&["raise", "talk", "--spend", "2.5", "--through"]);
    assert_eq!(raised["exit"], 0, "{raised}");
    assert_eq!(host.hold("b", &["--amount", "0.8"])["exit"], 0);
}

/// A hold that was open when the loop ended is charged. Its real bill is accepted later from any
/// caller: after the end, and after another holder took the thread.
#[test]
fn bill_may_arrive_after_closing_and_after_fencing() {
    let host = ShellLoop::open();
    let [first, second] = ["a", "b"].map(|key| host.hold_call(key, &["--amount", "0.2"]));
    let recovered = host.ask(&["recover", "--dead", &host.holder]);
    assert_eq!(recovered["recovered"], json!(["talk"]));
    assert_eq!(host.figures(), figures("1.00", "0.40", "0.00", "0.60"));
    let fenced = ["budget", "hold", "talk", "c", "--amount", "0.1", "--token"];
    let fenced = [&fenced[..], &[&host.token]].concat();
    check(&host.project, &[(&fenced, 4, &["fenced"])]);
    assert_eq!(host.settle(&first, &["--amount", "0.05"])["exit"], 0);
    assert_eq!(host.figures(), figures("1.00", "0.25", "0.00", "0.75"));

    let token = host.project.run(&["open", "talk"]).out;
    let token = token.trim();
    check(&host.project, &[(&fenced, 4, &["fenced"])]);
    let released = host.ask(&["budget", "release", "talk", &second]);
    assert_eq!(released["exit"], 0, "{released}");
    let closed = host.ask(&["close", "talk", "completed", "--token", token]);
    assert_eq!(closed["exit"], 0, "{closed}");
    assert_eq!(host.figures(), figures("1.00", "0.05", "0.00", "0.95"));
    for (rest, exit) in [(["--amount", "0.05"], 0), (["--amount", "0.06"], 4)] {
        assert_eq!(host.settle(&first, &rest)["exit"], exit);
    }
    assert_eq!(host.ask(&["budget", "release", "talk", &second])["exit"], 0);
    let state = host.project.run(&["budget", "show", "talk"]).out;
    assert!(state.contains("at rest: nobody draws on it now"), "{state}");
}

/// A shell whose loop is killed between `budget hold` and `budget settle`, with a call that it was
/// about to make.
#[cfg(unix)]
#[test]
fn hold_of_a_killed_loop_is_charged_and_correctable() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    const LOOP: &str = r#"
set -e
token=$("$THREADKEEP" open talk)
call=$("$THREADKEEP" budget hold talk turn-1 --amount 0.25 --token "$token")
echo "$call"
exec sleep 600
"#;
    let project = CliProject::new();
    project.json(&["create", "--id", "talk"]);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", LOOP])
        .current_dir(project.path())
        .env("THREADKEEP", threadkeep_tests::binary::path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut shell = shell.spawn().expect("a shell");
    let mut call = String::new();
    let out = shell.stdout.take().expect("it is piped");
    BufReader::new(out)
        .read_line(&mut call)
        .expect("it is held");
    let call = call.trim();
    // SIGKILL: the shell cannot report anything.
    shell.kill().expect("it runs");
    shell.wait().expect("it ran");

    let account = |name: &str| project.json(&["budget", "show", "talk"])["account"][name].clone();
    assert_eq!(
        (account("held"), account("spent")),
        (json!("0.25"), json!("0.00"))
    );
    // Its lease goes on: only a person knows that the shell is gone.
    assert_eq!(project.json(&["recover"])["recovered"], json!([]));
    let holder = project.json(&["show", "talk"])["thread"]["run"]["holder"].clone();
    let holder = holder.as_str().expect("it is held");
    let recovered = project.json(&["recover", "--dead", holder]);
    assert_eq!(recovered["recovered"], json!(["talk"]));
    assert_eq!(
        (account("held"), account("spent")),
        (json!("0.00"), json!("0.25"))
    );
    let told = ["budget", "settle", "talk", call, "--amount", "0.031"];
    assert_eq!(project.json(&told)["exit"], 0);
    assert_eq!(project.json(&told)["exit"], 0);
    assert_eq!(
        (account("held"), account("spent")),
        (json!("0.00"), json!("0.031"))
    );
    assert_eq!(project.status("talk"), "suspended");
}
