//! What the program's pointers promise, in values that only the promise makes: whoever has one may use it in safe code.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;

use rddp_real as real;
use rddp_rnic::{Access, Error, MAX_INLINE, MAX_SGE, MemoryRegion, ProtectionDomain, RegionOptions};
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
    /// # Errors
    /// EFAULT for null.
    ///
    /// # Safety
    /// Until that has ended, whatever is mapped there is memory that works and peers
    /// may use as it is registered; and nobody relies on its contents staying the same
    /// while they may write there.
    pub unsafe fn promised(begin: *mut u8, len: usize) -> Result<Self, Errno> {
        Ok(Area { begin: NonNull::new(begin).ok_or(Errno::FAULT)?, len })
    }

    pub(crate) fn register(
        &self,
        domain: &ProtectionDomain,
        access: Access,
        options: &RegionOptions,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: as was promised when this was made.
        unsafe { domain.register_with(self.begin, self.len, access, options) }
    }
}

/// A list of works, as C has it. Each is copied when its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct Works<'a> {
    at: *const Work,
    count: usize,
    promised: PhantomData<&'a Work>,
}

impl<'a> Works<'a> {
    /// # Errors
    /// EFAULT for null, EINVAL for fewer than one.
    ///
    /// # Safety
    /// `works` is null or leads to `count` works, whose lists are null or have `count` pieces, and those of inline works lead to
    /// as many octets as they say; all that for as long as `'a`, as far as it is there.
    pub unsafe fn promised(works: *const Work, count: c_int) -> Result<Self, Errno> {
        match usize::try_from(count) {
            Err(_) | Ok(0) => Err(Errno::INVALID),
            _ if works.is_null() => Err(Errno::FAULT),
            Ok(count) => Ok(Works { at: works, count, promised: PhantomData }),
        }
    }

    /// Each of them; EFAULT for one that is not there.
    pub(crate) fn iter(self) -> impl Iterator<Item = Result<One<'a>, Errno>> {
        (0..self.count).map(move |index| {
            let at = self.at.wrapping_add(index);
            // SAFETY: as was promised; a work is integers and a pointer that nobody follows
            // unguarded.
            let work = unsafe { lent::get(at) }?;
            Ok(One { work, promised: PhantomData })
        })
    }
}

/// What the program says to a peer's.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a>(Option<&'a [u8]>);

impl<'a> Reply<'a> {
    /// # Errors
    /// EFAULT for null with a length, EMSGSIZE for more than any Reply holds.
    ///
    /// # Safety
    /// `octets` is null or leads to `len` octets, for as long as `'a`.
    pub unsafe fn promised(octets: *const u8, len: usize) -> Result<Self, Errno> {
        match len {
            0 if octets.is_null() => Ok(Reply(None)),
            _ if octets.is_null() => Err(Errno::FAULT),
            len if len > MAX_PRIVATE_DATA => Err(Errno(libc::EMSGSIZE)),
            len if lent::check(octets, len).is_err() => Err(Errno::FAULT),
            // SAFETY: as the caller promises.
            len => Ok(Reply(Some(unsafe { slice::from_raw_parts(octets, len) }))),
        }
    }

    /// `None`: nothing of its own.
    pub(crate) fn octets(self) -> Option<&'a [u8]> {
        self.0
    }
}

/// A member of [`Works`].
#[derive(Clone, Copy)]
pub(crate) struct One<'a> {
    work: Work,
    promised: PhantomData<&'a Work>,
}

/// A list of pieces, copied.
pub(crate) type List = SmallVec<[Sge; 4]>;

impl One<'_> {
    pub(crate) fn work(&self) -> &Work {
        &self.work
    }

    /// The pieces of its list.
    pub(crate) fn list(&self) -> Result<List, Errno> {
        match self.work.count as usize {
            0 => Ok(List::new()),
            count if count > MAX_SGE => Err(Errno::INVALID),
            _ if self.work.list.is_null() => Err(Errno::FAULT),
            count => {
                let mut list = List::with_capacity(count);
                // SAFETY: promised of every work in a `Works`; there is room for so many, which are
                // there when they were copied.
                unsafe {
                    let room = slice::from_raw_parts_mut(list.as_mut_ptr().cast::<MaybeUninit<Sge>>(), count);
                    lent::get_all(self.work.list, room)?;
                    list.set_len(count);
                }
                Ok(list)
            }
        }
    }

    /// The octets of its list, whose pieces are addresses.
    pub(crate) fn inline_octets(&self) -> Result<Vec<u8>, Errno> {
        let list = self.list()?;
        let total: u64 = list.iter().map(|piece| u64::from(piece.len)).sum();
        if total > MAX_INLINE as u64 {
            return Err(Errno(libc::EMSGSIZE));
        }
        let mut octets = Vec::with_capacity(total as usize);
        for piece in list.iter().filter(|piece| piece.len > 0) {
            let from = std::ptr::with_exposed_provenance::<u8>(piece.to as usize);
            let (len, count) = (octets.len(), piece.len as usize);
            // SAFETY: promised of every inline work in a `Works`; there is room for all of them.
            unsafe {
                lent::get_all(from, &mut octets.spare_capacity_mut()[..count])?;
                octets.set_len(len + count);
            }
        }
        Ok(octets)
    }
}

/// Another descriptor of the program's socket, for the RNIC; the calls of this library on it are the C library's.
pub(crate) fn duplicate(fd: c_int) -> Result<socket2::Socket, Errno> {
    // SAFETY: it takes an int.
    let own = unsafe { real::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(Errno::last());
    }
    socket::forget(own);
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(own) }.into())
}
