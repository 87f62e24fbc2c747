//! Hostile components, made of the small modules in `tests/programs`.
//!
//! A module defines only its own behaviour; the rest of world `threads` is added as traps, so that
//! it is a component of the world like any other.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Resolve, SizeAlign, SourceMap, TypeDefKind, WorldId, WorldItem};

/// Replacements in the text of module and contract: they make a component of another contract.
pub type TextEdits<'a> = &'a [(&'a str, &'a str)];

/// Builds a component of `tests/programs/<name>.wat`.
///
/// # Panics
/// If there is no such file, or it is no program.
pub fn build_program(name: &str) -> Vec<u8> {
    let text = read_text(&folder("programs").join(format!("{name}.wat")));
    let whole = text
        .lines()
        .any(|line| line.trim_start().starts_with("(component"));
    match whole {
        true => embed_component(
            build_component("(module (memory (export \"memory\") 1))", &[]),
            &text,
        ),
        false => build_component(&text, &[]),
    }
}

/// Builds a component of the text of a module, in the world of `wit/` as edited.
///
/// # Panics
/// If module and world do not fit each other.
pub fn build_component(text: &str, edits: TextEdits<'_>) -> Vec<u8> {
    let (resolve, world) = parse_contract(edits);
    let mut text = apply_edits(text, edits).into_owned();
    let end = text.rfind(')').expect("a module ends with )");
    text.truncate(end);
    add_exports(&mut text, &resolve, world);
    let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"));
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
        .expect("the world is written into the module");
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true);
    encoder.module(&module).expect("the module fits the world");
    encoder.encode().expect("the module can be wrapped")
}

/// Returns the offset of a field in a record of the contract, in bytes.
///
/// # Panics
/// If there is no such record, or it has no such field.
pub fn field_offset(record: &str, field: &str) -> usize {
    let (resolve, _) = parse_contract(&[]);
    let mut sizes = SizeAlign::default();
    sizes.fill(&resolve).expect("every type has a size");
    let fields = resolve.types.iter().find_map(|(_, kind)| match &kind.kind {
        TypeDefKind::Record(found) if kind.name.as_deref() == Some(record) => Some(&found.fields),
        _ => None,
    });
    let fields = fields.unwrap_or_else(|| panic!("there is no record {record}"));
    let place = fields.iter().position(|found| found.name == field);
    let place = place.unwrap_or_else(|| panic!("{record} has no field {field}"));
    let offsets = sizes.field_offsets(fields.iter().map(|field| &field.ty));
    offsets[place].0.size_wasm32()
}

/// Returns parameters and result of an export in the text format, such as `(param i32 i32) (result
/// i32)`.
///
/// # Panics
/// If the world has no such export.
pub fn export_signature(name: &str) -> String {
    let (resolve, world) = parse_contract(&[]);
    let found = resolve.worlds[world]
        .exports
        .iter()
        .find_map(|(key, item)| {
            let WorldItem::Interface { id, .. } = item else {
                return None;
            };
            let function = name.strip_prefix(&resolve.name_world_key(key))?;
            resolve.interfaces[*id]
                .functions
                .get(function.strip_prefix('#')?)
        });
    let function = found.unwrap_or_else(|| panic!("there is no export {name}"));
    signature_text(&resolve, function)
}

/// Parses `wit/`, edited.
fn parse_contract(edits: TextEdits<'_>) -> (Resolve, WorldId) {
    let mut sources = SourceMap::default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder("../wit"))
        .expect("wit/ can be listed")
        .map(|file| file.expect("wit/ can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "wit"))
        .collect();
    files.sort();
    for file in files {
        let name = file.display().to_string();
        sources.push_str(&name, apply_edits(&read_text(&file), edits));
    }
    let mut resolve = Resolve::default();
    let group = sources
        .parse()
        .unwrap_or_else(|(_, error)| panic!("{error}"));
    let package = resolve.push_group(group).expect("wit/ is a package");
    let world = resolve.select_world(&[package], Some("threads"));
    let world = world.expect("it has a world `threads`");
    (resolve, world)
}

/// Adds the exports that the module lacks, and closes it.
fn add_exports(text: &mut String, resolve: &Resolve, world: WorldId) {
    for (key, item) in &resolve.worlds[world].exports {
        let WorldItem::Interface { id, .. } = item else {
            continue;
        };
        let interface = resolve.name_world_key(key);
        for (name, function) in &resolve.interfaces[*id].functions {
            let name = format!("{interface}#{name}");
            if text.contains(&name) {
                continue;
            }
            let signature = signature_text(resolve, function);
            let _ = writeln!(text, "(func (export {name:?}) {signature} (unreachable))");
        }
    }
    if !text.contains("cabi_realloc") {
        text.push_str(
            "(func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) (i32.const \
             1024))\n",
        );
    }
    text.push(')');
}

fn signature_text(resolve: &Resolve, function: &Function) -> String {
    let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
    let (params, results) = (
        type_names(&signature.params),
        type_names(&signature.results),
    );
    format!("(param {params}) (result {results})")
}

fn type_names(types: &[WasmType]) -> String {
    let names = types.iter().map(|kind| match kind {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    });
    names.collect::<Vec<_>>().join(" ")
}

/// Embeds another component in one, instantiated with it: two sections at the end.
fn embed_component(mut outer: Vec<u8>, inner: &str) -> Vec<u8> {
    const COMPONENT: u8 = 4;
    const INSTANCE: u8 = 5;
    let inner = wat::parse_str(inner).unwrap_or_else(|error| panic!("{error}"));
    let index = section_ids(&outer).filter(|id| *id == COMPONENT).count();
    push_section(&mut outer, COMPONENT, &inner);
    // One instance, of the component with this index, without arguments.
    let mut instance = vec![1, 0];
    push_leb128(&mut instance, index);
    instance.push(0);
    push_section(&mut outer, INSTANCE, &instance);
    outer
}

/// Returns the kinds of a component's sections.
fn section_ids(component: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = &component[8..];
    std::iter::from_fn(move || {
        let (id, mut after) = rest.split_first()?;
        let (mut size, mut shift) = (0_usize, 0);
        loop {
            let (byte, next) = after.split_first()?;
            size |= usize::from(byte & 0x7f) << shift;
            (after, shift) = (next, shift + 7);
            if byte & 0x80 == 0 {
                break;
            }
        }
        rest = &after[size..];
        Some(*id)
    })
}

fn push_section(component: &mut Vec<u8>, id: u8, content: &[u8]) {
    component.push(id);
    push_leb128(component, content.len());
    component.extend_from_slice(content);
}

/// Writes a number as LEB128.
fn push_leb128(bytes: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return;
        }
    }
}

fn apply_edits<'a>(text: &'a str, edits: TextEdits<'_>) -> Cow<'a, str> {
    edits.iter().fold(Cow::Borrowed(text), |text, (from, to)| {
        Cow::Owned(text.replace(from, to))
    })
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read_text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
