//! Edits of the state that tools return with their results.
//!
//! The edits of an outcome apply as a whole or not at all. A tool has run when its edits are looked
//! at, so its result is recorded in any case: where its edits are not applied, the result says why,
//! and has failed. Calls of a round run side by side: where the edits of two cross, neither is the
//! later one, and both are left out.

use crate::error::{Error, cut};
use crate::history::call_id;
use crate::plan::ThreadChange;
use crate::state::{
    EDITS_BYTES_MAX, EditRefusal, OPERATIONS_MAX, StateDocument, StateEdits, find_crossing,
};

/// Most bytes of the sentence that tells a model why the edits of a call were not applied.
const NOTE_BYTES_MAX: usize = 400;

/// The edits that a tool returned with the result of a call, as it wrote them.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReturnedEdits<'a> {
    /// The call: version and index.
    pub call: (u64, u32),
    /// Name of the tool.
    pub name: &'a str,
    /// Patches, a JSON list.
    pub patches: Option<&'a str>,
    /// Operations, a JSON list.
    pub operations: Option<&'a str>,
}

/// The edits of one outcome, while it is decided which of a round are applied.
struct OutcomeEdits<'a> {
    id: String,
    name: &'a str,
    edits: StateEdits,
    /// The reason why they are left out.
    problem: Option<String>,
}

impl OutcomeEdits<'_> {
    fn is_applied(&self) -> bool {
        self.problem.is_none() && !self.edits.is_empty()
    }

    fn leave_out(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    /// Names the call as a model knows it.
    fn describe_call(&self) -> String {
        format!("{} ({})", self.id, self.name)
    }
}

/// Adds the edits of the outcomes of a round to a change. Returns for each outcome why its edits
/// were left out, if they were. `open` are the ids of the calls that are open.
pub(super) fn add_outcome_edits(
    change: &mut ThreadChange<'_>,
    returned: &[ReturnedEdits<'_>],
    open: &[String],
) -> Result<Vec<Option<String>>, Error> {
    let has_none = |edits: &ReturnedEdits<'_>| edits.patches.or(edits.operations).is_none();
    if returned.iter().all(has_none) {
        return Ok(vec![None; returned.len()]);
    }
    let before = change.state_document()?;
    let mut all: Vec<_> = returned
        .iter()
        .map(|edits| read_edits(*edits, open))
        .collect();
    leave_out_crossing(&before, &mut all);
    while let Some((at, problem)) = find_inapplicable(&before, &all) {
        all[at].leave_out(problem);
    }
    let mut notes = Vec::with_capacity(all.len());
    for outcome in all {
        if outcome.is_applied() {
            change.edits.add(outcome.edits);
        }
        notes.push(outcome.problem.map(|problem| {
            let said = cut(&problem, NOTE_BYTES_MAX);
            format!("[state not changed by this call: {said}]")
        }));
    }
    Ok(notes)
}

fn read_edits<'a>(returned: ReturnedEdits<'a>, open: &[String]) -> OutcomeEdits<'a> {
    let id = call_id(returned.call.0, returned.call.1);
    let (name, patches, operations) = (returned.name, returned.patches, returned.operations);
    let read = StateEdits::parse_lists(patches, operations, &id).and_then(|edits| {
        let mut calls = edits.named_calls();
        match calls.find(|(_, call)| !open.iter().any(|open| open == call)) {
            None => Ok(()),
            Some((place, call)) => Err(EditRefusal {
                place,
                problem: format!("is {call}, which is not an open call of the thread"),
            }),
        }?;
        drop(calls);
        Ok(edits)
    });
    let (edits, problem) = match read {
        Ok(edits) => (edits, None),
        Err(refusal) => (StateEdits::default(), Some(to_sentence(&refusal))),
    };
    OutcomeEdits {
        id,
        name,
        edits,
        problem,
    }
}

fn to_sentence(refusal: &EditRefusal) -> String {
    format!("{} {}", refusal.place, refusal.problem)
}

/// Leaves out the edits of every two calls that cross.
fn leave_out_crossing(before: &StateDocument, all: &mut [OutcomeEdits<'_>]) {
    let mut found = Vec::new();
    for (first, one) in all.iter().enumerate() {
        for (second, two) in all.iter().enumerate().skip(first + 1) {
            if let Some(place) = find_crossing(before, &one.edits, &two.edits) {
                let (one, two) = (one.describe_call(), two.describe_call());
                let problem =
                    format!("{one} and {two} both change {place}, so neither change was applied");
                found.push((first, second, problem));
            }
        }
    }
    for (first, second, problem) in found {
        all[first].leave_out(problem.clone());
        all[second].leave_out(problem);
    }
}

/// Returns the first outcome whose edits do not apply beside those of the others, and why. Edits
/// apply as an entry records them: the patches of all, then the operations of all.
fn find_inapplicable(before: &StateDocument, all: &[OutcomeEdits<'_>]) -> Option<(usize, String)> {
    let mut document = before.clone();
    let (mut bytes, mut operations, mut last) = (0, 0, 0);
    for (at, outcome) in all
        .iter()
        .enumerate()
        .filter(|(_, outcome)| outcome.is_applied())
    {
        bytes += outcome.edits.stored_bytes();
        operations += outcome.edits.operations.len();
        if bytes > EDITS_BYTES_MAX || operations > OPERATIONS_MAX {
            let problem = format!(
                "the calls of one round change a state by at most {EDITS_BYTES_MAX} bytes and \
                 {OPERATIONS_MAX} operations together"
            );
            return Some((at, problem));
        }
        if let Err(refusal) = document.apply_patches(&outcome.edits.patches) {
            return Some((at, to_sentence(&refusal)));
        }
        last = at;
    }
    for (at, outcome) in all
        .iter()
        .enumerate()
        .filter(|(_, outcome)| outcome.is_applied())
    {
        if let Err(refusal) = document.apply_operations(&outcome.edits.operations) {
            return Some((at, to_sentence(&refusal)));
        }
    }
    let any = all.iter().any(OutcomeEdits::is_applied);
    let problem = document.find_unstorable(&document.to_text())?;
    any.then_some((last, format!("it {problem}")))
}
