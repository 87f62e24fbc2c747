//! A directory by its path, through std alone: for WASI, where a path cannot leave the directory
//! that was granted, and for tests.

#![expect(
    clippy::disallowed_methods,
    reason = "under WASI a path is the handle: it leads nowhere but below what was granted"
)]

use super::{
    DirectoryFile, DirectoryTree, EntryDetails, EntryMetadata, EntryType, FileAccess,
    FileDirectory, TreeFile, TreePlace, check_entry_name, check_no_pipe, collect_names,
    collect_some_names, entry_details, read_part,
};
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
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

    fn entry_below(&self, place: TreePlace<'_>) -> io::Result<PathBuf> {
        let directory = match place.directory {
            Some(directory) => self.entry(directory)?,
            None => self.path.clone(),
        };
        check_entry_name(place.name)?;
        Ok(directory.join(place.name))
    }

    fn names(&self) -> io::Result<impl Iterator<Item = io::Result<OsString>>> {
        let entries = fs::read_dir(&self.path)?;
        Ok(entries.map(|entry| Ok(entry?.file_name())))
    }
}

impl FileDirectory for PreopenedDirectory {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        check_no_pipe(&DirectoryTree::details(self, name)?)?;
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
        collect_names(self.names()?)
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        Ok(EntryMetadata::from_details(&DirectoryTree::details(
            self, name,
        )?))
    }

    fn sync(&self) -> io::Result<()> {
        sync_directory(&self.path)
    }
}

impl DirectoryTree for PreopenedDirectory {
    fn clone_tree(&self) -> io::Result<Box<dyn DirectoryTree>> {
        Ok(Box::new(Self::new(&self.path)))
    }

    fn describe(&self) -> io::Result<EntryDetails> {
        Ok(details_of(&fs::metadata(&self.path)?))
    }

    fn details(&self, name: &str) -> io::Result<EntryDetails> {
        Ok(details_of(&fs::symlink_metadata(self.entry(name)?)?))
    }

    fn list_some(&self, count_max: usize) -> io::Result<Vec<Option<String>>> {
        collect_some_names(self.names()?, count_max)
    }

    fn read_link(&self, name: &str) -> io::Result<PathBuf> {
        fs::read_link(self.entry(name)?)
    }

    fn open_tree(&self, name: &str) -> io::Result<Box<dyn DirectoryTree>> {
        let path = self.entry(name)?;
        match fs::metadata(&path)?.is_dir() {
            true => Ok(Box::new(Self { path })),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn create_tree(&self, name: &str) -> io::Result<()> {
        fs::create_dir(self.entry(name)?)
    }

    fn remove_tree(&self, name: &str) -> io::Result<()> {
        fs::remove_dir(self.entry(name)?)
    }

    fn open_file(&self, name: &str, access: FileAccess) -> io::Result<Box<dyn TreeFile>> {
        let mut options = OpenOptions::new();
        options.read(true);
        match access {
            FileAccess::Read => {}
            FileAccess::Change => {
                options.write(true);
            }
            FileAccess::Append => {
                options.append(true).create(true);
            }
        }
        Ok(Box::new(options.open(self.entry(name)?)?))
    }

    fn move_below(&self, from: TreePlace<'_>, to: TreePlace<'_>) -> io::Result<()> {
        fs::rename(self.entry_below(from)?, self.entry_below(to)?)
    }

    fn open_handle(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

fn details_of(found: &Metadata) -> EntryDetails {
    entry_details!(found, found.modified().ok())
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

impl TreeFile for File {
    fn details(&mut self) -> io::Result<EntryDetails> {
        Ok(details_of(&self.metadata()?))
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn append_once(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
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
