//! Conversions between WIT and core of results that name unreadable records.

use super::{exported, lease, types};
use crate::service::maintenance::RecoveryPage;
use crate::service::sweep::SweepPage;

pub fn unreadable((thread, message): (String, String)) -> types::Unreadable {
    let why = types::Failure {
        code: "contradiction".to_owned(),
        message,
    };
    types::Unreadable { thread, why }
}

pub fn sweep_page_to_wit(swept: SweepPage) -> exported::runner::Swept {
    exported::runner::Swept {
        unreadable: swept.unreadable.into_iter().map(unreadable).collect(),
        cursor: swept.cursor,
    }
}

pub fn recovery(recovery: RecoveryPage) -> exported::maintenance::Recovery {
    exported::maintenance::Recovery {
        closed: recovery.closed,
        held: recovery.held.iter().filter_map(lease).collect(),
        unreadable: recovery.unreadable.into_iter().map(unreadable).collect(),
        cursor: recovery.cursor,
    }
}
