//! docs/providers.md against the code: each dialect has a row, and each row of working features
//! names a test.

use threadkeep::models::dialect::DIALECTS;

const PAGE: &str = include_str!("../../../docs/providers.md");

/// The files that hold the tests of the page.
const TESTS: [&str; 9] = [
    include_str!("bills.rs"),
    include_str!("calls.rs"),
    include_str!("certificates.rs"),
    include_str!("endings.rs"),
    include_str!("errors.rs"),
    include_str!("probe.rs"),
    include_str!("replies.rs"),
    include_str!("requests.rs"),
    include_str!("roles.rs"),
];

/// The cells of a section's table, without its head.
fn rows(title: &str) -> Vec<Vec<String>> {
    let (_, section) = PAGE.split_once(&format!("## {title}\n")).expect(title);
    let section = section.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cell = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let cells = |line: &str| line.trim_matches('|').split('|').map(cell).collect();
    lines.map(cells).collect()
}

/// The host's default time of a call is also written in the component, which shares no code with
/// it.
#[test]
fn the_usual_time_of_a_call_is_that_of_the_component() {
    let millis = threadkeep_core::runner::MODEL_MILLIS;
    assert_eq!(
        threadkeep::models::CALL_TIME.as_millis(),
        u128::from(millis)
    );
}

#[test]
fn each_dialect_has_a_row_with_its_hosts() {
    let rows = rows("Dialects");
    assert_eq!(rows.len(), DIALECTS.len());
    for (row, dialect) in rows.iter().zip(DIALECTS) {
        assert_eq!(row[0], dialect.name);
        for host in dialect.hosts {
            assert!(row[1].contains(host), "{host} in {}", row[1]);
        }
    }
}

#[test]
fn each_row_of_what_works_is_a_test() {
    let rows = rows("What is known to work");
    assert!(rows.len() > 30, "{}", rows.len());
    for row in rows {
        let test = format!("#[test]\nfn {}()", row[1]);
        assert!(TESTS.iter().any(|file| file.contains(&test)), "{test}");
    }
}
