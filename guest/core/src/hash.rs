//! SHA-256 as lower-case hex.

use sha2::{Digest, Sha256};

/// Computes SHA-256 of the parts, each preceded by its length, so that no two lists of parts give
/// the same input.
pub fn sha256(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    hex(&hasher.finalize())
}

/// Computes SHA-256 of one text, as other programs compute it.
pub fn sha256_text(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // Bytes first and a text at the end: a character at a time is slow where the compiler keeps the
    // code small.
    let mut text = Vec::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    String::from_utf8(text).expect("hex digits are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_standard_digest_and_separates_parts() {
        assert_eq!(
            sha256_text("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_ne!(sha256(&["ab", "c"]), sha256(&["a", "bc"]));
    }
}
