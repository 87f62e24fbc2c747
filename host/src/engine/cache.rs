//! Native code of the component, kept between processes.
//!
//! This file has one of the host's two uses of `unsafe`: loading native code that this host
//! compiled itself. Loading anything else would be running it. So the cache directory is the
//! operator's: no tenant can write it, and nothing below a project is ever used. A file is named by
//! the SHA-256 of the component and by wasmtime's own compatibility hash, and begins with the
//! SHA-256 of the rest, so that a torn or altered file is compiled again and never loaded. A file
//! that is not plain, or that other users can write, is not read at all. A user who can write as
//! the operator can write a right digest too: nothing here protects against the operator's own
//! account.
#![allow(unsafe_code, reason = "see the module's documentation")]

use cap_std::fs::{Dir, Metadata, OpenOptions};
use sha2::{Digest, Sha256};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use wasmtime::component::Component;

/// Largest file that is read: the component's native code is a few megabytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
const DIGEST_BYTES: usize = 32;

/// A directory of the operator for native code.
#[derive(Debug)]
pub struct CodeCache {
    dir: Dir,
    compilations: AtomicU64,
}

impl CodeCache {
    /// A cache in a directory that only the operator can write.
    pub fn new(dir: Dir) -> Self {
        Self {
            dir,
            compilations: AtomicU64::new(0),
        }
    }

    /// Number of compilations, each because no usable native code was found.
    pub fn compilation_count(&self) -> u64 {
        self.compilations.load(Ordering::Relaxed)
    }

    /// Loads the native code of `bytes`, or compiles and stores it. A cache that cannot be read or
    /// written costs only time.
    pub(crate) fn load_or_compile(
        &self,
        engine: &wasmtime::Engine,
        bytes: &[u8],
    ) -> wasmtime::Result<Component> {
        let name = file_name(engine, bytes);
        if let Some(code) = self.read(&name)
            && let Some(code) = code.get(DIGEST_BYTES..)
        {
            // SAFETY: the bytes were written by `write` below, from `Component::serialize` of the
            // same engine configuration and component, into a directory that only the operator can
            // write; the digest shows that they are whole and unaltered.
            if let Ok(component) = unsafe { Component::deserialize(engine, code) } {
                return Ok(component);
            }
        }
        self.compilations.fetch_add(1, Ordering::Relaxed);
        let component = Component::new(engine, bytes)?;
        self.write(&name, &component.serialize()?);
        Ok(component)
    }

    /// Returns a whole file, whose code is behind its digest: it is not copied again.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        if !is_ours(&self.dir.symlink_metadata(name).ok()?) {
            return None;
        }
        let file = self.dir.open(name).ok()?;
        let found = file.metadata().ok()?;
        if !is_ours(&found) {
            return None;
        }
        let bytes = found.len().min(FILE_BYTES_MAX);
        let mut content = Vec::with_capacity(usize::try_from(bytes).ok()?);
        file.take(FILE_BYTES_MAX).read_to_end(&mut content).ok()?;
        let (digest, code) = content.split_at_checked(DIGEST_BYTES)?;
        (Sha256::digest(code).as_slice() == digest).then_some(content)
    }

    /// Writes a temporary file and renames it, so that no reader sees half of it.
    fn write(&self, name: &str, code: &[u8]) {
        let temporary = format!("{name}.{}.tmp", std::process::id());
        let written = (|| {
            // A file left by a process of the same number, or planted under this name, is removed,
            // not written through.
            let _ = self.dir.remove_file(&temporary);
            let mut options = OpenOptions::new();
            set_private_mode(options.write(true).create_new(true));
            let mut file = self.dir.open_with(&temporary, &options)?;
            file.write_all(&Sha256::digest(code))?;
            file.write_all(code)?;
            self.dir.rename(&temporary, &self.dir, name)
        })();
        if written.is_err() {
            let _ = self.dir.remove_file(&temporary);
        }
    }
}

/// True for a plain file that no other user can write.
fn is_ours(file: &Metadata) -> bool {
    #[cfg(unix)]
    {
        use cap_std::fs::MetadataExt;
        const OTHERS_WRITE: u32 = 0o022;
        let own = rustix::process::geteuid().as_raw();
        file.is_file() && file.uid() == own && file.mode() & OTHERS_WRITE == 0
    }
    #[cfg(not(unix))]
    file.is_file()
}

/// Makes the file private, whatever the umask of the process is.
fn set_private_mode(options: &mut OpenOptions) {
    #[cfg(unix)]
    {
        use cap_std::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    #[cfg(not(unix))]
    let _ = options;
}

fn file_name(engine: &wasmtime::Engine, bytes: &[u8]) -> String {
    let component: String = Sha256::digest(bytes)
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    format!("{component}-{:016x}.native", hasher.finish())
}
