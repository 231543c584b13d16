//! The structures of `include/rddp/exs.h`.

use std::ffi::{c_int, c_void};

use libc::{off_t, socklen_t};

/// `exs_event_t`. Pointers of the program are numbers here: nobody but the program follows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// What has ended (`event`).
    pub kind: c_int,
    /// 0, or why it failed.
    pub errno: c_int,
    /// The descriptor that it was posted for.
    pub socket: c_int,
    /// 0.
    pub reserved: c_int,
    /// The program's.
    pub ahandle: usize,
    /// What the call was given: the buffer, or the structure.
    pub at: usize,
    /// Octets that were moved; sockets accepted; descriptors ready.
    pub length: usize,
    /// Of a receive, the flags that came with the octets.
    pub detail: c_int,
}

/// `exs_iovec_t`: a piece of memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IoVec {
    /// Where it begins.
    pub base: *mut c_void,
    /// Its octets.
    pub len: usize,
    /// Its handle, or `UNREGISTERED`.
    pub mhandle: c_int,
}

/// `exs_msghdr_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MsgHdr {
    /// Null.
    pub name: *mut c_void,
    /// 0.
    pub name_len: socklen_t,
    /// How many pieces.
    pub iov_len: c_int,
    /// The pieces.
    pub iov: *const IoVec,
    /// Null.
    pub control: *mut c_void,
    /// 0.
    pub control_len: usize,
    /// Not looked at.
    pub flags: c_int,
}

/// `exs_fdvec_t`: a part of a file.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FdVec {
    /// The file.
    pub fd: c_int,
    /// Where it begins.
    pub offset: off_t,
    /// Its octets; 0: to the end of the file.
    pub len: usize,
}

/// `exs_xferpart_t`: a part of a file or a piece of memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct XferPart {
    /// One of [`parts`].
    pub kind: c_int,
    /// As the kind says.
    pub of: PartOf,
}

/// The two kinds of parts.
#[derive(Clone, Copy)]
#[repr(C)]
pub union PartOf {
    /// `parts::FILE`.
    pub file: FdVec,
    /// `parts::MEMORY`.
    pub memory: IoVec,
}

/// `exs_xferfile_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct XferFile {
    /// The parts, in order.
    pub parts: *const XferPart,
    /// How many.
    pub count: c_int,
}

/// Kinds of parts.
pub mod parts {
    use std::ffi::c_int;

    /// `EXS_IOVEC`.
    pub const MEMORY: c_int = 1;
    /// `EXS_FDVEC`.
    pub const FILE: c_int = 2;
}

const _: () = {
    assert!(size_of::<Event>() == 48);
    assert!(size_of::<IoVec>() == 24);
    assert!(size_of::<MsgHdr>() == 48);
    assert!(size_of::<XferPart>() == 32);
    assert!(size_of::<XferFile>() == 16);
    assert!(size_of::<crate::as_program::AcceptAddr>() == 24);
};
