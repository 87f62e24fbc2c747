//! The door through which SQLite reaches files: its own way of Unix, confined to the files of one store.
//!
//! The VFS "unix" opens with `O_NOFOLLOW`, but first it resolves every symbolic link of the path by itself, so a path
//! through a held directory is turned back into an ordinary one that somebody can swap; and when it rolls back it looks
//! for, and deletes, whatever file a journal names. A [`Door`] is a copy of it with four functions replaced: a path
//! stays as it was given, and every path but those of the store's own files is refused before "unix" sees it. What is
//! left of a path is then `/proc/self/fd/<directory>`, which the kernel resolves to the directory that is held, and one
//! name that `O_NOFOLLOW` guards.
//!
//! This is one of the two files of the host with `unsafe` code: SQLite's interface is pointers. Everything that is said
//! about them is said here; nothing else of the store is.

#![allow(unsafe_code, reason = "see the module's documentation")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{self, NonNull};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_vfs};

use super::super::StorageError;
use super::super::check::other;

/// What SQLite appends to the path of a database for the files that it opens, looks for and deletes through a VFS. The
/// `-shm` file is opened by "unix" itself, with `O_NOFOLLOW`, from the path that it was given for the database.
const SUFFIXES: [&[u8]; 3] = [b"", b"-wal", b"-journal"];

type Open = unsafe extern "C" fn(
    *mut sqlite3_vfs,
    *const c_char,
    *mut sqlite3_file,
    c_int,
    *mut c_int,
) -> c_int;
type Delete = unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int) -> c_int;
type Access = unsafe extern "C" fn(*mut sqlite3_vfs, *const c_char, c_int, *mut c_int) -> c_int;

/// A VFS of SQLite through which the files of one database can be reached and nothing else. It must outlive every
/// connection that was opened through it: [`super::connection::Session`] sees to that.
#[derive(Debug)]
pub(super) struct Door {
    registered: NonNull<Registered>,
}

/// What SQLite holds a pointer to while the door exists; it never moves.
struct Registered {
    vfs: sqlite3_vfs,
    way: Way,
}

/// Where the door leads. It is apart from the VFS, whose link SQLite changes while others read this.
struct Way {
    name: CString,
    path: CString,
    base: *mut sqlite3_vfs,
    open: Open,
    delete: Delete,
    access: Access,
}

// SAFETY: the VFS of a door is changed by SQLite alone (the link of its list), under SQLite's own mutex. Everything else
// behind the pointer is written before it is registered and only read until it is dropped, which takes `&mut`.
unsafe impl Send for Door {}
// SAFETY: as above; a shared door gives nothing but its name and path.
unsafe impl Sync for Door {}

impl Door {
    /// A door to the database at `path`, which is given to "unix" as it is: everything before its last component must be
    /// something that nobody can swap.
    pub(super) fn new(path: CString) -> Result<Self, StorageError> {
        // SAFETY: the name is a C string; SQLite initialises itself and answers null or a VFS that lives as long as the
        // process, because "unix" is never unregistered.
        let base = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
        // SAFETY: null or, as above, a VFS; it is copied, and nobody writes to it but for its link.
        let Some(vfs) = (unsafe { base.as_ref() }).copied() else {
            return Err(missing());
        };
        let (Some(open), Some(delete), Some(access)) = (vfs.xOpen, vfs.xDelete, vfs.xAccess) else {
            return Err(missing());
        };
        let way = Way {
            name: CString::default(),
            path,
            base,
            open,
            delete,
            access,
        };
        let registered = NonNull::from(Box::leak(Box::new(Registered { vfs, way })));
        let door = Self { registered };
        door.register()?;
        Ok(door)
    }

    /// Completes the copy and makes it known to SQLite, not as the default.
    fn register(&self) -> Result<(), StorageError> {
        let at = self.registered.as_ptr();
        // SAFETY: `at` was just allocated and nobody else knows it; no reference to it exists while it is written. Its
        // address names it, so no other door has the name while this one exists. SQLite keeps the pointer until
        // `drop`, and `vfs`, `name` and the struct itself stay where they are until then.
        let code = unsafe {
            (*at).way.name =
                CString::new(format!("threadkeep-{:x}", at as usize)).unwrap_or_default();
            (*at).vfs.pNext = ptr::null_mut();
            (*at).vfs.zName = (*at).way.name.as_ptr();
            (*at).vfs.pAppData = (&raw mut (*at).way).cast();
            (*at).vfs.xOpen = Some(open);
            (*at).vfs.xDelete = Some(delete);
            (*at).vfs.xAccess = Some(access);
            (*at).vfs.xFullPathname = Some(full_path);
            ffi::sqlite3_vfs_register(&raw mut (*at).vfs, 0)
        };
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(missing())
        }
    }

    /// The name of the VFS.
    pub(super) fn name(&self) -> &CStr {
        // SAFETY: it lives as long as the door, and nobody writes to the name after `new`.
        let way = unsafe { &(*self.registered.as_ptr()).way };
        way.name.as_c_str()
    }

    /// The path of the database, the only one that a connection can be opened at.
    pub(super) fn path(&self) -> &CStr {
        // SAFETY: as for the name.
        let way = unsafe { &(*self.registered.as_ptr()).way };
        way.path.as_c_str()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let at = self.registered.as_ptr();
        // SAFETY: `at` came from a box in `new` and is freed here alone. SQLite forgets it first, and no connection that
        // was opened through it is left, as every one of them keeps its door.
        unsafe {
            ffi::sqlite3_vfs_unregister(&raw mut (*at).vfs);
            drop(Box::from_raw(at));
        }
    }
}

fn missing() -> StorageError {
    other("sqlite", "SQLite has no VFS \"unix\" to build upon")
}

/// Where the door of a VFS leads, if `name` is one of its files.
///
/// # Safety
/// `vfs` is the VFS of a door that exists, `name` null or a C string; both hold for what SQLite calls the functions
/// below with.
unsafe fn way_to<'a>(vfs: *mut sqlite3_vfs, name: *const c_char) -> Option<&'a Way> {
    if name.is_null() {
        return None;
    }
    // SAFETY: `pAppData` is the way that `register` put there, which is only read while the door exists. The name is a C
    // string.
    let (way, name) = unsafe {
        (
            &*(*vfs).pAppData.cast::<Way>(),
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
    // SAFETY: SQLite calls this with the VFS of an open connection, a name or null (a temporary file, which is refused:
    // they are kept in memory) and room for a file. "unix" gets its own VFS, so it sees what it always sees.
    unsafe {
        match way_to(vfs, name) {
            Some(way) => (way.open)(way.base, name, file, flags, flags_out),
            None => {
                // Says that there is nothing to close.
                (*file).pMethods = ptr::null();
                ffi::SQLITE_CANTOPEN
            }
        }
    }
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: as for `open`.
    unsafe {
        match way_to(vfs, name) {
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
    // SAFETY: as for `open`; `found` is a place for the answer.
    unsafe {
        match way_to(vfs, name) {
            Some(way) => (way.access)(way.base, name, flags, found),
            // A journal that names another file: none that we write does.
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
        let Some(way) = way_to(vfs, name) else {
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
    fn a_door_leads_to_the_files_of_its_store_alone() {
        let door = Door::new(c"/proc/self/fd/9/a.db".into()).unwrap();
        let twin = Door::new(c"/proc/self/fd/9/a.db".into()).unwrap();
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
            // SAFETY: the door exists, and the name is a C string.
            let found = unsafe { way_to(&raw mut (*door.registered.as_ptr()).vfs, name.as_ptr()) };
            assert_eq!(found.is_some(), expected, "{name:?}");
        }
    }

    #[test]
    fn a_door_that_is_closed_is_forgotten() {
        let door = Door::new(c"/proc/self/fd/9/a.db".into()).unwrap();
        let name = door.name().to_owned();
        let known = || {
            // SAFETY: the name is a C string; what is found is only compared with null.
            !unsafe { ffi::sqlite3_vfs_find(name.as_ptr()) }.is_null()
        };
        assert!(known());
        drop(door);
        assert!(!known());
    }
}
