//! Glue that is generated once for each export and is the same but for the numbers in its names: one function instead.
//!
//! A third of the component was glue, and half of that lowered the same error, export by export (some two kilobytes each).
//! The generated text is not understood here: two pieces are the same if they read the same once their numbered names
//! (`ptr3`, `vec17`) are numbered anew in the order in which they occur. What is not the same stays where it is.

use std::collections::BTreeMap;

/// How pieces begin: how a result is lowered, and how its memory is given back.
const OPENINGS: [&str; 3] = ["Err(e) => {", "Ok(e) => {", "_ => {"];

/// Shortest piece that is worth a function, in bytes of its text without indentation.
const BYTES_MIN: usize = 600;

/// Names that end in a digit and are not the generator's.
const TYPES: [&str; 8] = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"];

/// One piece of the text.
struct Piece {
    /// From its opening to its last brace.
    start: usize,
    end: usize,
    /// The interface it belongs to, and what it is given beside the memory: a value of this type, if any.
    module: String,
    value: Option<String>,
    /// The name of the memory that it writes or frees.
    memory: String,
}

/// The text with what is the same in one place, and how many pieces became calls.
pub fn share(text: &str) -> (String, usize) {
    let types = returned(text);
    let mut groups: BTreeMap<String, Vec<Piece>> = BTreeMap::new();
    for opening in OPENINGS {
        for (start, _) in text.match_indices(opening) {
            if let Some((name, piece)) = piece(text, start, opening, &types) {
                groups.entry(name).or_default().push(piece);
            }
        }
    }
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    let mut shared = 0;
    let groups = groups.into_values().filter(|pieces| pieces.len() > 1);
    for (number, pieces) in groups.enumerate() {
        shared += pieces.len();
        let first = &pieces[0];
        let at = module_start(text, &first.module);
        edits.push((at, at, function(text, first, number)));
        for piece in &pieces {
            let opening =
                &text[piece.start..=piece.start + text[piece.start..].find('{').unwrap_or(0)];
            let value = if piece.value.is_some() { ", e" } else { "" };
            let call = format!(
                "{opening} super::{}::shared_{number}({}{value}) }}",
                first.module, piece.memory
            );
            edits.push((piece.start, piece.end, call));
        }
    }
    edits.sort_by_key(|(start, end, _)| (*start, *end));
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for (start, end, new) in edits {
        out.push_str(&text[from..start]);
        out.push_str(&new);
        from = end;
    }
    out.push_str(&text[from..]);
    (out, shared)
}

/// A piece and what it reads like, if it is long enough and belongs to an export.
fn piece(
    text: &str,
    start: usize,
    opening: &str,
    types: &BTreeMap<(String, String), String>,
) -> Option<(String, Piece)> {
    let before = &text[..start];
    let export = before.rfind("pub unsafe fn _")?;
    let name = text[export..].strip_prefix("pub unsafe fn _")?;
    let name = &name[..name.find('<')?];
    let module = &before[before.rfind("pub mod ")? + "pub mod ".len()..];
    let module = module[..module.find(' ')?].to_owned();
    let length = closed(&text[start + opening.len()..])?;
    let end = start + opening.len() + length;
    let body = &text[start..end];
    if body.split_whitespace().map(str::len).sum::<usize>() < BYTES_MIN {
        return None;
    }
    let lowers = name
        .strip_prefix("export_")
        .and_then(|name| name.strip_suffix("_cabi"));
    let (value, memory) = match (opening, lowers) {
        ("_ => {", None) => (None, "arg0".to_owned()),
        ("Err(e) => {", Some(_)) => (Some("Error".to_owned()), memory(body)?),
        ("Ok(e) => {", Some(name)) => {
            let value = types.get(&(module.clone(), name.to_owned()))?;
            (Some(value.clone()), memory(body)?)
        }
        _ => return None,
    };
    let scope = if opening == "Ok(e) => {" {
        module.as_str()
    } else {
        ""
    };
    let reads = format!("{scope} {}", renumbered(body));
    let piece = Piece {
        start,
        end,
        module,
        value,
        memory,
    };
    Some((reads, piece))
}

/// The function that stands for a piece.
fn function(text: &str, piece: &Piece, number: usize) -> String {
    let body = &text[piece.start..piece.end];
    let body = &body[body.find('{').unwrap_or(0)..];
    let value = piece.value.as_ref().map(|value| format!(", e: {value}"));
    format!(
        "\n#[inline(never)]\n#[allow(unused_unsafe)]\npub(crate) unsafe fn shared_{number}({}: *mut u8{}) {{ unsafe {body} }}\n",
        piece.memory,
        value.unwrap_or_default(),
    )
}

/// Where the items of an exported interface begin.
fn module_start(text: &str, module: &str) -> usize {
    let opening = format!("pub mod {module} {{");
    text.rfind(&opening).map_or(0, |at| at + opening.len())
}

/// What each function of each exported interface returns if all goes well: it stands in the traits.
fn returned(text: &str) -> BTreeMap<(String, String), String> {
    let (mut types, mut module) = (BTreeMap::new(), "");
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("pub mod ") {
            module = rest.split(' ').next().unwrap_or_default();
        }
        let signature = line.strip_prefix("fn ").and_then(|rest| {
            let (name, _) = rest.split_once('(')?;
            let (_, result) = rest.split_once("-> ::core::result::Result<")?;
            Some((name, result.strip_suffix(",Error>;")?))
        });
        if let Some((name, value)) = signature {
            types.insert((module.to_owned(), name.to_owned()), value.to_owned());
        }
    }
    types
}

/// The memory that a piece writes first.
fn memory(body: &str) -> Option<String> {
    let (_, rest) = body.split_once('*')?;
    let (name, _) = rest.split_once(".add(")?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_name.then(|| name.to_owned())
}

/// The length of what stands before the brace that closes one, with it.
fn closed(text: &str) -> Option<usize> {
    let mut depth = 1_u32;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// The text with its numbered names numbered anew, and without its indentation.
fn renumbered(text: &str) -> String {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.bytes().next() {
        let length = rest.bytes().take_while(|byte| is_name(*byte)).count();
        let word = &rest[..length.max(1)];
        let base = word.trim_end_matches(|c: char| c.is_ascii_digit());
        let numbered = !base.is_empty() && base.len() < word.len() && !TYPES.contains(&word);
        match (numbered, first.is_ascii_whitespace()) {
            (true, _) => {
                let next = names.len();
                let number = *names.entry(word).or_insert(next);
                out.push_str(&format!("{base}#{number}"));
            }
            (false, true) if out.ends_with(' ') => {}
            (false, true) => out.push(' '),
            (false, false) => out.push_str(word),
        }
        rest = &rest[word.len()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An exported function whose errors are lowered with names of these numbers, in so many lines.
    fn export(name: &str, number: usize, lines: usize, last: &str) -> String {
        let line = |n: usize| {
            let (at, vec) = (n * 8, number + 1 + n);
            format!(
                "let vec{vec} = e.into_bytes(); *ptr{number}.add({at}) = vec{vec}.len() as u8;\n"
            )
        };
        let lines: String = (0..lines).map(line).collect();
        format!(
            "pub unsafe fn _export_{name}_cabi<T_: Guest>() -> *mut u8 {{ unsafe {{\n\
             let ptr{number} = area();\nmatch result {{\n\
             Ok(e) => {{ *ptr{number}.add(0) = 0; }},\n\
             Err(e) => {{ {{\n*ptr{number}.add(0) = 1;\n{lines}{last} }} }},\n}};\nptr{number} }} }}\n"
        )
    }

    fn module(name: &str, exports: &[String]) -> String {
        format!("pub mod {name} {{\n{}}}\n", exports.concat())
    }

    #[test]
    fn what_is_the_same_but_for_its_numbers_becomes_one_function() {
        let one = module(
            "one",
            &[export("get", 3, 20, ""), export("put", 41, 20, "")],
        );
        let text = one + &module("two", &[export("get", 7, 20, "")]);
        let (out, shared) = share(&text);
        assert_eq!(shared, 3);
        assert_eq!(
            out.matches("unsafe fn shared_0(ptr3: *mut u8, e: Error)")
                .count(),
            1
        );
        for memory in ["ptr3", "ptr41", "ptr7"] {
            let call = format!("Err(e) => {{ super::one::shared_0({memory}, e) }},\n}};");
            assert_eq!(out.matches(&call).count(), 1, "{out}");
            let ok = format!("Ok(e) => {{ *{memory}.add(0) = 0; }},");
            assert!(out.contains(&ok), "{out}");
        }
        assert_eq!(out.matches("let vec").count(), 20, "{out}");
        assert_eq!(out.matches('{').count(), out.matches('}').count());
    }

    #[test]
    fn what_differs_or_is_short_stays_where_it_is() {
        for exports in [
            [
                export("get", 3, 20, ""),
                export("put", 3, 20, "*ptr3.add(8) = 9;"),
            ],
            [export("get", 3, 20, ""), export("put", 3, 21, "")],
            [
                export("get", 3, 20, "f(ptr3, vec4)"),
                export("put", 5, 20, "f(ptr5, vec7)"),
            ],
            [
                export("get", 3, 20, "x as u32"),
                export("put", 3, 20, "x as u64"),
            ],
            [export("get", 3, 2, ""), export("put", 3, 2, "")],
        ] {
            let text = module("one", &exports);
            assert_eq!(share(&text), (text.clone(), 0));
        }
    }

    #[test]
    fn values_are_shared_within_an_interface_which_knows_their_type() {
        let trait_ = "pub trait Guest {\nfn get(id: u8,) -> ::core::result::Result<Thing,Error>;\n\
                      fn put(id: u8,) -> ::core::result::Result<Thing,Error>;\n}\n";
        let of = |name, number| export(name, number, 20, "").replace("Err(e)", "Ok(e)");
        let text = module("one", &[of("get", 3), of("put", 5), trait_.to_owned()]);
        let text = text + &module("two", &[of("get", 3), trait_.to_owned()]);
        let (out, shared) = share(&text);
        assert_eq!(shared, 2, "{out}");
        assert!(out.contains("pub mod one {\n#[inline(never)]"), "{out}");
        assert!(out.contains("(ptr3: *mut u8, e: Thing)"), "{out}");
    }
}
