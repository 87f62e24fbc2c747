//! Names of types and functions, and first words of comments, in a line of code.

/// Words that a doc comment does not open with.
pub const OPENINGS: [&str; 8] = [
    "What", "Who", "Whoever", "Whether", "How", "Why", "Whose", "Whatever",
];

/// Participles that do not end in `ed`.
const PARTICIPLES: [&str; 22] = [
    "told", "ran", "woken", "swept", "said", "held", "given", "taken", "shown", "known", "written",
    "sent", "gone", "done", "kept", "left", "made", "put", "sold", "spent", "bound", "found",
];

/// Words that end in `ed` and are no participles.
const PLAIN_WORDS: [&str; 5] = ["need", "feed", "seed", "speed", "embed"];

/// The name of the type or trait that a line begins to define.
pub fn type_name(code: &str) -> Option<&str> {
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
pub fn function_name(code: &str) -> Option<&str> {
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

pub fn is_one_word(name: &str) -> bool {
    name.chars().filter(|c| c.is_uppercase()).count() == 1
}

pub fn is_bare_participle(name: &str) -> bool {
    let regular = name.ends_with("ed") && !PLAIN_WORDS.contains(&name);
    !name.contains('_') && (regular || PARTICIPLES.contains(&name))
}

/// Returns the first word of a comment, without the marks around it.
pub fn opening_word(comment: &str) -> &str {
    let first = comment.split_whitespace().next().unwrap_or_default();
    first.trim_matches(|c: char| !c.is_alphabetic())
}
