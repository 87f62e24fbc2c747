//! A directory that was granted by its handle: cap-std lets no name leave it.

use super::{
    DirectoryFile, DirectoryTree, EntryDetails, EntryMetadata, EntryType, FileAccess,
    FileDirectory, TreeFile, TreePlace, check_entry_name, collect_names, collect_some_names,
    entry_details,
};
#[cfg(unix)]
use cap_std::fs::MetadataExt;
use cap_std::fs::{Dir, File, Metadata, OpenOptions};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Mode of a file: its owner reads and writes it. What a thread says is nobody else's.
#[cfg(unix)]
const FILE_MODE: u32 = 0o600;
/// Mode of a directory.
#[cfg(unix)]
const DIRECTORY_MODE: u32 = 0o700;
/// All mode bits of group and others.
#[cfg(unix)]
const OTHERS_MODE_BITS: u32 = 0o077;

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

    fn names(&self) -> io::Result<impl Iterator<Item = io::Result<OsString>>> {
        let entries = self.dir.entries()?;
        Ok(entries.map(|entry| Ok(entry?.file_name())))
    }

    /// The directory of a place, held while a file is moved.
    fn directory_of(&self, place: TreePlace<'_>) -> io::Result<Dir> {
        check_entry_name(place.name)?;
        let Some(name) = place.directory else {
            return self.dir.try_clone();
        };
        let seen = DirectoryTree::details(self, name)?;
        let opened = self.dir.open_dir(name)?;
        let is_same = details_of(&opened.dir_metadata()?).identity == seen.identity;
        match seen.entry_type == EntryType::Directory && is_same {
            true => Ok(opened),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
}

impl FileDirectory for GrantedDirectory {
    fn open(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        check_entry_name(name)?;
        let mut options = without_waiting(OpenOptions::new());
        let file = self.dir.open_with(name, options.read(true))?;
        Ok(Box::new(file.into_std()))
    }

    fn create_new(&self, name: &str) -> io::Result<Box<dyn DirectoryFile>> {
        check_entry_name(name)?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        Ok(Box::new(open_private(&self.dir, name, options)?.into_std()))
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
        collect_names(self.names()?)
    }

    fn metadata(&self, name: &str) -> io::Result<EntryMetadata> {
        Ok(EntryMetadata::from_details(&DirectoryTree::details(
            self, name,
        )?))
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

impl DirectoryTree for GrantedDirectory {
    fn clone_tree(&self) -> io::Result<Box<dyn DirectoryTree>> {
        Ok(Box::new(Self::new(self.dir.try_clone()?)))
    }

    fn describe(&self) -> io::Result<EntryDetails> {
        Ok(details_of(&self.dir.dir_metadata()?))
    }

    fn details(&self, name: &str) -> io::Result<EntryDetails> {
        check_entry_name(name)?;
        Ok(details_of(&self.dir.symlink_metadata(name)?))
    }

    fn list_some(&self, count_max: usize) -> io::Result<Vec<Option<String>>> {
        collect_some_names(self.names()?, count_max)
    }

    fn read_link(&self, name: &str) -> io::Result<PathBuf> {
        check_entry_name(name)?;
        self.dir.read_link_contents(name)
    }

    fn open_tree(&self, name: &str) -> io::Result<Box<dyn DirectoryTree>> {
        check_entry_name(name)?;
        Ok(Box::new(Self::new(self.dir.open_dir(name)?)))
    }

    fn create_tree(&self, name: &str) -> io::Result<()> {
        check_entry_name(name)?;
        create_private_dir(&self.dir, name)
    }

    fn remove_tree(&self, name: &str) -> io::Result<()> {
        check_entry_name(name)?;
        self.dir.remove_dir(name)
    }

    fn open_file(&self, name: &str, access: FileAccess) -> io::Result<Box<dyn TreeFile>> {
        check_entry_name(name)?;
        let mut options = without_waiting(OpenOptions::new());
        options.read(true);
        let file = match access {
            FileAccess::Read => self.dir.open_with(name, &options)?,
            FileAccess::Change => self.dir.open_with(name, options.write(true))?,
            FileAccess::Append => {
                options.append(true).create(true);
                open_private(&self.dir, name, options)?
            }
        };
        Ok(Box::new(file.into_std()))
    }

    fn move_below(&self, from: TreePlace<'_>, to: TreePlace<'_>) -> io::Result<()> {
        let (source, target) = (self.directory_of(from)?, self.directory_of(to)?);
        source.rename(from.name, &target, to.name)
    }

    fn open_handle(&self) -> io::Result<std::fs::File> {
        // The handle of a `Dir` may be path-only, and such a handle can be neither locked nor
        // synced.
        self.dir.open(".").map(File::into_std)
    }
}

fn details_of(found: &Metadata) -> EntryDetails {
    let modified = found.modified().ok();
    entry_details!(found, modified.map(cap_std::time::SystemTime::into_std))
}

/// Opens a file and makes it private, whether it existed or not: the umask of the process takes
/// nothing from its mode. The options say whether it may exist.
///
/// # Errors
/// The errors of opening a file.
pub fn open_private(dir: &Dir, name: &str, options: OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    let options = {
        use cap_std::fs::OpenOptionsExt;
        let mut options = options;
        options.mode(FILE_MODE);
        options
    };
    let file = dir.open_with(name, &options)?;
    #[cfg(unix)]
    {
        use cap_std::fs::PermissionsExt;
        let found = file.metadata()?;
        let mode = found.permissions().mode() & (OTHERS_MODE_BITS | DIRECTORY_MODE);
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        // Not through a second name: the file may be anything.
        if mode != FILE_MODE && is_own && found.nlink() <= 1 {
            file.set_permissions(cap_std::fs::Permissions::from_mode(FILE_MODE))?;
        }
    }
    Ok(file)
}

/// Creates a directory with the mode of its owner alone.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] if something of this name exists.
pub fn create_private_dir(dir: &Dir, name: &str) -> io::Result<()> {
    #[cfg(unix)]
    {
        use cap_std::fs::{DirBuilderExt, PermissionsExt};
        let mut builder = cap_std::fs::DirBuilder::new();
        dir.create_dir_with(name, builder.mode(DIRECTORY_MODE))?;
        // By the held handle, whatever the directory's name is now: a link that took its place
        // since is not followed.
        let seen = details_of(&dir.symlink_metadata(name)?);
        let made = dir.open_dir(name)?;
        if details_of(&made.dir_metadata()?).identity != seen.identity {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        made.set_permissions(".", cap_std::fs::Permissions::from_mode(DIRECTORY_MODE))
    }
    #[cfg(not(unix))]
    dir.create_dir(name)
}

/// The same options, without waiting for the other end of a pipe.
#[cfg(unix)]
pub fn without_waiting(mut options: OpenOptions) -> OpenOptions {
    use cap_std::fs::OpenOptionsExt;
    let flag = rustix::fs::OFlags::NONBLOCK.bits();
    options.custom_flags(flag.cast_signed());
    options
}

/// The same options: no opening waits here.
#[cfg(not(unix))]
pub fn without_waiting(options: OpenOptions) -> OpenOptions {
    options
}
