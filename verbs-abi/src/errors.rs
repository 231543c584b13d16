//! Errors of `rddp-rnic` as error numbers.

use std::io;

use nix::errno::Errno;
use rddp_rnic::{ConnectError, Error, MemError, PostError};

use crate::refusal::because;

/// The outcome of a call: an error is a number of `errno.h`.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// Returns the number of an error that the host or the device has answered with.
pub(crate) fn of_io(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Returns the number of an error of a device whose queue pairs have ports of the host: where the
/// host has none left, the device has no number.
pub(crate) fn of_ports(error: Errno) -> Errno {
    match error {
        Errno::EADDRINUSE => because(Errno::ENOMEM, NO_PORT),
        other => other,
    }
}

const NO_PORT: &str = "the host has no TCP or UDP port left at the device's address, which each 256 \
                       queue pairs and each connection take: end programs that hold many, or widen \
                       net.ipv4.ip_local_port_range";

pub(crate) fn of_device(error: Error) -> Errno {
    let number = match &error {
        Error::Memory(error) => return of_memory(error),
        Error::Host { error, .. } => of_io(error),
        Error::CqOverflow { .. } => Errno::EIO,
        Error::Forked(_) => Errno::ENODEV,
        _ => Errno::EINVAL,
    };
    because(number, error)
}

pub(crate) fn of_memory(error: &MemError) -> Errno {
    let number = match error {
        MemError::Wrap { .. } | MemError::NotMapped { .. } | MemError::NotPermitted { .. } => Errno::EFAULT,
        MemError::TooManyStags { .. } => Errno::ENOMEM,
        MemError::WindowsBound { .. } => Errno::EBUSY,
        MemError::Maps(error) | MemError::Os { error, .. } => of_io(error),
        MemError::Forked(_) => Errno::ENODEV,
        _ => Errno::EINVAL,
    };
    because(number, error)
}

pub(crate) fn of_post(error: PostError) -> Errno {
    let number = match error {
        PostError::QueueFull { .. } => Errno::ENOMEM,
        PostError::Unsupported => Errno::EOPNOTSUPP,
        PostError::CqOverflow { .. } => Errno::EIO,
        PostError::Forked(_) => Errno::ENODEV,
        _ => Errno::EINVAL,
    };
    because(number, error)
}

pub(crate) fn of_connect(error: &ConnectError) -> Errno {
    let number = match error {
        ConnectError::Tcp(error) => of_io(error),
        ConnectError::TimedOut(_) => Errno::ETIMEDOUT,
        ConnectError::Closed => Errno::ECONNRESET,
        ConnectError::Rejected { .. } => Errno::ECONNREFUSED,
        ConnectError::Startup(_) => Errno::EPROTO,
        ConnectError::GivenUp | ConnectError::Declined => Errno::ECONNABORTED,
        ConnectError::Forked(_) => Errno::ENODEV,
        _ => Errno::EINVAL,
    };
    because(number, error)
}
