//! Rules of the project that a machine can check: sizes, module docs, stray files, WIT docs and
//! hash, links.
//!
//! Every check returns sentences that name the file and the remedy; a test fails with all of them
//! at once. The tree is walked, not read from git, so that the checks work in any copy of the
//! sources. `cargo xtask check` checks formatting and lints.

mod markdown;
mod messages;
mod tree;
mod wit;
mod words;

use tree::SourceFile;
use xtask::rust_text;

/// STYLE.md, rule 22: longer than a screen is more than one idea.
const FUNCTION_LINES_MAX: usize = 70;

/// STYLE.md, rule 22: a file is one idea, and is read whole.
const FILE_LINES_MAX: usize = 600;

/// Kinds of files that may lie in the checkout, by the end of the name. Fixtures are files of
/// earlier programs, and may be anything.
const KINDS: [&str; 17] = [
    "rs",
    "toml",
    "lock",
    "md",
    "wit",
    "wat",
    "sql",
    "json",
    "jsonl",
    "yaml",
    "yml",
    "snap",
    "txt",
    "py",
    "mjs",
    "sh",
    "proptest-regressions",
];

/// Files without such an end.
const NAMES: [&str; 5] = [
    "LICENSE-MIT",
    "LICENSE-APACHE",
    ".gitignore",
    ".gitattributes",
    ".ci/run",
];

/// Kinds that are written by hand and read by people as code.
const CODE: [&str; 7] = ["rs", "wit", "sql", "toml", "py", "mjs", "sh"];

/// The files of the host with `unsafe` code.
const UNSAFE: [&str; 2] = ["host/src/engine/cache.rs", "host/src/storage/sqlite/vfs.rs"];

/// Enums of the library that may grow beside its errors, and the errors that may not: they are the
/// contract's.
const GROWING: [&str; 1] = ["RunEvent"];
const CLOSED_ERRORS: [&str; 2] = ["StorageError", "LibraryError"];

/// Checks one file and returns its problems.
type FileCheck = fn(&SourceFile) -> Vec<String>;

fn assert_tidy(problems: Vec<String>) {
    assert!(
        problems.is_empty(),
        "{} to tidy up:\n{}",
        problems.len(),
        problems.join("\n")
    );
}

/// Runs a check of one file over all files.
fn check_files(check: impl Fn(&SourceFile) -> Vec<String>) {
    let files = tree::files();
    assert!(
        files.len() > 10,
        "the walk found only {} files",
        files.len()
    );
    assert_tidy(files.iter().flat_map(check).collect());
}

#[test]
fn functions_are_short() {
    check_files(long_functions);
}

#[test]
fn files_are_short() {
    check_files(long_file);
}

#[test]
fn rust_files_open_with_their_purpose() {
    check_files(missing_module_doc);
}

#[test]
fn open_ends_name_an_issue() {
    check_files(open_ends);
}

#[test]
fn unsafe_code_is_where_the_design_allows_it() {
    check_files(forbidden_unsafe);
}

#[test]
fn no_code_of_the_component_sorts() {
    check_files(sorting_code);
}

#[test]
fn there_are_no_stray_files() {
    check_files(stray_file);
}

#[test]
fn wit_items_have_docs_and_a_version() {
    check_files(|file| {
        if file.is("wit") {
            wit::documentation_gaps(file)
        } else {
            Vec::new()
        }
    });
}

#[test]
fn only_growing_enums_are_non_exhaustive() {
    check_files(growth_problems);
}

#[test]
fn the_library_of_the_contract_names_what_a_host_must_know() {
    let files = tree::files();
    let library = files.iter().find(|file| file.path == "wit/library.wit");
    assert_tidy(wit::unnamed_words(&library.unwrap().text));
}

#[test]
fn wit_hash_stands_in_the_changelog() {
    assert_tidy(wit::hash_problems(&tree::files()));
}

#[test]
fn the_host_decides_nothing_by_sentences_of_the_component() {
    let sentences = messages::core_sentences(&tree::files());
    assert!(sentences.len() > 100, "only {} sentences", sentences.len());
    check_files(|file| match messages::is_judged(file) {
        true => messages::problems(file, &sentences),
        false => Vec::new(),
    });
}

#[test]
fn markdown_links_lead_somewhere() {
    check_files(|file| {
        if file.is("md") {
            markdown::broken_links(file, tree::exists)
        } else {
            Vec::new()
        }
    });
}

fn long_functions(file: &SourceFile) -> Vec<String> {
    if !file.is("rs") {
        return Vec::new();
    }
    let long = rust_text::functions(&file.text)
        .into_iter()
        .filter(|function| function.lines > FUNCTION_LINES_MAX);
    long.map(|function| {
        let rust_text::FunctionSpan { name, line, lines } = function;
        format!(
            "{}:{line}: function `{name}` has {lines} lines, the limit is {FUNCTION_LINES_MAX}",
            file.path
        )
    })
    .collect()
}

fn long_file(file: &SourceFile) -> Vec<String> {
    let lines = file.text.lines().count();
    if !["rs", "wit", "sql"].iter().any(|kind| file.is(kind)) || lines <= FILE_LINES_MAX {
        return Vec::new();
    }
    vec![format!(
        "{}: {lines} lines, the limit is {FILE_LINES_MAX}: which are its two ideas?",
        file.path
    )]
}

fn missing_module_doc(file: &SourceFile) -> Vec<String> {
    if !file.is("rs") || file.text.starts_with("//!") {
        return Vec::new();
    }
    vec![format!(
        "{}: does not open with `//!`: purpose, invariants, what does not live here",
        file.path
    )]
}

/// Files that may contain unsafe code: the lint `unsafe_code` is denied everywhere else.
fn forbidden_unsafe(file: &SourceFile) -> Vec<String> {
    let host = file.is("rs") && file.path.starts_with("host/");
    let lifts = host && rust_text::without_literals(&file.text).contains("unsafe_code");
    if !lifts || UNSAFE.contains(&file.path.as_str()) {
        return Vec::new();
    }
    vec![format!(
        "{}: only {UNSAFE:?} may have unsafe code (DESIGN.md, section 12)",
        file.path
    )]
}

/// Calls of the standard library's sorts in code of the component (ARCHITECTURE.md, Contract).
fn sorting_code(file: &SourceFile) -> Vec<String> {
    let component = file.is("rs") && file.path.starts_with("guest/");
    let tests = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
    if !component || tests {
        return Vec::new();
    }
    let code = rust_text::without_literals(&file.text);
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().enumerate();
    let sorts = lines.filter(|(_, line)| line.contains(".sort"));
    let say = |(at, _)| format!("{}:{}: the component sorts nothing", file.path, at + 1);
    sorts.map(say).collect()
}

/// Compares the guide's list of enums that may grow with their `non_exhaustive` attributes, both
/// ways.
fn growth_problems(file: &SourceFile) -> Vec<String> {
    let library = file.is("rs")
        && file.path.starts_with("host/src/")
        && !file.path.starts_with("host/src/command/");
    let mut problems = Vec::new();
    let mut says = false;
    for (at, line) in file.text.lines().enumerate().filter(|_| library) {
        says |= line == "#[non_exhaustive]";
        if let Some(rest) = line.strip_prefix("pub enum ") {
            let name = rest.split([' ', '<']).next().unwrap_or_default();
            let grows = GROWING.contains(&name)
                || name.ends_with("Error") && !CLOSED_ERRORS.contains(&name);
            if grows != says {
                let word = if grows { "needs" } else { "must not have" };
                let place = format!("{}:{}", file.path, at + 1);
                problems.push(format!(
                    "{place}: `{name}` {word} #[non_exhaustive] (docs/embedding.md, What to know)"
                ));
            }
        }
        // Attributes and docs of the next item begin after a line of another.
        says &= line.starts_with("#[") || line.starts_with("///") || line.starts_with("    ");
    }
    problems
}

fn open_ends(file: &SourceFile) -> Vec<String> {
    if file.path != ".ci/run" && !CODE.iter().any(|kind| file.is(kind)) {
        return Vec::new();
    }
    let text = if file.is("rs") {
        &rust_text::without_literals(&file.text)
    } else {
        &file.text
    };
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| is_open_end(line));
    lines
        .map(|(at, _)| {
            format!(
                "{}:{}: name the issue, as in `#12`, or do it now",
                file.path,
                at + 1
            )
        })
        .collect()
}

fn is_open_end(line: &str) -> bool {
    let words = ["TODO", "FIXME"];
    let Some(at) = words.iter().find_map(|word| line.find(word)) else {
        return false;
    };
    let mut after_hash = line[at..].split('#').skip(1);
    !after_hash.any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn stray_file(file: &SourceFile) -> Vec<String> {
    let known = file.path.starts_with("tests/fixtures/")
        || NAMES.contains(&file.path.as_str())
        || KINDS.iter().any(|kind| file.is(kind));
    if known {
        Vec::new()
    } else {
        vec![format!(
            "{}: not a kind of file that belongs here",
            file.path
        )]
    }
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
    fn untidy_files_are_found() {
        let body = "    x();\n".repeat(FUNCTION_LINES_MAX - 1);
        let cases: [(FileCheck, SourceFile, usize); 18] = [
            (
                long_functions,
                file("a.rs", &format!("fn f() {{\n{body}}}\n")),
                1,
            ),
            (
                long_functions,
                file("a.rs", &format!("fn f() {{\n{}}}\n", &body[9..])),
                0,
            ),
            (
                long_functions,
                file("a.md", &format!("fn f() {{\n{body}}}\n")),
                0,
            ),
            (long_file, file("a.rs", &"\n".repeat(FILE_LINES_MAX + 1)), 1),
            (long_file, file("a.rs", &"\n".repeat(FILE_LINES_MAX)), 0),
            (missing_module_doc, file("a.rs", "use x;\n//! Late.\n"), 1),
            (missing_module_doc, file("a.rs", "//! Purpose.\n"), 0),
            (
                open_ends,
                file(
                    "a.rs",
                    "// TODO later\n/* FIXME: # later */ x(\"TODO\");\nx(\"// TODO\");\n",
                ),
                2,
            ),
            (open_ends, file("a.sql", "-- TODO (#12)\n"), 0),
            (
                forbidden_unsafe,
                file("host/src/a.rs", "#![allow(unsafe_code, reason)]"),
                1,
            ),
            (
                forbidden_unsafe,
                file("host/src/a.rs", "x(\"unsafe_code\");"),
                0,
            ),
            (
                forbidden_unsafe,
                file(UNSAFE[0], "#![allow(unsafe_code)]"),
                0,
            ),
            (sorting_code, file("guest/src/a.rs", "names.sort();\n"), 1),
            (
                sorting_code,
                file(
                    "guest/src/a.rs",
                    "#[cfg(test)]\nmod tests {\nx.sort();\n}\n",
                ),
                0,
            ),
            (sorting_code, file("host/src/a.rs", "names.sort();\n"), 0),
            (stray_file, file("host/registry.db", ""), 1),
            (stray_file, file("notes", ""), 1),
            (stray_file, file("tests/fixtures/v1/registry.db", ""), 0),
        ];
        for (at, (check, file, count)) in cases.into_iter().enumerate() {
            assert_eq!(check(&file).len(), count, "case {at}: {}", file.path);
        }
    }

    #[test]
    fn missing_non_exhaustive_is_found() {
        let cases = [
            ("pub enum AError {\n", 1),
            ("#[non_exhaustive]\npub enum RunEvent {\n", 0),
            ("#[non_exhaustive]\npub struct A;\npub enum BError {\n", 1),
            ("#[non_exhaustive]\npub enum StorageError {\n", 1),
            ("/// Closed.\npub enum Op {\n", 0),
        ];
        for (text, count) in cases {
            assert_eq!(
                growth_problems(&file("host/src/a.rs", text)).len(),
                count,
                "{text}"
            );
            assert!(growth_problems(&file("host/src/command/a.rs", text)).is_empty());
        }
    }
}
