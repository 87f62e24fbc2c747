//! Bundles that are killed at any moment lose nothing that they have acknowledged.

use super::stock_command::BundleProject;
use std::io::Read;
use std::process::Stdio;
use std::time::Instant;
use threadkeep_tests::soak::repetitions;
use threadkeep_tests::stock_wasmtime::PrecompiledBundle;

/// Bundles that are killed.
const KILLS: u32 = 10;

#[test]
fn killed_bundles_lose_no_acknowledged_commit() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let precompiled = PrecompiledBundle::compile();
    bundle.create("one");
    let project = bundle.project.path();
    let append_call = |name: &str| {
        let event = format!("{{\"type\":\"note\",\"name\":\"{name}\",\"body\":1}}");
        format!(
            "append(\"one\", none, any, {{events: [{event:?}], patches: [], operations: [], \
             request: some(\"{name}\")}})"
        )
    };
    let began = Instant::now();
    let mut command = precompiled.invocation(project, &append_call("first"));
    let appended = command.output().unwrap();
    assert!(appended.stdout.starts_with(b"ok("), "{appended:?}");
    let usual = began.elapsed();
    let mut acknowledged = Vec::new();
    let kills = repetitions(KILLS);
    for n in 0..kills {
        let mut command = precompiled.invocation(project, &append_call(&format!("n{n}")));
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // The moments are spread over a call and the time after it, which is as long again: the
        // machine may be busier than when the call was timed.
        std::thread::sleep(usual * 2 * n / kills);
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
    assert!(!acknowledged.is_empty(), "none had answered");
    println!(
        "{} of {kills} bundles had answered before they were killed",
        acknowledged.len()
    );
    bundle.assert_sound();
}
