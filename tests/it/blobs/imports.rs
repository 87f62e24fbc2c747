//! Images of a `state.json` that is imported.

use super::png;
use crate::cli::fixture::{CliProject, MODELS};
use serde_json::Value;

/// Symptom: a checkpoint with an image was refused as a whole (`image of the role user is not
/// imported`). Cause: the import knew no block but texts and calls. Fix: an image whose file lies
/// beside the checkpoint is stored for the new thread; of another a text tells. Kind: a reader that
/// does not know what the writer of the same program writes.
#[test]
fn images_beside_a_checkpoint_are_taken_and_others_are_told_of() {
    let project = CliProject::new();
    let models = MODELS.replace("window: 32000", "images: true, window: 32000");
    assert_ne!(models, MODELS);
    project.write(".ai/config/models.yaml", &models);
    std::fs::write(project.path().join("cat.png"), png(1, 30_000)).unwrap();
    let ran = project.json(&[
        "run",
        "describe",
        "--input",
        "file=notes.txt",
        "--image",
        "cat.png",
        "--id",
        "t",
        "--turns",
        "1",
    ]);
    assert_eq!(ran["exit"], 3, "{ran}");
    let place = project.path().join(".ai/threads/t");
    let state = std::fs::read_to_string(place.join("state.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let version = &state["history_version"];
    let copy = place.join(format!("checkpoints.d/{version}.json"));
    let import = |file: &std::path::Path, id: &str| {
        let file = file.display().to_string();
        project.json(&["import", "--state", &file, "--id", id, "--turns", "9"])
    };
    let events = |id: &str| project.run(&["transcript", id, "--format", "jsonl"]).out;
    for (file, id) in [(place.join("state.json"), "one"), (copy, "two")] {
        let made = import(&file, id);
        assert_eq!(
            (&made["images"], &made["images_left_out"]),
            (&1.into(), &0.into()),
            "{made}"
        );
        let events = events(id);
        assert!(events.contains(&format!("\"chain\":\"{id}\"")), "{events}");
        assert_eq!(project.json(&["resume", id, "And?"])["exit"], 0);
    }
    assert_eq!(project.json(&["audit"])["findings"], serde_json::json!([]));
    // One whose bytes are others is as good as missing.
    let directory = place.join("blobs.d");
    let file = std::fs::read_dir(&directory)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    std::fs::write(file.path(), png(2, 30_000)).unwrap();
    for id in ["three", "four"] {
        let made = import(&place.join("state.json"), id);
        assert_eq!(
            (&made["images"], &made["images_left_out"], &made["exit"]),
            (&0.into(), &1.into(), &0.into()),
            "{made}"
        );
        assert!(events(id).contains("left out by the import]"));
        if directory.exists() {
            std::fs::remove_dir_all(&directory).unwrap();
        }
    }
    let file = place.join("state.json").display().to_string();
    let told = project.run(&["import", "--state", &file]);
    assert!(told.err.contains("1 image left out"), "{}", told.err);
}
