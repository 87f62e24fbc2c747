//! WIT files: docs and a version on every item, and a hash in the changelog that makes a silent
//! change impossible.

use super::tree::SourceFile;
use threadkeep_core::hash::sha256_text;
use threadkeep_core::limits::ThreadCaps;
use threadkeep_core::settings::{FRONT_MATTER_FIELDS, WAIT_MILLIS_DEFAULT, builtin_tools};

/// Beginnings of the items of a package, an interface or a world.
const ITEMS: [&str; 10] = [
    "interface ",
    "world ",
    "record ",
    "variant ",
    "enum ",
    "flags ",
    "resource ",
    "type ",
    "import ",
    "export ",
];

/// Items whose lines are fields or cases, which need docs and take no version.
const WITH_FIELDS: [&str; 4] = ["record ", "variant ", "enum ", "flags "];

/// Returns items and uses without `@since`, and items, fields and cases without docs. Reads the
/// files by lines, one item a line at most, as in all WIT files of the project.
pub fn documentation_gaps(file: &SourceFile) -> Vec<String> {
    let mut state = LineState::default();
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(at, line)| {
            Some(format!(
                "{}:{}: {}",
                file.path,
                at + 1,
                state.read_line(line.trim())?
            ))
        })
        .collect()
}

#[derive(Default)]
struct LineState {
    has_docs: bool,
    has_since: bool,
    in_fields: bool,
    in_statement: bool,
}

impl LineState {
    /// Reads one line; returns its problem, if it has one.
    fn read_line(&mut self, line: &str) -> Option<String> {
        if line.starts_with("///") {
            self.has_docs = true;
        } else if line.starts_with('@') {
            self.has_since |= line.starts_with("@since(version = ");
        } else if !line.starts_with("//") {
            let problem = if self.in_statement {
                None
            } else {
                self.judge(line)
            };
            self.in_fields = !line.starts_with('}')
                && (self.in_fields || is_any(line, &WITH_FIELDS))
                && !line.ends_with("{}");
            let ends = line.is_empty()
                || line.ends_with([';', '{', '}', ','])
                    && !(self.in_statement && line.ends_with(','));
            self.in_statement = !ends || (is_function(line) && !line.ends_with(';'));
            (self.has_docs, self.has_since) = (false, false);
            return problem;
        }
        None
    }

    fn judge(&self, line: &str) -> Option<String> {
        if line.is_empty() || line.starts_with(['}', '{']) || line.starts_with("package ") {
            return None;
        }
        let is_field = self.in_fields;
        let needs_docs = !is_any(line, &["use ", "import ", "export "]);
        if needs_docs && !self.has_docs {
            return Some(format!("no docs: {line}"));
        }
        let is_item = is_any(line, &ITEMS) || line.starts_with("use ") || is_function(line);
        (!is_field && is_item && !self.has_since)
            .then(|| format!("no `@since(version = ...)`: {line}"))
    }
}

fn is_any(line: &str, beginnings: &[&str]) -> bool {
    beginnings
        .iter()
        .any(|beginning| line.starts_with(beginning))
}

fn is_function(line: &str) -> bool {
    line.contains("func(") || line.starts_with("constructor(")
}

/// Returns the names that a host has to know and that the docs of `library` do not say: keys of
/// front matter, tools of the component's own, presets.
pub fn unnamed_words(library: &str) -> Vec<String> {
    let tools = builtin_tools(WAIT_MILLIS_DEFAULT).map(|tool| tool.name);
    let presets = ["local", "strict"].map(str::to_owned);
    let known = presets
        .iter()
        .all(|name| ThreadCaps::for_preset(name).is_some());
    assert!(known, "{presets:?}");
    let keys = FRONT_MATTER_FIELDS.map(str::to_owned);
    let words = tools.chain(presets).chain(keys);
    let unnamed = words.filter(|word| !library.contains(&format!("`{word}`")));
    unnamed.collect()
}

/// Returns the problems of the line `WIT <version>: <hash>` of the changelog.
pub fn hash_problems(files: &[SourceFile]) -> Vec<String> {
    let ours: Vec<&SourceFile> = files.iter().filter(|file| is_contract(file)).collect();
    let Some(version) = ours.iter().find_map(|file| package_version(&file.text)) else {
        return vec!["wit/: no file has a line `package name@version;`".into()];
    };
    let line = format!("WIT {version}: {}", hash(&ours));
    let changelog = files
        .iter()
        .find(|file| file.path == "CHANGELOG.md")
        .map_or("", |file| file.text.as_str());
    if changelog
        .lines()
        .any(|found| found.trim_start_matches(['-', ' ']).trim_end() == line)
    {
        return Vec::new();
    }
    vec![format!(
        "wit/ is not what CHANGELOG.md says. If the change is meant, say it there and put in the \
         line:\n{line}"
    )]
}

/// Returns true for the contract's files, not for their frozen copies.
fn is_contract(file: &SourceFile) -> bool {
    file.is("wit")
        && file
            .path
            .strip_prefix("wit/")
            .is_some_and(|name| !name.contains('/'))
}

fn package_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("package "))?;
    Some(line.split_once('@')?.1.trim_end().trim_end_matches(';'))
}

/// SHA-256 of names and texts, in the order of the names.
fn hash(files: &[&SourceFile]) -> String {
    let mut files = files.to_vec();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    sha256_text(
        &files
            .iter()
            .map(|file| format!("{}\n{}\n", file.path, file.text))
            .collect::<String>(),
    )
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

    const GOOD: &str = "\
package a:b@0.1.0;

/// Docs.
@since(version = 0.1.0)
interface i {
    @since(version = 0.1.0)
    use types.{error};

    /// Docs.
    @since(version = 0.1.0)
    record r {
        /// Docs.
        type-name: string,
        /// Docs.
        other: list<u8>,
    }

    /// Docs.
    @since(version = 0.1.0)
    f: func(one: string, two: string) -> result<r, error>;
    /// Docs.
    @since(version = 0.1.0)
    long: func(
        one: string,
        two: string,
    ) -> result<r, error>;
    /// Docs.
    @since(version = 0.1.0)
    type t = u8;
}
";

    #[test]
    fn every_missing_line_is_found() {
        assert_eq!(
            documentation_gaps(&file("wit/a.wit", GOOD)),
            Vec::<String>::new()
        );
        let needed = |line: &str| line.trim().starts_with("///") || line.trim().starts_with('@');
        for (at, line) in GOOD.lines().enumerate().filter(|(_, line)| needed(line)) {
            let without: String = GOOD
                .lines()
                .enumerate()
                .filter(|(n, _)| *n != at)
                .map(|(_, l)| format!("{l}\n"))
                .collect();
            assert_eq!(
                documentation_gaps(&file("wit/a.wit", &without)).len(),
                1,
                "line {} ({line}) taken out",
                at + 1
            );
        }
    }

    #[test]
    fn the_changelog_must_have_the_hash() {
        let contract = || {
            vec![
                file("wit/a.wit", GOOD),
                file("wit/frozen/0.0.9/a.wit", "old"),
            ]
        };
        let problems = hash_problems(&contract());
        let line = problems[0].lines().last().expect("the line to put in");
        assert!(line.starts_with("WIT 0.1.0: "), "{line}");
        let with = |text: String| {
            contract()
                .into_iter()
                .chain([file("CHANGELOG.md", &text)])
                .collect::<Vec<_>>()
        };
        assert!(hash_problems(&with(format!("# Changes\n\n- {line}\n"))).is_empty());
        assert_eq!(hash_problems(&with(format!("{line}0\n"))).len(), 1);
        let mut changed = with(format!("{line}\n"));
        changed[0].text.push('\n');
        assert_eq!(hash_problems(&changed).len(), 1);
        assert_eq!(hash_problems(&[]).len(), 1);
    }
}
