//! The output of a screen, as it reaches its two streams.

use super::*;
use std::sync::{Arc, Mutex};

/// The bytes written to one stream.
#[derive(Clone, Default)]
pub(crate) struct WrittenBytes(Arc<Mutex<Vec<u8>>>);

impl WrittenBytes {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for WrittenBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A screen whose output can be read.
pub(crate) fn screen(json: bool, terminal: bool) -> (OutputScreen, WrittenBytes, WrittenBytes) {
    let (out, err) = (WrittenBytes::default(), WrittenBytes::default());
    let ends = StreamProperties {
        json,
        in_terminal: terminal,
        out_terminal: terminal,
        err_terminal: terminal,
        out_styled: false,
        err_styled: false,
        columns: || None,
        now: "2026-03-10T12:00:00Z".parse().ok(),
    };
    let screen = OutputScreen::new(Box::new(out.clone()), Box::new(err.clone()), ends);
    (screen, out, err)
}

const EVIL: &str = "\x1b[2J漢\n";

#[test]
fn only_a_terminal_is_protected_and_only_json_is_silent() {
    for (json, terminal, expected) in [
        (false, true, "\\u{1b}[2J漢\n"),
        (false, false, EVIL),
        (true, true, ""),
        (true, false, ""),
    ] {
        let (mut screen, out, err) = screen(json, terminal);
        screen.print_text(EVIL);
        screen.note(EVIL);
        assert_eq!(out.text(), expected);
        assert_eq!(err.text().is_empty(), json);
        assert!(!err.text().contains('\x1b'), "standard error is for people");
    }
}

/// Symptom: with `--json`, a terminal obeyed controls in a thread's title. Cause: JSON demands
/// an escape for C0 alone. Fix: DEL, C1 and characters that hide or reverse text are escaped,
/// and the value stays the same.
#[test]
fn a_document_escapes_what_a_terminal_would_obey() {
    let text = "\x1b\x7f\u{9b}31m\u{202e}\u{200f}\u{61c}\u{200b}漢🙂\u{200d}";
    for terminal in [false, true] {
        let (mut screen, out, _) = screen(true, terminal);
        screen.print_document(&text);
        let expected = r#""\u001b\u007f\u009b31m\u202e\u200f\u061c\u200b漢🙂"#;
        assert_eq!(out.text(), format!("{expected}\u{200d}\"\n"));
        let read: String = serde_json::from_str(&out.text()).unwrap();
        assert_eq!(read, text);
    }
}

#[test]
fn notes_begin_on_their_own_line() {
    let (mut screen, out, err) = screen(false, true);
    screen.print_text("half");
    screen.show_live("never shown in the middle of a line");
    screen.note("note");
    screen.print_text("other half");
    screen.end_line();
    screen.end_line();
    assert_eq!(out.text(), "half\nother half\n");
    assert_eq!(err.text(), "note\n");
}

#[test]
fn a_live_line_is_erased_and_needs_a_terminal() {
    let (mut on_terminal, _, err) = screen(false, true);
    on_terminal.show_live("1 s");
    on_terminal.show_live("2 s");
    on_terminal.note("done");
    assert_eq!(err.text(), format!("{ERASE}1 s{ERASE}2 s{ERASE}done\n"));
    let (mut piped, _, err) = screen(false, false);
    piped.show_live("1 s");
    assert_eq!(err.text(), "");
}

#[test]
fn a_fault_says_what_to_do_next() {
    let fault =
        CommandFault::new("not-found", "there is no thread \"x\x1b\"").with_hint("did you mean y?");
    let (mut person, out, err) = screen(false, true);
    assert_eq!(person.print_fault(&fault), CommandExit::Error);
    assert_eq!(out.text(), "");
    assert_eq!(
        err.text(),
        "error: there is no thread \"x\\u{1b}\"\n  next: did you mean y?\n"
    );
    let (mut program, out, err) = screen(true, true);
    program.print_fault(&fault);
    assert_eq!(out.text().lines().count(), 1);
    assert!(out.text().contains(r"\\u{1b}"), "{}", out.text());
    assert_eq!(err.text(), "");
}

/// Symptom: `open > /dev/full` ended with 0 and the token was lost. Cause: every failed write
/// was taken for a closed pipe. Fix: only a closed pipe is one.
#[test]
fn a_reader_that_goes_away_ends_nothing_and_a_full_disk_is_told() {
    struct BrokenWriter(ErrorKind);
    impl Write for BrokenWriter {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }
    for (kind, before, after, said) in [
        (
            ErrorKind::BrokenPipe,
            CommandExit::Done,
            CommandExit::Done,
            false,
        ),
        (
            ErrorKind::StorageFull,
            CommandExit::Done,
            CommandExit::Error,
            true,
        ),
        (
            ErrorKind::StorageFull,
            CommandExit::Suspended,
            CommandExit::Suspended,
            true,
        ),
    ] {
        for json in [false, true] {
            let (whole, _, err) = screen(json, false);
            let mut screen = OutputScreen::new(
                Box::new(BrokenWriter(kind)),
                Box::new(err.clone()),
                whole.properties(),
            );
            screen.set_lost_hint("look elsewhere".to_owned());
            screen.print_line("text");
            screen.print_document(&"text");
            assert_eq!(screen.finish(before), after, "{kind}");
            let told = err.text();
            let expected = ["standard output cannot be written", "next: look elsewhere"];
            assert!(
                expected.iter().all(|words| told.contains(words) == said),
                "{told}"
            );
            assert_eq!(told.is_empty(), !said, "{told}");
        }
    }
}

/// Styles surround a text that is safe already: what a model wrote cannot end or begin one.
#[test]
fn styles_open_no_hole() {
    let evil = "\x1b[0m\u{9b}2J\nnext";
    let safe = "\\u{1b}[0m\\u{9b}2J";
    let (mut screen, out, err) = screen(false, true);
    screen.set_styled(true, true);
    screen.note_line(&StyledLine::default().with(TextRole::Name, evil));
    screen.warn(evil);
    screen.print_aside(evil);
    screen.print_text(evil);
    screen.print_fault(&CommandFault::new("x", evil));
    assert_eq!(out.text(), format!("{safe}\nnext\n"));
    let error = "\x1b[1m\x1b[31merror:\x1b[0m";
    let expected = format!(
        "\x1b[36m{safe} next\x1b[0m\n\x1b[33mwarning:\x1b[0m {safe} next\n\x1b[2m{safe}\nnext\
         \x1b[0m\n{error} {safe} next\n"
    );
    assert_eq!(err.text(), expected);
}

#[test]
fn a_quiet_screen_has_answers_warnings_and_errors() {
    let (mut screen, out, err) = screen(false, false);
    screen.set_output_args(OutputArgs {
        quiet: true,
        ..OutputArgs::default()
    });
    screen.note("progress");
    screen.note_detail("detail");
    screen.print_aside("thinking");
    screen.print_line("answer");
    screen.warn("careful");
    screen.report(&StyledLine::plain("needed"));
    assert_eq!(out.text(), "answer\n");
    assert_eq!(err.text(), "warning: careful\nneeded\n");
}
