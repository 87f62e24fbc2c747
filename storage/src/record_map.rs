//! Records in memory, by collection and name.

use super::{
    BoundedRecords, PAGE_BYTES_MAX, RecordKey, RecordPage, StorageError, StoredRecord, check_get,
    check_scan,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The records of a store.
#[derive(Debug, Default)]
pub(crate) struct RecordMap {
    collections: BTreeMap<String, BTreeMap<String, KeptRecord>>,
}

/// A record without its name.
#[derive(Debug)]
pub(crate) struct KeptRecord {
    pub version: u64,
    pub value: String,
}

impl RecordMap {
    pub(crate) fn find(&self, collection: &str, name: &str) -> Option<&KeptRecord> {
        self.collections.get(collection)?.get(name)
    }

    /// Replaces or creates a record; returns the one that was there.
    pub(crate) fn replace_record(
        &mut self,
        collection: &str,
        name: &str,
        record: KeptRecord,
    ) -> Option<KeptRecord> {
        if !self.collections.contains_key(collection) {
            self.collections
                .insert(collection.to_owned(), BTreeMap::new());
        }
        let records = self.collections.get_mut(collection)?;
        records.insert(name.to_owned(), record)
    }

    /// Removes a record; returns it.
    pub(crate) fn remove(&mut self, collection: &str, name: &str) -> Option<KeptRecord> {
        self.collections.get_mut(collection)?.remove(name)
    }

    /// Names of the collections that have records, in order.
    pub(crate) fn collection_names(&self) -> Vec<String> {
        let filled = self.collections.iter().filter(|(_, it)| !it.is_empty());
        filled.map(|(name, _)| name.clone()).collect()
    }

    /// All records, in order: collection, name, record.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str, &KeptRecord)> {
        self.collections.iter().flat_map(|(collection, records)| {
            let named = records.iter();
            named.map(move |(name, record)| (collection.as_str(), name.as_str(), record))
        })
    }

    /// Answers [`super::StorageBackend::get`].
    pub(crate) fn get(&self, keys: &[RecordKey]) -> Result<Vec<StoredRecord>, StorageError> {
        check_get(keys)?;
        let mut answer = BoundedRecords::new();
        for key in keys {
            if let Some(record) = self.find(&key.collection, &key.name) {
                answer.push(StoredRecord {
                    key: key.clone(),
                    version: record.version,
                    value: record.value.clone(),
                })?;
            }
        }
        Ok(answer.into_items())
    }

    /// Answers [`super::StorageBackend::scan`].
    pub(crate) fn scan(
        &self,
        collection: &str,
        (start, end): (&str, &str),
        limit: u32,
        reverse: bool,
    ) -> Result<RecordPage, StorageError> {
        check_scan(collection, start, end, limit)?;
        if !end.is_empty() && start >= end {
            return Ok(RecordPage::default());
        }
        let upper = if end.is_empty() {
            Bound::Unbounded
        } else {
            Bound::Excluded(end)
        };
        let Some(records) = self.collections.get(collection) else {
            return Ok(RecordPage::default());
        };
        let range = records.range::<str, _>((Bound::Included(start), upper));
        Ok(if reverse {
            build_page(collection, range.rev(), limit, true)
        } else {
            build_page(collection, range, limit, false)
        })
    }
}

fn build_page<'a>(
    collection: &str,
    range: impl Iterator<Item = (&'a String, &'a KeptRecord)>,
    limit: u32,
    reverse: bool,
) -> RecordPage {
    let mut page = RecordPage::default();
    let mut bytes = 0;
    for (name, record) in range {
        bytes += record.value.len();
        let full = page.items.len() == limit as usize || bytes > PAGE_BYTES_MAX;
        if full && let Some(last) = page.items.last() {
            page.cursor = Some(if reverse {
                last.key.name.clone()
            } else {
                name.clone()
            });
            break;
        }
        let key = RecordKey::new(collection, name);
        page.items.push(StoredRecord {
            key,
            version: record.version,
            value: record.value.clone(),
        });
    }
    page
}
