//! The modules of core that use each other in a circle, read from their `use` lines.

use super::SourceFile;
use std::collections::{BTreeMap, BTreeSet};

/// A circle that may stay, with the reason.
pub struct AllowedCircle {
    /// Its modules by their path in the crate, in order.
    pub modules: &'static [&'static str],
    /// The reason, in a sentence.
    pub reason: &'static str,
}

/// The circles that may stay.
pub const ALLOWED_CIRCLES: [AllowedCircle; 0] = [];

/// Folder of the sources of core.
const CORE: &str = "guest/core/src/";

/// Returns the groups of modules of core that each reach every other.
pub fn core_circles(files: &[SourceFile]) -> Vec<Vec<String>> {
    find_circles(&core_modules(files))
}

/// Returns a sentence for each circle that is not allowed, and for each that is allowed and is not
/// there.
pub fn circle_problems(circles: &[Vec<String>], allowed: &[AllowedCircle]) -> Vec<String> {
    let unexcused = circles
        .iter()
        .filter(|circle| {
            !allowed
                .iter()
                .any(|other| other.modules == circle.as_slice())
        })
        .map(|circle| {
            format!(
                "modules of core use each other in a circle: {}",
                circle.join(" ")
            )
        });
    let gone = allowed
        .iter()
        .filter(|other| {
            !circles
                .iter()
                .any(|circle| other.modules == circle.as_slice())
        })
        .map(|other| {
            let modules = other.modules.join(" ");
            format!(
                "this circle is allowed and is not there: {modules} ({})",
                other.reason
            )
        });
    unexcused.chain(gone).collect()
}

/// Returns the modules of core by their path, each with the modules that it uses.
fn core_modules(files: &[SourceFile]) -> BTreeMap<String, BTreeSet<String>> {
    let of = |file: &SourceFile| {
        let path = file.path.strip_prefix(CORE)?.strip_suffix(".rs")?;
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
fn find_circles(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
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
        assert_eq!(core_circles(&files), [["plan", "runner::mail"]]);
    }

    #[test]
    fn only_listed_circles_are_allowed() {
        let circle = || vec![vec!["ledger".to_owned(), "thread".to_owned()]];
        let allowed = || AllowedCircle {
            modules: &["ledger", "thread"],
            reason: "planted",
        };
        assert_eq!(circle_problems(&circle(), &[]).len(), 1);
        assert_eq!(circle_problems(&circle(), &[allowed()]), [""; 0]);
        assert_eq!(circle_problems(&[], &[allowed()]).len(), 1);
    }
}
