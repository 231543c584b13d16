//! Values made of a C program's pointers. Making one is unsafe; the value stands for the guarantee,
//! so that safe code may use it.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;

use rddp_real as real;
use rddp_rnic::{Access, Error, MemoryRegion, ProtectionDomain, RegionOptions, Rnic};
use rddp_stream::{Errno, lent};
use smallvec::SmallVec;

use crate::kinds::raw::{MAX_PRIVATE_DATA, Sge, Work};
use crate::socket;

/// Memory that the program registers.
#[derive(Debug)]
pub struct Area {
    begin: NonNull<u8>,
    len: usize,
}

impl Area {
    /// Makes an area of `len` octets at `begin`.
    ///
    /// # Errors
    /// EFAULT for null.
    ///
    /// # Safety
    /// Until the registration has ended, whatever is mapped there must be memory that works and
    /// peers may use as it is registered. No code may rely on its contents staying the same while
    /// they may write there.
    pub unsafe fn promised(begin: *mut u8, len: usize) -> Result<Self, Errno> {
        Ok(Area { begin: NonNull::new(begin).ok_or(Errno::FAULT)?, len })
    }

    pub(crate) fn register(
        &self,
        domain: &ProtectionDomain,
        access: Access,
        options: &RegionOptions,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: `promised` demands that works and peers may use this memory until the
        // registration has ended.
        unsafe { domain.register_with(self.begin, self.len, access, options) }
    }
}

/// A list of works in C's form. Each work is copied when its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct Works<'a> {
    at: *const Work,
    count: usize,
    promised: PhantomData<&'a Work>,
}

impl<'a> Works<'a> {
    /// Makes a list of `count` works at `works`.
    ///
    /// # Errors
    /// EFAULT for null, EINVAL for fewer than one.
    ///
    /// # Safety
    /// `works` must be null or lead to `count` works. The list of each must be null or have `count`
    /// pieces, and the pieces of inline works must lead to as many octets as they say. All that
    /// holds for as long as `'a`; parts of it may be unmapped.
    pub unsafe fn promised(works: *const Work, count: c_int) -> Result<Self, Errno> {
        match usize::try_from(count) {
            Err(_) | Ok(0) => Err(Errno::INVALID),
            _ if works.is_null() => Err(Errno::FAULT),
            Ok(count) => Ok(Works { at: works, count, promised: PhantomData }),
        }
    }

    /// Returns the works; EFAULT for one that is not mapped.
    pub(crate) fn iter(self) -> impl Iterator<Item = Result<One<'a>, Errno>> {
        (0..self.count).map(move |index| {
            let at = self.at.wrapping_add(index);
            // SAFETY: `promised` demands that `count` works are there for `'a`, and `lent` guards
            // against those that are not mapped. A work is integers and a pointer that is only
            // followed under the same guard.
            let work = unsafe { lent::get(at) }?;
            Ok(One { work, promised: PhantomData })
        })
    }
}

/// The program's private data for a Reply.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a>(Option<&'a [u8]>);

impl<'a> Reply<'a> {
    /// Makes a reply of `len` octets at `octets`.
    ///
    /// # Errors
    /// EFAULT for null with a length, EMSGSIZE for more than any Reply holds.
    ///
    /// # Safety
    /// `octets` must be null or lead to `len` octets that nobody writes to, for as long as `'a`.
    pub unsafe fn promised(octets: *const u8, len: usize) -> Result<Self, Errno> {
        match len {
            0 if octets.is_null() => Ok(Reply(None)),
            _ if octets.is_null() => Err(Errno::FAULT),
            len if len > MAX_PRIVATE_DATA => Err(Errno(libc::EMSGSIZE)),
            len if lent::check(octets, len).is_err() => Err(Errno::FAULT),
            // SAFETY: `octets` is not null and was found to be mapped; the caller guarantees that
            // nobody writes to these octets for `'a`.
            len => Ok(Reply(Some(unsafe { slice::from_raw_parts(octets, len) }))),
        }
    }

    /// Returns the private data; `None` if the program gives none.
    pub(crate) fn octets(self) -> Option<&'a [u8]> {
        self.0
    }
}

/// One work of a [`Works`].
#[derive(Clone, Copy)]
pub(crate) struct One<'a> {
    work: Work,
    promised: PhantomData<&'a Work>,
}

/// The pieces of a work, copied.
pub(crate) type List = SmallVec<[Sge; 4]>;

impl One<'_> {
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// Returns the pieces of the work's list.
    pub(crate) fn list(&self) -> Result<List, Errno> {
        match self.work.count as usize {
            0 => Ok(List::new()),
            count if count > Rnic::CAPABILITIES.max_sge => Err(Errno::INVALID),
            _ if self.work.list.is_null() => Err(Errno::FAULT),
            count => {
                let mut list = List::with_capacity(count);
                // SAFETY: `Works::promised` demands that each list has `count` pieces, and `lent`
                // guards against those that are not mapped. The vector has room for `count`, all of
                // which are initialised when they were copied.
                unsafe {
                    let room = slice::from_raw_parts_mut(list.as_mut_ptr().cast::<MaybeUninit<Sge>>(), count);
                    lent::get_all(self.work.list, room)?;
                    list.set_len(count);
                }
                Ok(list)
            }
        }
    }

    /// Returns the octets of an inline work's list, whose pieces are addresses.
    pub(crate) fn inline_octets(&self) -> Result<Vec<u8>, Errno> {
        let list = self.list()?;
        let total: u64 = list.iter().map(|piece| u64::from(piece.len)).sum();
        if total > Rnic::CAPABILITIES.max_inline as u64 {
            return Err(Errno(libc::EMSGSIZE));
        }
        let mut octets = Vec::with_capacity(total as usize);
        for piece in list.iter().filter(|piece| piece.len > 0) {
            let from = std::ptr::with_exposed_provenance::<u8>(piece.to as usize);
            let (len, count) = (octets.len(), piece.len as usize);
            // SAFETY: `Works::promised` demands that the pieces of inline works lead to as many
            // octets as they say, and `lent` guards against those that are not mapped. The vector
            // has room for `total`, and each part is initialised when it was copied.
            unsafe {
                lent::get_all(from, &mut octets.spare_capacity_mut()[..count])?;
                octets.set_len(len + count);
            }
        }
        Ok(octets)
    }
}

/// Returns another descriptor of the program's socket or file, for the RNIC. The library's hooks
/// pass calls on it to the C library.
pub(crate) fn duplicate(fd: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: the call passes an int and no pointer.
    let own = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(Errno::last());
    }
    socket::forget(own);
    // SAFETY: the descriptor was just made, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
}
