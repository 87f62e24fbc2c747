//! The rules of STYLE.md, "Plain English", that a machine can check: names of types and functions,
//! openings of doc comments, widths of lines, and circles between the modules of core.
//!
//! They read lines as `rustfmt` writes them, without a parser; literals are blanked first.

pub mod circles;
mod names;

use crate::rust_text::without_literals;
use names::{function_name, is_bare_participle, is_one_word, opening_word, type_name};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// Words of the glossary of ARCHITECTURE.md that a type may have as its whole name.
pub const GLOSSARY: [&str; 20] = [
    "account",
    "attempt",
    "chain",
    "checkpoint",
    "directive",
    "document",
    "driver",
    "entry",
    "head",
    "hold",
    "path",
    "policy",
    "reserve",
    "run",
    "signal",
    "step",
    "tenant",
    "thread",
    "turn",
    "version",
];

/// Words that mean here what they mean everywhere in the field, and need no row in the glossary.
pub const FIELD_WORDS: [&str; 10] = [
    "budget",
    "engine",
    "error",
    "event",
    "message",
    "model",
    "provider",
    "tool",
    "transcript",
    "usage",
];

/// The crates by the path of their sources; a path belongs to the longest one that it begins with.
const CRATES: [&str; 13] = [
    "guest/units",
    "guest/json",
    "guest/core",
    "guest/bundle/providers",
    "guest/bundle/command",
    "guest",
    "storage",
    "adapters",
    "host/cli",
    "host",
    "tests",
    "examples",
    "xtask",
];

/// Widest line of code or comment.
pub const COLUMNS_MAX: usize = 100;

/// A source file.
pub struct SourceFile {
    /// Relative to the workspace, with slashes.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A rule about words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WordRule {
    /// The name of a type has two words or more, unless the word is of the glossary or the field.
    OneWordType,
    /// The name of a type is defined once in a crate.
    RepeatedType,
    /// A function is not named by a participle alone.
    BareParticiple,
    /// A doc comment says what an item does or is, and does not open with a question word.
    DocQuestion,
    /// A line has at most [`COLUMNS_MAX`] columns.
    WideLine,
}

/// A place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordFault {
    /// Path of the file.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The rule.
    pub rule: WordRule,
    /// The name, word or width that breaks it.
    pub detail: String,
}

impl fmt::Display for WordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path, line, detail, ..
        } = self;
        write!(f, "{path}:{line}: ")?;
        match self.rule {
            WordRule::OneWordType => write!(f, "type `{detail}` needs a second word"),
            WordRule::RepeatedType => write!(f, "type `{detail}` is defined twice in its crate"),
            WordRule::BareParticiple => write!(f, "function `{detail}` needs a verb and an object"),
            WordRule::DocQuestion => write!(f, "a doc comment opens with {detail}"),
            WordRule::WideLine => write!(f, "{detail} columns, the limit is {COLUMNS_MAX}"),
        }
    }
}

/// Numbers of the things that rules are about.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SourceUnits {
    /// Definitions of types.
    pub types: usize,
    /// Those whose name is one word.
    pub one_word_types: usize,
    /// Functions.
    pub functions: usize,
    /// Doc comments.
    pub doc_comments: usize,
    /// Lines by folder.
    pub lines: BTreeMap<String, usize>,
}

/// A thing that a line begins.
enum LineUnit<'a> {
    Type(&'a str),
    Function(&'a str),
    /// A doc comment, by its first word.
    Doc(&'a str),
}

/// Reads the sources of a workspace, ordered by path.
///
/// # Errors
/// A folder or file that cannot be read.
pub fn read_sources(root: &Path) -> std::io::Result<Vec<SourceFile>> {
    let mut files = BTreeMap::new();
    let mut folders: Vec<_> = CRATES.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let inside = path.strip_prefix(root).unwrap_or(&path);
                let inside = inside.to_string_lossy().replace('\\', "/");
                files.insert(inside, std::fs::read_to_string(&path)?);
            }
        }
    }
    let file = |(path, text)| SourceFile { path, text };
    Ok(files.into_iter().map(file).collect())
}

/// Finds the faults of all files, ordered by rule and place.
pub fn find_faults(files: &[SourceFile]) -> Vec<WordFault> {
    let mut faults = Vec::new();
    let mut defined: BTreeMap<(&str, String), Vec<(&str, usize)>> = BTreeMap::new();
    for file in files {
        let mut add = |line, rule, detail: &str| {
            faults.push(WordFault {
                path: file.path.clone(),
                line,
                rule,
                detail: detail.to_owned(),
            });
        };
        for (at, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                add(at + 1, WordRule::WideLine, &columns.to_string());
            }
        }
        visit_units(&without_literals(&file.text), |line, unit| match unit {
            LineUnit::Type(name) => {
                if is_one_word(name) && !is_listed(name) {
                    add(line, WordRule::OneWordType, name);
                }
                let places = defined.entry((crate_of(&file.path), name.to_owned()));
                places.or_default().push((&file.path, line));
            }
            LineUnit::Function(name) if is_bare_participle(name) => {
                add(line, WordRule::BareParticiple, name);
            }
            LineUnit::Doc(word) if names::OPENINGS.contains(&word) => {
                add(line, WordRule::DocQuestion, word);
            }
            LineUnit::Function(_) | LineUnit::Doc(_) => {}
        });
    }
    for ((_, name), places) in defined.into_iter().filter(|(_, places)| places.len() > 1) {
        faults.extend(places.into_iter().map(|(path, line)| WordFault {
            path: path.to_owned(),
            line,
            rule: WordRule::RepeatedType,
            detail: name.clone(),
        }));
    }
    faults.sort_by(|one, other| {
        (one.rule, &one.path, one.line).cmp(&(other.rule, &other.path, other.line))
    });
    faults
}

/// Counts the things that the rules are about.
pub fn count_units(files: &[SourceFile]) -> SourceUnits {
    let mut units = SourceUnits::default();
    for file in files {
        visit_units(&without_literals(&file.text), |_, unit| match unit {
            LineUnit::Type(name) => {
                units.types += 1;
                units.one_word_types += usize::from(is_one_word(name));
            }
            LineUnit::Function(_) => units.functions += 1,
            LineUnit::Doc(_) => units.doc_comments += 1,
        });
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *units.lines.entry(folder.to_owned()).or_default() += file.text.lines().count();
    }
    units
}

/// Visits what each line begins, with the number of the line. An associated type of an `impl` is no
/// definition: its name is the trait's.
fn visit_units<'a>(code: &'a str, mut visit: impl FnMut(usize, LineUnit<'a>)) {
    let mut implementation: Option<usize> = None;
    let mut in_doc = false;
    for (at, text) in code.lines().enumerate() {
        let line = text.trim();
        let indent = text.len() - text.trim_start().len();
        if ["impl ", "impl<", "unsafe impl "]
            .iter()
            .any(|word| line.starts_with(word))
        {
            implementation = (!line.ends_with('}')).then_some(indent);
        } else if line == "}" && implementation == Some(indent) {
            implementation = None;
        }
        let associated = implementation.is_some() && line.starts_with("type ");
        if let Some(name) = type_name(line).filter(|_| !associated) {
            visit(at + 1, LineUnit::Type(name));
        }
        if let Some(name) = function_name(line) {
            visit(at + 1, LineUnit::Function(name));
        }
        let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
        if let (Some(text), false) = (doc, in_doc) {
            visit(at + 1, LineUnit::Doc(opening_word(text)));
        }
        in_doc = doc.is_some();
    }
}

fn is_listed(name: &str) -> bool {
    let word = name.to_lowercase();
    GLOSSARY.contains(&word.as_str()) || FIELD_WORDS.contains(&word.as_str())
}

fn crate_of(path: &str) -> &'static str {
    let within = |folder: &&&str| {
        path.strip_prefix(**folder)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let folders = CRATES.iter().filter(within);
    folders
        .max_by_key(|folder| folder.len())
        .copied()
        .unwrap_or_default()
}

/// Returns the words of the first column of the glossary table under the heading `## Glossary`;
/// `None` without the heading.
pub fn glossary_words(architecture: &str) -> Option<BTreeSet<String>> {
    let (_, section) = architecture.split_once("\n## Glossary\n")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let first = rows.filter_map(|row| row.split(" | ").next());
    let words = first.flat_map(|cell| cell.split([',', '/', '(', ')']));
    Some(words.map(|word| word.trim().to_lowercase()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &[(usize, WordRule, &str)]) {
        let faults = find_faults(&[file("host/src/a.rs", text)]);
        let found: Vec<_> = faults
            .iter()
            .map(|fault| (fault.line, fault.rule, fault.detail.as_str()))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn planted_faults_are_found() {
        use WordRule::{BareParticiple, DocQuestion, OneWordType, RepeatedType, WideLine};
        check("\npub(super) struct Given;\n", &[(2, OneWordType, "Given")]);
        check("type Door = u8;\n", &[(1, OneWordType, "Door")]);
        check(
            "trait ReadState {\n    type Found;\n}\n",
            &[(2, OneWordType, "Found")],
        );
        let twice = "struct ReadMode;\nmod tests {\n    enum ReadMode {}\n}\n";
        check(
            twice,
            &[(1, RepeatedType, "ReadMode"), (3, RepeatedType, "ReadMode")],
        );
        check("pub const fn told() {}\n", &[(1, BareParticiple, "told")]);
        check(
            "async fn released() {}\n",
            &[(1, BareParticiple, "released")],
        );
        check(
            "/// It is.\n/// What.\nx();\n//! `Whether` so.\n",
            &[(4, DocQuestion, "Whether")],
        );
        check("/// Why, as it was.\n", &[(1, DocQuestion, "Why")]);
        let wide = format!("x();\n// {}\n", "ä".repeat(COLUMNS_MAX - 2));
        check(&wide, &[(2, WideLine, "101")]);
    }

    #[test]
    fn plain_words_are_no_faults() {
        check("pub struct ReadMode;\nenum Turn {}\nstruct Error;\n", &[]);
        check("impl Deref for X1 {\n    type Target = Y1;\n}\n", &[]);
        check("fn read_told() {}\nfn need() {}\n// What it is.\n", &[]);
        check(
            "x(\n    \"\nstruct Given;\nfn told() {}\n/// What\n\");\n",
            &[],
        );
        check(&format!("// {}\n", "ä".repeat(COLUMNS_MAX - 3)), &[]);
    }

    #[test]
    fn names_are_unique_in_each_crate() {
        let text = "struct ReadMode;\n";
        let files = [
            file("host/src/a.rs", text),
            file("host/cli/src/a.rs", text),
            file("guest/src/a.rs", text),
            file("guest/units/src/a.rs", text),
        ];
        assert_eq!(find_faults(&files), []);
        let files = [file("host/src/a.rs", text), file("host/tests/b.rs", text)];
        assert_eq!(find_faults(&files).len(), 2);
    }

    #[test]
    fn glossaries_are_read() {
        assert_eq!(glossary_words("# A\n| turn | x |\n"), None);
        let text = "# A\n\n## Glossary\n\n| word | means |\n|---|---|\n\
                    | entry (change set) | x |\n\n## B\n\n| turn | x |\n";
        let words = glossary_words(text).unwrap();
        assert!(words.contains("entry") && words.contains("change set") && !words.contains("turn"));
    }
}
