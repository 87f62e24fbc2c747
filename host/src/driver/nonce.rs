//! A name for a process that holds threads, where there is no lock file to name it.

use crate::component::NoRandom;

/// What it begins with. Not `authority::NATIVE_PREFIX`: of a holder with that one a lock file says whether it lives.
const PREFIX: &str = "host-";

/// A fresh name among holders, for [`super::Driver::new`], of a host without a directory. Nobody finds out by himself
/// when its process has died: keep the name, and hand it to `Tenant::recover` afterwards.
///
/// # Errors
/// If the system has no random numbers.
pub fn fresh_nonce() -> Result<String, NoRandom> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|_| NoRandom)?;
    Ok(format!("{PREFIX}{:016x}", u64::from_be_bytes(random)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::NATIVE_PREFIX;

    #[test]
    fn no_two_are_the_same_and_none_names_a_lock_file() {
        let (one, two) = (fresh_nonce().unwrap(), fresh_nonce().unwrap());
        assert_ne!(one, two);
        assert!(!one.starts_with(NATIVE_PREFIX), "{one}");
    }
}
