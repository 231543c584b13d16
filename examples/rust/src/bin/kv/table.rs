//! The table of the store, as it is in the server's memory and as clients Read it.
//!
//! A key belongs into one bucket, which a client Reads as a whole. The server may be changing an
//! entry meanwhile, so that a Read returns old octets beside new ones: an entry begins with a sum
//! of all its others, and counts only if that is right.

/// Octets of an entry, entries of a bucket, buckets of the table.
pub(crate) const ENTRY: usize = 256;
const ENTRIES: usize = 4;
const BUCKETS: usize = 1024;

/// Octets of a bucket, and of the table.
pub(crate) const BUCKET: usize = ENTRIES * ENTRY;
pub(crate) const TABLE: usize = BUCKETS * BUCKET;

/// Octets of the sum, which are followed by the lengths of key and value.
const SUM: usize = 8;
const HEADER: usize = SUM + 2;

/// The greatest number of octets of a key and its value together.
pub(crate) const MOST: usize = ENTRY - HEADER;

/// An entry, as far as its octets say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Free,
    Taken {
        key: &'a [u8],
        value: &'a [u8],
    },
    /// The entry was changed while it was read.
    Torn,
}

/// Returns the offset of a key's bucket in the table.
pub(crate) fn bucket_of(key: &[u8]) -> usize {
    (sum(key) % BUCKETS as u64) as usize * BUCKET
}

/// Returns the octets of an entry; `None` if it would be too long.
pub(crate) fn emit(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    if key.is_empty() || key.len() + value.len() > MOST {
        return None;
    }
    let mut entry = vec![0; SUM];
    entry.extend([key.len() as u8, value.len() as u8]);
    entry.extend_from_slice(key);
    entry.extend_from_slice(value);
    entry.resize(ENTRY, 0);
    let sum = sum(&entry[SUM..]).to_le_bytes();
    entry[..SUM].copy_from_slice(&sum);
    Some(entry)
}

/// Returns the entry whose octets these are.
pub(crate) fn parse(entry: &[u8]) -> Entry<'_> {
    if entry.iter().all(|octet| *octet == 0) {
        return Entry::Free;
    }
    let Some((header, rest)) = entry.split_first_chunk::<HEADER>() else { return Entry::Torn };
    let [.., key_len, value_len] = header.map(usize::from);
    if header[..SUM] != sum(&entry[SUM..]).to_le_bytes() || key_len + value_len > rest.len() {
        return Entry::Torn;
    }
    let (key, rest) = rest.split_at(key_len);
    Entry::Taken { key, value: &rest[..value_len] }
}

/// Returns a sum of octets (FNV-1a).
fn sum(octets: &[u8]) -> u64 {
    octets
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, octet| (sum ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = emit(b"key", b"value").unwrap();
        assert_eq!(entry.len(), ENTRY);
        assert_eq!(parse(&entry), Entry::Taken { key: b"key", value: b"value" });
        assert_eq!(parse(&[0; ENTRY]), Entry::Free);
        assert!(emit(&[1; MOST], b"").is_some());
        assert!(emit(&[1; MOST], b"x").is_none() && emit(b"", b"x").is_none());
    }

    #[test]
    fn a_mixture_of_two_entries_is_none() {
        let (old, new) = (emit(b"key", b"value").unwrap(), emit(b"key", b"other").unwrap());
        for at in 1..HEADER + 8 {
            let mixed = [&new[..at], &old[at..]].concat();
            assert!(mixed == new || mixed == old || parse(&mixed) == Entry::Torn, "{at}");
        }
    }
}
