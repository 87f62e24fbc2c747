//! Links of Markdown files to files of the checkout. Links to the web are not followed.

use super::tree::SourceFile;

/// Returns links to missing files. `exists` answers for a path from the root of the checkout.
pub fn broken_links(file: &SourceFile, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut problems = Vec::new();
    let mut fenced = false;
    for (at, line) in file.text.lines().enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if fenced {
            continue;
        }
        let broken = targets(line)
            .into_iter()
            .filter(|target| !resolve(folder, target).is_some_and(|path| exists(&path)));
        problems
            .extend(broken.map(|target| format!("{}:{}: there is no {target}", file.path, at + 1)));
    }
    problems
}

/// Targets of the links of one line, without fragments, code and the web.
fn targets(line: &str) -> Vec<&str> {
    let prose = line.split('`').step_by(2);
    let links = prose.flat_map(|text| text.split("](").skip(1));
    let targets = links.filter_map(|rest| rest.split([')', ' ', '#']).next());
    targets
        .filter(|target| {
            !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:")
        })
        .collect()
}

/// From the root of the checkout; `None` if it leads out of it.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let base = if target.starts_with('/') { "" } else { folder };
    let mut parts = Vec::new();
    for part in base.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_from_their_file() {
        let cases = [
            ("README.md", "[a](wit/world.wit) and [b](missing.md)", 1),
            (
                "docs/a.md",
                "[a](../wit/world.wit#threads) [b](/wit/world.wit) [c](wit/world.wit)",
                1,
            ),
            ("README.md", "[up](../wit/world.wit)", 1),
            (
                "README.md",
                "[web](https://example.org/x) [mail](mailto:a@example.org) [here](#there)",
                0,
            ),
            (
                "README.md",
                "`[code](missing.md)`\n```\n[code](missing.md)\n```\n",
                0,
            ),
            ("README.md", "![image](missing.png \"title\")", 1),
        ];
        for (path, text, count) in cases {
            let file = SourceFile {
                path: path.into(),
                text: text.into(),
            };
            let problems = broken_links(&file, |path| path == "wit/world.wit");
            assert_eq!(problems.len(), count, "{text}: {problems:?}");
        }
    }
}
