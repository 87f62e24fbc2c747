//! The harness of the crash tests: the death of a store at every commit of some work, and another
//! process that carries on with what is left.

use crate::auditor::audit;
use crate::faulty::{DeathPoint, FaultyStore};
use std::sync::Arc;
use threadkeep::storage::memory::MemoryStore;

/// Does the work over a store that dies, once at each of its commits and in each way, and once over
/// one that lives. After each, `carry_on` is another process: it gets what the store has, what the
/// work returned, and the death, which is the last line printed before a failure. The auditor finds
/// nothing before it and after it. Returns the number of commits of the whole work.
///
/// The work gets the store that dies, and the one below it for what is there before.
///
/// # Panics
/// If the auditor finds anything.
pub async fn die_at_every_commit<T>(
    work: impl AsyncFn(&Arc<MemoryStore>, Arc<FaultyStore>) -> T,
    carry_on: impl AsyncFn(&Arc<MemoryStore>, T, DeathPoint),
) -> u64 {
    let check = async |death: DeathPoint| {
        println!("death: {death:?}");
        let memory = Arc::new(MemoryStore::new());
        let faulty = Arc::new(FaultyStore::new(Arc::<MemoryStore>::clone(&memory), death));
        let left = work(&memory, Arc::clone(&faulty)).await;
        assert_eq!(audit(&*memory), [""; 0], "after {death:?}");
        carry_on(&memory, left, death).await;
        assert_eq!(audit(&*memory), [""; 0], "{death:?}, once it is carried on");
        faulty.commits()
    };
    let commits = check(DeathPoint::NEVER).await;
    println!("commits of the whole work: {commits}");
    for n in 1..=commits {
        for death in DeathPoint::all_at(n) {
            check(death).await;
        }
    }
    commits
}
