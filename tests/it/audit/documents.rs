//! Documents beside their records.

use crate::component::project::{describe_draft, open, project_dir};
use threadkeep::audit::StoreInvariant;
use threadkeep::documents::ThreadDocuments;
use threadkeep::driver::{EventSink, StopReceiver};
use threadkeep_tests::fixture::SCRIPTED_MODELS;

const SCRIPT: &str = r#"[{"text": "It holds a note."}]"#;

#[tokio::test]
async fn a_document_is_current_or_older_and_never_other() {
    let (kept, dir) = project_dir(SCRIPTED_MODELS);
    dir.write(".ai/script.json", SCRIPT).unwrap();
    let project = open(dir, None, &[]);
    let thread = project.tenant().create(describe_draft()).await.unwrap().id;
    let threads = project.threads().unwrap().try_clone().unwrap();
    let documents = ThreadDocuments::new(project.tenant().clone(), threads);
    let clean = || async { project.audit().await.unwrap().findings.is_empty() };
    assert!(clean().await, "missing is older");
    documents.refresh(&thread).await.unwrap();
    let ended = project
        .driver()
        .run(&thread, None, &EventSink::none(), &StopReceiver::never())
        .await
        .unwrap();
    assert_eq!(ended.status, "completed");
    assert!(clean().await, "stale is older");
    documents.refresh(&thread).await.unwrap();
    assert!(clean().await, "current");
    let place = kept.path().join(".ai/threads").join(&thread);
    for name in ["thread.json", "transcript.jsonl", "transcript.md"] {
        let file = place.join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replace('e', "E")).unwrap();
        let found = project.audit().await.unwrap().findings;
        let [finding] = &found[..] else {
            panic!("{name}: {found:#?}");
        };
        assert_eq!(
            (&finding.thread, finding.invariant),
            (&thread, StoreInvariant::Documents)
        );
        assert!(finding.found.contains(name), "{finding}");
        documents.repair(&thread).await.unwrap();
        assert!(clean().await, "{name}");
    }
    #[cfg(unix)]
    {
        std::fs::remove_file(place.join("thread.json")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", place.join("thread.json")).unwrap();
        let found = project.audit().await.unwrap().findings;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].invariant, StoreInvariant::Documents);
    }
}
