//! A directory by its path, through std alone: for WASI, where a path cannot leave the directory
//! that was granted, and for tests.

#![expect(
    clippy::disallowed_methods,
    reason = "under WASI a path is the handle: it leads nowhere but below what was granted"
)]

use super::{DirectoryFile, EntryMetadata, FileDirectory, check_entry_name, read_part};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A directory that is named by a path. Nothing holds it: where a process may name any path, it can
/// be replaced while it is used. A native host uses `GrantedDirectory` instead.
#[derive(Debug)]
pub struct PreopenedDirectory {
    path: PathBuf,
}

impl PreopenedDirectory {
    /// A directory that exists, such as one that a WASI host has granted.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn entry(&self, name: &str) -> io::Result<PathBuf> {
        check_entry_name(name)?;
        Ok(self.path.join(name))
    }
}

impl FileDirectory for PreopenedDirectory {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        Ok(Box::new(File::open(self.entry(name)?)?))
    }

    fn create_new(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        Ok(Box::new(options.open(self.entry(name)?)?))
    }

    fn hard_link(&self, name: &str, second: &str) -> io::Result<()> {
        fs::hard_link(self.entry(name)?, self.entry(second)?)
    }

    fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        fs::rename(self.entry(name)?, self.entry(new_name)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.entry(name)?)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        let found = fs::symlink_metadata(self.entry(name)?)?;
        Ok(EntryMetadata {
            is_file: found.is_file(),
            is_directory: found.is_dir(),
            bytes: found.len(),
        })
    }

    fn sync(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }
}

impl DirectoryFile for File {
    fn read_at(&mut self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        read_part(self, offset, bytes)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn size(&mut self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

#[cfg(not(windows))]
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Windows syncs no directory; its file systems keep the order of the changes of names.
#[cfg(windows)]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
