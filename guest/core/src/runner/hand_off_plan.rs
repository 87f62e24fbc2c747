//! The answer to the question what a hand-off of a thread would carry now. Any host may ask it of
//! any thread. One with a loop of its own hands its threads off itself, by what it is answered.

use super::hand_off_terms::CarryTerms;
use crate::continuation::{ContextUsage, LiveWindow, WindowEntry, WindowNeeds, select_trailing};
use crate::json::{JsonObject, JsonValue};
use crate::plan::LoadedThread;
use crate::settings::PinnedSettings;

/// Returns the part of the live window that [`hand_off_plan`] needs.
pub fn hand_off_plan_needs(loaded: &LoadedThread, pin: &PinnedSettings) -> WindowNeeds {
    WindowNeeds {
        carried: CarryTerms::new(&loaded.head.value, pin).bounds(None).wanted,
        transcript: None,
    }
}

/// Returns the JSON that `continuation.plan` answers: what would be carried without a summary, and
/// what a summary may add.
pub fn hand_off_plan(loaded: &LoadedThread, pin: &PinnedSettings, window: &LiveWindow) -> String {
    let head = &loaded.head.value;
    let terms = CarryTerms::new(head, pin);
    let next = head.version + 1;
    let pending = WindowEntry::pending(&loaded.thread.value.id, next, &[]);
    let mut plan = JsonObject::new();
    let due = ContextUsage::new(head, pin).is_over_trigger();
    plan.insert("due", JsonValue::Bool(due));
    plan.insert("tokens", JsonValue::from(head.context));
    plan.insert("window", JsonValue::from(pin.model.window));
    plan.insert("hand_offs", JsonValue::from(u64::from(head.hand_offs)));
    let summary = pin.continuation().summary.as_ref().map(|summary| {
        let mut fields = JsonObject::new();
        fields.insert("model", JsonValue::from(summary.model.name.clone()));
        fields.insert("tokens", JsonValue::from(terms.summary_tokens));
        JsonValue::Object(fields)
    });
    plan.insert("summary", summary.unwrap_or(JsonValue::Null));
    match select_trailing(window, &pending, terms.bounds(None)) {
        Ok(selection) => {
            plan.insert("possible", JsonValue::Bool(selection.leaves_out));
            plan.insert("carried_tokens", JsonValue::from(selection.size.tokens));
            plan.insert("carried_turns", JsonValue::from(selection.turns));
            // The entry that would close the thread is not written.
            let written = selection.parts.iter().filter(|part| part.from < next);
            let parts = written.map(|part| {
                let mut fields = JsonObject::new();
                fields.insert("thread", JsonValue::from(part.thread.clone()));
                fields.insert("from", JsonValue::from(part.from));
                fields.insert("to", JsonValue::from(part.to.min(head.version)));
                JsonValue::Object(fields)
            });
            plan.insert("parts", JsonValue::Array(parts.collect()));
        }
        Err(refusal) => {
            plan.insert("possible", JsonValue::Bool(false));
            plan.insert("needed_tokens", JsonValue::from(refusal.needed.tokens));
            plan.insert(
                "available_tokens",
                JsonValue::from(refusal.available.tokens),
            );
        }
    }
    JsonValue::Object(plan).to_string()
}
