//! Successors of threads, planted through the store as a hand-off will write them.

use threadkeep_component::ports::HostPorts;
use threadkeep_component::service::ThreadService;
use threadkeep_core::history::{CommitReason, Entry, Event, ThreadHandoff};
use threadkeep_core::plan::{
    StoreWrite, WriteCondition, due_write, index_write, is_indexed_as_interrupted,
};
use threadkeep_core::thread::{
    ChainRecord, DUE_NEW, FORMAT, Head, ThreadRecord, ThreadStatus, UsageCounters, genesis_hash,
};
use threadkeep_core::{id, json, key};

/// Plants a successor of a chain's tip, which must hold nothing: the tip is continued, and the
/// successor is created and due.
///
/// # Panics
/// If the tip cannot be loaded, or the store refuses the records.
pub fn plant_link<P: HostPorts>(service: &ThreadService<P>, tip: &str, link: &str) {
    let loaded = service.load(tip).expect("it is there");
    let (old, before) = (loaded.thread.value.clone(), loaded.head.value.clone());
    assert!(
        before.hold.is_none() && before.holder.is_none(),
        "{before:?}"
    );
    let (old_key, link_key) = (loaded.key(), id::key(link));
    let chain = ChainRecord {
        tip: link.to_owned(),
        ..ChainRecord::clone(&loaded.chain.value)
    };
    let root = id::key(chain.tree_root(&old.chain));
    let delete = |collection, key| StoreWrite::Delete { collection, key };
    let delete_index = |name: &str, value: &str| {
        let key = key::index_key(name, value, before.recency, &old_key);
        delete(key::INDEX, key)
    };
    let (position, closing) = closing_entry(&old, &before, link);
    let mut writes = link_records(&loaded.thread.value, &before, link, &closing);
    writes.push(StoreWrite::Append {
        log: key::HISTORY,
        partition: old_key.clone(),
        at: position,
        value: closing.to_text(),
    });
    writes.push(put_record(
        key::CHAIN,
        &loaded.chain_key(),
        json::to_text(&chain),
    ));
    writes.push(delete_index("status", before.status.as_str()));
    writes.push(index_write("status", "continued", before.recency, &old_key));
    if is_indexed_as_interrupted(&before, &loaded.chain.value) {
        writes.push(delete_index(key::INTERRUPTED, &root));
    }
    if let Some(due) = before.due {
        let name = key::join(&[&key::encode_number(due), &old_key]);
        writes.push(delete(key::DUE, name));
    }
    writes.push(due_write(DUE_NEW, &link_key, &root));
    writes.push(index_write("status", "created", before.recency, &link_key));
    writes.push(index_write(key::RECENCY, "", before.recency, &link_key));
    let made = old.created.millis();
    let names = [
        ("chain", Some(loaded.chain_key())),
        ("directive", old.directive.clone()),
        ("agent", old.agent.clone()),
        ("task", old.task.clone()),
    ];
    for (name, value) in names {
        writes.extend(value.map(|value| index_write(name, &value, made, &link_key)));
    }
    let committed = service.ports().commit(writes, false);
    assert!(committed.expect("the store takes it"), "{tip} was changed");
}

fn put_record(collection: &'static str, key: &str, value: String) -> StoreWrite {
    StoreWrite::Put {
        collection,
        key: key.to_owned(),
        expect: WriteCondition::Any,
        value,
    }
}

/// Returns the entry that closes a tip, and its place in the log.
fn closing_entry(old: &ThreadRecord, before: &Head, link: &str) -> (u64, Entry) {
    let version = before.version + 1;
    let handoff = ThreadHandoff {
        new_thread_id: link.to_owned(),
        trailing_turns: 0,
        summary_generated: false,
        summary_tokens: 0,
        summary_problem: None,
    };
    let entry = Entry {
        format: FORMAT,
        version,
        reason: CommitReason::Handoff,
        time: before.updated,
        run: before.run,
        commit: "planted".to_owned(),
        previous: before.hash.clone(),
        answers: None,
        settled: None,
        admitted: None,
        charged: Vec::new(),
        about: None,
        state: None,
        ended: None,
        state_at: 0,
        events: vec![Event::ThreadHandoff(handoff)],
    };
    let position = old.position(version).expect("it is after the base");
    (position, entry)
}

/// Returns the writes of the records thread and head of a tip and of its successor.
fn link_records(old: &ThreadRecord, before: &Head, link: &str, closing: &Entry) -> Vec<StoreWrite> {
    let (old_key, link_key) = (id::key(&old.id), id::key(link));
    let ended = ThreadRecord {
        next: Some(link.to_owned()),
        outcome: Some(ThreadStatus::Continued),
        ..old.clone()
    };
    let next = ThreadRecord {
        id: link.to_owned(),
        previous: Some(old.id.clone()),
        ..old.clone()
    };
    let continued = Head {
        status: ThreadStatus::Continued,
        cause: None,
        due: None,
        carried_spend: None,
        version: closing.version,
        hash: Entry::hash_of(&closing.to_text()),
        ..before.clone()
    };
    let head = Head {
        format: FORMAT,
        status: ThreadStatus::Created,
        cause: None,
        due: Some(DUE_NEW),
        charged: Vec::new(),
        carried_spend: Some(before.spend_under_cap()),
        // The run of a link that was handed off goes on.
        counters: UsageCounters {
            run_turns: before.counters.run_turns,
            run_tokens: before.counters.run_tokens,
            run_duration: before.counters.run_duration,
            ..UsageCounters::default()
        },
        context: 0,
        prefix: String::new(),
        asked: false,
        asked_version: None,
        version: 0,
        hash: genesis_hash(link, &old.chain, None),
        ..before.clone()
    };
    vec![
        put_record(key::THREAD, &old_key, json::to_text(&ended)),
        put_record(key::HEAD, &old_key, json::to_text(&continued)),
        put_record(key::THREAD, &link_key, json::to_text(&next)),
        put_record(key::HEAD, &link_key, json::to_text(&head)),
    ]
}
