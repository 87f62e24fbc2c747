//! The whole capability set of the component, read from its bytes: the interfaces of world
//! `threads`, and no WASI.

use threadkeep::engine::COMPONENT;
use wasmtime::component::Component;

#[test]
fn the_component_imports_what_the_world_names_and_nothing_else() {
    let engine = wasmtime::Engine::default();
    let component = Component::new(&engine, COMPONENT).unwrap();
    let kind = component.component_type();
    let mut imports: Vec<&str> = kind.imports(&engine).map(|(name, _)| name).collect();
    imports.sort_unstable();
    assert_eq!(
        imports,
        [
            "threadkeep:threads/clock@0.1.0",
            "threadkeep:threads/library@0.1.0",
            "threadkeep:threads/llm@0.1.0",
            "threadkeep:threads/random@0.1.0",
            "threadkeep:threads/storage@0.1.0",
            "threadkeep:threads/tools@0.1.0",
            "threadkeep:threads/types@0.1.0",
        ]
    );
    println!("component: {} bytes", COMPONENT.len());
}
