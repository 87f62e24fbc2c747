//! Calls of the file tools, which read below the granted directory and see no `.ai`.

use crate::exports::types;
use crate::project;
use threadkeep_adapters::file_tools::{
    FileAnswer, GrantedFiles, StopFlag, bound_result, find_file_tool,
};

/// Runs one call. A failure is a result, which the model reads.
pub fn call(call: types::ToolCall) -> types::ToolOutcome {
    let answer = run(&call.name, &call.arguments);
    let (failed, text) = match answer {
        Ok(FileAnswer::Text(text)) => (false, text),
        Ok(FileAnswer::Image(line, _)) => (false, format!("{line}\n[this host shows no images]")),
        Err(problem) => (true, format!("{}: {problem}", call.name)),
    };
    let text = bound_result(text);
    types::ToolOutcome {
        version: call.version,
        index: call.index,
        state: "done".to_owned(),
        failed,
        content: serde_json::json!([{"type": "text", "text": text}]).to_string(),
        patches: String::new(),
        operations: String::new(),
        cost: 0,
    }
}

fn run(name: &str, arguments: &str) -> Result<FileAnswer, String> {
    let tool = find_file_tool(name)?;
    let root = project::root_tree().ok_or_else(project::describe_missing_directory)?;
    let grant = GrantedFiles::new(Box::new(root));
    tool.run(&grant, arguments, &StopFlag::default())
}
