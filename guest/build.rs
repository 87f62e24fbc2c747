//! The bindings of world `threads`, generated from `wit/`, with what is the same in many exports in one place.

#![expect(
    clippy::disallowed_methods,
    reason = "it runs where the component is built, not in it"
)]

#[path = "build/share.rs"]
mod share;

use std::path::PathBuf;
use std::{env, fs};
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};

const WIT: &str = "../wit";

/// Fewer pieces than this have never been the same: the generator writes otherwise than it did, and the component would
/// silently be a tenth larger.
const SHARED_MIN: usize = 40;

fn main() {
    println!("cargo::rerun-if-changed={WIT}");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/share.rs");
    let (text, shared) = share::share(&bindings());
    assert!(
        shared >= SHARED_MIN,
        "only {shared} pieces of the generated bindings are the same: guest/build/share.rs no longer knows them"
    );
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(folder.join("threads.rs"), text).expect("the bindings can be written");
}

fn bindings() -> String {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(WIT).expect("wit/ can be read");
    let world = resolve.select_world(&[package], Some("threads"));
    let world = world.expect("wit/ has the world");
    let options = wit_bindgen_rust::Opts {
        generate_all: true,
        pub_export_macro: true,
        ..Default::default()
    };
    let mut files = Files::default();
    let generated = options.build().generate(&mut resolve, world, &mut files);
    generated.expect("the bindings can be generated");
    let (_, text) = files.iter().next().expect("one file was generated");
    String::from_utf8(text.to_vec()).expect("the bindings are text")
}
