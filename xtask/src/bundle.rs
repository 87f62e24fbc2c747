//! `cargo xtask bundle`: composes the component with what it imports, over WASI, into one file that
//! the stock command `wasmtime` runs.
//!
//! The file exports the interfaces of the component, so that each function can be invoked. Two more
//! are exported because exported types stand in them: `types` and `llm`.

use crate::{component, paths, setup, wit};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use wac_graph::types::Package;
use wac_graph::{CompositionGraph, EncodeOptions, NodeId};
use wit_component::DecodedWasm;

/// The component of the imports.
const PROVIDERS: &str = "threadkeep-bundle-providers";

/// The component of the command.
const COMMAND: &str = "threadkeep-bundle-command";

/// The interface that the command wasmtime runs.
const RUN_INTERFACE: &str = "wasi:cli/run@";

/// The files that are written, with the features of their providers. A component that imports
/// `wasi:http` does not even link where a host grants no network, so such hosts get one of their
/// own.
const FILES: [(&str, &[&str]); 2] = [
    ("threadkeep.wasm", &["http"]),
    ("threadkeep-offline.wasm", &[]),
];

/// Interfaces of the providers in which types of exported functions stand.
const TYPE_INTERFACES: [&str; 2] = ["types", "llm"];

/// Builds the component and its providers, composes, checks and writes them; prints the size.
pub fn run() -> Result<()> {
    setup::run()?;
    setup::add_target(setup::WASI_TARGET)?;
    component::build()?;
    let threads = std::fs::read(paths::component()?).context("cannot read the component")?;
    let command = component::build_module(COMMAND, setup::WASI_TARGET, &[])?;
    for (file, features) in FILES {
        let providers = component::build_module(PROVIDERS, setup::WASI_TARGET, features)?;
        let bundle = compose(threads.clone(), providers, command.clone())?;
        check_imports(&bundle, features.contains(&"http"))?;
        let path = paths::bundle(file)?;
        component::write_if_changed(&path, &bundle)?;
        println!(
            "bundle: {} bytes, {} as gzip: {}",
            bundle.len(),
            component::gzip_bytes(&bundle)?,
            path.display()
        );
    }
    Ok(())
}

/// Gives the component every import from the providers, and the command those of both; exports what
/// the component and the command export.
fn compose(threads: Vec<u8>, providers: Vec<u8>, command: Vec<u8>) -> Result<Vec<u8>> {
    let wanted = wit::world_imports(&paths::root().join("wit").join("world.wit"))?;
    let exported = world_of(&threads)?.exports;
    let command_world = world_of(&command)?;
    let mut graph = CompositionGraph::new();
    let providers = instantiate(&mut graph, "threadkeep:providers", providers)?;
    let threads = instantiate(&mut graph, "threadkeep:component", threads)?;
    for name in &wanted {
        let provided = graph
            .alias_instance_export(providers, name)
            .with_context(|| format!("the providers do not export {name}"))?;
        graph
            .set_instantiation_argument(threads, name, provided)
            .with_context(|| format!("the component does not take the providers' {name}"))?;
        let is_type = TYPE_INTERFACES
            .iter()
            .any(|interface| name.contains(&format!("/{interface}@")));
        if is_type {
            graph.export(provided, name)?;
        }
    }
    for name in &exported {
        let function = graph.alias_instance_export(threads, name)?;
        graph.export(function, name)?;
    }
    let command = instantiate(&mut graph, "threadkeep:command", command)?;
    for name in command_world.imports.iter().filter(|name| !is_wasi(name)) {
        let source = if exported.contains(name) {
            threads
        } else {
            providers
        };
        let provided = graph
            .alias_instance_export(source, name)
            .with_context(|| format!("nothing exports {name}, which the command imports"))?;
        graph
            .set_instantiation_argument(command, name, provided)
            .with_context(|| format!("the command does not take {name}"))?;
    }
    let run = command_world.exports.iter();
    let run = run.into_iter().find(|name| name.starts_with(RUN_INTERFACE));
    let run = run.context("the command cannot be run")?;
    let function = graph.alias_instance_export(command, run)?;
    graph.export(function, run)?;
    let composed = graph.encode(EncodeOptions::default());
    composed.context("the component, its providers and the command cannot be composed")
}

fn instantiate(graph: &mut CompositionGraph, name: &str, bytes: Vec<u8>) -> Result<NodeId> {
    let package = Package::from_bytes(name, None, bytes, graph.types_mut())
        .with_context(|| format!("{name} cannot be read as a component"))?;
    let package = graph.register_package(package)?;
    Ok(graph.instantiate(package))
}

/// The names that a component imports and exports.
struct ComponentWorld {
    imports: BTreeSet<String>,
    exports: BTreeSet<String>,
}

fn world_of(component: &[u8]) -> Result<ComponentWorld> {
    match wit_component::decode(component).context("a component cannot be read back")? {
        DecodedWasm::Component(resolve, world) => {
            let world = &resolve.worlds[world];
            let name = |key| resolve.name_world_key(key);
            Ok(ComponentWorld {
                imports: world.imports.keys().map(name).collect(),
                exports: world.exports.keys().map(name).collect(),
            })
        }
        DecodedWasm::WitPackage(..) => bail!("a WIT package came out instead of a component"),
    }
}

fn is_wasi(name: &str) -> bool {
    name.starts_with("wasi:")
}

/// Checks that the file imports nothing but WASI: an import that no provider has taken would be
/// found by the person who runs it. `wasi:http` is imported where it is meant, and nowhere else.
fn check_imports(bundle: &[u8], speaks_http: bool) -> Result<()> {
    let imports = world_of(bundle)?.imports;
    if let Some(name) = imports.iter().find(|name| !is_wasi(name)) {
        bail!("the bundle still imports {name}");
    }
    let http = imports.iter().any(|name| name.starts_with("wasi:http/"));
    match http == speaks_http {
        true => Ok(()),
        false => bail!("the bundle imports wasi:http: {http}, and it should be {speaks_http}"),
    }
}
