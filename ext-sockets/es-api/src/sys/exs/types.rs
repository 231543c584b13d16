//! The structures of `include/rddp/exs.h`.

use std::ffi::{c_int, c_void};

use libc::{off_t, socklen_t};

/// `exs_event_t`. Pointers of the program are kept as numbers: only the program follows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Event {
    /// Kind of the operation that has ended (`event`).
    pub kind: c_int,
    /// Error of the operation; 0 for success.
    pub errno: c_int,
    /// Descriptor of the operation.
    pub socket: c_int,
    /// Always 0.
    pub reserved: c_int,
    /// Value that the program gave.
    pub ahandle: usize,
    /// Address that the call was given: of the buffer, or of the structure.
    pub at: usize,
    /// Number of octets moved, sockets accepted or descriptors ready.
    pub length: usize,
    /// Flags of a receive that came with the octets.
    pub detail: c_int,
}

/// `exs_iovec_t`: a piece of memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IoVec {
    /// Address of its first octet.
    pub base: *mut c_void,
    /// Number of octets.
    pub len: usize,
    /// Handle of the region that it lies in, or `UNREGISTERED`.
    pub mhandle: c_int,
}

/// `exs_msghdr_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MsgHdr {
    /// Null: the socket is connected.
    pub name: *mut c_void,
    /// Always 0.
    pub name_len: socklen_t,
    /// Number of pieces.
    pub iov_len: c_int,
    /// The pieces.
    pub iov: *const IoVec,
    /// Null: there are no control messages.
    pub control: *mut c_void,
    /// Always 0.
    pub control_len: usize,
    /// Not used.
    pub flags: c_int,
}

/// `exs_fdvec_t`: a part of a file.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FdVec {
    /// Descriptor of the file.
    pub fd: c_int,
    /// Offset of the first octet.
    pub offset: off_t,
    /// Number of octets; 0 for all to the end of the file.
    pub len: usize,
}

/// `exs_xferpart_t`: a part of a file or a piece of memory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct XferPart {
    /// Kind of the part: one of [`parts`].
    pub kind: c_int,
    /// The member that `kind` names.
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
    /// Number of parts.
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
