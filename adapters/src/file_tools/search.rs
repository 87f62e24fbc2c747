//! `search_files`: lines that contain a text or match a regular expression.

use super::arguments::ToolArguments;
use super::grant::{self, FileReader, GrantedFiles, LinkRule, OpenedPath, SeenKind};
use super::read::BINARY_BYTES;
use super::work::CallWork;
use super::{CONTENT_BYTES_MAX, StopFlag};
use regex_lite::{Regex, RegexBuilder};
use std::io::Read;
use std::ops::Range;
use threadkeep_storage::directory::{DirectoryTree, TreeFile};

pub const SCHEMA: &str = concat!(
    r#"{"type":"object","properties":{"pattern":{"type":"string","#,
    r#""description":"The text to find, upper and lower case as written; or a regular "#,
    r#"expression."},"regex":{"type":"boolean","description":"True if the pattern is a regular "#,
    r#"expression; false if left out."},"path":{"type":"string","#,
    r#""description":"A file or a directory, relative to the root; everything if left out."},"#,
    r#""max":{"type":"integer","minimum":1,"maximum":200,"description":"Most lines to find; 50 "#,
    r#"if left out."}},"required":["pattern"],"additionalProperties":false}"#
);

/// Most lines of one result, and their number if the model gives none.
const HITS_MAX: u64 = 200;
const HITS_DEFAULT: u64 = 50;

/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1_024;

/// Most memory of a compiled expression. Nested repetitions reach it; what people write does not.
/// Nothing can stop a match in progress, and its time grows with the bytes of the text times the
/// size of the expression.
const REGEX_BYTES_MAX: usize = 64 << 10;

/// Longest piece of a line that is matched against an expression at once, and the overlap of
/// pieces. In a line longer than a piece, a match that is longer than the overlap may be missed.
const PIECE_BYTES_MAX: usize = 64 << 10;
const PIECE_BYTES_OVERLAP: usize = 4 << 10;

/// Largest file that is searched; larger ones are counted in the result.
pub const SEARCHED_FILE_BYTES_MAX: u64 = 16 << 20;

/// Most bytes that one call reads, in all files together: some seconds of work.
pub const SEARCHED_BYTES_MAX: u64 = 128 << 20;

/// Deepest directory that is searched.
pub const SEARCHED_LEVELS_MAX: usize = 32;

/// Most bytes of a line that are shown, around the match.
const LINE_BYTES_MAX: usize = 300;

pub(super) fn run(
    grant: &GrantedFiles,
    arguments: &str,
    stop: &StopFlag,
) -> Result<String, String> {
    let arguments = ToolArguments::parse(arguments, &["pattern", "regex", "path", "max"])?;
    let pattern = SearchPattern::new(
        arguments.required_text("pattern")?,
        arguments.flag("regex")?,
    )?;
    let path = arguments.text("path")?.unwrap_or_default();
    let max = arguments.number("max", 1..=HITS_MAX, HITS_DEFAULT)?;
    let mut search = FileSearch::new(grant, stop, pattern, max);
    let (place, resolved) = grant.open_path(path)?;
    match place {
        OpenedPath::Directory(dir) => search.search_directory(&*dir, &resolved, 0)?,
        OpenedPath::File(file, _) => search.search_file(file, &resolved),
    }
    Ok(search.finish())
}

/// The pattern of a search.
enum SearchPattern {
    Text(String),
    Regex(Regex),
}

impl SearchPattern {
    fn new(pattern: &str, regex: bool) -> Result<Self, String> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "the pattern is longer than {PATTERN_BYTES_MAX} bytes; search for less"
            ));
        }
        if pattern.contains('\n') {
            return Err(
                "the pattern has a line end in it; search for one line at a time".to_owned(),
            );
        }
        if !regex {
            return Ok(Self::Text(pattern.to_owned()));
        }
        let compiled = RegexBuilder::new(pattern)
            .size_limit(REGEX_BYTES_MAX)
            .build();
        compiled.map(Self::Regex).map_err(|error| {
            let error: String = error.to_string().chars().take(200).collect();
            format!(
                "the pattern is not a regular expression ({error}); mend it, or leave regex away \
                 to find it as text"
            )
        })
    }

    /// Returns the first match in a line; `None` also if the call is to stop.
    fn find(&self, line: &str, stop: &StopFlag) -> Option<Range<usize>> {
        match self {
            Self::Text(text) => line.find(text.as_str()).map(|at| at..at + text.len()),
            Self::Regex(regex) => {
                let mut pieces = line_pieces(line).take_while(|_| !stop.is_set());
                pieces.find_map(|piece| {
                    let found = regex.find(&line[piece.clone()])?;
                    Some(piece.start + found.start()..piece.start + found.end())
                })
            }
        }
    }
}

/// Returns the pieces of a line: the whole line, if it is no longer than one piece.
fn line_pieces(line: &str) -> impl Iterator<Item = Range<usize>> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let end = line.floor_char_boundary(start + PIECE_BYTES_MAX);
        next = (end < line.len()).then(|| line.floor_char_boundary(end - PIECE_BYTES_OVERLAP));
        Some(start..end)
    })
}

struct FileSearch<'a> {
    grant: &'a GrantedFiles,
    stop: &'a StopFlag,
    work: CallWork<'a>,
    pattern: SearchPattern,
    max: u64,
    text: String,
    hits: u64,
    read: u64,
    /// The bound that was reached, in words; more may be found beyond it.
    cut: Option<&'static str>,
    too_large: usize,
    hard_links: usize,
    unreadable: usize,
}

impl<'a> FileSearch<'a> {
    fn new(grant: &'a GrantedFiles, stop: &'a StopFlag, pattern: SearchPattern, max: u64) -> Self {
        Self {
            grant,
            stop,
            work: CallWork::new(stop, grant.looked_max),
            pattern,
            max,
            text: String::new(),
            hits: 0,
            read: 0,
            cut: None,
            too_large: 0,
            hard_links: 0,
            unreadable: 0,
        }
    }

    /// Searches a directory. Recurses at most [`SEARCHED_LEVELS_MAX`] times. Links are not
    /// followed, so nothing is searched twice.
    fn search_directory(
        &mut self,
        dir: &dyn DirectoryTree,
        path: &str,
        depth: usize,
    ) -> Result<(), String> {
        let found = self
            .grant
            .list_entries(dir, path, LinkRule::Skip, &mut self.work)?;
        self.unreadable += usize::from(found.incomplete);
        for entry in found.entries {
            if self.cut.is_some() || self.stop.is_set() {
                return Ok(());
            }
            let whole = if path.is_empty() {
                entry.name.clone()
            } else {
                format!("{path}/{}", entry.name)
            };
            match entry.kind {
                SeenKind::Directory if depth + 1 < SEARCHED_LEVELS_MAX => {
                    let child = self.grant.child_dir(dir, &entry.name);
                    let inside =
                        child.and_then(|child| self.search_directory(&*child, &whole, depth + 1));
                    self.unreadable += usize::from(inside.is_err());
                }
                SeenKind::Directory => self.unreadable += 1,
                SeenKind::File { bytes } if bytes > SEARCHED_FILE_BYTES_MAX => self.too_large += 1,
                SeenKind::File { .. } => match grant::open_file(dir, &entry.name, &whole) {
                    Ok(file) => self.search_file(file, &whole),
                    Err(_) => self.unreadable += 1,
                },
                SeenKind::HardLink => self.hard_links += 1,
                SeenKind::Link | SeenKind::Special => {}
            }
        }
        if self.work.is_spent() {
            self.cut.get_or_insert("too many files");
        }
        Ok(())
    }

    fn search_file(&mut self, file: Box<dyn TreeFile>, path: &str) {
        if self.read >= SEARCHED_BYTES_MAX {
            self.cut = Some("too much to read");
            return;
        }
        let mut bytes = Vec::new();
        if FileReader::new(file)
            .take(SEARCHED_FILE_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .is_err()
        {
            self.unreadable += 1;
            return;
        }
        self.read += bytes.len() as u64;
        if bytes.len() as u64 > SEARCHED_FILE_BYTES_MAX {
            self.too_large += 1;
            return;
        }
        if bytes.iter().take(BINARY_BYTES).any(|byte| *byte == 0) {
            return;
        }
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = String::from_utf8_lossy(line);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if let Some(found) = self.pattern.find(line, self.stop) {
                self.add_hit(path, number + 1, line, found);
            }
            if self.cut.is_some() || self.stop.is_set() {
                return;
            }
        }
    }

    fn add_hit(&mut self, path: &str, number: usize, line: &str, found: Range<usize>) {
        let line = format!(
            "{}:{number}: {}\n",
            super::printable(path),
            excerpt_around(line, found)
        );
        if self.hits == self.max {
            self.cut = Some("more lines match");
        } else if self.text.len() + line.len() > CONTENT_BYTES_MAX {
            self.cut = Some("the result is full");
        } else {
            self.hits += 1;
            self.text.push_str(&line);
        }
    }

    fn finish(mut self) -> String {
        if self.hits == 0 {
            self.text.push_str("[nothing was found]");
        }
        if let Some(why) = self.cut {
            self.text.push_str(&format!(
                "[{why}: the search stopped here; search a directory further down]"
            ));
        }
        if self.too_large > 0 {
            self.text.push_str(&format!(
                "[{} files over {SEARCHED_FILE_BYTES_MAX} bytes were not searched]",
                self.too_large
            ));
        }
        if self.hard_links > 0 {
            self.text.push_str(&format!(
                "[{} hard links were not searched: their files have other names, which may be \
                 outside]",
                self.hard_links
            ));
        }
        if self.unreadable > 0 {
            self.text.push_str(&format!(
                "[{} files or directories could not be read]",
                self.unreadable
            ));
        }
        self.text
    }
}

/// Returns a line, or the part of it around the match.
fn excerpt_around(line: &str, found: Range<usize>) -> String {
    if line.len() <= LINE_BYTES_MAX {
        return line.to_owned();
    }
    let spare = LINE_BYTES_MAX.saturating_sub(found.len()) / 2;
    let start = line.floor_char_boundary(found.start.saturating_sub(spare));
    let end = line.floor_char_boundary((start + LINE_BYTES_MAX).min(line.len()));
    let before = if start > 0 { "..." } else { "" };
    let after = if end < line.len() { "..." } else { "" };
    format!("{before}{}{after}", &line[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn stop(set: bool) -> StopFlag {
        StopFlag(Arc::new(AtomicBool::new(set)))
    }

    #[test]
    fn long_lines_are_matched_in_pieces_that_overlap() {
        let line = format!("{}needle{}", "ä".repeat(40_000), "b".repeat(100_000));
        let pattern = SearchPattern::new("n[e]+dle", true).unwrap();
        assert_eq!(pattern.find(&line, &stop(false)), Some(80_000..80_006));
        for short in ["", "needle"] {
            assert_eq!(line_pieces(short).collect::<Vec<_>>(), vec![0..short.len()]);
        }
        let pieces: Vec<_> = line_pieces(&line).collect();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX));
        assert!(pieces.windows(2).all(|pair| pair[1].start < pair[0].end));
        assert_eq!(pieces.last().map(|piece| piece.end), Some(line.len()));
    }

    /// Symptom: a match in a line of megabytes ran for minutes after its call was abandoned. Fix:
    /// it stops between pieces.
    #[test]
    fn a_search_that_is_given_up_stops_inside_a_line() {
        let line = format!("{}b", "a".repeat(1 << 20));
        let pattern = SearchPattern::new("(a{1,20}){1,20}b", true).unwrap();
        assert_eq!(pattern.find(&line, &stop(true)), None);
    }

    #[test]
    fn expressions_that_grow_are_refused() {
        assert!(SearchPattern::new("(a{1,90}){1,90}b", true).is_err());
    }
}
