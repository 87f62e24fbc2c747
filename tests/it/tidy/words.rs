//! The rules of plain words over the tree: those of `cargo xtask words`, whose own tests plant a
//! fault for each.

use super::{assert_tidy, tree};
use std::path::Path;
use xtask::words::circles::{ALLOWED_CIRCLES, circle_problems, core_circles};
use xtask::words::{GLOSSARY, SourceFile, WordRule, find_faults, glossary_words, read_sources};

fn sources() -> Vec<SourceFile> {
    read_sources(Path::new(&tree::root())).expect("the sources can be read")
}

/// Fails with the faults of these rules.
fn check_rules(rules: &[WordRule]) {
    let files = sources();
    assert!(
        files.len() > 300,
        "the walk found only {} files",
        files.len()
    );
    let faults = find_faults(&files).into_iter();
    let faults = faults.filter(|fault| rules.contains(&fault.rule));
    assert_tidy(faults.map(|fault| fault.to_string()).collect());
}

#[test]
fn type_names_have_two_words_or_one_of_the_glossary() {
    check_rules(&[WordRule::OneWordType]);
}

#[test]
fn type_names_are_defined_once_in_a_crate() {
    check_rules(&[WordRule::RepeatedType]);
}

#[test]
fn functions_are_no_bare_participles() {
    check_rules(&[WordRule::BareParticiple]);
}

#[test]
fn doc_comments_open_without_a_question_word() {
    check_rules(&[WordRule::DocQuestion]);
}

#[test]
fn lines_fit_the_width() {
    check_rules(&[WordRule::WideLine]);
}

#[test]
fn core_modules_use_each_other_without_circles() {
    assert_tidy(circle_problems(&core_circles(&sources()), &ALLOWED_CIRCLES));
}

#[test]
fn glossary_words_stand_in_the_architecture() {
    let path = tree::root().join("ARCHITECTURE.md");
    let architecture = std::fs::read_to_string(path).expect("ARCHITECTURE.md can be read");
    let words =
        glossary_words(&architecture).expect("ARCHITECTURE.md has a table under ## Glossary");
    let missing = GLOSSARY.iter().filter(|word| !words.contains(**word));
    assert_tidy(
        missing
            .map(|word| format!("ARCHITECTURE.md: the glossary has no row for `{word}`"))
            .collect(),
    );
}
