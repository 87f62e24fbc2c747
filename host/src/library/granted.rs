//! A tenant's library over a directory that was granted to it.

use super::files::FilesLibrary;
use super::{LibraryError, LibraryFiles, TenantLibrary};
use crate::authority::EnvironmentSnapshot;
use crate::policy::Policy;
use crate::tools::ToolEntry;
use cap_std::fs::Dir;
use std::ops::Deref;
use threadkeep_storage::directory::GrantedDirectory;

/// The library of one tenant, in a directory that was opened for it.
#[derive(Debug)]
pub struct GrantedLibrary {
    library: FilesLibrary,
}

impl GrantedLibrary {
    /// Makes a library over `.ai` (`None` for a project without it, which has only the built-in
    /// models). `catalog` has the tools that the tenant was granted, `environment` the variables
    /// that a provider's address and key may use.
    pub fn open(
        ai: Option<Dir>,
        policy: Policy,
        catalog: Vec<ToolEntry>,
        environment: EnvironmentSnapshot,
    ) -> Self {
        let ai = ai.map(|dir| LibraryFiles::new(Box::new(GrantedDirectory::new(dir))));
        Self {
            library: FilesLibrary::new(ai, policy, catalog, environment),
        }
    }
}

impl Deref for GrantedLibrary {
    type Target = FilesLibrary;

    fn deref(&self) -> &FilesLibrary {
        &self.library
    }
}

impl TenantLibrary for GrantedLibrary {
    fn document(&self, kind: &str, name: &str) -> Result<Option<String>, LibraryError> {
        self.library.document(kind, name)
    }

    fn names(&self, kind: &str) -> Result<Vec<String>, LibraryError> {
        self.library.names(kind)
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests plant files from outside the library"
)]
mod tests;
