//! The two libraries: all raw calls, each behind a function that is safe to call.
//!
//! | file | subject |
//! |---|---|
//! | `table` | the functions, found by name |
//! | `library` | loading; which library is refused; the devices |
//! | `context` | a device: attributes, asynchronous events |
//! | `memory` | registered memory |
//! | `window` | memory windows |
//! | `queues` | a completion queue with its channel; requests |
//! | `shared` | a shared receive queue |
//! | `events` | event channels of the connection manager |
//! | `id` | ids of the connection manager |
//! | `parting` | ids whose peer has still to answer that the connection is over |
//!
//! Objects are made and destroyed here, in the order that the libraries want: an object holds those
//! that must outlive it. The functions of both libraries may be called from several threads at a
//! time, which is why the pointers in these objects may be sent between threads.
#![allow(unsafe_code)] // functions of C libraries

mod context;
mod events;
mod id;
mod library;
mod memory;
mod parting;
mod queues;
mod shared;
mod table;
mod window;

use std::ffi::c_int;
use std::io;

pub(crate) use context::{Context, Lends};
pub use context::{DeviceEvent, Domain};
pub(crate) use events::{CmEvent, EventChannel};
pub(crate) use id::{Id, Parameters};
pub use library::Library;
pub use memory::Registration;
pub(crate) use memory::flags_of;
pub(crate) use queues::{Octets, Shape};
pub(crate) use shared::SharedQueue;
pub use window::Window;
pub(crate) use window::Windows;

/// Returns the outcome of a function that returns -1 and sets errno.
fn by_errno(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the outcome of a function that returns an error number. Some return it negative, and -1
/// for a request that they do not understand.
fn by_value(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        number => Err(io::Error::from_raw_os_error(number.saturating_abs())),
    }
}

/// Returns a number of pieces as C has it.
fn count(len: usize) -> io::Result<c_int> {
    c_int::try_from(len).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::by_value;

    #[test]
    fn an_error_number_may_be_negative() {
        let number = |result| by_value(result).err().and_then(|error| error.raw_os_error());
        assert_eq!(number(0), None);
        assert_eq!([number(-22), number(22), number(-12)], [22, 22, 12].map(Some));
        assert_eq!(number(-1), Some(libc::EINVAL), "siw's answer to what it does not know");
    }
}
