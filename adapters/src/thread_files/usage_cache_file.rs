//! The file of cached sums, `.ai/threads/usage-cache.jsonl`: what `usage` has added up, so that it
//! need not read every history again.
//!
//! It is never the truth. Its first line has the digest of what follows, so a file that was torn or
//! edited is as good as none; whoever reads the rest compares it with the records. It may be
//! removed at any time. What stands in it is the command line's.

use super::ThreadFileError;
use super::document_directory::{DocumentDirectory, FileReplacement};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use threadkeep_storage::directory::DirectoryTree;

/// The file, in `.ai/threads`. No id of a thread has a dot.
pub const USAGE_CACHE_FILE: &str = "usage-cache.jsonl";

/// Largest file that is read: some hundred thousand threads. A larger one is nobody's of ours.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// The version of the format, which is that of the lines: another one is read by nobody.
const CACHE_FORMAT: u32 = 2;

/// Reads the file, without its first line; `None` if there is none that is whole.
///
/// # Errors
/// If it is too large, or no regular file of one name.
pub fn read_usage_cache(threads: &dyn DirectoryTree) -> Result<Option<Vec<u8>>, ThreadFileError> {
    let place = DocumentDirectory::of_project(threads)?;
    let Some(mut content) = place.read(USAGE_CACHE_FILE, CACHE_BYTES_MAX)? else {
        return Ok(None);
    };
    let length = content.iter().position(|byte| *byte == b'\n');
    let Some(length) = length.map(|newline| newline + 1) else {
        return Ok(None);
    };
    let lines = content.split_off(length);
    Ok((content == make_header(&lines).as_bytes()).then_some(lines))
}

/// Replaces the file; one that would be too large to be read is not written.
///
/// # Errors
/// If something else stands at its name, or those of the file system.
pub fn write_usage_cache(threads: &dyn DirectoryTree, lines: &[u8]) -> Result<(), ThreadFileError> {
    let header = make_header(lines);
    if (header.len() + lines.len()) as u64 > CACHE_BYTES_MAX {
        return Ok(());
    }
    let place = Arc::new(DocumentDirectory::of_project(threads)?);
    let mut replacement = FileReplacement::begin(place, USAGE_CACHE_FILE)?;
    replacement.write(header.as_bytes())?;
    replacement.write(lines)?;
    replacement.commit()
}

fn make_header(lines: &[u8]) -> String {
    let digest = Sha256::digest(lines);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"usage_cache\":{CACHE_FORMAT},\"sha256\":\"{digest}\"}}\n")
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests {
    use super::*;
    use cap_std::fs::Dir;
    use threadkeep_storage::directory::GrantedDirectory;

    #[test]
    fn the_file_is_replaced_as_a_whole_and_nothing_else_is_touched() {
        let temporary = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temporary.path(), cap_std::ambient_authority()).unwrap();
        let threads = GrantedDirectory::new(dir.try_clone().unwrap());
        assert!(read_usage_cache(&threads).unwrap().is_none());
        for text in ["one\n", "", "two\n"] {
            write_usage_cache(&threads, text.as_bytes()).unwrap();
            assert_eq!(
                read_usage_cache(&threads).unwrap().unwrap(),
                text.as_bytes()
            );
        }
        assert_eq!(dir.entries().unwrap().count(), 1);
        let whole = dir.read_to_string(USAGE_CACHE_FILE).unwrap();
        for torn in [
            "".to_owned(),
            "\n".to_owned(),
            "two\n".to_owned(),
            whole.replace("two", "tow"),
            whole.replace(":2,", ":3,"),
            whole[..whole.len() - 1].to_owned(),
            format!("{whole}\n"),
        ] {
            dir.write(USAGE_CACHE_FILE, &torn).unwrap();
            assert!(read_usage_cache(&threads).unwrap().is_none(), "{torn}");
        }
        #[cfg(unix)]
        {
            dir.remove_file(USAGE_CACHE_FILE).unwrap();
            dir.write("outside", "keep").unwrap();
            dir.symlink("outside", USAGE_CACHE_FILE).unwrap();
            let refused = [
                read_usage_cache(&threads).map(drop),
                write_usage_cache(&threads, b"x"),
            ];
            for refused in refused {
                let message = refused.unwrap_err().to_string();
                assert!(
                    message.contains(".ai/threads/usage-cache.jsonl"),
                    "{message}"
                );
            }
            assert_eq!(dir.read("outside").unwrap(), b"keep");
        }
    }
}
