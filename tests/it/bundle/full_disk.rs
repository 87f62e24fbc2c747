//! A disk that is full: the bundle says what the native program says.

#![cfg(target_os = "linux")]

use super::stock_command::{BundleProject, OFFLINE, bundle_path};
use std::process::Command;
use threadkeep_tests::binary;
use threadkeep_tests::stock_wasmtime::program;

/// Makes a small disk of its own in a namespace, puts a store on it, fills it, and appends a thread
/// by each program. What it prints begins with a line for each.
const SCRIPT: &str = r#"
mount -t tmpfs -o size=1m none "$PLACE" || exit 77
cp -r "$PROJECT/." "$PLACE" && cd "$PLACE" || exit 78
bundle() { "$WASMTIME" run --dir .::/ "$BUNDLE" "$@" 2>&1; }
bundle create --id one >/dev/null || exit 79
dd if=/dev/zero of=filler bs=1k 2>/dev/null
bundle create --id two; echo "exit $?"
echo "--"
"$NATIVE" create --id two 2>&1; echo "exit $?"
echo "--"
rm filler
bundle create --id two; echo "exit $?"
"#;

/// The end of the script where a process may make no disk.
const NO_DISK: [i32; 2] = [1, 77];

/// Symptom: under the stock command a full disk was an "I/O error". Cause: the store was written
/// through the C library of WASI, which forgets the code of a failed write.
#[test]
fn a_full_disk_is_named_as_natively() {
    let Some(bundle) = BundleProject::new() else {
        return;
    };
    let place = tempfile::tempdir().unwrap();
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT])
        .env("PLACE", place.path())
        .env("PROJECT", bundle.project.path())
        .env("WASMTIME", program())
        .env("BUNDLE", bundle_path(OFFLINE))
        .env("NATIVE", binary::path())
        .output();
    let ran = match ran {
        Ok(ran)
            if ran
                .status
                .code()
                .is_none_or(|code| !NO_DISK.contains(&code)) =>
        {
            ran
        }
        _ => {
            println!("skipped: a disk of its own (unshare, mount) cannot be made here");
            return;
        }
    };
    let out = String::from_utf8_lossy(&ran.stdout);
    let parts: Vec<&str> = out.split("--\n").collect();
    let [ours, theirs, later] = parts[..] else {
        panic!("{ran:?}");
    };
    // The file that could not be written has a name of its own each time.
    let sentence = |text: &str| text.split(" (").next().unwrap_or_default().to_owned();
    assert!(
        ours.contains("the disk is full: free space on it ("),
        "{ours}"
    );
    assert!(ours.ends_with("exit 1\n"), "{ours}");
    assert_eq!(sentence(ours), sentence(theirs), "{theirs}");
    assert!(later.ends_with("exit 0\n"), "{later}");
}
