//! `read_file`: some lines of a text file, without reading the rest.

use super::arguments::ToolArguments;
use super::grant::{FileReader, GrantedFiles, OpenedPath};
use super::{CONTENT_BYTES_MAX, FileAnswer, StopFlag, printable};
use crate::image_type::{IMAGE_BYTES_MAX, image_type};
use std::io::{self, BufRead, BufReader, Read};

pub(super) const SCHEMA: &str = concat!(
    r#"{"type":"object","properties":{"path":{"type":"string","#,
    r#""description":"The file, relative to the root, such as \"src/main.rs\"."},"#,
    r#""offset":{"type":"integer","minimum":1,"description":"The first line to read; 1 if left "#,
    r#"out."},"limit":{"type":"integer","minimum":1,"maximum":10000,"#,
    r#""description":"Most lines to read; 2000 if left out."}},"required":["path"],"#,
    r#""additionalProperties":false}"#
);

/// Most lines of one result.
const LINES_MAX: u64 = 10_000;

/// Lines of one result if the model gives no number: more than most files have.
const LINES_DEFAULT: u64 = 2_000;

/// Most bytes that are skipped to find a line. Beyond that, a line number is no way to address a
/// file.
pub const SKIPPED_BYTES_MAX: u64 = 128 << 20;

/// Bytes at the start in which a NUL marks a file that is not text.
pub(super) const BINARY_BYTES: usize = 8 << 10;

pub(super) fn run(
    grant: &GrantedFiles,
    arguments: &str,
    stop: &StopFlag,
) -> Result<FileAnswer, String> {
    let arguments = ToolArguments::parse(arguments, &["path", "offset", "limit"])?;
    let path = arguments.required_text("path")?;
    let offset = arguments.number("offset", 1..=u64::from(u32::MAX), 1)?;
    let limit = arguments.number("limit", 1..=LINES_MAX, LINES_DEFAULT)?;
    let (file, details) = match grant.open_path(path)?.0 {
        OpenedPath::File(file, details) => (file, details),
        OpenedPath::Directory(_) => {
            return Err(format!(
                "\"{path}\" is a directory; list_files shows what is in it"
            ));
        }
    };
    let mut reader = BufReader::with_capacity(BINARY_BYTES, FileReader::new(file));
    let unreadable = |error: io::Error| format!("\"{path}\" cannot be read ({})", error.kind());
    let beginning = reader.fill_buf().map_err(unreadable)?;
    if let Some(media) = image_type(beginning) {
        let bytes = read_image(reader, details.bytes).map_err(unreadable)?;
        let Some(bytes) = bytes else {
            return Err(format!(
                "\"{path}\" is an image of {} bytes; models take at most {IMAGE_BYTES_MAX}",
                details.bytes
            ));
        };
        let line = format!("{} is an image ({media}):", printable(path));
        return Ok(FileAnswer::Image(line, bytes));
    }
    if beginning.contains(&0) {
        return Err(format!(
            "\"{path}\" is not text ({} bytes); only text and images can be read",
            details.bytes
        ));
    }
    let Some(before) = skip_lines(&mut reader, offset - 1, stop).map_err(unreadable)? else {
        return Err(format!(
            "line {offset} of \"{path}\" is too far into the file; search_files finds text in it"
        ));
    };
    let chunk = collect_lines(&mut reader, limit).map_err(unreadable)?;
    if chunk.lines == 0 && offset > 1 {
        return Err(format!(
            "\"{path}\" has {before} lines; offset must be at most that"
        ));
    }
    Ok(FileAnswer::Text(format_chunk(chunk, offset, details.bytes)))
}

/// Reads a whole image of so many bytes; `None` if it is larger than models take.
fn read_image(reader: impl Read, bytes: u64) -> io::Result<Option<Vec<u8>>> {
    let most = IMAGE_BYTES_MAX as u64;
    if bytes > most {
        return Ok(None);
    }
    let mut image = Vec::new();
    reader.take(most + 1).read_to_end(&mut image)?;
    // It may have grown meanwhile.
    Ok((image.len() <= IMAGE_BYTES_MAX).then_some(image))
}

/// Skips `lines` lines, or to the end; returns the number of lines skipped, or `None` if it takes
/// too long.
fn skip_lines(reader: &mut impl BufRead, lines: u64, stop: &StopFlag) -> io::Result<Option<u64>> {
    let (mut passed, mut bytes, mut open) = (0, 0, false);
    while passed < lines {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            // A last line without a line end counts as a line.
            return Ok(Some(passed + u64::from(open)));
        }
        if bytes > SKIPPED_BYTES_MAX || stop.is_set() {
            return Ok(None);
        }
        let used = match buffer.iter().position(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None => buffer.len(),
        };
        open = buffer[used - 1] != b'\n';
        passed += u64::from(!open);
        bytes += used as u64;
        reader.consume(used);
    }
    Ok(Some(passed))
}

/// Lines as they are in the file.
struct LineChunk {
    bytes: Vec<u8>,
    lines: u64,
    /// True if the last line is cut.
    torn: bool,
    /// True if the file has more.
    more: bool,
}

fn collect_lines(reader: &mut impl BufRead, limit: u64) -> io::Result<LineChunk> {
    let mut chunk = LineChunk {
        bytes: Vec::new(),
        lines: 0,
        torn: false,
        more: false,
    };
    while chunk.lines < limit {
        let room = CONTENT_BYTES_MAX - chunk.bytes.len();
        let start = chunk.bytes.len();
        let read = reader
            .by_ref()
            .take(room as u64)
            .read_until(b'\n', &mut chunk.bytes)?;
        if read == 0 {
            break;
        }
        let whole = chunk.bytes.ends_with(b"\n") || reader.fill_buf()?.is_empty();
        if !whole && chunk.lines > 0 {
            // The line that does not fit is left for the next call.
            chunk.bytes.truncate(start);
            chunk.more = true;
            return Ok(chunk);
        }
        chunk.lines += 1;
        if !whole {
            chunk.torn = true;
            break;
        }
    }
    chunk.more = !reader.fill_buf()?.is_empty();
    Ok(chunk)
}

/// Returns the lines, with notes about what is missing or changed.
fn format_chunk(chunk: LineChunk, offset: u64, file_bytes: u64) -> String {
    let mut notes = Vec::new();
    let LineChunk {
        bytes,
        mut lines,
        torn,
        more,
    } = chunk;
    if lines == 0 {
        return "[the file is empty]".to_owned();
    }
    let text = String::from_utf8_lossy(&bytes);
    if matches!(text, std::borrow::Cow::Owned(_)) {
        notes.push("bytes that are not UTF-8 are shown as \u{fffd}".to_owned());
    }
    let mut text = text.into_owned();
    let mut cut = false;
    if text.len() > CONTENT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(CONTENT_BYTES_MAX));
        lines = text.matches('\n').count().max(1) as u64;
        text.truncate(text.rfind('\n').map_or(text.len(), |at| at + 1));
        cut = true;
    }
    let last = offset + lines - 1;
    if torn {
        notes.push(format!(
            "line {last} is cut; search_files finds text in the rest of it"
        ));
    }
    if more || cut {
        let next = last + 1;
        notes.push(format!(
            "lines {offset} to {last} of a file of {file_bytes} bytes; go on with offset {next}"
        ));
    }
    for note in notes {
        text.push_str(if text.ends_with('\n') { "[" } else { "\n[" });
        text.push_str(&note);
        text.push(']');
    }
    text
}
