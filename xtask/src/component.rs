//! `cargo xtask component`: compiles guest/ for WebAssembly, wraps it as a component, and compares
//! it with world `threads`.
//!
//! The file is replaced only when its bytes change, so that cargo does not rebuild the host
//! needlessly. The bytes do not depend on the path of the checkout.

use crate::{paths, process, setup, wit};
use anyhow::{Context, Result, bail};
use flate2::{Compression, write::GzEncoder};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use wit_component::{ComponentEncoder, DecodedWasm};

const PACKAGE: &str = "threadkeep-component";
/// The profile of all that runs as WebAssembly.
pub const PROFILE: &str = "component";

/// Most bytes of the component (DESIGN.md, section 2.4). A larger one is not written.
const SIZE_MAX: usize = 1_000_000;
/// Most bytes of it as a gzip file, which is what a page or a package transfers (DESIGN.md, section
/// 2.4).
const GZIP_SIZE_MAX: usize = 350_000;

/// Flags that each module is compiled and linked with.
const FLAGS: [&str; 7] = [
    // SHA-256 is several times faster with vectors, and every engine with components has them.
    "-Ctarget-feature=+simd128",
    // Otherwise the linker pads each number that it fills in to five bytes: a twelfth of the file.
    "-Clink-arg=--compress-relocations",
    // Loops are left as they are written, because an engine compiles them once more: to keep more
    // pointers and values beside them costs code here and gains nothing there.
    "-Cllvm-args=-disable-lsr",
    "-Cllvm-args=-disable-licm-promotion",
    "-Cllvm-args=-licm-mssa-optimization-cap=0",
    // What a function costs where it is inlined, and a jump where it is repeated. The defaults (5
    // and 6) are those of machine code; of the values that were tried, 5 to 20, these make the
    // smallest component.
    "-Cllvm-args=-inline-instr-cost=8",
    "-Cllvm-args=-jump-threading-threshold=10",
];

/// Flags that the component alone is linked with. Its data lie above its stack of 512 KiB, so that
/// an address is a byte shorter than above the usual 1 MiB. What nests deepest is JSON, 128 levels,
/// and the tests of states patch a document of nearly as many; a stack that is used up is a trap.
const COMPONENT_FLAGS: [&str; 1] = ["-Clink-arg=-zstack-size=524288"];

/// Builds the component, or with `--names FILE` one with names.
pub fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => build(),
        [option, file] if option == "--names" => write_named(Path::new(file)),
        _ => bail!("`component` takes no arguments, or `--names FILE`"),
    }
}

/// Builds, wraps, checks and writes the component; prints its size.
pub fn build() -> Result<()> {
    let module = build_module(PACKAGE, setup::WASM_TARGET, &[])?;
    let component = without_names(&wrap_module(&module)?);
    let component = component.context("the component's sections cannot be read")?;
    let imports = check_imports(&component)?;
    let zipped = gzip_bytes(&component)?;
    if let Err(error) = check_size(component.len(), zipped) {
        // What another compiler makes of it is nobody's mistake, and works as well.
        if is_own_compiler() {
            return Err(error);
        }
        eprintln!("warning: {error}: this compiler is not the one that the bounds are for");
    }
    let path = paths::component()?;
    let state = if write_if_changed(&path, &component)? {
        "written"
    } else {
        "unchanged"
    };
    println!(
        "component: {} bytes (most: {SIZE_MAX}), {zipped} as gzip (most: {GZIP_SIZE_MAX}), \
         {imports} imports, {state}: {}",
        component.len(),
        path.display()
    );
    Ok(())
}

/// Builds and wraps the component with the names of its functions, for a profiler and for who looks
/// for its bytes, and writes it to a file. No program embeds it.
fn write_named(file: &Path) -> Result<()> {
    let mut cargo = module_command(PACKAGE, setup::WASM_TARGET, &[])?;
    cargo.arg("-Cstrip=debuginfo");
    let module = run_build(cargo, PACKAGE, setup::WASM_TARGET)?;
    write_if_changed(file, &wrap_module(&module)?)?;
    println!("component with names: {}", file.display());
    Ok(())
}

/// Tells whether the compiler has the version that the project is checked with.
fn is_own_compiler() -> bool {
    let version = process::output(process::program("rustc").arg("--version"));
    let own = concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"), ".");
    version.is_none_or(|version| version.starts_with(own))
}

fn check_size(bytes: usize, zipped: usize) -> Result<()> {
    if bytes > SIZE_MAX {
        bail!("the component is {bytes} bytes, the most is {SIZE_MAX}");
    }
    if zipped > GZIP_SIZE_MAX {
        bail!("the component is {zipped} bytes as gzip, the most is {GZIP_SIZE_MAX}");
    }
    Ok(())
}

/// Returns the size of the component as a gzip file of the best compression.
pub fn gzip_bytes(component: &[u8]) -> Result<usize> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(component)?;
    Ok(encoder.finish()?.len())
}

/// Compiles a crate for WebAssembly and reads the file. The crate type is named here only: for a
/// crate that is a Rust library as well, cargo silently leaves out link-time optimisation.
pub fn build_module(package: &str, target: &str, features: &[&str]) -> Result<Vec<u8>> {
    run_build(module_command(package, target, features)?, package, target)
}

fn module_command(package: &str, target: &str, features: &[&str]) -> Result<Command> {
    let mut cargo = process::locked_cargo("rustc");
    cargo.args([
        "--quiet",
        "--package",
        package,
        "--lib",
        "--crate-type",
        "cdylib",
        "--profile",
        PROFILE,
        "--target",
        target,
    ]);
    for feature in features {
        cargo.args(["--features", feature]);
    }
    // What is added to the command from here on are flags of the crate itself.
    cargo.arg("--");
    if package == PACKAGE {
        cargo.args(COMPONENT_FLAGS);
    }
    cargo.env_remove("RUSTFLAGS").env(
        "CARGO_ENCODED_RUSTFLAGS",
        [&FLAGS.join("\u{1f}"), &*path_remapping()?].join("\u{1f}"),
    );
    Ok(cargo)
}

fn run_build(mut cargo: Command, package: &str, target: &str) -> Result<Vec<u8>> {
    process::run(&mut cargo).with_context(|| format!("{package} does not compile"))?;
    let file = package.replace('-', "_") + ".wasm";
    let path = paths::target_dir()?.join(target).join(PROFILE).join(file);
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Compiler flags that replace source paths. Panic messages carry these paths; the flags make them
/// the same on every machine.
fn path_remapping() -> Result<String> {
    let cargo_home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"))
        .unwrap_or_else(|_| "/cargo".into());
    let root = paths::root().display();
    let (sources, library) = standard_library()?;
    // When several match, the compiler takes the last.
    let flags = [
        format!("--remap-path-prefix={cargo_home}=/cargo"),
        format!("--remap-path-prefix={root}=/threadkeep"),
        format!("--remap-path-prefix={sources}={library}"),
    ];
    // Separated as CARGO_ENCODED_RUSTFLAGS wants it.
    Ok(flags.join("\u{1f}"))
}

/// Returns where the toolchain has the sources of the standard library, if they are installed, and
/// the path that the compiler writes for them where they are not.
fn standard_library() -> Result<(String, String)> {
    let ask = |arguments: &[&str]| {
        let answer = process::output(process::program("rustc").args(arguments));
        answer.with_context(|| format!("rustc {} gives no answer", arguments.join(" ")))
    };
    let sources = ask(&["--print", "sysroot"])? + "/lib/rustlib/src/rust";
    let version = ask(&["--version", "--verbose"])?;
    let commit = version
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.context("rustc does not say which commit it was built from")?;
    Ok((sources, format!("/rustc/{commit}")))
}

fn wrap_module(module: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = ComponentEncoder::default();
    encoder.validate(true);
    encoder
        .module(module)
        .context("the core module does not fit its world")?;
    encoder
        .encode()
        .context("the core module cannot be wrapped as a component")
}

/// Bytes of the magic number and the version before the first section.
const PREAMBLE_BYTES: usize = 8;

/// Returns the component without its name section for debuggers: a hundredth of the file that
/// nothing reads at run time.
fn without_names(component: &[u8]) -> Option<Vec<u8>> {
    const NAMES: &[u8] = b"\x0ecomponent-name";
    let mut kept = component.get(..PREAMBLE_BYTES)?.to_vec();
    let mut rest = component.get(PREAMBLE_BYTES..)?;
    while let Some((id, body)) = rest.split_first() {
        let digits = body.iter().position(|byte| byte & 0x80 == 0)? + 1;
        let size = body[..digits].iter().rev();
        let size = size.fold(0, |size, byte| size << 7 | usize::from(byte & 0x7f));
        let end = 1 + digits + size;
        let section = rest.get(..end)?;
        if *id != 0 || !section[1 + digits..].starts_with(NAMES) {
            kept.extend_from_slice(section);
        }
        rest = &rest[end..];
    }
    Some(kept)
}

/// Checks that the imports of the file are exactly those of world `threads`. Returns their number.
fn check_imports(component: &[u8]) -> Result<usize> {
    let wanted = wit::world_imports(&paths::root().join("wit").join("world.wit"))?;
    let found = imports(component)?;
    let extra: Vec<_> = found.difference(&wanted).map(String::as_str).collect();
    if !extra.is_empty() {
        bail!(
            "the component imports what world `threads` does not have: {}",
            extra.join(", ")
        );
    }
    let unused: Vec<_> = wanted.difference(&found).map(String::as_str).collect();
    if !unused.is_empty() {
        bail!(
            "the component does not use these imports of world `threads`: {}",
            unused.join(", ")
        );
    }
    Ok(found.len())
}

fn imports(component: &[u8]) -> Result<BTreeSet<String>> {
    match wit_component::decode(component).context("the component cannot be read back")? {
        DecodedWasm::Component(resolve, world) => {
            let imports = &resolve.worlds[world].imports;
            Ok(imports
                .keys()
                .map(|key| resolve.name_world_key(key))
                .collect())
        }
        DecodedWasm::WitPackage(..) => bail!("a WIT package came out instead of a component"),
    }
}

/// Writes the file if its bytes differ. Returns true if it was written.
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(false);
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_once_for_the_same_bytes() -> Result<()> {
        let folder = paths::target_dir()?
            .join("xtask-tests")
            .join(std::process::id().to_string());
        let path = folder.join("some.wasm");
        assert!(write_if_changed(&path, b"one")?);
        assert!(!write_if_changed(&path, b"one")?);
        assert!(write_if_changed(&path, b"two")?);
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    }

    #[test]
    fn a_component_has_a_largest_size() {
        assert!(check_size(SIZE_MAX, GZIP_SIZE_MAX).is_ok());
        assert!(check_size(SIZE_MAX + 1, GZIP_SIZE_MAX).is_err());
        assert!(check_size(SIZE_MAX, GZIP_SIZE_MAX + 1).is_err());
        assert!(gzip_bytes(&[0; 1_000]).is_ok_and(|zipped| zipped < 100));
    }

    #[test]
    fn other_files_have_no_imports_to_read() {
        assert!(imports(b"no wasm").is_err());
        assert!(wrap_module(b"\0asm\x01\0\0\0 and more").is_err());
    }

    #[test]
    fn an_empty_component_lacks_every_import() {
        let error = check_imports(b"\0asm\x0d\0\x01\0").expect_err("it imports nothing");
        assert!(format!("{error}").contains("does not use"), "{error}");
    }
}
