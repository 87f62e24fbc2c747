//! Usage as servers report it, in any place and counting scheme.

use crate::models::Usage;
use crate::models::wire::parse_count;
use serde_json::Value;

/// Parses the usage of a chunk: beside the choices, in one of them, or in a field of the server's
/// own.
pub(super) fn parse_chunk_usage(chunk: &Value) -> Option<Usage> {
    ["/usage", "/choices/0/usage", "/x_groq/usage"]
        .iter()
        .filter_map(|path| chunk.pointer(path))
        .find_map(parse_usage)
}

/// Parses one usage object. `None` if it is unknown: the prompt is missing or counted as zero,
/// which no request has, or a required count cannot be read.
///
/// The total shows the counting scheme: cached input is within the prompt or beside it, reasoning
/// within the completion or beside it. Output that only the total contains (thinking that is not
/// named) counts as output.
fn parse_usage(usage: &Value) -> Option<Usage> {
    let count = |paths: &[&str]| {
        let found = paths.iter().filter_map(|path| usage.pointer(path));
        found
            .filter(|value| !value.is_null())
            .map(parse_count)
            .next()
    };
    let needed = |paths: &[&str]| count(paths).flatten();
    let detail = |paths: &[&str]| needed(paths).unwrap_or(0);
    let prompt = needed(&["/prompt_tokens", "/input_tokens"]).filter(|prompt| *prompt > 0)?;
    let completion = needed(&["/completion_tokens", "/output_tokens"])?;
    let cached = detail(&[
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
        "/input_tokens_details/cached_tokens",
    ]);
    let reasoning = detail(&[
        "/completion_tokens_details/reasoning_tokens",
        "/output_tokens_details/reasoning_tokens",
        "/reasoning_tokens",
    ]);
    let counted = prompt.saturating_add(completion);
    let total = count(&["/total_tokens"]).flatten().unwrap_or(counted);
    let beyond = total.saturating_sub(counted);
    let cached_beside = cached > 0 && beyond == cached && reasoning == 0;
    let output = match beyond {
        0 if reasoning > completion => completion.saturating_add(reasoning),
        0 => completion,
        _ if cached_beside => completion,
        beyond => completion.saturating_add(beyond),
    };
    let read = if cached_beside {
        cached
    } else {
        cached.min(prompt)
    };
    let uncached = if cached_beside { prompt } else { prompt - read };
    let write = detail(&[
        "/prompt_tokens_details/cache_write_tokens",
        "/prompt_tokens_details/cache_creation_tokens",
    ]);
    let write = write.min(uncached);
    Some(Usage {
        input: uncached - write,
        output,
        read,
        write,
        reasoning: reasoning.min(output),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_told_by_its_total() {
        let usage = |input, output, read, reasoning| {
            Some(Usage {
                input,
                output,
                read,
                reasoning,
                write: 0,
            })
        };
        for (text, want) in [
            (
                r#"{"prompt_tokens":12,"completion_tokens":9}"#,
                usage(12, 9, 0, 0),
            ),
            (
                r#"{"prompt_tokens":12,"completion_tokens":9,"total_tokens":21,
                    "completion_tokens_details":{"reasoning_tokens":4}}"#,
                usage(12, 9, 0, 4),
            ),
            (
                r#"{"prompt_tokens":12,"completion_tokens":2,"total_tokens":354,
                    "completion_tokens_details":{"reasoning_tokens":340}}"#,
                usage(12, 342, 0, 340),
            ),
            (
                r#"{"prompt_tokens":12,"completion_tokens":2,
                    "completion_tokens_details":{"reasoning_tokens":340}}"#,
                usage(12, 342, 0, 340),
            ),
            // Thinking that only the total contains.
            (
                r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":115}"#,
                usage(10, 105, 0, 0),
            ),
            // Cached input beside the prompt.
            (
                r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":75,
                    "prompt_tokens_details":{"cached_tokens":60}}"#,
                usage(10, 5, 60, 0),
            ),
            (
                r#"{"prompt_tokens":100,"completion_tokens":5,"cached_tokens":60}"#,
                usage(40, 5, 60, 0),
            ),
            (
                r#"{"prompt_tokens":"100","completion_tokens":5.0}"#,
                usage(100, 5, 0, 0),
            ),
            (r#"{"prompt_tokens":0,"completion_tokens":0}"#, None),
            (r#"{"prompt_tokens":0,"completion_tokens":12}"#, None),
            (r#"{"prompt_tokens":5}"#, None),
            (r#"{"prompt_tokens":5,"completion_tokens":null}"#, None),
            (r#"{"prompt_tokens":5,"completion_tokens":-2}"#, None),
            (r#"{"prompt_tokens":5,"completion_tokens":1.5}"#, None),
            (r#"{}"#, None),
            (r#""many""#, None),
        ] {
            let value: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(parse_usage(&value), want, "{text}");
        }
    }
}
