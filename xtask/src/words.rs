//! `cargo xtask words`: measures how plainly the sources are written: names of types and functions,
//! openings of doc comments, long lines, circles between the modules of core, and lines by folder.
//!
//! It reads lines as `rustfmt` writes them, without a parser. `tidy` tests the rules behind these
//! figures.

use crate::paths;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The packages by the path of their sources; a path belongs to the longest one that it begins
/// with.
const PACKAGES: [&str; 7] = [
    "guest/core",
    "guest",
    "host/cli",
    "host",
    "tests",
    "examples",
    "xtask",
];
/// Widest line of code or comment.
const COLUMNS_MAX: usize = 100;
/// Words that a doc comment should not open with.
const OPENINGS: [&str; 8] = [
    "What", "Who", "Whoever", "Whether", "How", "Why", "Whose", "Whatever",
];
/// Participles that do not end in `ed`.
const PARTICIPLES: [&str; 22] = [
    "told", "ran", "woken", "swept", "said", "held", "given", "taken", "shown", "known", "written",
    "sent", "gone", "done", "kept", "left", "made", "put", "sold", "spent", "bound", "found",
];

/// A source file.
pub struct SourceFile {
    /// Relative to the workspace, with slashes.
    path: String,
    text: String,
}

/// The figures of a source tree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct WordFigures {
    types: usize,
    one_word_types: usize,
    names_defined_twice: BTreeSet<String>,
    functions: usize,
    bare_participles: BTreeSet<String>,
    doc_comments: usize,
    doc_questions: usize,
    long_lines: usize,
    lines: BTreeMap<String, usize>,
}

/// Prints the figures of this workspace.
pub fn run() -> anyhow::Result<()> {
    let files = source_files(paths::root())?;
    let figures = measure(&files);
    print(&figures, &circles(&core_modules(&files)));
    Ok(())
}

fn source_files(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    let mut folders: Vec<_> = PACKAGES.iter().map(|package| root.join(package)).collect();
    let mut seen = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder);
        for entry in entries.with_context(|| format!("cannot list {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") && seen.insert(path.clone())
            {
                let text = std::fs::read_to_string(&path)?;
                let path = path
                    .strip_prefix(root)?
                    .to_string_lossy()
                    .replace('\\', "/");
                files.push(SourceFile { path, text });
            }
        }
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn measure(files: &[SourceFile]) -> WordFigures {
    let mut figures = WordFigures::default();
    let mut defined: BTreeMap<(String, String), usize> = BTreeMap::new();
    for file in files {
        let mut in_doc = false;
        for line in file.text.lines() {
            let code = line.trim();
            if let Some(name) = type_name(code) {
                figures.types += 1;
                figures.one_word_types += usize::from(is_one_word(name));
                let package = package_of(&file.path).to_owned();
                *defined.entry((package, name.to_owned())).or_default() += 1;
            }
            if let Some(name) = function_name(code) {
                figures.functions += 1;
                if is_bare_participle(name) {
                    figures
                        .bare_participles
                        .insert(format!("{}: {name}", file.path));
                }
            }
            let doc = code.strip_prefix("///").or(code.strip_prefix("//!"));
            if let (Some(text), false) = (doc, in_doc) {
                figures.doc_comments += 1;
                let first = text.split_whitespace().next().unwrap_or_default();
                let first = first.trim_matches(|c: char| !c.is_alphabetic());
                figures.doc_questions += usize::from(OPENINGS.contains(&first));
            }
            in_doc = doc.is_some();
            figures.long_lines += usize::from(line.chars().count() > COLUMNS_MAX);
        }
        let room = file.path.rsplit_once('/').map_or("", |(room, _)| room);
        *figures.lines.entry(room.to_owned()).or_default() += file.text.lines().count();
    }
    let twice = defined.into_iter().filter(|(_, count)| *count > 1);
    figures.names_defined_twice = twice
        .map(|((package, name), count)| format!("{package}: {name} ({count} times)"))
        .collect();
    figures
}

fn package_of(path: &str) -> &'static str {
    let longest = PACKAGES
        .iter()
        .filter(|package| path.starts_with(**package));
    longest
        .max_by_key(|package| package.len())
        .copied()
        .unwrap_or_default()
}

/// The name of the type or trait that a line begins to define.
fn type_name(code: &str) -> Option<&str> {
    let code = without_visibility(code);
    let rest = ["struct ", "enum ", "trait ", "type ", "union "]
        .iter()
        .find_map(|word| code.strip_prefix(word))?;
    let name = identifier(rest);
    name.chars()
        .next()
        .is_some_and(char::is_uppercase)
        .then_some(name)
}

/// The name of the function that a line begins to define.
fn function_name(code: &str) -> Option<&str> {
    let mut code = without_visibility(code);
    for word in ["const ", "async ", "unsafe ", "extern \"C\" "] {
        code = code.strip_prefix(word).unwrap_or(code);
    }
    let name = identifier(code.strip_prefix("fn ")?);
    (!name.is_empty()).then_some(name)
}

fn without_visibility(code: &str) -> &str {
    let Some(rest) = code.strip_prefix("pub") else {
        return code;
    };
    match rest.strip_prefix('(') {
        Some(inside) => inside.split_once(") ").map_or(code, |(_, rest)| rest),
        None => rest.trim_start(),
    }
}

fn identifier(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_');
    &code[..end.unwrap_or(code.len())]
}

fn is_one_word(name: &str) -> bool {
    name.chars().filter(|c| c.is_uppercase()).count() == 1
}

fn is_bare_participle(name: &str) -> bool {
    let regular =
        name.ends_with("ed") && !["need", "feed", "seed", "speed", "embed"].contains(&name);
    !name.contains('_') && (regular || PARTICIPLES.contains(&name))
}

/// Returns the modules of core by their path, each with the modules that it uses.
fn core_modules(files: &[SourceFile]) -> BTreeMap<String, BTreeSet<String>> {
    let root = "guest/core/src/";
    let of = |file: &SourceFile| {
        let path = file.path.strip_prefix(root)?.strip_suffix(".rs")?;
        let path = path.strip_suffix("/mod").unwrap_or(path);
        (path != "lib").then(|| path.replace('/', "::"))
    };
    let modules: BTreeSet<String> = files.iter().filter_map(of).collect();
    let module_of = |path: &str| {
        let mut path = path;
        while !path.is_empty() && !modules.contains(path) {
            path = path.rsplit_once("::").map_or("", |(before, _)| before);
        }
        path.to_owned()
    };
    let mut exported: BTreeMap<String, String> = BTreeMap::new();
    for file in files {
        let Some(module) = of(file) else { continue };
        for path in used_paths(&file.text, &module) {
            let Some((child, name)) = path.rsplit_once("::") else {
                continue;
            };
            if child
                .strip_prefix(&module)
                .is_some_and(|rest| rest.starts_with("::"))
            {
                exported.insert(format!("{module}::{name}"), module_of(child));
            }
        }
    }
    let mut graph = BTreeMap::new();
    for file in files {
        let Some(module) = of(file) else { continue };
        let children = format!("{module}::");
        let paths = used_paths(&file.text, &module).into_iter();
        let used = paths
            .filter(|path| !path.starts_with(&children))
            .map(|path| {
                exported
                    .get(&path)
                    .cloned()
                    .unwrap_or_else(|| module_of(&path))
            });
        let used: BTreeSet<String> = used
            .filter(|used| !used.is_empty() && *used != module)
            .collect();
        graph.insert(module, used);
    }
    graph
}

/// Returns the paths within the crate that the `use` lines outside of tests name.
fn used_paths(text: &str, module: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut paths = Vec::new();
    for statement in text.split(';') {
        let Some(at) = statement.rfind("use ") else {
            continue;
        };
        let begins = statement[..at].chars().next_back();
        if begins.is_some_and(|c| c != '\n' && c != ' ' && c != ')') {
            continue;
        }
        expand(
            "",
            &statement[at + 4..].replace(char::is_whitespace, ""),
            &mut paths,
        );
    }
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let resolve = |path: String| {
        if let Some(path) = path.strip_prefix("crate::") {
            return path.to_owned();
        }
        match (path.strip_prefix("super::"), parent) {
            (Some(path), "") => path.to_owned(),
            (Some(path), parent) => format!("{parent}::{path}"),
            // A child of the module, or another crate, whose name matches no module.
            (None, _) => format!("{module}::{path}"),
        }
    };
    paths.into_iter().map(resolve).collect()
}

/// Collects the leaves of a `use` tree.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let Some(open) = tree.find('{') else {
        paths.push(format!("{before}{tree}"));
        return;
    };
    let before = format!("{before}{}", &tree[..open]);
    let inside = tree[open + 1..]
        .strip_suffix('}')
        .unwrap_or(&tree[open + 1..]);
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&before, &inside[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inside.len() {
        expand(&before, &inside[start..], paths);
    }
}

/// Returns the groups of modules that each reach every other.
fn circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = vec![from];
        while let Some(module) = open.pop() {
            for next in graph.get(module).into_iter().flatten() {
                if seen.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        seen
    };
    let reaches: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|module| (module.as_str(), reach(module)))
        .collect();
    let mut found: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, below) in &reaches {
        let back = |other: &&&str| reaches.get(**other).is_some_and(|set| set.contains(module));
        let circle: Vec<String> = below
            .iter()
            .filter(back)
            .map(|name| (*name).to_owned())
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn print(figures: &WordFigures, circles: &[Vec<String>]) {
    let share = |part: usize, whole: usize| 100.0 * part as f64 / whole.max(1) as f64;
    let line = |what: &str, part: usize, whole: usize| {
        println!(
            "{what:<34} {part:>6} of {whole:>6}  {:>5.1} %",
            share(part, whole)
        );
    };
    line("types of one word", figures.one_word_types, figures.types);
    line(
        "bare participles",
        figures.bare_participles.len(),
        figures.functions,
    );
    line(
        "doc comments that ask",
        figures.doc_questions,
        figures.doc_comments,
    );
    println!(
        "{:<34} {:>6}",
        "names defined twice in a package",
        figures.names_defined_twice.len()
    );
    println!("{:<34} {:>6}", "lines over 100 columns", figures.long_lines);
    let files: usize = circles.iter().map(Vec::len).sum();
    println!(
        "{:<34} {:>6} of {files} files",
        "circles between modules of core",
        circles.len()
    );
    for circle in circles {
        println!("    {}", circle.join(" "));
    }
    println!("\nlines by room");
    for (room, lines) in &figures.lines {
        println!("{lines:>7}  {room}");
    }
    println!("{:>7}  all", figures.lines.values().sum::<usize>());
    if std::env::var_os("WORDS").is_some() {
        for name in figures
            .names_defined_twice
            .iter()
            .chain(&figures.bare_participles)
        {
            println!("  {name}");
        }
    }
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

    #[test]
    fn figures_count_what_they_name() {
        let text = "/// What it is.\npub(super) struct Given;\n/// Reads it.\nenum ReadMode {}\n\
                    fn told() {}\npub const fn read_file() {}\nfn need() {}\nstruct Given;\n";
        let figures = measure(&[file("host/src/a.rs", text)]);
        assert_eq!((figures.types, figures.one_word_types), (3, 2));
        assert_eq!((figures.functions, figures.bare_participles.len()), (3, 1));
        assert_eq!((figures.doc_comments, figures.doc_questions), (2, 1));
        assert_eq!(figures.names_defined_twice.len(), 1);
        let wide = format!("// {}", "x".repeat(COLUMNS_MAX));
        assert_eq!(measure(&[file("xtask/src/a.rs", &wide)]).long_lines, 1);
    }

    #[test]
    fn circles_are_found_through_nested_uses_and_not_through_tests() {
        let files = [
            file("guest/core/src/plan.rs", "use crate::runner::{Mail, X};\n"),
            file(
                "guest/core/src/runner/mod.rs",
                "mod mail;\npub use mail::Mail;\n",
            ),
            file(
                "guest/core/src/runner/mail.rs",
                "use crate::plan::Change;\nuse super::X;\n",
            ),
            file(
                "guest/core/src/money.rs",
                "#[cfg(test)]\nmod t {\n    use crate::plan::Y;\n}\n",
            ),
        ];
        let found = circles(&core_modules(&files));
        assert_eq!(found, [["plan", "runner::mail"]]);
    }
}
