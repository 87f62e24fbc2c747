//! The occasions on which `state.json` is saved, as seed 002 and the settings name them.

/// An occasion, as seed 002 names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveTrigger {
    /// A model call was handed out.
    PreTurn,
    /// A reply was recorded, or the failure of an attempt.
    PostLlm,
    /// Results of tools were recorded.
    PostTools,
    /// The thread is suspended.
    OnSuspend,
    /// The thread is suspended because of an error, or has ended by one.
    OnError,
    /// The thread was cancelled or killed.
    OnCancel,
}

impl SaveTrigger {
    /// Every trigger.
    pub const ALL: [Self; 6] = [
        Self::PreTurn,
        Self::PostLlm,
        Self::PostTools,
        Self::OnSuspend,
        Self::OnError,
        Self::OnCancel,
    ];

    /// Returns its name in the settings.
    pub fn name(self) -> &'static str {
        threadkeep_units::persistence::TRIGGER_NAMES[self as usize]
    }

    /// Returns true if it cannot be disabled.
    pub fn is_always(self) -> bool {
        matches!(self, Self::OnSuspend | Self::OnError | Self::OnCancel)
    }
}

/// A set of triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TriggerSet(u8);

impl TriggerSet {
    /// The set without a trigger.
    pub const EMPTY: Self = Self(0);

    /// Adds a trigger.
    pub fn insert(&mut self, trigger: SaveTrigger) {
        self.0 |= 1 << trigger as u8;
    }

    /// Returns true if the trigger is in the set.
    pub fn contains(self, trigger: SaveTrigger) -> bool {
        self.0 & (1 << trigger as u8) != 0
    }

    /// Returns the triggers of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if a trigger is in both sets.
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the set of these triggers.
    pub fn of(triggers: &[SaveTrigger]) -> Self {
        let mut set = Self::EMPTY;
        triggers.iter().for_each(|trigger| set.insert(*trigger));
        set
    }
}
