//! Tools outside the component: the trait behind a driver's `call-tools` step, and the tools that a
//! tenant is granted.
//!
//! The library hands the catalog (name, description, schema, idempotent, consent, time) to the
//! guest, which decides which tools a thread may call. The host itself refuses tools that the
//! tenant was not granted.

pub mod files;
mod joined;

pub use crate::file_tools::RESULT_BYTES_MAX;
pub use joined::JoinedTools;

pub(crate) use crate::file_tools::bound_result;
use crate::models::BoxFuture;
pub use threadkeep_adapters::ToolEntry;

/// Most bytes of the patches and operations of one result: twice what the component applies, so
/// that the model is told by it what is too much.
pub const EDITS_BYTES_MAX: usize = 128 << 10;

/// Most nano-USD that one call may report as its cost, as `wit/types.wit` bounds it. A report above
/// it is cut.
pub const TOOL_COST_NANOS_MAX: u64 = 1_000_000_000_000_000;

/// The result of a tool call. A failure of the tool is a result too: the model reads it and
/// continues. It is built by [`ToolResult::ok`] or [`ToolResult::failure`] and what is added to
/// that, and may have more parts later.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolResult {
    /// The text that the model is shown.
    pub content: String,
    /// True if the tool failed.
    pub failed: bool,
    /// Nano-USD that the call itself cost.
    pub cost_nanos: u64,
    /// Patches of the thread's state: a JSON list, or empty.
    pub patches: String,
    /// Operations on the thread's state: a JSON list, or empty.
    pub operations: String,
    /// True if the call did not run and a person has to decide about it: see
    /// [`ToolResult::needs_consent`].
    pub needs_consent: bool,
    /// Images that the model is shown, if it takes any: png, jpeg, gif or webp, recognized by their
    /// bytes. The driver stores them as blobs ([`crate::blobs`]).
    pub images: Vec<Vec<u8>>,
    /// The whole text where `content` is cut.
    pub(crate) whole: Option<String>,
}

impl ToolResult {
    /// Makes a successful result.
    pub fn ok(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            failed: false,
            cost_nanos: 0,
            patches: String::new(),
            operations: String::new(),
            needs_consent: false,
            images: Vec::new(),
            whole: None,
        }
    }

    /// Makes the result of a call that did not run, because a person has to decide about it first;
    /// `why` is shown to that person. The call is handed out again once it is approved:
    /// [`ToolSet::call_approved`].
    pub fn needs_consent(why: impl Into<String>) -> Self {
        Self {
            needs_consent: true,
            ..Self::ok(why)
        }
    }

    /// Makes a failed result: a sentence that tells the model what to do.
    pub fn failure(content: impl Into<String>) -> Self {
        Self {
            failed: true,
            ..Self::ok(content)
        }
    }

    /// Adds an image that the model is shown.
    #[must_use]
    pub fn with_image(mut self, bytes: Vec<u8>) -> Self {
        self.images.push(bytes);
        self
    }

    /// Adds the cost of the call itself, in nano-USD, at most [`TOOL_COST_NANOS_MAX`]. The commit
    /// that records the result settles it on the thread's account, and it counts against the
    /// operator's ceiling on spend. No money is set aside before the call, so a cap on spend ends
    /// the run only afterwards.
    #[must_use]
    pub fn with_cost(mut self, nanos: u64) -> Self {
        self.cost_nanos = nanos;
        self
    }

    /// Adds patches of the thread's state: a JSON list of `{"scope", "patch"}`, as
    /// `wit/history.wit` defines them. With the operations they take effect as a whole or not at
    /// all; where they do not apply, the model is told so with the result.
    #[must_use]
    pub fn with_patches(mut self, patches: impl Into<String>) -> Self {
        self.patches = patches.into();
        self
    }

    /// Adds operations on the thread's state: a JSON list of `{"scope", "op", "path", "value"}`.
    #[must_use]
    pub fn with_operations(mut self, operations: impl Into<String>) -> Self {
        self.operations = operations.into();
        self
    }
}

/// Bounds the changes of a state that a result has to [`EDITS_BYTES_MAX`]: larger ones are left
/// out, and the model is told.
pub(crate) fn bound_edits(mut result: ToolResult) -> ToolResult {
    let bytes = result.patches.len().saturating_add(result.operations.len());
    if bytes > EDITS_BYTES_MAX {
        (result.patches, result.operations) = (String::new(), String::new());
        result.failed = true;
        result.content.push_str(&format!(
            "\n[state not changed by this call: {bytes} bytes of patches and operations, the most \
             is {EDITS_BYTES_MAX}]"
        ));
    }
    result
}

/// One call of a tool, as it is handed to a set of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolRequest<'a> {
    /// Name of the tool.
    pub name: &'a str,
    /// JSON text that parsed as an object.
    pub arguments: &'a str,
    /// True if a person has approved the call.
    pub approved: bool,
}

/// A set of tools. Dropping the future abandons the call.
pub trait ToolSet: Send + Sync {
    /// Returns every tool of this set, in a fixed order.
    fn catalog(&self) -> Vec<ToolEntry>;

    /// Runs one call. `arguments` is JSON text that parsed as an object. An unknown name is a
    /// failed result.
    fn call<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult>;

    /// Runs one call that a person has approved. A set whose tools never ask by themselves leaves
    /// it as it is.
    fn call_approved<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        self.call(name, arguments)
    }
}
