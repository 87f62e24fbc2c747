//! Looks through texts eight bytes at a time: each text of a turn passes here several times.

/// A word whose bytes are all 1.
const ONES: u64 = u64::MAX / 0xff;
/// The highest bit of each byte of a word.
const HIGH: u64 = ONES << 7;

/// Returns the place of the first byte that is wanted. `marks` returns a word that is not 0 for
/// each word with such a byte.
#[inline(always)]
fn find_byte(
    bytes: &[u8],
    marks: impl Fn(u64) -> u64,
    wanted: impl Fn(u8) -> bool,
) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let plain = |word: &&[u8; 8]| marks(u64::from_le_bytes(**word)) == 0;
    let passed = words.iter().take_while(plain).count() * 8;
    let rest = bytes[passed..].iter().position(|&byte| wanted(byte));
    rest.map(|place| passed + place)
}

/// Sets the highest bit of the lowest byte that equals `byte`. All other bits mean nothing: those
/// of bytes above it, of bytes that are 128 or more, and the lower seven of each. A mask of
/// `HIGH & !word` leaves the bits that count.
#[inline(always)]
const fn mark_byte(word: u64, byte: u8) -> u64 {
    (word ^ (ONES * byte as u64)).wrapping_sub(ONES)
}

/// Returns the place of the first backslash.
pub(crate) fn find_backslash(bytes: &[u8]) -> Option<usize> {
    let marks = |word: u64| mark_byte(word, b'\\') & !word & HIGH;
    find_byte(bytes, marks, |byte| byte == b'\\')
}

/// Counts the bytes from the beginning that need no escape in a JSON string.
pub fn count_plain_bytes(bytes: &[u8]) -> usize {
    let marks = |word: u64| {
        let control = word.wrapping_sub(ONES * u64::from(b' '));
        (control | mark_byte(word, b'"') | mark_byte(word, b'\\')) & !word & HIGH
    };
    let escaped = |byte| byte < b' ' || byte == b'"' || byte == b'\\';
    find_byte(bytes, marks, escaped).unwrap_or(bytes.len())
}

/// Counts the bytes from the beginning that are ASCII.
pub fn count_ascii_bytes(bytes: &[u8]) -> usize {
    find_byte(bytes, |word| word & HIGH, |byte| byte >= 0x80).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte that is looked for is found wherever it stands, among whichever others, and nothing
    /// is found before it.
    #[test]
    fn finds_the_first_wanted_byte_at_every_place() {
        for (length, filler) in (0..40).flat_map(|length| [b'a', b'!', 0x7f].map(|b| (length, b))) {
            let mut bytes = vec![filler; length];
            for (place, byte) in (0..length).flat_map(|place| (0..=255).map(move |b| (place, b))) {
                bytes[place..].fill(b'"');
                bytes[place] = byte;
                let plain = byte >= b' ' && byte != b'"' && byte != b'\\';
                let after = bytes.len().min(place + 1);
                assert_eq!(count_plain_bytes(&bytes), if plain { after } else { place });
                bytes[place + 1..].fill(filler);
                let whole = |found: bool| if found { place } else { length };
                assert_eq!(count_plain_bytes(&bytes), whole(!plain), "{bytes:?}");
                assert_eq!(count_ascii_bytes(&bytes), whole(byte >= 0x80), "{bytes:?}");
                let backslash = (byte == b'\\').then_some(place);
                assert_eq!(find_backslash(&bytes), backslash, "{bytes:?}");
                bytes[place] = filler;
            }
        }
    }

    /// Above 127 no byte needs an escape, whatever stands beside it.
    #[test]
    fn passes_other_alphabets() {
        for text in ["\u{80}ÿ\u{7f}", "漢字漢字漢字", "мир!мир!", "😀😀😀"] {
            let text = text.repeat(3);
            assert_eq!(count_plain_bytes(text.as_bytes()), text.len());
            let quoted = format!("{text}\"{text}");
            assert_eq!(count_plain_bytes(quoted.as_bytes()), text.len());
        }
    }
}
