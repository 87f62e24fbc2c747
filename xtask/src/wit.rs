//! Reads the import list of world `threads` from `wit/world.wit` itself.
//!
//! It is read as lines, on purpose by other means than the tools that build the component: this is
//! the other side of the comparison.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;

/// Returns the full names (`threadkeep:threads/storage@0.1.0`) that the world in this file imports.
pub fn world_imports(path: &Path) -> Result<BTreeSet<String>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("cannot understand {}", path.display()))
}

fn parse(text: &str) -> Result<BTreeSet<String>> {
    let mut package = None;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(id) = line.strip_prefix("package ") {
            package = id.trim_end_matches(';').split_once('@');
        } else if let Some(name) = line.strip_prefix("import ") {
            names.push(name.trim_end_matches(';'));
        }
    }
    let (package, version) = package.context("there is no `package name@version;`")?;
    if names.is_empty() {
        bail!("no line begins with `import`");
    }
    names
        .into_iter()
        .map(|name| full_name(package, version, name))
        .collect()
}

/// Returns the full name. The world may only import interfaces of this package: any name with a
/// namespace (WASI) is refused here.
fn full_name(package: &str, version: &str, name: &str) -> Result<String> {
    if name.is_empty()
        || !name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    {
        bail!("`import {name}` is not an interface of this package");
    }
    Ok(format!("{package}/{name}@{version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_get_their_full_names() -> Result<()> {
        let text = "package a:b@0.1.0;\nworld w \
                    {\n    /// One.\n    import clock;\n    import log-store;\n    export x;\n}";
        let names = parse(text)?;
        assert_eq!(
            names.iter().map(String::as_str).collect::<Vec<_>>(),
            ["a:b/clock@0.1.0", "a:b/log-store@0.1.0"]
        );
        Ok(())
    }

    #[test]
    fn foreign_imports_are_refused() {
        let refused = [
            ("package a:b@0.1.0;\nimport wasi:io/poll@0.2.0;", "wasi"),
            ("package a:b@0.1.0;\nimport f: func();", "inline function"),
            ("package a:b@0.1.0;", "no import"),
            ("import clock;", "no package"),
            ("package a:b;\nimport clock;", "no version"),
        ];
        for (text, case) in refused {
            assert!(parse(text).is_err(), "{case}");
        }
    }
}
