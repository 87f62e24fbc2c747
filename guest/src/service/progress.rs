//! Text of a stream that is not whole yet: kept while a step is performed, with the verdict on the
//! step.

use super::{Error, ThreadService};
use crate::ports::{HostPorts, StorageError};
use threadkeep_core::error::Error as CoreError;
use threadkeep_core::json::{
    self, FromJson, JsonError, JsonValue, ObjectReader, ObjectWriter, ToJson,
};
use threadkeep_core::key;
use threadkeep_core::plan::{LoadedThread, StoreWrite, WriteCondition};
use threadkeep_core::runner::{KeptPartial, PARTIAL_BYTES_MAX};
use threadkeep_core::thread::ThreadStatus;
use threadkeep_core::time::UnixTime;

/// The verdict on a step in progress, for its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressVerdict {
    /// Continue the step.
    Continue,
    /// A cancel waits: stop the step and submit `stopped`.
    Stop,
    /// Another holder has the thread.
    Fenced,
}

/// The record of the partial text of a stream.
struct PartialRecord {
    step: u64,
    text: String,
    /// The time of the write: the step was still being performed then.
    time: Option<UnixTime>,
}

impl ToJson for PartialRecord {
    fn write(&self, out: &mut String) {
        ObjectWriter::new(out)
            .add("step", &self.step)
            .add("text", &self.text)
            .add_present("time", &self.time)
            .finish();
    }
}

impl FromJson for PartialRecord {
    fn read(value: JsonValue<'_>, problem: &mut Option<JsonError>) -> Self {
        let mut reader = ObjectReader::begin(value);
        let record = Self {
            step: reader.record_field("step"),
            text: reader.record_field("text"),
            time: reader.record_field("time"),
        };
        // Fields that are there twice or unknown are passed over.
        reader.end(&[], problem);
        record
    }

    fn placeholder() -> Self {
        Self {
            step: 0,
            text: String::new(),
            time: None,
        }
    }
}

impl<P: HostPorts> ThreadService<P> {
    /// Stores the partial text of a stream, and returns the verdict on the step.
    pub fn progress(&self, thread: &str, token: u64, text: &str) -> Result<ProgressVerdict, Error> {
        if threadkeep_core::history::escaped_bytes(text) > PARTIAL_BYTES_MAX {
            return Err(CoreError::invalid(
                "partial",
                "",
                format!("is larger than {PARTIAL_BYTES_MAX} bytes"),
            )
            .into());
        }
        let loaded = self.load(thread)?;
        loaded.check_formats()?;
        let head = &loaded.head.value;
        if head.token != token || head.status != ThreadStatus::Running {
            return Ok(ProgressVerdict::Fenced);
        }
        if let (false, Some(step)) = (text.is_empty(), &head.step) {
            let record = PartialRecord {
                step: step.version,
                text: text.to_owned(),
                time: Some(self.ports.now()),
            };
            let (key, value) = (loaded.key(), json::to_text(&record));
            let check = StoreWrite::Check {
                collection: key::HEAD,
                key: key.clone(),
                expect: WriteCondition::Version(loaded.head.version),
            };
            let put = StoreWrite::Put {
                collection: key::PARTIAL,
                key,
                expect: WriteCondition::Any,
                value,
            };
            // If the head has moved, the text may belong to no step any more. The next progress
            // call comes soon.
            match self.ports.commit(vec![check, put], false) {
                // A full store has no room for the text, and the driver must get the verdict all
                // the same.
                Ok(_) | Err(StorageError::QuotaExceeded(..)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(if head.intent.is_some() {
            ProgressVerdict::Stop
        } else {
            ProgressVerdict::Continue
        })
    }

    /// Reads the partial text of the pending step's stream, if it was stored and can be read.
    pub fn partial(&self, loaded: &LoadedThread) -> Result<KeptPartial, Error> {
        let items = self.get_readable(&[(key::PARTIAL, &loaded.key())])?;
        let Some(item) = items.first() else {
            return Ok(KeptPartial::default());
        };
        let Ok(record) = super::store::parse_record::<PartialRecord>(item) else {
            return Ok(KeptPartial {
                version: item.version,
                ..KeptPartial::default()
            });
        };
        let own = loaded
            .head
            .value
            .step
            .as_ref()
            .is_some_and(|step| step.version == record.step);
        Ok(KeptPartial {
            time: record.time.filter(|_| own),
            text: if own { record.text } else { String::new() },
            version: item.version,
        })
    }
}
