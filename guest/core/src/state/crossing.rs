//! Edits of calls that ran side by side and change the same place: neither can be said to be the
//! later one.

use super::document::StateDocument;
use super::edits::StateEdits;
use super::patch::{TouchedPlace, empty_object, touched_places};
use super::pointer::find_value;
use super::scope::StateScope;
use crate::json::JsonValue;

/// A place in a scope that edits touch.
struct ScopedPlace<'a> {
    scope: StateScope,
    call: Option<&'a str>,
    place: TouchedPlace,
    /// True if an operation touches it, and no patch.
    commutes: bool,
}

/// Returns a place at which the edits of two calls cross: patches of both touch it, or one above
/// it, and one at least writes; or a patch writes or reads what an operation of the other changes.
/// `before` is the document that both meet.
pub fn find_crossing(before: &StateDocument, one: &StateEdits, two: &StateEdits) -> Option<String> {
    let places = all_places(before, two);
    all_places(before, one).iter().find_map(|first| {
        let crosses = |second: &&ScopedPlace<'_>| {
            let same_scope = first.scope == second.scope && first.call == second.call;
            let commute = first.commutes && second.commutes;
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
                commutes: false,
            });
        }
    }
    for scoped in &edits.operations {
        if let Ok(path) = scoped.pointer() {
            places.push(ScopedPlace {
                scope: scoped.scope,
                call: scoped.call.as_deref(),
                place: TouchedPlace { path, writes: true },
                commutes: true,
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
