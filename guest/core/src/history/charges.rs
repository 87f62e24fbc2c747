//! Sum of the charges for calls of which nobody knows what they cost.

use super::{Entry, Event};
use crate::money::NanoUsd;

/// Charges for calls of unknown cost, added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnknownCharges {
    /// Number of the calls.
    pub calls: u32,
    /// The amount that is charged.
    pub spend: NanoUsd,
    /// The most that the calls can have cost.
    pub most: NanoUsd,
}

impl UnknownCharges {
    /// Adds the charges that an entry records.
    pub fn add_entry(&mut self, entry: &Entry) {
        for event in &entry.events {
            if let Event::Charged(charged) = event {
                self.calls = self.calls.saturating_add(1);
                self.spend = self.spend.saturating_add(charged.spend);
                self.most = self.most.saturating_add(charged.most);
            }
        }
    }
}
