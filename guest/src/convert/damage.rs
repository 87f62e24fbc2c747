//! Conversions between WIT and core for the interface `maintenance`, and of results that name
//! unreadable records.

use super::thread::{count, lease};
use super::{exported, types};
use crate::ports::RecordDamage;
use crate::service::maintenance::RecoveryPage;
use crate::service::sweep::SweepPage;

pub fn unreadable_to_wit((thread, why): (String, RecordDamage)) -> types::Unreadable {
    let RecordDamage { code, message } = why;
    let why = types::Failure { code, message };
    types::Unreadable { thread, why }
}

pub fn sweep_page_to_wit(swept: SweepPage) -> exported::runner::Swept {
    exported::runner::Swept {
        unreadable: swept
            .unreadable
            .into_iter()
            .map(unreadable_to_wit)
            .collect(),
        cursor: swept.cursor,
    }
}

pub fn statistics(
    (counts, cursor): (Vec<(String, u64)>, Option<String>),
) -> exported::maintenance::Statistics {
    let counts = counts.into_iter();
    let counts = counts.map(|(status, threads)| exported::maintenance::Count {
        status,
        threads: count(threads),
    });
    exported::maintenance::Statistics {
        counts: counts.collect(),
        cursor,
    }
}

pub fn recovery(recovery: RecoveryPage) -> exported::maintenance::Recovery {
    exported::maintenance::Recovery {
        closed: recovery.closed,
        held: recovery.held.iter().filter_map(lease).collect(),
        unreadable: recovery
            .unreadable
            .into_iter()
            .map(unreadable_to_wit)
            .collect(),
        cursor: recovery.cursor,
    }
}
