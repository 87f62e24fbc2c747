//! `cargo bench -p threadkeep-tests --bench scale [-- SECTION]`: measures costs that grow with
//! size, and costs that must not.
//!
//! Sections: `bytes`, `entries`, `context`, `pages`, `commands`, `runs`. Each prints its result
//! beside its baseline, measured in the same run. Nothing is asserted. A store is filled to a tenth
//! of the design's size; `--full` fills it to the whole, which takes some minutes and gigabytes of
//! the temporary directory.

#[path = "scale/bytes.rs"]
mod bytes;
#[path = "scale/commands.rs"]
mod commands;
#[path = "scale/context.rs"]
mod context;
#[path = "scale/entries.rs"]
mod entries;
#[path = "turn/figures.rs"]
mod figures;
#[path = "turn/native.rs"]
mod native;
#[path = "scale/pages.rs"]
mod pages;
#[path = "scale/runs.rs"]
mod runs;
#[path = "scale/size.rs"]
mod size;
#[path = "turn/world.rs"]
mod world;

use size::BenchSize;

/// A section and its name.
type BenchSection = (&'static str, fn(BenchSize));

const SECTIONS: [BenchSection; 6] = [
    ("bytes", bytes::compare),
    ("entries", entries::compare),
    ("context", context::compare),
    ("pages", pages::compare),
    ("commands", commands::compare),
    ("runs", runs::compare),
];

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| given.iter().any(|argument| argument == word);
    // `cargo test --benches` runs this file, too: then it only proves that the bench works.
    let size = match (has("--bench"), has("--full")) {
        (false, _) => BenchSize::Trial,
        (true, false) => BenchSize::Tenth,
        (true, true) => BenchSize::Full,
    };
    let named = SECTIONS.iter().any(|(name, _)| has(name));
    for (name, compare) in SECTIONS {
        if has(name) || !named {
            compare(size);
        }
    }
}
