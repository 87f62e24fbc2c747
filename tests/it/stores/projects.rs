//! Projects that share a process's stores: each opens on first use, and one that cannot be opened
//! affects no other.

use super::FILE;
use crate::component::project::{describe_draft, engine, project_dir};
use std::time::Duration;
use threadkeep::authority::ProjectDir;
use threadkeep::error::CallError;
use threadkeep::policy::{Policy, PolicyPreset};
use threadkeep::project::{OpenProject, ProjectOptions};
use threadkeep::storage::sqlite::{StorePool, StorePoolOptions};
use threadkeep::wit;
use threadkeep_tests::fixture::SCRIPTED_MODELS;

const PROJECTS: usize = 4;
const BROKEN: usize = 2;

#[tokio::test]
async fn few_stores_are_open_for_many_projects_and_a_broken_one_affects_no_other() {
    let stores = StorePool::new(StorePoolOptions {
        open_max: 2,
        idle_after: Duration::MAX,
    });
    let places: [_; PROJECTS] = std::array::from_fn(|_| project_dir(SCRIPTED_MODELS));
    let broken = &places[BROKEN].1;
    broken.create_dir_all(".ai/threads").unwrap();
    let at = format!(".ai/threads/{FILE}");
    broken.write(&at, "no database".repeat(1_000)).unwrap();
    let projects = places.each_ref().map(|(_, dir)| {
        let options = ProjectOptions {
            stores: Some(stores.clone()),
            ..ProjectOptions::new(Policy::preset(PolicyPreset::Local))
        };
        let project = ProjectDir::from_dir(dir.try_clone().unwrap());
        OpenProject::open(engine(), &project, options).unwrap()
    });
    assert_eq!(stores.open_count(), 0, "nobody has asked for anything");
    for round in 1..=3 {
        for (number, project) in projects.iter().enumerate() {
            let created = project.tenant().create(describe_draft()).await;
            let corrupt = matches!(created, Err(CallError::Refused(wit::Error::Corrupt(_))));
            assert_eq!(
                corrupt,
                number == BROKEN,
                "{number}, round {round}: {created:?}"
            );
            assert!(stores.open_count() <= 2);
        }
    }
    broken.remove_file(&at).unwrap();
    let mended = projects[BROKEN].tenant();
    mended.create(describe_draft()).await.expect("it is mended");
    stores.close_idle();
    let listed = projects[0].tenant();
    let page = listed.list(wit::registry::Filter::default(), 10, None);
    assert_eq!(page.await.unwrap().threads.len(), 3);
    drop(projects);
    assert_eq!(
        stores.open_count(),
        0,
        "a project that ends closes its store"
    );
}
