//! YAML texts that are accepted, with their values, and those that are refused.

use super::*;

fn value_text(text: &str) -> String {
    parse(text, 1).map_or_else(|error| format!("{error}"), |value| value.to_string())
}

#[test]
fn values() {
    let table = [
        ("", "null"),
        ("# a comment\n", "null"),
        ("a: 1", r#"{"a":1}"#),
        ("---\na: 1\n", r#"{"a":1}"#),
        ("\u{feff}a: 1", r#"{"a":1}"#),
        ("a: 1\r\nb: 2\r\n", r#"{"a":1,"b":2}"#),
        ("z: 1\na: 2", r#"{"z":1,"a":2}"#),
        (
            "a: {b: [1, two, {c: ~}]}",
            r#"{"a":{"b":[1,"two",{"c":null}]}}"#,
        ),
        ("- a\n- - b\n  - c", r#"["a",["b","c"]]"#),
        ("a: |\n  one\n  two\n", r#"{"a":"one\ntwo\n"}"#),
        ("a: >-\n  one\n  two\n", r#"{"a":"one two"}"#),
        ("a: \"\\u00e9\\n\"", r#"{"a":"é\n"}"#),
        ("a:\nb: ''", r#"{"a":null,"b":""}"#),
        ("1: x\ntrue: y\non: z", r#"{"1":"x","true":"y","on":"z"}"#),
        ("<<: 1", r#"{"<<":1}"#),
        ("a: 'it''s'", r#"{"a":"it's"}"#),
        ("url: http://x:1/y#z", r#"{"url":"http://x:1/y#z"}"#),
    ];
    for (text, expected) in table {
        assert_eq!(value_text(text), expected, "{text:?}");
    }
}

/// Numbers keep their digits. Text that YAML 1.1 read as something else stays text.
#[test]
fn scalars() {
    let table = [
        ("0.10", "0.10"),
        ("1.00", "1.00"),
        ("0", "0"),
        ("-7", "-7"),
        ("+7", "7"),
        (".5", "0.5"),
        ("-.5", "-0.5"),
        ("5.", "5.0"),
        ("0.000000001", "0.000000001"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("1e-9", "1e-9"),
        ("1.5E+3", "1.5e+3"),
        ("true", "true"),
        ("FALSE", "false"),
        ("~", "null"),
        ("NULL", "null"),
        ("'1'", "\"1\""),
        ("\"null\"", "\"null\""),
        ("no", "\"no\""),
        ("on", "\"on\""),
        ("yes", "\"yes\""),
        ("tRue", "\"tRue\""),
        ("1_000", "\"1_000\""),
        ("1,000", "\"1,000\""),
        ("1:30", "\"1:30\""),
        ("2026-01-02", "\"2026-01-02\""),
        ("1.2.3", "\"1.2.3\""),
        ("1e", "\"1e\""),
        ("e5", "\"e5\""),
        (".", "\".\""),
        ("-", "[null]"),
        ("+", "\"+\""),
        ("--5", "\"--5\""),
        ("0x", "\"0x\""),
        ("0b1", "\"0b1\""),
        ("nan", "\"nan\""),
        ("Infinity", "\"Infinity\""),
    ];
    for (text, expected) in table {
        assert_eq!(value_text(text), expected, "{text:?}");
    }
}

#[test]
fn refusals() {
    let table: &[(&str, usize, usize, &str)] = &[
        ("a: &x 1", 1, 4, "anchors"),
        ("a: &x [1]", 1, 4, "anchors"),
        ("&x a: 1", 1, 1, "anchors"),
        ("a: 1\nb: *a", 2, 4, "aliases"),
        ("a: !!int 1", 1, 4, "tags"),
        ("a: !thing {b: 1}", 1, 4, "tags"),
        ("a: ! x", 1, 4, "tags"),
        (
            "a: 1\nb: 2\na: 3",
            3,
            1,
            "\"a\" stands twice, first in line 1",
        ),
        ("a: 1\n\"a\": 2", 2, 1, "stands twice"),
        ("x: {b: 1, b: 2}", 1, 11, "stands twice"),
        ("a: .nan", 1, 4, "not a number"),
        ("a: .inf", 1, 4, "not a number"),
        ("a: -.INF", 1, 4, "not a number"),
        ("a: 0x1F", 1, 4, "another base"),
        ("a: 0o17", 1, 4, "another base"),
        ("a: 007", 1, 4, "begins with zeros"),
        ("a: -00.5", 1, 4, "begins with zeros"),
        ("[a]: 1", 1, 1, "a key must be"),
        ("? {a: 1}\n: 2", 1, 3, "a key must be"),
        (": 1", 1, 1, "a key is missing"),
        ("~: 1", 1, 1, "a key is missing"),
        ("'': 1", 1, 1, "a key is missing"),
        ("a: 1\n---\nb: 2", 2, 1, "second document"),
        ("a: 1\n...\n---\nb: 2", 3, 1, "second document"),
        ("a: [1, 2", 0, 0, "not valid YAML"),
        ("a: {b: 1", 0, 0, "not valid YAML"),
        ("a: \"x", 0, 0, "not valid YAML"),
        ("a: b: c", 0, 0, "not valid YAML"),
        ("a:\n\t- b", 0, 0, "not valid YAML"),
        ("  a: 1\n b: 2", 0, 0, "not valid YAML"),
        ("a: 1\nb\n", 0, 0, "not valid YAML"),
        ("a: @x", 0, 0, "not valid YAML"),
        ("a: 1\nb: \0 2", 2, 4, "U+0000"),
        ("a: \u{7f}", 1, 4, "U+007F"),
        ("é: \u{1b}[0m", 1, 4, "U+001B"),
    ];
    for (text, line, column, word) in table {
        let error = parse(text, 1).expect_err(text);
        assert!(error.to_string().contains(word), "{text:?}: {error}");
        if *line > 0 {
            assert_eq!(
                (error.line, error.column),
                (*line, *column),
                "{text:?}: {error}"
            );
        }
        let moved = parse(text, 5).expect_err(text);
        assert_eq!(
            (moved.line, moved.column),
            (error.line + 4, error.column),
            "{text:?}"
        );
    }
}

#[test]
fn limits() {
    let problem = |text: &str| parse(text, 1).map(|_| ()).map_err(|error| error.problem);
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(problem(&nested(DEPTH_MAX)), Ok(()));
    assert_eq!(problem(&nested(DEPTH_MAX + 1)), Err(YamlProblem::TooDeep));

    let comment = |bytes: usize| format!("#{}", "x".repeat(bytes - 1));
    assert_eq!(problem(&comment(TEXT_BYTES_MAX)), Ok(()));
    let bytes = TEXT_BYTES_MAX + 1;
    assert_eq!(
        problem(&comment(bytes)),
        Err(YamlProblem::TooLarge { bytes })
    );

    let list = |values: usize| "- 1\n".repeat(values);
    assert_eq!(problem(&list(NODES_MAX - 1)), Ok(()));
    assert_eq!(problem(&list(NODES_MAX)), Err(YamlProblem::TooManyNodes));

    assert_eq!(problem(&"1".repeat(NUMBER_BYTES_MAX)), Ok(()));
    assert_eq!(
        problem(&"1".repeat(NUMBER_BYTES_MAX + 1)),
        Err(YamlProblem::LongNumber)
    );

    assert_eq!(
        problem(&format!("? {}\n: 1", "k".repeat(KEY_BYTES_MAX))),
        Ok(())
    );
    assert_eq!(
        problem(&format!("? {}\n: 1", "k".repeat(KEY_BYTES_MAX + 1))),
        Err(YamlProblem::LongKey)
    );
}

/// Texts made to be slow or deep end in an error (or a value), not in a panic or after a minute.
#[test]
fn hostile_texts_end() {
    let fill = |unit: &str| unit.repeat(TEXT_BYTES_MAX / unit.len());
    let units = [
        "[", "{", "- ", "? ", "a: ", "[a, ", "{a: ", "\"", "'", "#", "\n", " ", "\t", "|\n ",
        "%TAG ", "&a ", "*a ", "!x ",
    ];
    let mut texts: Vec<String> = units.iter().map(|unit| fill(unit)).collect();
    texts.push("k".repeat(TEXT_BYTES_MAX));
    texts.push(format!("a: \"{}", "\\u0041".repeat(TEXT_BYTES_MAX / 7)));
    texts.push(
        (0..4000)
            .map(|n| format!("{}- a\n", " ".repeat(n.min(50))))
            .collect(),
    );
    texts.push((0..15_000).map(|n| format!("k{n}: 1\n")).collect());
    for text in texts {
        let started = std::time::Instant::now();
        let ended = parse(&text, 1).is_ok();
        let start: String = text.chars().take(12).collect();
        assert!(
            started.elapsed().as_secs() < 20,
            "{start:?}: {ended} after {:?}",
            started.elapsed()
        );
    }
}

/// Random texts of YAML's syntax characters, from a fixed seed.
#[test]
fn random_texts_never_panic() {
    let parts = [
        "a",
        "b: ",
        "- ",
        "? ",
        ": ",
        "\n",
        "\n  ",
        "\n ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'",
        "\"",
        "|",
        ">-",
        "&x ",
        "*x",
        "!t ",
        "#",
        "---",
        "...",
        "%YAML 1.2",
        "\t",
        "1",
        "~",
        "\r",
        "é",
        "\\",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap_or(0)
    };
    for _ in 0..30_000 {
        let length = next(24);
        let text: String = (0..length).map(|_| parts[next(parts.len())]).collect();
        let _ = parse(&text, 1);
        let _ = line_of(&text, 1, &["a", "0"]);
    }
}

/// Every prefix and many mutations of a real file. The parser contains `unreachable!`, and none may
/// be reached.
#[test]
fn broken_files_never_panic() {
    let file = "a: {b: [1, 'x', \"y\"], ? c : d}\nlist:\n- |\n  t\n- >-\n  u\n# c\n? k\n: - v\n\
                %YAML 1.2\n---\n&a *a !t x\n...\n";
    let inserts = [
        "\n", "[", "]", "{", "}", ":", "- ", "? ", "\"", "'", "&", "*", "!", "%", "|", ">", "#",
        "\t", ",", "---\n", "...\n", "é",
    ];
    for (at, _) in file.char_indices() {
        let _ = parse(&file[..at], 1);
        let _ = parse(&file[at..], 1);
        for insert in inserts {
            let _ = parse(&format!("{}{insert}{}", &file[..at], &file[at..]), 1);
        }
    }
}

#[test]
fn lines() {
    let text = "models:\n  a: {window: 1}\n  b:\n    window: 2\n    prices:\n    - x\n    - y: 1\n\
                tiers: {b: a}\n";
    let table: &[(&[&str], usize)] = &[
        (&["models"], 1),
        (&["models", "a"], 2),
        (&["models", "a", "window"], 2),
        (&["models", "b", "window"], 4),
        (&["models", "b", "prices", "1"], 7),
        (&["models", "b", "prices", "1", "y"], 7),
        (&["models", "b", "none"], 3),
        (&["tiers", "b"], 8),
        (&["none"], 1),
        (&[], 1),
    ];
    for (path, line) in table {
        assert_eq!(line_of(text, 1, path), *line, "{path:?}");
        assert_eq!(line_of(text, 11, path), line + 10, "{path:?}");
    }
}
