//! One store of plain files, used by bundles and native processes in turn.

use super::stock_command::{BundleProject, run_call};

#[test]
fn native_processes_and_bundles_go_on_with_each_others_threads() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    bundle.create("one");
    let answer = bundle.invoke(&run_call("one", "first"));
    assert!(answer.out.contains("Hello from a script."), "{answer:?}");
    let project = &bundle.project;
    let native = [
        "run",
        "hello",
        "--id",
        "two",
        "--provider",
        "scripted:answers.json",
    ];
    assert_eq!(project.run(&native).code, Some(0));
    let answer = bundle.invoke("get(\"two\")");
    assert!(answer.out.contains("status: \"completed\""), "{answer:?}");
    assert_eq!(project.status("one"), "completed");
    let resumed = bundle.invoke(
        "resume(\"two\", some(\"{\\\"role\\\":\\\"user\\\",\\\"content\\\":[{\\\"type\\\":\
         \\\"text\\\",\\\"text\\\":\\\"Again.\\\"}]}\"), \"bundle/2\", \"again\", none)",
    );
    assert!(resumed.out.starts_with("ok("), "{resumed:?}");
    assert_eq!(project.threads(), 3, "a thread that ended has a successor");
    bundle.assert_sound();
}
