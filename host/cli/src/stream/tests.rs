//! Runs as they are shown.

use super::*;
use crate::screen::tests::screen;

const FILL: ContextFill = ContextFill {
    tokens: 3_280,
    window: Some(32_000),
};

fn cost(turns: u64) -> ThreadCost {
    ThreadCost {
        turns,
        input_tokens: 100 * turns,
        output_tokens: 10 * turns,
        spend: 120_000 * turns,
    }
}

fn tool_end<'a>(call: &'a str, refusal: Option<&'a str>) -> ToolEnd<'a> {
    ToolEnd {
        call,
        name: "read_file",
        failed: refusal.is_some(),
        bytes: 25,
        refusal,
    }
}

#[test]
fn a_run_with_a_tool() {
    let (mut screen, out, err) = screen(false, false);
    let mut stream = RunStream::new();
    stream.show_start(&mut screen, "a-1", 1);
    stream.show_thinking(&mut screen, "Hm.");
    stream.show_thinking(&mut screen, "Hm.");
    stream.show_text(&mut screen, "Let me ");
    stream.show_text(&mut screen, "look.");
    stream.show_turn(&mut screen, &cost(1), ContextFill::default());
    stream.show_tool_start(&mut screen, "c", "read_file", r#"{"path": "caf\u00e9"}"#);
    stream.show_tool_end(&mut screen, tool_end("c", None));
    stream.show_answered_call(&mut screen, "{", tool_end("", Some("no such tool")));
    stream.show_retry(&mut screen, 1_500, "overloaded");
    stream.show_wait(&mut screen, 20_000, "too many calls");
    stream.show_usage_mismatch(&mut screen, 1_000_000_000, 21_000);
    stream.show_text(&mut screen, "It holds a note.");
    stream.show_turn(&mut screen, &cost(2), FILL);
    assert_eq!(out.text(), "Let me look.\nIt holds a note.\n");
    assert_eq!(
        err.text(),
        "run 1 of a-1\n  thinking\nturn 1: 100 input and 10 output tokens, 0.00012 USD\n  \
         read_file {\"path\":\"café\"}\n  read_file done, 25 bytes\n  read_file {\n  read_file \
         failed: no such tool\n  overloaded; next attempt in 1.5 s\n  too many \
         calls; it goes on in 20 s\n  the \
         provider reports 1000000000 tokens, which cannot be: 21000 are counted\nturn 2: 100 \
         input and 10 output \
         tokens, 0.00012 USD; context 3,280 of 32,000 tokens (10 %)\n"
    );
    assert_eq!(stream.into_reply(), "It holds a note.");
}

#[test]
fn a_hand_off_is_shown_as_it_happens() {
    let (mut screen, out, err) = screen(false, true);
    let mut stream = RunStream::new();
    stream.show_text(&mut screen, "before");
    stream.show_turn(&mut screen, &cost(1), FILL);
    let context = ContextFill {
        tokens: 3_700,
        window: Some(4_000),
    };
    stream.show_summary(&mut screen, context);
    stream.show_hand_off(&mut screen, "a-2", None);
    stream.show_text(&mut screen, "after");
    assert_eq!(out.text(), "before\nafter");
    let notes = "  context 3,700 of 4,000 tokens (92 %): handing off, a summary is written\n  \
                 continued in a-2\n";
    assert!(err.text().ends_with(notes), "{}", err.text());
    assert_eq!(stream.into_reply(), "after");
}

#[test]
fn text_of_failed_attempt_is_no_reply() {
    let (mut screen, ..) = screen(true, false);
    let mut stream = RunStream::new();
    stream.show_text(&mut screen, "half a");
    stream.show_retry(&mut screen, 0, "cut off");
    stream.show_text(&mut screen, "whole");
    assert_eq!(stream.into_reply(), "whole");
}

/// Symptom: `run > file` had the beginning of a reply twice, and a torn one of an attempt that
/// failed. Cause: text was written as it came. Fix: it is withheld until its reply is durable.
/// Kinds: a retry, a provider that begins anew, a run that stops in the middle, a run whose
/// last event never arrived.
#[test]
fn a_pipe_gets_only_replies_that_count() {
    type EndAction = fn(&mut RunStream, &mut OutputScreen);
    let rows: [(EndAction, &str, bool); 5] = [
        (
            |stream, screen| stream.show_turn(screen, &cost(1), FILL),
            "torn\n",
            false,
        ),
        (
            |stream, screen| stream.show_retry(screen, 0, "cut off"),
            "",
            true,
        ),
        (|stream, screen| stream.show_restart(screen), "", true),
        (|stream, screen| stream.end(screen, false), "", true),
        (|stream, screen| stream.end(screen, true), "torn", false),
    ];
    for (end, on_out, on_err) in rows {
        for terminal in [false, true] {
            let (mut screen, out, err) = screen(false, terminal);
            let mut stream = RunStream::new();
            stream.show_text(&mut screen, "torn");
            assert_eq!(out.text() == "torn", terminal, "a terminal sees it live");
            end(&mut stream, &mut screen);
            let said = err.text().contains("torn");
            assert_eq!(said, on_err && !terminal, "{}", err.text());
            if !terminal {
                assert_eq!(out.text(), on_out);
            }
        }
    }
}

#[test]
fn withheld_text_is_noted_once() {
    let (mut piped, _, err) = screen(false, false);
    let mut stream = RunStream::new();
    stream.show_text(&mut piped, "Begun");
    for _ in 0..3 * QUIET_SECONDS {
        stream.tick(&mut piped);
    }
    assert_eq!(
        err.text(),
        "  a reply is under way; it is shown when it is whole\n"
    );
}

#[test]
fn a_quiet_run_is_shown_to_a_terminal_only() {
    let (mut on_terminal, _, err) = screen(false, true);
    let mut stream = RunStream::new();
    for _ in 0..QUIET_SECONDS {
        stream.tick(&mut on_terminal);
    }
    assert!(err.text().contains("waiting, 3 s"), "{:?}", err.text());
    let (mut piped, _, err) = screen(false, false);
    for _ in 0..QUIET_SECONDS {
        stream.tick(&mut piped);
    }
    assert_eq!(err.text(), "");
}

#[test]
fn the_reply_is_bounded() {
    let (mut screen, ..) = screen(true, false);
    let mut stream = RunStream::new();
    for _ in 0..=TEXT_BYTES_MAX / (3 << 16) {
        stream.show_text(&mut screen, &"漢".repeat(1 << 16));
    }
    let reply = stream.into_reply();
    assert!(reply.len() <= TEXT_BYTES_MAX && reply.len() > TEXT_BYTES_MAX - 4);
}

/// A run that goes on shows what each of its turns used, and not what was used before it.
#[test]
fn figures_of_a_turn_are_its_own() {
    let (mut screen, _, err) = screen(false, false);
    let mut stream = RunStream::new();
    stream.set_before(cost(3), 0);
    stream.set_goes_on();
    stream.show_start(&mut screen, "a", 1);
    stream.show_turn(&mut screen, &cost(4), ContextFill::default());
    let own = "turn 4: 100 input and 10 output tokens, 0.00012 USD\n";
    assert_eq!(err.text(), format!("run 1 of a goes on\n{own}"));
}

/// Symptom: a line about a child stood in the middle of a word of the reply. Cause: it was written
/// as it came. Fix: it waits for the end of the reply, on a terminal; a pipe has no reply under way.
#[test]
fn lines_about_children_wait_for_the_end_of_a_reply() {
    for (terminal, on_out) in [(true, "whole"), (false, "")] {
        let (mut screen, out, err) = screen(false, terminal);
        let mut stream = RunStream::new();
        stream.show_child(&mut screen, "a", "started");
        stream.show_text(&mut screen, "who");
        for _ in 0..HELD_LINES_MAX + 2 {
            stream.show_child(&mut screen, "b", "started");
        }
        stream.show_text(&mut screen, "le");
        assert_eq!(out.text(), on_out);
        assert_eq!(err.text().contains("b started"), !terminal);
        stream.show_turn(&mut screen, &cost(1), ContextFill::default());
        let lines = err.text().matches("  b started\n").count();
        let left_out = err
            .text()
            .contains("  2 more lines about children are left out");
        let expected = HELD_LINES_MAX + if terminal { 0 } else { 2 };
        assert_eq!((lines, left_out), (expected, terminal), "{}", err.text());
    }
}

#[test]
fn thoughts_are_shown_where_they_are_asked_for() {
    for (shown, expected) in [
        (true, "Hm,\n\\u{1b}[2J well.\nturn 1"),
        (false, "  thinking\nturn 1"),
    ] {
        let (mut screen, _, err) = screen(false, true);
        let mut stream = RunStream::new().with_thinking(shown);
        stream.show_thinking(&mut screen, "Hm,\n\x1b[2J");
        stream.show_thinking(&mut screen, " well.");
        stream.show_turn(&mut screen, &cost(1), ContextFill::default());
        assert!(err.text().starts_with(expected), "{:?}", err.text());
    }
}

/// On a terminal a call has one line, of its width, and a time.
#[test]
fn a_call_fits_the_terminal() {
    let (mut screen, _, err) = screen(false, true);
    let mut stream = RunStream::new().with_times();
    let long = format!("{{\"path\":\"{}\"}}", "漢".repeat(80));
    stream.show_tool_start(&mut screen, "c", "read_file", &long);
    stream.show_tool_end(&mut screen, tool_end("c", None));
    let lines: Vec<String> = err.text().lines().map(str::to_owned).collect();
    assert!(crate::style::text_width(&lines[0]) <= 80 && lines[0].ends_with('…'));
    assert_eq!(lines[1], "  read_file done, 25 bytes, 0.0 s");
}
