//! Images through the bundle: a model is sent the same bytes as by the native program, and what is
//! refused natively is refused here.

use super::stock_command::{BundleProject, ONLINE};
use crate::blobs::images::{WIRES, call, cat, images, project, reply};
use crate::blobs::{base64, png};
use crate::cli::fixture::CliProject;
use crate::crash::kills::open;
use std::path::Path;
use threadkeep::storage::{CommitOp, CommitOutcome};
use threadkeep_tests::binary::ProcessOutput;
use threadkeep_tests::judge::{JudgeServer, ServerAnswer};
use threadkeep_tests::llmock::MockWire;

const GRANTED: [&str; 4] = ["-S", "http", "--dir", ".::/"];

/// A project for each program, and the server that keeps what its model is sent.
struct TwoPrograms {
    bundle: (BundleProject, JudgeServer),
    native: (CliProject, JudgeServer),
}

impl TwoPrograms {
    /// Makes the projects, whose servers give the same answers in order. `None` where the stock
    /// command or the bundle is missing.
    fn new(
        wire: MockWire,
        model_keys: &str,
        answers: impl Fn() -> Vec<ServerAnswer>,
    ) -> Option<Self> {
        BundleProject::new()?;
        let native = project(wire, model_keys, answers());
        let (project, server) = project(wire, model_keys, answers());
        Some(Self {
            bundle: (BundleProject { project }, server),
            native,
        })
    }

    /// Runs a command by both; returns the ends of the bundle and of the native program.
    fn run(&self, arguments: &[&str]) -> [ProcessOutput; 2] {
        let ours = self.bundle.0.run_granted(ONLINE, &GRANTED, arguments);
        [ours, self.native.0.run(arguments)]
    }

    /// Runs a command by both, which end with 0.
    #[track_caller]
    fn run_well(&self, arguments: &[&str]) {
        for end in self.run(arguments) {
            assert_eq!(end.code, Some(0), "{arguments:?}: {end:#?}");
        }
    }

    /// Checks that both servers have seen the same requests; returns the images of each.
    #[track_caller]
    fn sent_images(&self, wire: MockWire) -> Vec<Vec<(String, String)>> {
        let [ours, theirs] = [&self.bundle.1, &self.native.1].map(JudgeServer::requests);
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours.body, theirs.body, "{}", wire.as_str());
        }
        ours.iter().map(|request| images(wire, request)).collect()
    }

    fn write(&self, file: &str, bytes: &[u8]) {
        for path in [self.bundle.0.project.path(), self.native.0.path()] {
            std::fs::write(path.join(file), bytes).unwrap();
        }
    }
}

#[test]
fn images_of_the_command_line_are_sent_as_natively() {
    for wire in WIRES {
        let answers = || vec![reply(wire, "A cat."), reply(wire, "A dog.")];
        let Some(both) = TwoPrograms::new(wire, "images: true", answers) else {
            return;
        };
        both.write("dog.gif", b"GIF89a....");
        let arguments = ["run", "go", "--id", "t", "--message", "What are these?"];
        let files = ["--image", "cat.png", "--image", "/dog.gif"];
        let ours = [&arguments[..], &files].concat();
        let end = both.bundle.0.run_granted(ONLINE, &GRANTED, &ours);
        assert_eq!(end.code, Some(0), "{end:#?}");
        let files = ["--image", "cat.png", "--image", "dog.gif"];
        let theirs = [&arguments[..], &files].concat();
        assert_eq!(both.native.0.run(&theirs).code, Some(0));
        // A successor, and the image alone as the message.
        both.run_well(&["resume", "t", "And its colour?"]);
        both.run_well(&["run", "go", "--id", "u", "--image", "cat.png"]);
        let dog = ("image/gif".to_owned(), base64(b"GIF89a...."));
        let sent = both.sent_images(wire);
        let two = vec![cat(), dog];
        assert_eq!(sent, [two.clone(), two, vec![cat()]], "{wire:?}");
        both.bundle.0.assert_sound();
    }
}

#[test]
fn message_and_resume_show_images_as_natively() {
    for wire in WIRES {
        let answers = || vec![reply(wire, "Two."), reply(wire, "One.")];
        let Some(both) = TwoPrograms::new(wire, "images: true", answers) else {
            return;
        };
        both.write("dog.gif", b"GIF89a....");
        both.run_well(&["create", "--id", "c"]);
        both.run_well(&["message", "c", "See?", "--image", "cat.png"]);
        both.run_well(&["resume", "c", "And it?", "--image", "dog.gif"]);
        let sent = both.sent_images(wire);
        assert_eq!(sent[0].len(), 2, "{wire:?}: {sent:?}");
        assert!(sent[0].contains(&cat()));
        // A thread that has ended takes none.
        both.run_well(&["run", "go", "--id", "t"]);
        for command in ["message", "resume"] {
            let [ours, theirs] = both.run(&[command, "t", "See?", "--image", "cat.png"]);
            assert_eq!((ours.code, &ours.err), (Some(1), &theirs.err), "{ours:#?}");
            assert!(ours.err.contains("completed"), "{ours:#?}");
        }
        both.bundle.0.assert_sound();
    }
}

/// An image that `read_file` reads is stored, sent with the result, and written beside the
/// transcript; the native program goes on with it.
#[test]
fn read_file_shows_images_as_natively() {
    for wire in WIRES {
        let answers = || vec![call(wire, "cat.png"), reply(wire, "A cat.")];
        let Some(both) = TwoPrograms::new(wire, "images: true", answers) else {
            return;
        };
        both.run_well(&["run", "go", "--id", "t"]);
        assert_eq!(both.sent_images(wire), [vec![], vec![cat()]], "{wire:?}");
        let name = threadkeep::blobs::BlobName::of(&png(1, 30_000), "image/png");
        let project = &both.bundle.0.project;
        let file = format!(".ai/threads/t/blobs.d/{}.png", name.hash);
        assert!(std::fs::read(project.path().join(file)).unwrap() == png(1, 30_000));
        let resumed = project.json(&["resume", "t", "And its colour?"]);
        assert_eq!(resumed["status"], "completed", "{resumed}");
        let last = both.bundle.1.requests().pop().unwrap();
        assert_eq!(images(wire, &last), [cat()], "{wire:?}");
        both.bundle.0.assert_sound();
    }
}

#[test]
fn a_model_without_images_is_told_as_natively() {
    for wire in WIRES {
        let answers = || vec![call(wire, "cat.png"), reply(wire, "A pity.")];
        let Some(both) = TwoPrograms::new(wire, "", answers) else {
            return;
        };
        let [ours, theirs] = both.run(&["run", "go", "--image", "cat.png"]);
        assert_eq!((ours.code, &ours.err), (Some(1), &theirs.err));
        assert!(ours.err.contains("takes no images"), "{ours:#?}");
        assert!(!both.bundle.0.project.exists(".ai/threads"));
        both.run_well(&["run", "go", "--id", "t"]);
        assert_eq!(both.sent_images(wire), [vec![], vec![]], "{wire:?}");
        let requests = both.bundle.1.requests();
        let told = "the model of this thread takes no images";
        assert!(requests[1].body.to_string().contains(told));
    }
}

/// Files, and words of the refusal. Where the native program reads the same file it says the same.
#[test]
fn what_is_no_image_is_refused_before_anything_is_created() {
    let wire = MockWire::OpenAi;
    let Some(both) = TwoPrograms::new(wire, "images: true", Vec::new) else {
        return;
    };
    both.write("large.png", &png(1, 3_750_000));
    both.write("empty.png", b"");
    for path in [both.bundle.0.project.path(), both.native.0.path()] {
        std::fs::create_dir(path.join("folder.png")).unwrap();
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(
        "/etc/hostname",
        both.bundle.0.project.path().join("out.png"),
    )
    .unwrap();
    let below = "only files below the granted directory can be read";
    for (file, words, is_native) in [
        ("notes.txt", "it is no png, jpeg, gif or webp image", true),
        ("empty.png", "it is no png, jpeg, gif or webp image", true),
        ("large.png", "is larger than 3750000 bytes", true),
        ("folder.png", "is not a regular file", true),
        ("none.png", "none.png does not exist", false),
        ("none.png", below, false),
        ("../cat.png", below, false),
        ("/etc/hostname", below, false),
        #[cfg(unix)]
        ("out.png", below, false),
    ] {
        let [ours, theirs] = both.run(&["run", "go", "--image", file]);
        assert_eq!(ours.code, Some(2), "{file}: {ours:#?}");
        assert!(ours.err.contains(words), "{file}: {ours:#?}");
        if is_native {
            assert_eq!(ours.err, theirs.err, "{file}");
        }
    }
    let many = ["--image", "cat.png"].repeat(17);
    for end in both.run(&[&["run", "go"][..], &many].concat()) {
        assert_eq!(end.code, Some(2), "{end:#?}");
        assert!(end.err.contains("at most 16 images"), "{end:#?}");
    }
    assert!(!both.bundle.0.project.exists(".ai/threads"));
    assert_eq!(both.bundle.1.requests().len(), 0);
}

/// The bytes of an image are gone from the store: the model is told, and the run goes on.
#[test]
fn an_image_that_is_gone_is_named_to_the_model() {
    let wire = MockWire::OpenAi;
    let answers = || vec![reply(wire, "A cat."), reply(wire, "None.")];
    let Some(both) = TwoPrograms::new(wire, "images: true", answers) else {
        return;
    };
    let (bundle, server) = &both.bundle;
    let run = ["run", "go", "--id", "t", "--image", "cat.png"];
    assert_eq!(bundle.run_granted(ONLINE, &GRANTED, &run).code, Some(0));
    remove_blob(bundle.project.path());
    let resumed = bundle.run_granted(ONLINE, &GRANTED, &["resume", "t", "Again?"]);
    assert_eq!(resumed.code, Some(0), "{resumed:#?}");
    assert!(resumed.err.contains("cannot be read"), "{resumed:#?}");
    let last = server.requests().pop().unwrap();
    assert_eq!(images(wire, &last), []);
    let text = last.body.to_string();
    assert!(text.contains("it cannot be read from the store"), "{text}");
}

/// Removes the record of the one blob.
fn remove_blob(project: &Path) {
    let project = open(project);
    let store = &project.tenant().context().storage;
    let page = store.scan("blob", "", "", 10, false).unwrap();
    let key = page.items[0].key.clone();
    let removed = store.commit(&[CommitOp::Delete { key }], true).unwrap();
    assert_eq!(removed, CommitOutcome::Committed);
}
