//! The host decides nothing by the sentences of the component: they are for a person, and may
//! change with every version. What a host must know is a field, a case or a code of the contract.
//!
//! The check sees a field of the contract by its name, a word of core by its text, and a tool of
//! the runner by its name. It does not see a sentence that was moved to a variable of another name
//! and is compared with words that core does not use.

use super::tree::SourceFile;
use threadkeep_core::settings::is_builtin_tool;
use xtask::rust_text;

/// Fields of the contract that hold sentences or what a model wrote.
const SENTENCES: [&str; 4] = ["message", "advice", "problem", "blocks"];

/// Methods that look into a text, and comparisons.
const LOOKS: [&str; 12] = [
    ".contains(",
    ".starts_with(",
    ".ends_with(",
    ".find(",
    ".rfind(",
    ".matches(",
    ".strip_prefix(",
    ".strip_suffix(",
    ".split(",
    ".split_once(",
    " == ",
    " != ",
];

/// Conversions between the name of a text and the look into it.
const CONVERSIONS: [&str; 5] = [
    ".as_str()",
    ".as_deref()",
    ".clone()",
    ".to_lowercase()",
    ".to_string()",
];

/// Parts of the host whose texts are not the component's: providers and what they answer, and the
/// audit with what it prints. Audit and documents read what is stored, on purpose without the
/// component.
const OTHER_TEXTS: [&str; 6] = [
    "host/src/models/",
    "adapters/src/models/",
    "host/src/audit/",
    "host/src/documents/",
    "adapters/src/thread_files/",
    "host/cli/src/answer/audit.rs",
];

/// Returns true for sources of the host, of its adapters and of its command line that are not
/// tests.
pub fn is_judged(file: &SourceFile) -> bool {
    let mut ours = ["host/src/", "host/cli/src/", "adapters/src/"].iter();
    let ours = ours.any(|part| file.path.starts_with(part));
    let other = OTHER_TEXTS.iter().any(|part| file.path.starts_with(part));
    let tests = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
    file.is("rs") && ours && !other && !tests
}

/// Returns the sentences of core and of the component: literals of more than one word.
pub fn core_sentences(files: &[SourceFile]) -> Vec<String> {
    let core = files
        .iter()
        .filter(|file| file.is("rs") && file.path.starts_with("guest/"));
    let literals = core.flat_map(|file| rust_text::literals(&file.text));
    let texts = literals.map(|literal| literal.text);
    texts.filter(|text| text.contains(' ')).collect()
}

/// Returns the places where a file decides by a sentence.
pub fn problems(file: &SourceFile, sentences: &[String]) -> Vec<String> {
    let source = without_tests(&file.text);
    let mut places = looks_into_sentences(source);
    for literal in rust_text::literals(source) {
        if is_builtin_tool(&literal.text) {
            places.push((literal.line, "names a tool of the runner"));
        }
        let compared = LOOKS.iter().any(|look| literal.before.ends_with(look));
        let known = || sentences.iter().any(|known| known.contains(&literal.text));
        if compared && literal.text.trim().contains(' ') && known() {
            places.push((literal.line, "looks for a sentence of core"));
        }
    }
    let named = places.into_iter().map(|(line, what)| {
        format!(
            "{}:{line}: {what}: the component has to say it by a field or a code",
            file.path
        )
    });
    named.collect()
}

/// Returns the lines that look into a text by the name of a field that holds sentences.
fn looks_into_sentences(source: &str) -> Vec<(usize, &'static str)> {
    let code = rust_text::code_only(source);
    let mut places = Vec::new();
    for name in SENTENCES {
        for (at, _) in code.match_indices(name) {
            let is_word_end = |c: char| c.is_alphanumeric() || c == '_';
            let (before, after) = (&code[..at], &code[at + name.len()..]);
            if before.ends_with(is_word_end) || after.starts_with(is_word_end) {
                continue;
            }
            let after = after_conversions(after);
            let compared = LOOKS.iter().any(|look| after.starts_with(look));
            let path = before.trim_end_matches(|c: char| is_word_end(c) || "&.*".contains(c));
            // A variable of that name may be the host's own; a field is the contract's.
            let is_field = before.trim_end().ends_with('.');
            let matched = is_field && path.ends_with("match ") && after.starts_with(" {");
            if compared || matched {
                let line = before.matches('\n').count() + 1;
                places.push((line, "looks into a sentence"));
            }
        }
    }
    places
}

/// Skips line breaks before a method, and conversions of the text.
fn after_conversions(code: &str) -> &str {
    let mut rest = code;
    loop {
        let broken = rest.trim_start();
        if broken.starts_with('.') {
            rest = broken;
        }
        match CONVERSIONS
            .iter()
            .find_map(|known| rest.strip_prefix(known))
        {
            Some(after) => rest = after,
            None => return rest,
        }
    }
}

/// Returns the source before the tests at its end.
fn without_tests(source: &str) -> &str {
    let tests = source.find("\nmod tests {");
    let code = tests.and_then(|at| source[..at].rfind("\n#[cfg(test)]"));
    code.map_or(source, |end| &source[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.into(),
            text: text.into(),
        }
    }

    #[test]
    fn decisions_by_sentences_are_found() {
        let sentences = [
            file(
                "guest/core/src/a.rs",
                "x(\"{need} USD are left: raise it first, or raise through\");",
            ),
            file("host/src/a.rs", "x(\"of the host only\");"),
        ];
        let sentences = core_sentences(&sentences);
        assert_eq!(sentences.len(), 1);
        for (text, count) in [
            // What the host did before.
            ("match cause.message.contains(\"raise through\") {", 2),
            ("tools.any(|tool| reply.blocks.contains(tool))", 1),
            ("[\"spawn_thread\", \"kill_thread\"]", 2),
            ("message.ends_with(\"(out_of_reach)\")", 1),
            ("fault.message.strip_prefix(\"events[\")", 1),
            // The same in other words.
            ("text.contains(\"raise through\")", 1),
            ("why\n    .message\n    .as_str()\n    .find('x')", 1),
            ("if cause.message == other {", 1),
            ("match cause.message.as_str() {", 1),
            ("refusal.advice.starts_with(word)", 1),
            // What is allowed.
            ("if cause.code == \"spend_exceeded\" {", 0),
            ("text.contains(\"of the host only\")", 0),
            ("line.contains(\"raise\")", 0),
            ("let message = text.find('x');", 0),
            ("match error { E { message } => message.clone() }", 0),
            ("// cause.message.contains(x)\nx(\"message.contains(\");", 0),
            ("messages.contains(&x)", 0),
            ("match problem { Some(problem) => problem, None => x }", 0),
            ("text.strip_prefix(\"through \")", 0),
            ("x();\n#[cfg(test)]\nmod tests {\n message.contains(x)", 0),
        ] {
            let found = problems(&file("host/src/a.rs", text), &sentences);
            assert_eq!(found.len(), count, "{text}: {found:?}");
        }
    }

    #[test]
    fn only_sources_that_hear_the_component_are_judged() {
        for (path, judged) in [
            ("host/src/driver/perform.rs", true),
            ("host/cli/src/answer/run.rs", true),
            ("adapters/src/models/wire/classify.rs", false),
            ("host/src/audit/mod.rs", false),
            ("host/src/authority/tests.rs", false),
            ("host/src/a.sql", false),
            ("guest/core/src/plan.rs", false),
        ] {
            assert_eq!(is_judged(&file(path, "")), judged, "{path}");
        }
    }
}
