//! Bundles that are killed at any moment lose nothing that they have acknowledged.

use super::stock_command::BundleProject;
use std::io::Read;
use std::time::Duration;
use threadkeep_tests::soak::repetitions;

/// Bundles that are killed.
const KILLS: u32 = 10;

#[test]
fn killed_bundles_lose_no_acknowledged_commit() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    bundle.create("one");
    let mut acknowledged = Vec::new();
    let kills = u64::from(repetitions(KILLS));
    for n in 0..kills {
        let event = format!(
            "{:?}",
            format!("{{\"type\":\"note\",\"name\":\"n{n}\",\"body\":1}}")
        );
        let call = format!(
            "append(\"one\", none, any, {{events: [{event}], patches: [], operations: [], \
             request: some(\"r{n}\")}})"
        );
        let mut child = bundle.start(&call);
        // A call takes some 100 ms; the moments are spread over it.
        std::thread::sleep(Duration::from_millis(20 + 180 * n / kills));
        let _ = child.kill();
        let mut out = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut out)
            .unwrap();
        child.wait().unwrap();
        if out.starts_with("ok(") {
            acknowledged.push(n);
        }
    }
    let transcript = bundle
        .project
        .run(&["transcript", "one", "--format", "jsonl"])
        .out;
    for n in &acknowledged {
        let name = format!("\"name\":\"n{n}\"");
        assert_eq!(
            transcript.matches(&name).count(),
            1,
            "{name} of {acknowledged:?}"
        );
    }
    println!(
        "{} of {kills} bundles had answered before they were killed",
        acknowledged.len()
    );
    bundle.assert_sound();
}
