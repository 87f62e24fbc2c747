//! The library of the bundle reads nothing outside its directories.

use super::stock_command::{BundleProject, creation};

#[cfg(unix)]
#[test]
fn links_out_of_a_directory_and_hard_links_are_refused() {
    use std::os::unix::fs::symlink;
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let project = bundle.project.path();
    let directives = project.join(".ai/directives");
    bundle.project.write("outside.md", "Hidden.");
    bundle.project.write(".ai/directives/real.md", "Seen.");
    symlink("../../outside.md", directives.join("outside.md")).unwrap();
    symlink("/etc/hostname", directives.join("absolute.md")).unwrap();
    symlink("real.md", directives.join("inside.md")).unwrap();
    symlink("nowhere.md", directives.join("dangling.md")).unwrap();
    std::fs::hard_link(project.join("outside.md"), directives.join("hard.md")).unwrap();
    std::fs::create_dir(directives.join("folder.md")).unwrap();
    for (name, word) in [
        ("real", "ok("),
        ("inside", "ok("),
        ("outside", "leads out of its directory"),
        ("absolute", "leads out of its directory"),
        ("hard", "is a hard link"),
        ("folder", "is not a regular file"),
        ("dangling", "there is no directive"),
        ("Real", "there is no directive"),
        ("../../outside", "may hold letters"),
    ] {
        let call = creation("one", None).replace("\"hello\"", &format!("{name:?}"));
        let call = call.replace("\"one\"", &format!("\"of-{}\"", name.len()));
        let call = call.replace(
            "made-one",
            &format!("made-{}", name.replace(['.', '/'], "-")),
        );
        let answer = bundle.invoke(&call);
        assert!(answer.out.contains(word), "{name}: {answer:?}");
        assert!(!answer.out.contains("Hidden"), "{name}: {answer:?}");
    }
}

#[test]
fn broken_definitions_are_named_with_their_line() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let project = &bundle.project;
    project.write(".ai/directives/hello.md", "---\nlimits: {turns: 5\n---\n");
    let answer = bundle.invoke(&creation("one", None));
    assert!(
        answer.out.contains(".ai/directives/hello.md:"),
        "{answer:?}"
    );
    project.write(".ai/directives/hello.md", "Say hello.");
    project.write(".ai/config/models.yaml", "modles: {}\n");
    let answer = bundle.invoke(&creation("one", None));
    assert!(
        answer.out.contains(".ai/config/models.yaml:1"),
        "{answer:?}"
    );
}
