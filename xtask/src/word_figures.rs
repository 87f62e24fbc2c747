//! `cargo xtask words`: prints how plainly the sources are written: names of types and functions,
//! openings of doc comments, wide lines, circles between the modules of core, and lines by folder.
//!
//! The rules themselves are the library's, which the tests of `tidy` use too.

use crate::paths;
use xtask::words::circles::core_circles;
use xtask::words::{SourceUnits, WordFault, WordRule, count_units, find_faults, read_sources};

/// Prints the figures of this workspace; with `faults` every fault with its place.
pub fn run(rest: &[String]) -> anyhow::Result<()> {
    let list = match rest {
        [] => false,
        [word] if word == "faults" => true,
        _ => anyhow::bail!("`cargo xtask words` takes nothing, or `faults`"),
    };
    let files = read_sources(paths::root())?;
    let faults = find_faults(&files);
    print_faults(&count_units(&files), &faults);
    print_circles(&core_circles(&files));
    println!("\nlines by folder");
    let units = count_units(&files);
    for (folder, lines) in &units.lines {
        println!("{lines:>7}  {folder}");
    }
    println!("{:>7}  all", units.lines.values().sum::<usize>());
    for fault in faults.iter().filter(|_| list) {
        println!("{fault}");
    }
    Ok(())
}

fn print_faults(units: &SourceUnits, faults: &[WordFault]) {
    let count = |rule: WordRule| faults.iter().filter(|fault| fault.rule == rule).count();
    print_share("types of one word", units.one_word_types, units.types);
    let unlisted = count(WordRule::OneWordType);
    print_share(
        "types of one word, not of the glossary",
        unlisted,
        units.types,
    );
    print_share(
        "definitions of a name defined twice",
        count(WordRule::RepeatedType),
        units.types,
    );
    print_share(
        "functions that are a bare participle",
        count(WordRule::BareParticiple),
        units.functions,
    );
    print_share(
        "doc comments that ask",
        count(WordRule::DocQuestion),
        units.doc_comments,
    );
    let lines = units.lines.values().sum();
    print_share("lines over 100 columns", count(WordRule::WideLine), lines);
}

fn print_share(title: &str, part: usize, whole: usize) {
    let share = 100.0 * part as f64 / whole.max(1) as f64;
    println!("{title:<40} {part:>6} of {whole:>6}  {share:>5.1} %");
}

fn print_circles(circles: &[Vec<String>]) {
    let modules: usize = circles.iter().map(Vec::len).sum();
    let title = "circles between modules of core";
    println!("{title:<40} {:>6} of {modules} modules", circles.len());
    for circle in circles {
        println!("    {}", circle.join(" "));
    }
}
