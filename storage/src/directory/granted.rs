//! A directory that was granted by its handle: cap-std lets no name leave it.

use super::{DirectoryFile, EntryMetadata, FileDirectory, check_entry_name, read_part};
use cap_std::fs::{Dir, File, OpenOptions};
use std::io::{self, Write};

/// A directory of cap-std.
#[derive(Debug)]
pub struct GrantedDirectory {
    dir: Dir,
}

impl GrantedDirectory {
    /// The directory of this handle.
    pub fn new(dir: Dir) -> Self {
        Self { dir }
    }
}

impl FileDirectory for GrantedDirectory {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        check_entry_name(name)?;
        Ok(Box::new(self.dir.open(name)?))
    }

    fn create_new(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        check_entry_name(name)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt;
            // What a thread says is nobody else's.
            options.mode(0o600);
        }
        Ok(Box::new(self.dir.open_with(name, &options)?))
    }

    fn hard_link(&self, name: &str, second: &str) -> io::Result<()> {
        check_entry_name(name)?;
        check_entry_name(second)?;
        self.dir.hard_link(name, &self.dir, second)
    }

    fn rename(&self, name: &str, new_name: &str) -> io::Result<()> {
        check_entry_name(name)?;
        check_entry_name(new_name)?;
        self.dir.rename(name, &self.dir, new_name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_entry_name(name)?;
        self.dir.remove_file(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in self.dir.entries()? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        check_entry_name(name)?;
        let found = self.dir.symlink_metadata(name)?;
        Ok(EntryMetadata {
            is_file: found.is_file(),
            is_directory: found.is_dir(),
            bytes: found.len(),
        })
    }

    #[cfg(unix)]
    fn sync(&self) -> io::Result<()> {
        // The handle of a `Dir` may be path-only, and such a handle cannot be synced.
        self.dir.open(".")?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync(&self) -> io::Result<()> {
        Ok(())
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
