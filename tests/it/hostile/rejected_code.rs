//! Components and native code that an engine must not accept: they are refused at the engine's
//! start, with the reason.

use super::fixture::tenant;
use crate::component::project::engine_with;
use cap_std::fs::{Dir, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use threadkeep::engine::{CodeCache, Engine, EngineError};
use threadkeep::error::CallError;
use threadkeep::limits::EngineLimits;
use threadkeep::storage::memory::MemoryStore;
use threadkeep_tests::programs::{build_component, build_program};

const EMPTY: &str = "(module (memory (export \"memory\") 1))";

fn refusal(bytes: &[u8]) -> EngineError {
    let engine = engine_with(EngineLimits::strict());
    match engine.prepare_sibling(bytes, None) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    }
}

#[test]
fn a_component_of_another_version_is_told_both_versions() {
    for version in ["0.2.0", "1.0.0"] {
        let package = format!("threads@{version}");
        let error = refusal(&build_component(EMPTY, &[("threads@0.1.0", &package)]));
        let EngineError::Version { found, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(found, version);
        let text = error.to_string();
        assert!(text.contains(version) && text.contains("0.1.0"), "{text}");
    }
}

#[test]
fn a_component_that_does_not_fit_the_world_is_told_where() {
    let since = "@since(version = 0.1.0)";
    let export = format!("    {since}\n    export maintenance;\n");
    let cases = [
        (
            (export.as_str(), ""),
            "threadkeep:threads/maintenance@0.1.0",
        ),
        (("set-title: func", "set-name: func"), "set-title"),
    ];
    for (edit, place) in cases {
        let error = refusal(&build_component(EMPTY, &[edit]));
        assert!(matches!(error, EngineError::World(_)), "{place}: {error}");
        assert!(error.to_string().contains(place), "{place}: {error}");
    }
    let import = format!("    {since}\n    import tools;\n");
    let more = format!("{import}    import network: interface {{ connect: func(); }}\n");
    let module = "(module (import \"network\" \"connect\" (func)) (memory (export \"memory\") 1))";
    let error = refusal(&build_component(module, &[(&import, &more)]));
    assert!(matches!(error, EngineError::World(_)), "{error}");
    assert!(error.to_string().contains("network"), "{error}");
}

/// The types of functions are compared when an instance is made: the first call gets the error.
#[tokio::test]
async fn a_function_of_another_type_is_told_to_the_first_call() {
    let edit = (
        "set-title: func(thread: string, title: option<string>)",
        "set-title: func(thread: string, title: string)",
    );
    let engine = engine_with(EngineLimits::strict());
    let other = engine
        .prepare_sibling(&build_component(EMPTY, &[edit]), None)
        .unwrap();
    let answer = tenant(&other, Arc::new(MemoryStore::new())).get("x").await;
    assert!(
        matches!(&answer, Err(CallError::Trapped(why)) if why.contains("type")),
        "{answer:?}"
    );
}

#[test]
fn invalid_component_is_named() {
    let module = [0, b'a', b's', b'm', 1, 0, 0, 0];
    let torn = build_program("loop");
    for bytes in [&b"no wasm"[..], &[], &module, &torn[..torn.len() / 2]] {
        let error = refusal(bytes);
        assert!(matches!(error, EngineError::Compile(_)), "{error}");
    }
}

#[test]
fn limits_that_contradict_each_other_are_named() {
    let limits = EngineLimits {
        calls_running_max: 4,
        call_threads_max: 4,
        ..EngineLimits::strict()
    };
    match Engine::new(limits, None).map(drop) {
        Err(EngineError::Limits { field, .. }) => assert_eq!(field, "calls_running_max"),
        other => panic!("{other:?}"),
    }
}

/// A native code cache with its one file for one program.
struct NativeCache {
    _kept: tempfile::TempDir,
    dir: Dir,
    program: Vec<u8>,
    name: String,
}

impl NativeCache {
    fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(kept.path(), cap_std::ambient_authority()).unwrap();
        let mut native = Self {
            _kept: kept,
            dir,
            program: build_program("counts"),
            name: String::new(),
        };
        assert_eq!(native.compilations(), 1, "there was none");
        native.name = native.names().pop().unwrap();
        native
    }

    fn names(&self) -> Vec<String> {
        let entries = self.dir.entries().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// Makes an engine with this cache; returns the number of its compilations.
    fn compilations(&self) -> u64 {
        let cache = CodeCache::new(self.dir.try_clone().unwrap());
        Engine::with_component(&self.program, EngineLimits::strict(), Some(&cache)).unwrap();
        assert_eq!(self.names().len(), 1, "{:?}", self.names());
        cache.compilation_count()
    }

    fn content(&self) -> Vec<u8> {
        self.dir.read(&self.name).unwrap()
    }

    fn flip(&self, at: u64) {
        let mut options = OpenOptions::new();
        let mut file = self
            .dir
            .open_with(&self.name, options.read(true).write(true))
            .unwrap();
        let mut byte = [0];
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(&mut byte).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[byte[0] ^ 0x10]).unwrap();
    }
}

#[test]
fn native_code_that_was_tampered_with_is_compiled_again() {
    let native = NativeCache::new();
    let whole = native.content();
    assert_eq!(native.compilations(), 0, "it is there");
    let length = whole.len() as u64;
    // The digest, the first bytes of the code, its middle, its end.
    let places = [0, 31, 32, 33, 40, length / 3, length / 2, length - 1];
    for at in places {
        native.flip(at);
        assert_eq!(native.compilations(), 1, "byte {at}");
        assert_eq!(native.content(), whole, "it is put right");
    }
    for torn in [0, 1, 31, 32, 33, whole.len() / 2, whole.len() - 1] {
        native.dir.write(&native.name, &whole[..torn]).unwrap();
        assert_eq!(native.compilations(), 1, "{torn} bytes");
    }
    native
        .dir
        .write(&native.name, [&whole[..], b"more"].concat())
        .unwrap();
    assert_eq!(native.compilations(), 1, "longer");
    assert_eq!(native.compilations(), 0);
}

/// Native code of another version or configuration, complete and with a correct digest: wasmtime
/// itself refuses it.
#[test]
fn native_code_of_another_engine_is_compiled_again() {
    use sha2::{Digest, Sha256};
    let native = NativeCache::new();
    let whole = native.content();
    let precompiled = |change: fn(&mut wasmtime::Config)| {
        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        change(&mut config);
        let engine = wasmtime::Engine::new(&config).unwrap();
        engine.precompile_component(&native.program).unwrap()
    };
    let other = precompiled(|config| {
        config.epoch_interruption(false);
    });
    let version = precompiled(|config| {
        let other = wasmtime::ModuleVersionStrategy::Custom("47.0.0".to_owned());
        config.module_version(other).unwrap();
    });
    for (what, code) in [
        ("another configuration", other),
        ("another version", version),
    ] {
        let file = [Sha256::digest(&code).as_slice(), &code].concat();
        native.dir.write(&native.name, file).unwrap();
        assert_eq!(native.compilations(), 1, "{what}");
        assert_eq!(native.content(), whole, "{what}");
    }
}

/// A path that is not a plain file of ours is never read, wherever it leads.
#[cfg(unix)]
#[test]
fn native_code_behind_a_link_or_open_to_others_is_compiled_again() {
    use std::os::unix::fs::PermissionsExt;
    let native = NativeCache::new();
    let whole = native.content();
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("code");
    std::fs::write(&path, &whole).unwrap();
    native.dir.remove_file(&native.name).unwrap();
    native.dir.symlink_contents(&path, &native.name).unwrap();
    assert_eq!(native.compilations(), 1, "a symlink");
    assert!(native.dir.symlink_metadata(&native.name).unwrap().is_file());
    assert_eq!(
        std::fs::read(&path).unwrap(),
        whole,
        "and nothing was written through it"
    );
    let open = cap_std::fs::Permissions::from_std(std::fs::Permissions::from_mode(0o666));
    native.dir.set_permissions(&native.name, open).unwrap();
    assert_eq!(native.compilations(), 1, "a file that everybody can write");
    assert_eq!(native.compilations(), 0);
}
