//! A nonce for a process that holds threads without a lock file.

use crate::component::RandomUnavailable;

/// Prefix of the nonce. Not `authority::NATIVE_PREFIX`, for which a lock file shows whether the
/// holder lives.
const PREFIX: &str = "host-";

/// A fresh nonce for [`super::Driver::new`], on a host without a directory. No other process can
/// detect the death of its process: store the nonce, and pass it to `Tenant::recover` afterwards.
///
/// # Errors
/// If the system has no random numbers.
pub fn fresh_nonce() -> Result<String, RandomUnavailable> {
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|_| RandomUnavailable)?;
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
