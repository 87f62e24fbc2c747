//! Calls of the file tools, which read below the granted directory and see no `.ai`.

use crate::exports::types;
use crate::{images, project};
use threadkeep_adapters::blobs::UnstoredResult;
use threadkeep_adapters::file_tools::{
    FileAnswer, GrantedFiles, StopFlag, bound_result, find_file_tool,
};

/// Runs one call. A failure is a result, which the model reads.
pub fn call(call: types::ToolCall) -> types::ToolOutcome {
    let result = match run(&call.name, &call.arguments) {
        Ok(FileAnswer::Text(text)) => UnstoredResult {
            text: bound_result(text),
            ..UnstoredResult::default()
        },
        Ok(FileAnswer::Image(line, bytes)) => UnstoredResult {
            text: line,
            images: vec![bytes],
            ..UnstoredResult::default()
        },
        Err(problem) => UnstoredResult {
            text: bound_result(format!("{}: {problem}", call.name)),
            failed: true,
            ..UnstoredResult::default()
        },
    };
    let stored = images::store_result(&call.thread, call.images, result);
    types::ToolOutcome {
        version: call.version,
        index: call.index,
        state: "done".to_owned(),
        failed: stored.failed,
        content: stored.content(),
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
