//! Lengths of functions and texts without literals, with as much of Rust's lexical rules as that
//! needs.
//!
//! Comments and literals are blanked first, so that every brace left is code.

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionSpan {
    /// Its name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// From `fn` to the closing brace, both included.
    pub lines: usize,
}

/// Every function with a body, also methods and those inside others, in the order of their `fn`.
pub fn functions(source: &str) -> Vec<FunctionSpan> {
    let code = blank(source, CommentMode::Blank);
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let end = word_end(&code, at);
        if end > at && code[at..end] == ['f', 'n'] {
            found.extend(function(&code, at));
        }
        at = end.max(at + 1);
    }
    found
}

/// Replaces literals by spaces, so that the rest may be searched for the author's words.
pub fn without_literals(source: &str) -> String {
    blank(source, CommentMode::Keep).into_iter().collect()
}

/// A string literal.
#[derive(Debug, PartialEq, Eq)]
pub struct StringLiteral {
    /// Its line, from 1.
    pub line: usize,
    /// Its text, with escapes as they are written.
    pub text: String,
    /// The end of the code before it.
    pub before: String,
}

/// Characters of code that [`StringLiteral::before`] has.
const BEFORE_CHARS: usize = 20;

/// Every string literal outside comments, in order.
pub fn literals(source: &str) -> Vec<StringLiteral> {
    let code: Vec<char> = source.chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < code.len() {
        let word = word_end(&code, at);
        let end = if word > at && is_raw_prefix(&code[at..word]) {
            raw_string_end(&code, word).unwrap_or(word)
        } else if word > at {
            word
        } else {
            literal_or_comment_end(&code, at)
        };
        let span = &code[at..end];
        if !matches!(code[at], '/' | '\'') && span.contains(&'"') {
            let hashes = |c: char| c == '"' || c == '#';
            let text: String = span.iter().collect();
            let text = text.trim_start_matches(['r', 'b', 'c']);
            found.push(StringLiteral {
                line: code[..at].iter().filter(|&&c| c == '\n').count() + 1,
                text: text.trim_matches(hashes).to_owned(),
                before: code[at.saturating_sub(BEFORE_CHARS)..at].iter().collect(),
            });
        }
        at = end.max(at + 1);
    }
    found
}

/// Replaces literals and comments by spaces.
pub fn code_only(source: &str) -> String {
    blank(source, CommentMode::Blank).into_iter().collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CommentMode {
    Blank,
    Keep,
}

/// The function whose `fn` is here; `None` for a function type or one without a body.
fn function(code: &[char], start: usize) -> Option<FunctionSpan> {
    let name_start = (start + 2..code.len()).find(|&at| !code[at].is_whitespace())?;
    let name: String = code[name_start..word_end(code, name_start)]
        .iter()
        .collect();
    if name.is_empty() {
        return None;
    }
    let end = body_end(code, name_start)?;
    let line_of = |at: usize| code[..at].iter().filter(|&&letter| letter == '\n').count() + 1;
    Some(FunctionSpan {
        name,
        line: line_of(start),
        lines: line_of(end) - line_of(start) + 1,
    })
}

/// The closing brace of the body that begins after a signature; `None` if a semicolon comes first.
fn body_end(code: &[char], from: usize) -> Option<usize> {
    let mut brackets = 0_usize;
    let mut braces = 0_usize;
    for (at, letter) in code.iter().enumerate().skip(from) {
        match letter {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if brackets == 0 && braces == 0 => return None,
            '{' => braces += 1,
            '}' if braces <= 1 => return Some(at),
            '}' => braces -= 1,
            _ => {}
        }
    }
    None
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// End of the word that begins here; the same place if none does.
fn word_end(code: &[char], at: usize) -> usize {
    (at..code.len())
        .find(|&end| !is_word(code[end]))
        .unwrap_or(code.len())
}

/// Replaces literals by spaces, and comments too if asked; line breaks stay.
fn blank(source: &str, comments: CommentMode) -> Vec<char> {
    let mut code: Vec<char> = source.chars().collect();
    let mut at = 0;
    while at < code.len() {
        let word = word_end(&code, at);
        let end = if word > at && is_raw_prefix(&code[at..word]) {
            raw_string_end(&code, word).unwrap_or(word)
        } else if word > at {
            at = word;
            continue;
        } else {
            literal_or_comment_end(&code, at)
        };
        let is_comment = code[at] == '/';
        if !is_comment || comments == CommentMode::Blank {
            code[at..end]
                .iter_mut()
                .filter(|letter| **letter != '\n')
                .for_each(|letter| *letter = ' ');
        }
        at = end.max(at + 1);
    }
    code
}

fn is_raw_prefix(word: &[char]) -> bool {
    matches!(word, ['r'] | ['b' | 'c', 'r'])
}

/// End of the raw string whose hashes begin here; `None` if there is none (`r#type`).
fn raw_string_end(code: &[char], from: usize) -> Option<usize> {
    let quote = (from..code.len()).find(|&at| code[at] != '#')?;
    let hashes = quote - from;
    if code[quote] != '"' {
        return None;
    }
    let closes = |at: usize| {
        code[at] == '"'
            && code[at + 1..]
                .iter()
                .take(hashes)
                .filter(|&&c| c == '#')
                .count()
                == hashes
    };
    let close = (quote + 1..code.len()).find(|&at| closes(at));
    Some(close.map_or(code.len(), |at| at + 1 + hashes))
}

/// End of the literal or comment that begins here; the same place if neither does.
fn literal_or_comment_end(code: &[char], at: usize) -> usize {
    match (code[at], code.get(at + 1)) {
        ('/', Some('/')) => (at..code.len())
            .find(|&end| code[end] == '\n')
            .unwrap_or(code.len()),
        ('/', Some('*')) => block_comment_end(code, at),
        ('"', _) => quoted_end(code, at, '"'),
        ('\'', Some('\\')) => quoted_end(code, at, '\''),
        ('\'', Some(_)) if code.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn quoted_end(code: &[char], start: usize, quote: char) -> usize {
    let mut at = start + 1;
    while at < code.len() && code[at] != quote {
        at += if code[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(code.len())
}

fn block_comment_end(code: &[char], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    while at + 1 < code.len() {
        match (code[at], code[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') if depth == 1 => return at + 2,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &[(&str, usize, usize)]) {
        let found = functions(source);
        let found: Vec<_> = found
            .iter()
            .map(|f| (f.name.as_str(), f.line, f.lines))
            .collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn functions_are_measured() {
        check("fn a() {}", &[("a", 1, 1)]);
        check(
            "//! x\npub async fn a<T>(x: [u8; 3]) -> T\nwhere\n    T: X,\n{\n    {}\n}\n",
            &[("a", 2, 6)],
        );
        check(
            "fn a() {\n    fn b() {\n    }\n}\nfn c() {\n}",
            &[("a", 1, 4), ("b", 2, 2), ("c", 5, 2)],
        );
        check(
            "trait T {\n    fn a(&self);\n    fn b(&self) {\n    }\n}",
            &[("b", 3, 2)],
        );
        check("type F = fn(u8) -> u8;\nlet x: fn() = y;", &[]);
    }

    #[test]
    fn braces_in_text_are_not_code() {
        for text in [
            "\"}\"",
            "\"\\\"}\"",
            "'}'",
            "b'}'",
            "'\\''; '}'",
            "r#\"\"}\"#",
            "br\"}\"",
            "/* } /* } */ } */",
            "// }",
        ] {
            check(&format!("fn a() {{\n    {text}\n}}"), &[("a", 1, 3)]);
        }
        check(
            "fn a<'a>(x: &'a str) {\n    let r#type = 'x';\n}",
            &[("a", 1, 3)],
        );
        check("// fn a() {}\nlet s = \"fn b() {}\";", &[]);
    }

    #[test]
    fn literals_are_found() {
        let source = "f(\"a b\"); // \"no\"\n'\"'; r#\"c\"#; x.g(\"d\\\"e\")";
        let found = literals(source);
        let texts: Vec<_> = found.iter().map(|l| (l.line, l.text.as_str())).collect();
        assert_eq!(texts, [(1, "a b"), (2, "c"), (2, "d\\\"e")]);
        assert!(found[2].before.ends_with("x.g("), "{found:?}");
    }

    #[test]
    fn broken_source_ends() {
        for source in [
            "fn", "fn a", "fn a() {", "\"", "'", "r#\"", "/*", "'\\", "}",
        ] {
            check(source, &[]);
        }
    }
}
