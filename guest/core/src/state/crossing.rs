//! Edits of calls that ran side by side and change the same place: neither can be said to be the
//! later one.

use super::document::StateDocument;
use super::edits::StateEdits;
use super::operation::OperationKind;
use super::patch::{TouchedPlace, empty_object, touched_places};
use super::pointer::find_value;
use super::scope::StateScope;
use crate::json::JsonValue;

/// A place in a scope that edits touch.
struct ScopedPlace<'a> {
    scope: StateScope,
    call: Option<&'a str>,
    place: TouchedPlace,
    /// Kind of the operation that touches it; `None` for a patch.
    operation: Option<OperationKind>,
}

impl ScopedPlace<'_> {
    /// Returns true if it makes no difference which of two operations comes first: they are of one
    /// kind and change the same value. A sum does not commute with a maximum, nor a set that gets
    /// an element with one that loses it, nor an array with what is in it.
    fn commutes_with(&self, other: &Self) -> bool {
        self.operation.is_some()
            && self.operation == other.operation
            && self.place.path == other.place.path
    }
}

/// Returns a place at which the edits of two calls cross: both touch it, or one a place above it,
/// one at least writes, and they do not commute. `before` is the document that both meet.
pub fn find_crossing(before: &StateDocument, one: &StateEdits, two: &StateEdits) -> Option<String> {
    let places = all_places(before, two);
    all_places(before, one).iter().find_map(|first| {
        let crosses = |second: &&ScopedPlace<'_>| {
            let same_scope = first.scope == second.scope && first.call == second.call;
            let commute = first.commutes_with(second);
            let writes = first.place.writes || second.place.writes;
            same_scope && !commute && writes && first.place.path.meets(&second.place.path)
        };
        let second = places.iter().find(crosses)?;
        let deeper = match first.place.path.tokens.len() > second.place.path.tokens.len() {
            true => first,
            false => second,
        };
        let path = deeper.place.path.tokens.join("/");
        Some(format!("/{path} of the scope {}", first.scope.as_str()))
    })
}

fn all_places<'a>(before: &StateDocument, edits: &'a StateEdits) -> Vec<ScopedPlace<'a>> {
    let mut places = Vec::new();
    let nothing = empty_object();
    for scoped in &edits.patches {
        let target = target_of(before, scoped.scope, scoped.call.as_deref());
        for place in touched_places(target.unwrap_or(&nothing), &scoped.patch) {
            places.push(ScopedPlace {
                scope: scoped.scope,
                call: scoped.call.as_deref(),
                place,
                operation: None,
            });
        }
    }
    for scoped in &edits.operations {
        if let Ok(path) = scoped.pointer() {
            places.push(ScopedPlace {
                scope: scoped.scope,
                call: scoped.call.as_deref(),
                place: TouchedPlace { path, writes: true },
                operation: Some(scoped.op),
            });
        }
    }
    places
}

fn target_of<'a>(
    document: &'a StateDocument,
    scope: StateScope,
    call: Option<&str>,
) -> Option<&'a JsonValue<'static>> {
    match scope {
        StateScope::Thread => Some(&document.thread),
        StateScope::Run => Some(&document.run),
        StateScope::ToolCall => find_value(&document.tool_call, &[call?.to_owned()]),
    }
}
