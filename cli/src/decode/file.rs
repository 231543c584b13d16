//! The file of a capture, which may be compressed by gzip.

use std::io::{self, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::failure::Failure;

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
        let is_long = error.kind() == io::ErrorKind::FileTooLarge;
        if is_long { failure.remedy("unpack it first: gzip -d") } else { failure }
    });
    Ok((octets, cut))
}

/// Unpacks at most `longest` octets. Returns them, and the reason why they are not all.
fn unpack(packed: &[u8], longest: u64) -> (Vec<u8>, Option<io::Error>) {
    let mut octets = Vec::new();
    // One more tells that there are more.
    let read = MultiGzDecoder::new(packed).take(longest + 1).read_to_end(&mut octets);
    if octets.len() as u64 <= longest {
        return (octets, read.err());
    }
    octets.truncate(longest as usize);
    let text = format!("there are more than {longest} octets, and the rest is not read");
    (octets, Some(io::Error::new(io::ErrorKind::FileTooLarge, text)))
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
        assert_eq!((octets.len(), error.unwrap().kind()), (7002, io::ErrorKind::FileTooLarge));
    }

    #[test]
    fn a_file_that_is_cut_short_is_unpacked_as_far_as_it_goes() {
        let file = packed(&rddp_test_support::pattern(7000, 1));
        let (octets, error) = unpack(&file[..file.len() - 1], 9000);
        assert_eq!((octets.len(), error.unwrap().kind()), (7000, io::ErrorKind::UnexpectedEof));
    }
}
