//! The union of several sets of tools: a project's file tools and those that a host adds.

use super::{ToolEntry, ToolResult, ToolSet};
use crate::models::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The union of several sets of tools. If two sets have a tool of the same name, the earlier set's
/// is offered and called.
pub struct JoinedTools {
    catalog: Vec<ToolEntry>,
    /// The set that each tool belongs to, by the tool's name.
    owners: BTreeMap<String, Arc<dyn ToolSet>>,
}

impl JoinedTools {
    /// Joins sets in this order. Each catalog is read once, here.
    pub fn new(sets: Vec<Arc<dyn ToolSet>>) -> Self {
        let (mut catalog, mut owners) = (Vec::new(), BTreeMap::new());
        for set in sets {
            for entry in set.catalog() {
                if !owners.contains_key(&entry.name) {
                    owners.insert(entry.name.clone(), Arc::clone(&set));
                    catalog.push(entry);
                }
            }
        }
        Self { catalog, owners }
    }
}

impl ToolSet for JoinedTools {
    fn catalog(&self) -> Vec<ToolEntry> {
        self.catalog.clone()
    }

    fn call<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        match self.owners.get(name) {
            Some(owner) => owner.call(name, arguments),
            None => no_such_tool(name),
        }
    }

    fn call_approved<'a>(&'a self, name: &'a str, arguments: &'a str) -> BoxFuture<'a, ToolResult> {
        match self.owners.get(name) {
            Some(owner) => owner.call_approved(name, arguments),
            None => no_such_tool(name),
        }
    }
}

fn no_such_tool(name: &str) -> BoxFuture<'_, ToolResult> {
    Box::pin(async move {
        ToolResult::failure(format!(
            "there is no tool {name}: call one of those offered"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A set of tools that answer with the set's name.
    struct NamedTools(&'static str, &'static [&'static str]);

    impl ToolSet for NamedTools {
        fn catalog(&self) -> Vec<ToolEntry> {
            let entry = |name: &&str| ToolEntry::new(*name, self.0, "{}", Duration::from_secs(1));
            self.1.iter().map(entry).collect()
        }

        fn call<'a>(&'a self, _: &'a str, _: &'a str) -> BoxFuture<'a, ToolResult> {
            Box::pin(async { ToolResult::ok(self.0) })
        }
    }

    #[tokio::test]
    async fn each_tool_is_called_where_it_was_found_first() {
        let joined = JoinedTools::new(vec![
            Arc::new(NamedTools("first", &["a", "b"])),
            Arc::new(NamedTools("second", &["b", "c"])),
        ]);
        let offered: Vec<_> = joined
            .catalog()
            .into_iter()
            .map(|entry| (entry.name, entry.description))
            .collect();
        let expected = [("a", "first"), ("b", "first"), ("c", "second")];
        assert_eq!(offered, expected.map(|(n, d)| (n.to_owned(), d.to_owned())));
        for (name, owner) in expected {
            assert_eq!(joined.call(name, "{}").await, ToolResult::ok(owner));
        }
        assert!(joined.call("d", "{}").await.failed);
    }
}
