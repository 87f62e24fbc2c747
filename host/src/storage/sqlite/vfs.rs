//! The VFS through which SQLite reaches files: a copy of its own VFS "unix", confined to the files
//! of one store.
//!
//! The VFS "unix" opens with `O_NOFOLLOW`, but first it resolves every symbolic link of the path by
//! itself, so a path through a held directory is turned back into an ordinary one, which can be
//! swapped. And when it rolls back it looks for, and deletes, any file that a journal names. A
//! [`ConfinedVfs`] is a copy of it with four functions replaced: a path stays as it was given, and
//! every path but those of the store's own files is refused before "unix" sees it. A path then
//! consists of `/proc/self/fd/<directory>`, which the kernel resolves to the held directory, and
//! one name that `O_NOFOLLOW` guards.
//!
//! This is one of the two files of the host with `unsafe` code: SQLite's interface is pointers.
//! Only this file of the store handles them.

#![allow(unsafe_code, reason = "see the module's documentation")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_vfs};

use super::super::StorageError;
use super::super::check::other_error;

/// The VFS of SQLite that a [`ConfinedVfs`] is a copy of.
const BASE_VFS: &CStr = if cfg!(windows) { c"win32" } else { c"unix" };

/// Suffixes that SQLite appends to the path of a database for the files that it opens, looks for
/// and deletes through a VFS. The `-shm` file is opened by "unix" itself, with `O_NOFOLLOW`, from
/// the path that it was given for the database.
const SUFFIXES: [&[u8]; 3] = [b"", b"-wal", b"-journal"];

type OpenFn = unsafe extern "C" fn(
    *mut sqlite3_vfs,
    *const c_char,
    *mut sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;
type DeleteFn = unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int) -> c_int;
type AccessFn = unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int;

/// A VFS of SQLite that reaches only the files of one database. It must outlive every connection
/// that was opened through it, which [`super::connection::SqliteSession`] ensures.
#[derive(Debug)]
pub(super) struct ConfinedVfs {
    registered: NonNull<RegisteredVfs>,
}

/// The data that SQLite has a pointer to while the VFS is registered; it never moves.
struct RegisteredVfs {
    vfs: sqlite3_vfs,
    data: VfsData,
}

/// The path and the replaced functions of the VFS. Separate from the VFS, whose link SQLite changes
/// while others read this.
struct VfsData {
    name: CString,
    path: CString,
    base: *mut sqlite3_vfs,
    open: OpenFn,
    delete: DeleteFn,
    access: AccessFn,
}

// SAFETY: the VFS is changed by SQLite alone (the link of its list), under SQLite's own mutex.
// Everything else behind the pointer is written before it is registered and only read until it is
// dropped, which takes `&mut`.
unsafe impl Send for ConfinedVfs {}
// SAFETY: as above; a shared reference gives only the name and the path.
unsafe impl Sync for ConfinedVfs {}

impl ConfinedVfs {
    /// A VFS for the database at `path`, which is given to "unix" as it is: everything before its
    /// last component must be unswappable.
    pub(super) fn new(path: CString) -> Result<Self, StorageError> {
        // SAFETY: the name is a C string; SQLite initialises itself and returns null or a VFS that
        // lives as long as the process, because "unix" is never unregistered.
        let base = unsafe { ffi::sqlite3_vfs_find(BASE_VFS.as_ptr()) };
        // SAFETY: null or, as above, a VFS; it is copied, and nothing writes to it except its link.
        let Some(vfs) = (unsafe { base.as_ref() }).copied() else {
            return Err(missing_base_vfs());
        };
        let (Some(open), Some(delete), Some(access)) = (vfs.xOpen, vfs.xDelete, vfs.xAccess) else {
            return Err(missing_base_vfs());
        };
        let way = VfsData {
            name: CString::default(),
            path,
            base,
            open,
            delete,
            access,
        };
        let registered = NonNull::from(Box::leak(Box::new(RegisteredVfs { vfs, data: way })));
        let door = Self { registered };
        door.register()?;
        Ok(door)
    }

    /// Completes the copy and registers it with SQLite, not as the default.
    fn register(&self) -> Result<(), StorageError> {
        let at = self.registered.as_ptr();
        // SAFETY: `at` was just allocated and is known only here; no reference to it exists while
        // it is written. Its address makes its name, so no other VFS has the name while this one
        // exists. SQLite keeps the pointer until `drop`, and `vfs`, `name` and the struct itself
        // stay where they are until then.
        let code = unsafe {
            (*at).data.name =
                CString::new(format!("threadkeep-{:x}", at as usize)).unwrap_or_default();
            (*at).vfs.pNext = ptr::null_mut();
            (*at).vfs.zName = (*at).data.name.as_ptr();
            (*at).vfs.pAppData = (&raw mut (*at).data).cast();
            (*at).vfs.xOpen = Some(open);
            (*at).vfs.xDelete = Some(delete);
            (*at).vfs.xAccess = Some(access);
            (*at).vfs.xFullPathname = Some(full_path);
            ffi::sqlite3_vfs_register(&raw mut (*at).vfs, 0)
        };
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(missing_base_vfs())
        }
    }

    /// The name of the VFS.
    pub(super) fn name(&self) -> &CStr {
        // SAFETY: it lives as long as `self`, and nothing writes to the name after `new`.
        let way = unsafe { &(*self.registered.as_ptr()).data };
        way.name.as_c_str()
    }

    /// The path of the database, the only one that a connection can be opened at.
    pub(super) fn path(&self) -> &CStr {
        // SAFETY: as for the name.
        let way = unsafe { &(*self.registered.as_ptr()).data };
        way.path.as_c_str()
    }
}

impl Drop for ConfinedVfs {
    fn drop(&mut self) {
        let at = self.registered.as_ptr();
        // SAFETY: `at` came from a box in `new` and is freed here alone. SQLite forgets it first,
        // and no connection that was opened through it is left, as every one of them keeps its
        // place.
        unsafe {
            ffi::sqlite3_vfs_unregister(&raw mut (*at).vfs);
            drop(Box::from_raw(at));
        }
    }
}

fn missing_base_vfs() -> StorageError {
    other_error("sqlite", "SQLite has no VFS of this system to build upon")
}

/// The present path of an open directory.
#[cfg(windows)]
pub(super) fn directory_path(dir: &cap_std::fs::Dir) -> std::io::Result<String> {
    use std::os::windows::io::AsRawHandle;
    use windows_sys::Win32::Storage::FileSystem::GetFinalPathNameByHandleW;
    /// Longest path of the system, in units of 16 bits.
    const PATH_UNITS_MAX: usize = 32_768;
    let mut path = vec![0_u16; PATH_UNITS_MAX];
    let units_max = u32::try_from(path.len()).unwrap_or(u32::MAX);
    // SAFETY: the handle is open as long as `dir` is borrowed, and the buffer has so many units.
    let units = unsafe {
        GetFinalPathNameByHandleW(dir.as_raw_handle().cast(), path.as_mut_ptr(), units_max, 0)
    };
    match path.get(..units as usize) {
        Some(path) if units > 0 => String::from_utf16(path)
            .map_err(|_| std::io::Error::other("the path is no Unicode text")),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The data of a VFS, if `name` is one of its files.
///
/// # Safety
/// `vfs` is the VFS of a [`ConfinedVfs`] that exists, `name` null or a C string; both hold for the
/// arguments with which SQLite calls the functions below.
unsafe fn vfs_data_for<'a>(vfs: *mut sqlite3_vfs, name: *const c_char) -> Option<&'a VfsData> {
    if name.is_null() {
        return None;
    }
    // SAFETY: `pAppData` is the data that `register` put there, which is only read while the VFS
    // exists. The name is a C string.
    let (way, name) = unsafe {
        (
            &*(*vfs).pAppData.cast::<VfsData>(),
            CStr::from_ptr(name).to_bytes(),
        )
    };
    let suffix = name.strip_prefix(way.path.to_bytes())?;
    SUFFIXES.contains(&suffix).then_some(way)
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls this with the VFS of an open connection, a name or null (a temporary
    // file, which is refused: they are kept in memory) and room for a file. "unix" gets its own
    // VFS, so it sees what it always sees.
    unsafe {
        match vfs_data_for(vfs, name) {
            Some(way) => (way.open)(way.base, name, file, flags, flags_out),
            None => {
                // Tells SQLite that there is nothing to close.
                (*file).pMethods = ptr::null();
                ffi::SQLITE_CANTOPEN
            }
        }
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: as for `open`.
    unsafe {
        match vfs_data_for(vfs, name) {
            Some(way) => (way.delete)(way.base, name, sync),
            None => ffi::SQLITE_CORRUPT,
        }
    }
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    found: *mut c_int,
) -> c_int {
    // SAFETY: as for `open`; `found` points to an `int` for the result.
    unsafe {
        match vfs_data_for(vfs, name) {
            Some(way) => (way.access)(way.base, name, flags, found),
            // A journal that names another file: ours never do.
            None => {
                *found = 0;
                ffi::SQLITE_CORRUPT
            }
        }
    }
}

unsafe extern "C" fn full_path(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    bytes_max: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: as for `open`; `out` has room for `bytes_max` bytes and does not overlap the name.
    unsafe {
        let Some(way) = vfs_data_for(vfs, name) else {
            return ffi::SQLITE_CANTOPEN;
        };
        let path = way.path.as_bytes_with_nul();
        let fits = usize::try_from(bytes_max).is_ok_and(|most| path.len() <= most);
        if !fits || CStr::from_ptr(name) != way.path.as_c_str() {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(path.as_ptr().cast(), out, path.len());
        ffi::SQLITE_OK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vfs_reaches_only_files_of_its_store() {
        let door = ConfinedVfs::new(c"/proc/self/fd/9/a.db".into()).unwrap();
        let twin = ConfinedVfs::new(c"/proc/self/fd/9/a.db".into()).unwrap();
        assert_ne!(door.name(), twin.name());
        let names = [
            (c"/proc/self/fd/9/a.db", true),
            (c"/proc/self/fd/9/a.db-wal", true),
            (c"/proc/self/fd/9/a.db-journal", true),
            (c"/proc/self/fd/9/a.db-mj12345678", false),
            (c"/proc/self/fd/9/a.db/../b.db", false),
            (c"/proc/self/fd/9/a", false),
            (c"/proc/self/fd/90/a.db", false),
            (c"a.db", false),
            (c"", false),
        ];
        for (name, expected) in names {
            // SAFETY: the VFS exists, and the name is a C string.
            let found =
                unsafe { vfs_data_for(&raw mut (*door.registered.as_ptr()).vfs, name.as_ptr()) };
            assert_eq!(found.is_some(), expected, "{name:?}");
        }
    }

    #[test]
    fn dropped_vfs_is_unregistered() {
        let door = ConfinedVfs::new(c"/proc/self/fd/9/a.db".into()).unwrap();
        let name = door.name().to_owned();
        let known = || {
            // SAFETY: the name is a C string; the result is only compared with null.
            !unsafe { ffi::sqlite3_vfs_find(name.as_ptr()) }.is_null()
        };
        assert!(known());
        drop(door);
        assert!(!known());
    }
}
