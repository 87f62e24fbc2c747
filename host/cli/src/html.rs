//! A page about a thread for a browser: its frame, and an entry of a history as a part of it.
//!
//! Whatever stands in a thread may have been written to attack its reader. So text enters the page
//! through [`escape`] alone, and only between tags, never in an attribute, a style or an address;
//! the page has no script, no link and no image; and its policy forbids the browser all of them,
//! and every style but the one whose hash it names.

mod page_style;

use crate::answer::EventView;
use crate::{money, printable};
use serde_json::Value;

/// The one style of the page. Its hash is [`STYLE_HASH`].
pub use page_style::STYLE;

/// The SHA-256 of [`STYLE`], in Base64. A test compares it.
pub const STYLE_HASH: &str = "18lL6ZY58mlQcT+N1lVAUkc27Qkcz2KM1DfXAjtO0CY=";

/// Longest text of one event that the page shows, in bytes: a tool's result may have megabytes, and
/// a phone shows the page. The rest is counted, and stands in the transcript.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Longest gist in the line of a folded part, in characters.
const GIST_CHARS_MAX: usize = 120;

/// Makes a text safe between tags: what a browser would take for markup, and characters that would
/// hide or turn what stands around them.
pub fn escape(text: &str) -> String {
    let shown = printable::text(text);
    let mut safe = String::with_capacity(shown.len());
    for c in shown.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Returns the beginning of the page, up to its body.
pub fn render_head(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'sha256-{STYLE_HASH}'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(title)
    )
}

/// The end of the page.
pub const PAGE_FOOT: &str = "</main>\n</body>\n</html>\n";

/// Returns a table of names and values; an empty value has no row.
pub fn render_facts(rows: &[(&str, String)]) -> String {
    let rows = rows.iter().filter(|(_, value)| !value.is_empty());
    let rows: String = rows
        .map(|(name, value)| {
            format!(
                "<tr><th>{}</th><td>{}</td></tr>\n",
                escape(name),
                escape(value)
            )
        })
        .collect();
    format!("<table class=\"facts\">\n{rows}</table>\n")
}

/// Returns a table with a header; the cells of the columns from `numbers` on are figures.
pub fn render_table(header: &[&str], numbers: usize, rows: &[Vec<String>]) -> String {
    let line = |cells: &[String], tag: &str| {
        let cells: String = cells
            .iter()
            .enumerate()
            .map(|(place, cell)| {
                let class = if place >= numbers {
                    " class=\"number\""
                } else {
                    ""
                };
                format!("<{tag}{class}>{}</{tag}>", escape(cell))
            })
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    let rows: String = rows.iter().map(|row| line(row, "td")).collect();
    format!(
        "<div class=\"wide\"><table>\n{}{rows}</table></div>\n",
        line(&header, "th")
    )
}

/// Returns an event of a history as a part of the page.
pub fn render_event(event: &EventView) -> String {
    let body = &event.body;
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    match event.kind.as_str() {
        "message" | "context_injected" => {
            let role = match text("role") {
                "assistant" => "assistant",
                _ => "user",
            };
            render_said(role, role, &content_text(&body["content"]), event)
        }
        "assistant_text" => render_said("assistant", "assistant", text("text"), event),
        "partial" => render_said("assistant", "assistant (broken off)", text("text"), event),
        "thinking" => render_folded("thinking", text("text"), &[text("text")], event),
        "tool_use" => {
            let arguments = shown_json(&body["arguments"]);
            let gist = format!("{} {}", text("name"), arguments);
            render_folded("call", &gist, &[&arguments], event)
        }
        "tool_result" => {
            let failed = if body["failed"] == true {
                ", failed"
            } else {
                ""
            };
            let gist = format!("{}{failed}: {}", text("name"), text("text"));
            render_folded("result", &gist, &[text("text")], event)
        }
        "result" => render_note(&describe_reply(body), event),
        kind => {
            let gist = crate::answer::event_gist(body);
            render_note(&format!("{kind} {gist}"), event)
        }
    }
}

/// A message, or text beside calls.
fn render_said(class: &str, who: &str, text: &str, event: &EventView) -> String {
    format!(
        "<section class=\"{class}\"><h3>{}{}</h3><div class=\"text\">{}</div></section>\n",
        escape(who),
        time_of(event),
        escape_cut(text)
    )
}

/// A part that is shown when its line is touched.
fn render_folded(kind: &str, gist: &str, texts: &[&str], event: &EventView) -> String {
    let mut line: String = gist.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(GIST_CHARS_MAX) {
        line.truncate(end);
        line.push('…');
    }
    let texts: String = texts
        .iter()
        .map(|text| format!("<pre>{}</pre>", escape_cut(text)))
        .collect();
    format!(
        "<details><summary><b>{kind}</b> {}{}</summary>{texts}</details>\n",
        escape(&line),
        time_of(event)
    )
}

/// A line about the run.
fn render_note(text: &str, event: &EventView) -> String {
    format!(
        "<p class=\"note\">{}{}</p>\n",
        escape(text.trim()),
        time_of(event)
    )
}

/// The place and time of an event. Both are ours.
fn time_of(event: &EventView) -> String {
    format!(
        " <small>{}.{} {}</small>",
        event.version,
        event.index,
        escape(&event.time)
    )
}

/// Describes a reply: model, tokens, cost and duration.
fn describe_reply(body: &Value) -> String {
    let usage = |kind: &str| body["usage"][kind].as_u64().unwrap_or_default();
    let read = usage("input")
        .saturating_add(usage("read"))
        .saturating_add(usage("write"));
    format!(
        "{}: {read} input and {} output tokens, {}, {} ms",
        body["model"].as_str().unwrap_or_default(),
        usage("output"),
        money::format_usd(body["spend"].as_u64().unwrap_or_default()),
        body["duration"].as_u64().unwrap_or_default(),
    )
}

/// The text of a message: its texts, and a word for what is none.
fn content_text(content: &Value) -> String {
    let block = |block: &Value| match block["text"].as_str() {
        Some(text) => text.to_owned(),
        None => format!(
            "[{} {}]",
            block["type"].as_str().unwrap_or("block"),
            block["media"].as_str().unwrap_or_default()
        ),
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(block).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// JSON as a person reads it: escapes that a model wrote are shown as the characters they are.
fn shown_json(value: &Value) -> String {
    match value {
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner) => inner.to_string(),
            Err(_) => text.clone(),
        },
        Value::Null => String::new(),
        value => value.to_string(),
    }
}

/// A text that is escaped, and cut where it is too long.
fn escape_cut(text: &str) -> String {
    match text.len() > TEXT_BYTES_MAX {
        true => {
            let kept = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
            format!("{}… ({} bytes more)", escape(kept), text.len() - kept.len())
        }
        false => escape(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Texts that would be markup, script or an attribute if any of them were not escaped.
    const HOSTILE: [&str; 8] = [
        "<script>alert(1)</script>",
        "</pre></details><img src=x onerror=alert(1)>",
        "\"><svg onload=alert(1)>",
        "' onmouseover='alert(1)",
        "</title></style><script>alert(1)</script>",
        "&lt;b&gt; &amp;",
        "<!-- --><![CDATA[ ]]>",
        "\u{202e}<a href=\"javascript:alert(1)\">x</a>\0\u{1b}[2J",
    ];

    fn event(kind: &str, body: Value) -> EventView {
        EventView {
            version: 1,
            index: 0,
            kind: kind.to_owned(),
            time: "2026-03-10T12:00:00Z".to_owned(),
            body,
        }
    }

    /// The tags of a page, with their attributes.
    fn tags(html: &str) -> Vec<&str> {
        html.split('<')
            .skip(1)
            .map(|rest| rest.split('>').next().unwrap())
            .collect()
    }

    /// The tags that an event is shown with.
    const EVENT_TAGS: [&str; 17] = [
        "section class=\"user\"",
        "section class=\"assistant\"",
        "/section",
        "h3",
        "/h3",
        "div class=\"text\"",
        "/div",
        "details",
        "/details",
        "summary",
        "/summary",
        "b",
        "/b",
        "pre",
        "/pre",
        "p class=\"note\"",
        "/p",
    ];

    /// The tags of tables, and of a place and time.
    const TABLE_TAGS: [&str; 13] = [
        "small",
        "/small",
        "table",
        "table class=\"facts\"",
        "/table",
        "tr",
        "/tr",
        "th",
        "th class=\"number\"",
        "/th",
        "td",
        "td class=\"number\"",
        "/td",
    ];

    fn assert_own_tags(html: &str) {
        for tag in tags(html) {
            let is_own = EVENT_TAGS.contains(&tag) || TABLE_TAGS.contains(&tag);
            assert!(is_own || tag == "div class=\"wide\"", "<{tag}> in\n{html}");
        }
        assert!(!html.contains(['\0', '\u{1b}', '\u{202e}']), "{html:?}");
    }

    /// Every field of every event is hostile: the tags are those of the page itself.
    #[test]
    fn no_text_becomes_markup() {
        for text in HOSTILE {
            let kinds = [
                "message",
                "assistant_text",
                "partial",
                "thinking",
                "tool_use",
            ];
            let others = ["tool_result", "result", "error", "note", "title", text];
            for kind in kinds.into_iter().chain(others) {
                let body = json!({
                    "type": kind, "role": text, "text": text, "name": text, "arguments": text,
                    "content": [{"type": "text", "text": text}, {"type": text, "media": text}],
                    "model": text, "message": text, "title": text, "code": text, "body": text,
                    "finish": text, "usage": text, "note": text, "cause": {"message": text},
                });
                let mut view = event(kind, body);
                view.time = text.to_owned();
                assert_own_tags(&render_event(&view));
            }
            assert_own_tags(&render_facts(&[("name", text.to_owned())]));
            assert_own_tags(&render_table(&[text], 0, &[vec![text.to_owned()]]));
            let head = render_head(text);
            assert_eq!(tags(&head), tags(&render_head("plain")), "{head}");
        }
    }

    #[test]
    fn the_frame_forbids_scripts_and_loads_nothing() {
        let head = render_head("A <title>");
        assert!(head.contains("default-src 'none'"));
        for word in ["unsafe", "http:", "https:", "src=", "href", "script"] {
            assert!(!head.contains(word), "{word}");
        }
        assert!(head.contains("<title>A &lt;title&gt;</title>"));
    }

    #[test]
    fn calls_are_folded_and_long_texts_are_cut() {
        let call = json!({"name": "read_file", "arguments": "{\"path\": \"caf\\u00e9\"}"});
        let html = render_event(&event("tool_use", call));
        assert!(
            html.starts_with("<details><summary><b>call</b> read_file"),
            "{html}"
        );
        assert!(
            html.contains("{&quot;path&quot;:&quot;café&quot;}"),
            "{html}"
        );
        let long = json!({"name": "t", "text": "é".repeat(TEXT_BYTES_MAX)});
        let html = render_event(&event("tool_result", long));
        assert!(html.contains(&format!("… ({TEXT_BYTES_MAX} bytes more)")));
        assert!(html.len() < 2 * TEXT_BYTES_MAX);
    }
}
