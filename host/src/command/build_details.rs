//! What this program is made of: versions and the build, for `--version --verbose` and `doctor`.

use sha2::{Digest, Sha256};
use threadkeep::engine::{COMPONENT, WIT_VERSION};

/// The release of wasmtime that this program is built with; a test compares it with the lock file.
pub const WASMTIME: &str = "48.0.8";

/// Returns the hash of the component, in hexadecimal digits.
pub fn component_hash() -> String {
    let digest = Sha256::digest(COMPONENT);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the name and value of each detail.
pub fn list_details() -> Vec<(String, String)> {
    let bytes = COMPONENT.len();
    let component = format!("{bytes} bytes, sha256 {}", component_hash());
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    let (arch, system) = (std::env::consts::ARCH, std::env::consts::OS);
    let mut details = vec![
        ("component", component),
        ("contract", format!("threadkeep:threads@{WIT_VERSION}")),
        ("wasmtime", WASMTIME.to_owned()),
    ];
    #[cfg(feature = "sqlite")]
    details.push(("sqlite", rusqlite::version().to_owned()));
    details.push(("build", format!("{build}, {arch} {system}")));
    let details = details.into_iter();
    details
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
