//! Documents that were torn, cut, edited, removed or exchanged: the state that `check` reports, and
//! the action that repairs them.

use super::fixture::{DocumentsFixture, all};
use RepairAction::{GoesOn, Rebuilds, Repair};
use ReportedState::{Missing, Other, Stale};
use cap_std::fs::Dir;
use threadkeep::documents::{Document, DocumentState, DocumentStates};

/// State that `check` reports for a damaged document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportedState {
    Stale,
    Other,
    Missing,
}

/// Action that repairs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RepairAction {
    /// The next refresh continues where the file is whole.
    GoesOn,
    /// The next refresh rebuilds it.
    Rebuilds,
    /// Only a repair finds it: the file's end is correct.
    Repair,
}

type DamageAction = fn(&Dir, &str);

fn edit(dir: &Dir, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = dir.read(name).unwrap();
    change(&mut bytes);
    dir.write(name, bytes).unwrap();
}

fn in_the_middle(bytes: &mut [u8]) -> &mut u8 {
    let middle = bytes.len() / 2;
    &mut bytes[middle]
}

const BOTH: [Document; 2] = [Document::Jsonl, Document::Markdown];
const JSONL: [Document; 1] = [Document::Jsonl];

const CASES: [(&str, &[Document], ReportedState, RepairAction, DamageAction); 15] = [
    ("removed", &BOTH, Missing, GoesOn, |dir, name| {
        dir.remove_file(name).unwrap()
    }),
    ("torn end", &BOTH, Stale, GoesOn, |dir, name| {
        edit(dir, name, |b| {
            b.pop();
            b.pop();
        })
    }),
    ("cut in half", &BOTH, Stale, GoesOn, |dir, name| {
        edit(dir, name, |b| b.truncate(b.len() / 2))
    }),
    ("zeros at the end", &BOTH, Other, GoesOn, |dir, name| {
        edit(dir, name, |b| b.extend([0; 4096]))
    }),
    ("text at the end", &BOTH, Other, GoesOn, |dir, name| {
        edit(dir, name, |b| b.extend(b"{\"event\":[1,"))
    }),
    ("empty", &BOTH, Other, Rebuilds, |dir, name| {
        dir.write(name, "").unwrap()
    }),
    ("torn head", &BOTH, Other, Rebuilds, |dir, name| {
        edit(dir, name, |b| b.truncate(5))
    }),
    ("edited middle", &BOTH, Other, Repair, |dir, name| {
        edit(dir, name, |b| *in_the_middle(b) ^= 1)
    }),
    ("edited end", &BOTH, Other, Rebuilds, |dir, name| {
        edit(dir, name, |b| {
            let at = b.len() - 60;
            b[at] ^= 1;
        })
    }),
    ("not text", &BOTH, Other, Rebuilds, |dir, name| {
        dir.write(name, [0xff; 300_000]).unwrap()
    }),
    ("long lines", &BOTH, Other, Rebuilds, |dir, name| {
        edit(dir, name, |b| {
            b.extend(vec![b'x'; 5 << 20]);
        })
    }),
    ("a line of another", &JSONL, Other, Rebuilds, |dir, name| {
        edit(dir, name, |b| {
            b.extend(b"{\"event\":[1,0]}\n");
        })
    }),
    (
        "a line of the future",
        &JSONL,
        Other,
        Rebuilds,
        |dir, name| {
            edit(dir, name, |b| {
                b.extend(b"{\"event\":[18446744073709551615,4294967295]}\n");
            })
        },
    ),
    ("a foreign line", &JSONL, Other, Rebuilds, |dir, name| {
        edit(dir, name, |b| b.extend(b"hello\n"))
    }),
    ("edited manifest", &JSONL, Other, GoesOn, |dir, name| {
        edit(dir, name, |b| b[13] ^= 1)
    }),
];

fn state(states: DocumentStates, document: Document) -> DocumentState {
    match document {
        Document::Thread => states.thread,
        Document::Jsonl => states.jsonl,
        Document::Markdown => states.markdown,
    }
}

fn reported_state(state: DocumentState) -> Option<ReportedState> {
    match state {
        DocumentState::Current => None,
        DocumentState::Stale(_) => Some(Stale),
        DocumentState::Other => Some(Other),
        DocumentState::Missing => Some(Missing),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_named_and_put_right() {
    let world = DocumentsFixture::new();
    let thread = world.chat("chat").await;
    world.say(&thread, "one").await;
    world.say(&thread, "two").await;
    world.documents.refresh(&thread).await.unwrap();
    world.assert_current(&thread).await;
    for (what, documents, expected, cure, damage) in CASES {
        for &document in documents {
            damage(&world.thread_dir(&thread), document.file_name());
            let found = world.documents.check(&thread).await.unwrap();
            let found = reported_state(state(found, document));
            assert_eq!(found, Some(expected), "{what}: {document:?}");
            let refreshed = world.documents.refresh(&thread).await.unwrap();
            let rebuilt = refreshed.rebuilt.contains(&document);
            assert_eq!(rebuilt, cure == Rebuilds, "{what}: {document:?}");
            if cure == Repair {
                let found = world.documents.check(&thread).await.unwrap();
                assert_eq!(
                    reported_state(state(found, document)),
                    Some(expected),
                    "{what}"
                );
                world.documents.repair(&thread).await.unwrap();
            }
            world.assert_current(&thread).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn thread_json_that_differs_is_named_and_replaced() {
    let world = DocumentsFixture::new();
    let thread = world.chat("chat").await;
    world.say(&thread, "one").await;
    world.documents.refresh(&thread).await.unwrap();
    let name = Document::Thread.file_name();
    let damages: [(ReportedState, DamageAction); 5] = [
        (Missing, |dir, name| dir.remove_file(name).unwrap()),
        (Other, |dir, name| dir.write(name, "").unwrap()),
        (Other, |dir, name| {
            edit(dir, name, |b| b.truncate(b.len() / 2))
        }),
        (Other, |dir, name| edit(dir, name, |b| b.push(b' '))),
        (Other, |dir, name| {
            dir.write(name, vec![b' '; 9 << 20]).unwrap()
        }),
    ];
    for (n, (expected, damage)) in damages.into_iter().enumerate() {
        damage(&world.thread_dir(&thread), name);
        let found = world.documents.check(&thread).await.unwrap();
        assert_eq!(reported_state(found.thread), Some(expected), "{n}");
        world.documents.refresh(&thread).await.unwrap();
        world.assert_current(&thread).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_another_thread_are_rebuilt() {
    let world = DocumentsFixture::new();
    let (one, two) = (world.chat("one").await, world.chat("two").await);
    for thread in [&one, &two] {
        world.say(thread, "hello").await;
        world.documents.refresh(thread).await.unwrap();
    }
    let (from, to) = (world.thread_dir(&one), world.thread_dir(&two));
    for document in super::ALL {
        from.copy(document.file_name(), &to, document.file_name())
            .unwrap();
    }
    let found = world.documents.check(&two).await.unwrap();
    assert_eq!(found, all(DocumentState::Other));
    let refreshed = world.documents.refresh(&two).await.unwrap();
    assert_eq!(refreshed.rebuilt, BOTH);
    world.assert_current(&two).await;
    world.assert_current(&one).await;
}

/// The range of a Markdown file from a forged end of an entry, which stands in a tool's result, to
/// the entry's true end.
fn forged_range(whole: &[u8]) -> std::ops::Range<usize> {
    let find = |from: usize, text: &str| {
        let found = whole[from..].windows(text.len());
        let at = found.into_iter().position(|part| part == text.as_bytes());
        from + at.unwrap() + text.len()
    };
    let start = find(0, "\n<!-- version 2, 7 bytes -->\n\n");
    start..find(find(start, "\n<!-- version "), " -->\n\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn refresh_continues_a_file_cut_anywhere() {
    let world = DocumentsFixture::new();
    let thread = world.chat("chat").await;
    world.say(&thread, "one").await;
    let version = world.documents.refresh(&thread).await.unwrap().version;
    for (document, head) in [
        (Document::Jsonl, 1_024),
        (Document::Markdown, "# chat\n\n".len()),
    ] {
        let whole = world.read(&thread, document);
        let mut reached = 0;
        for length in (head..whole.len()).step_by(31) {
            let place = world.thread_dir(&thread);
            place.write(document.file_name(), &whole[..length]).unwrap();
            let found = world.documents.check(&thread).await.unwrap();
            match state(found, document) {
                DocumentState::Stale(v) if (reached..version).contains(&v) => reached = v,
                other => panic!("{document:?} cut to {length}: {other:?} after {reached}"),
            }
            let refreshed = world.documents.refresh(&thread).await.unwrap();
            let doubtful = document == Document::Markdown && forged_range(&whole).contains(&length);
            let rebuilt = refreshed.rebuilt == [document];
            assert_eq!(rebuilt, doubtful, "{document:?} cut to {length}");
            let found = world.read(&thread, document);
            assert!(found == whole, "{document:?} cut to {length}");
        }
        assert_eq!(reached, version - 1, "{document:?}");
    }
}
