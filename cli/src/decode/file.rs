//! The file of a capture, which may be compressed by gzip.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use flate2::bufread::GzDecoder;
use rddp_command::failure::Failure;
use rddp_command::units::in_octets;

/// Returns the octets of a capture, unpacked, and the reason why they are not all of it.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, Option<Failure>), Failure> {
    let name = path.display();
    let octets = std::fs::read(path).map_err(|error| Failure::failed(format!("reading {name}: {error}")))?;
    if !octets.starts_with(&GZIP) {
        return Ok((octets, None));
    }
    let (octets, cut) = unpack(&octets, LONGEST);
    let cut = cut.map(|error| {
        let failure = Failure::failed(format!("unpacking {name}: {error}"));
        let is_long = error.kind() == ErrorKind::FileTooLarge;
        if is_long { failure.remedy("unpack it first: gzip -d") } else { failure }
    });
    Ok((octets, cut))
}

/// Unpacks at most `longest` octets, member by member (RFC 1952 §2.2). Returns them, and the reason
/// why they are not all, or the file has more than them.
fn unpack(mut packed: &[u8], longest: u64) -> (Vec<u8>, Option<io::Error>) {
    let mut octets = Vec::new();
    while packed.starts_with(&GZIP) {
        let mut member = GzDecoder::new(packed);
        // One more tells that there are more.
        let left = longest + 1 - octets.len() as u64;
        let read = member.by_ref().take(left).read_to_end(&mut octets);
        if octets.len() as u64 > longest {
            octets.truncate(longest as usize);
            let text = format!("there are more than {longest} octets, and the rest is not read");
            return (octets, Some(io::Error::new(ErrorKind::FileTooLarge, text)));
        }
        if let Err(error) = read {
            let is_cut = error.kind() == ErrorKind::UnexpectedEof;
            let cut = || io::Error::new(ErrorKind::UnexpectedEof, "the file is cut short");
            return (octets, Some(if is_cut { cut() } else { error }));
        }
        packed = member.into_inner();
    }
    // Zeros fill up the last block of a tape; gzip ignores them, too.
    let is_padded = packed.iter().all(|octet| *octet == 0);
    let text = || {
        let behind = in_octets(packed.len() as u64);
        format!("not gzip's, and not read: {behind} behind the end of its data")
    };
    (octets, (!is_padded).then(|| io::Error::new(ErrorKind::InvalidData, text())))
}

/// The first octets of a file of gzip (RFC 1952 §2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Octets that are unpacked at most: a file of a megabyte may hold a gigabyte, and all of it is
/// kept in memory.
const LONGEST: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(octets: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(octets).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_file_is_unpacked_up_to_the_limit() {
        let file = [packed(b"one"), packed(&[0; 7000])].concat();
        let (octets, error) = unpack(&file, 7003);
        assert_eq!((octets.len(), &octets[..4]), (7003, &b"one\0"[..]));
        assert!(error.is_none(), "{error:?}");
        let (octets, error) = unpack(&file, 7002);
        assert_eq!((octets.len(), error.unwrap().kind()), (7002, ErrorKind::FileTooLarge));
    }

    #[test]
    fn a_file_that_is_cut_short_is_unpacked_as_far_as_it_goes() {
        let file = packed(&rddp_test_support::pattern(7000, 1));
        for len in 2..file.len() {
            let (octets, error) = unpack(&file[..len], 9000);
            let error = error.unwrap();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{len}: {error}");
            assert_eq!(error.to_string(), "the file is cut short");
            assert!(len < file.len() - 8 || octets.len() == 7000, "{len}");
        }
    }

    #[test]
    fn octets_behind_the_end_are_told_and_zeros_ignored() {
        for (behind, says) in [
            (&b"A"[..], Some("not gzip's, and not read: 1 octet behind the end of its data")),
            (&[7; 25], Some("not gzip's, and not read: 25 octets behind the end of its data")),
            (&[0; 25], None),
        ] {
            let (octets, error) = unpack(&[&packed(b"one")[..], behind].concat(), 9);
            assert_eq!((&octets[..], error.map(|error| error.to_string()).as_deref()), (&b"one"[..], says));
        }
    }
}
