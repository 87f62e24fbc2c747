//! The occasions on which `state.json` is saved, by what a host knows of a commit.

use super::save_trigger::{SaveTrigger, TriggerSet};

/// A commit, as an occasion to save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveOccasion {
    /// The run goes on.
    Step(TriggerSet),
    /// The run has stopped or ended: only its status tells what triggers the save.
    Stop,
}

impl SaveOccasion {
    /// Returns the occasion of a commit for this reason that handed out a step of this kind.
    /// Without the reason, a step that hands out a model call may have any of the triggers of a run
    /// that goes on.
    pub fn of_commit(reason: Option<&str>, step: Option<&str>) -> Self {
        use SaveTrigger::{PostLlm, PostTools, PreTurn};
        let reason = match reason {
            Some("tool-results") => &[PostTools][..],
            Some("assistant-turn" | "error") => &[PostLlm],
            Some(_) => &[],
            None => &[PostLlm, PostTools],
        };
        let reason = TriggerSet::of(reason);
        Self::Step(match step {
            Some("call-llm") => reason.union(TriggerSet::of(&[PreTurn])),
            Some("call-tools") => TriggerSet::of(&[PostLlm]),
            Some("wait") => reason,
            _ => return Self::Stop,
        })
    }
}

/// Returns the triggers of the save of a thread whose run has stopped or ended with this status,
/// for the reason of this cause.
pub fn triggers_of_stop(status: &str, cause: Option<&str>) -> TriggerSet {
    let triggers: &[SaveTrigger] = match (status, cause) {
        ("suspended", Some("error")) => &[SaveTrigger::OnSuspend, SaveTrigger::OnError],
        ("suspended", _) => &[SaveTrigger::OnSuspend],
        ("error", _) => &[SaveTrigger::OnError],
        ("cancelled" | "killed", _) => &[SaveTrigger::OnCancel],
        _ => &[],
    };
    TriggerSet::of(triggers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_have_the_triggers_that_seed_002_names() {
        use SaveTrigger::{PostLlm, PostTools, PreTurn};
        type TriggerCase<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a [SaveTrigger]>);
        let cases: [TriggerCase<'_>; 10] = [
            (Some("call-llm"), Some("user-message"), Some(&[PreTurn])),
            (
                Some("call-llm"),
                Some("tool-results"),
                Some(&[PreTurn, PostTools]),
            ),
            (
                Some("call-llm"),
                Some("assistant-turn"),
                Some(&[PreTurn, PostLlm]),
            ),
            (Some("call-llm"), None, Some(&[PreTurn, PostLlm, PostTools])),
            (Some("call-tools"), Some("assistant-turn"), Some(&[PostLlm])),
            (Some("call-tools"), None, Some(&[PostLlm])),
            (Some("wait"), Some("error"), Some(&[PostLlm])),
            (Some("wait"), Some("attempt"), Some(&[])),
            (Some("finished"), Some("run-finished"), None),
            (None, None, None),
        ];
        for (step, reason, expected) in cases {
            let expected = match expected {
                Some(triggers) => SaveOccasion::Step(TriggerSet::of(triggers)),
                None => SaveOccasion::Stop,
            };
            let occasion = SaveOccasion::of_commit(reason, step);
            assert_eq!(occasion, expected, "{step:?} {reason:?}");
        }
    }
}
