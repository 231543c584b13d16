//! Files that are mapped for reading, whose octets several regions may have.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::alloc::Mapping;
use super::{Access, MemError};

/// A file as a whole, mapped for reading. Its clones, and regions that are made of it
/// ([`ProtectionDomain::register_mapping`](crate::ProtectionDomain::register_mapping)), share the
/// mapping, which ends with the last of them.
///
/// ```
/// use rddp_rnic::{Access, FileMapping, Rnic};
/// let mapping = FileMapping::new(&std::fs::File::open("Cargo.toml")?)?;
/// let pd = Rnic::open()?.alloc_pd();
/// let region = pd.register_mapping(&mapping, 1..8, Access::REMOTE_READ)?;
/// assert_eq!(region.read(0, 7)?, b"package");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FileMapping {
    mapping: Arc<Mapping>,
    len: usize,
}

impl FileMapping {
    /// Maps all octets that a file has now. No page is touched.
    ///
    /// # Errors
    /// No regular file, or one that is not open for reading; more octets than there are addresses;
    /// a file system whose files cannot be mapped.
    pub fn new(file: &File) -> Result<Self, MemError> {
        let metadata = file.metadata().map_err(MemError::File)?;
        if !metadata.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
            return Err(MemError::File(error));
        }
        let wraps = |_| MemError::Wrap { addr: 0, len: metadata.len() };
        let len = usize::try_from(metadata.len()).map_err(wraps)?;
        Ok(FileMapping { mapping: Arc::new(Mapping::of_file(file, len)?), len })
    }

    /// Returns the number of octets that are mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the file had no octets.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the mapping, and the address of the first octet of a range in it.
    pub(super) fn at(&self, range: &Range<usize>) -> Result<(Arc<Mapping>, NonNull<u8>), MemError> {
        let &Range { start, end } = range;
        if start > end || end > self.len {
            let [start, end, len] = [start, end, self.len].map(|at| at as u64);
            return Err(MemError::NotInFile { start, end, len });
        }
        Ok((self.mapping.clone(), self.mapping.at(start)))
    }
}

impl std::fmt::Debug for FileMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileMapping").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Refuses rights that no region over a mapped file may have: by which octets change.
pub(super) fn check_mapped(access: Access) -> Result<(), MemError> {
    let others = access.difference(Access::STABLE);
    super::access::check_file(others)
}
