//! Errors, each with its cause and what helps.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// The reason why the libraries of RDMA devices cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A library cannot be loaded.
    #[error(
        "no RDMA devices without {library}: {why} (install rdma-core's libibverbs and librdmacm: \
         libibverbs1, librdmacm1 and ibverbs-providers of Debian)"
    )]
    Absent {
        /// The library.
        library: String,
        /// The dynamic linker's reason.
        why: String,
    },
    /// A library lacks a function.
    #[error("{library} is too old, or is none of rdma-core: it has no {symbol} (use rdma-core 15 or newer)")]
    TooOld {
        /// The library.
        library: String,
        /// The function.
        symbol: String,
    },
    /// The library is `librddp_verbs.so`, whose device is rddp in software.
    #[error(
        "{library} is rddp's own librddp_verbs.so, whose devices are rddp itself: run without it \
         (not under `rddp run --verbs`; see LD_LIBRARY_PATH and LD_PRELOAD)"
    )]
    Own {
        /// The library.
        library: String,
    },
}

/// An error of finding a device, registering memory or opening a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The libraries cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// No device has this name.
    #[error("there is no RDMA device {name}: {}", there_are(.there))]
    NoDevice {
        /// The name.
        name: String,
        /// The names that there are.
        there: Vec<String>,
    },
    /// The device has no address, by which the connection manager would find it.
    #[error(
        "{device} has no IP address: give its network interface one (`rdma link` shows the interface, \
         `ip address add` adds an address)"
    )]
    NoAddress {
        /// The device.
        device: String,
    },
    /// The way to an address does not lead through the device.
    #[error("{address} is not reached by {device}, but by {other}: its own addresses are {own:?}")]
    Elsewhere {
        /// The device that was asked for.
        device: String,
        /// The address.
        address: SocketAddr,
        /// The device that was found, or another word for the way.
        other: String,
        /// Addresses of the device that was asked for.
        own: Vec<IpAddr>,
    },
    /// Something else listens at the address.
    #[error("{address} is in use on {device}{}", by_whom(*.is_rnic))]
    AddressInUse {
        /// The device.
        device: String,
        /// The address.
        address: SocketAddr,
        /// The device is an RNIC, whose listener takes the port of the host's TCP.
        is_rnic: bool,
    },
    /// The process may not lock as much memory.
    #[error(
        "registering {len} octets needs more locked memory than this process may have ({limit} octets in \
         all): raise RLIMIT_MEMLOCK (`ulimit -l`; LimitMEMLOCK= of systemd)"
    )]
    LockedMemory {
        /// Octets that were to be registered.
        len: usize,
        /// The limit in octets.
        limit: u64,
    },
    /// Memory was not registered.
    #[error("registering {len} octets failed: {error}")]
    Memory {
        /// Octets that were to be registered.
        len: usize,
        /// The device's answer.
        error: io::Error,
    },
    /// Peers may not write where the owner may not.
    #[error("a right of peers to write needs the right of this end to write (LOCAL_WRITE)")]
    Rights,
    /// The device lacks what was asked for.
    #[error("{device} does not have {what}")]
    Unsupported {
        /// The thing that is lacking.
        what: &'static str,
        /// The device.
        device: String,
    },
    /// The private data is longer than the transport carries.
    #[error("{len} octets of private data: {device} carries at most {max} here")]
    PrivateData {
        /// Octets that were to be sent.
        len: usize,
        /// The limit in octets.
        max: usize,
        /// The device.
        device: String,
    },
    /// The call belongs to another stage of a connection.
    #[error("{0}")]
    Stage(&'static str),
    /// The device was removed: no more comes of it.
    #[error("{device} was removed from this host")]
    Removed {
        /// The device.
        device: String,
    },
    /// A call of a library failed.
    #[error("{call} failed on {device}: {error}{}", hint(call, error))]
    Call {
        /// The function.
        call: &'static str,
        /// The device.
        device: String,
        /// The library's or the kernel's answer.
        error: io::Error,
    },
}

impl DeviceError {
    pub(crate) fn call(call: &'static str, device: &str, error: io::Error) -> Self {
        DeviceError::Call { call, device: device.to_owned(), error }
    }
}

fn there_are(names: &[String]) -> String {
    if names.is_empty() {
        "this host has none (see `rdma link`)".to_owned()
    } else {
        format!("there are {}", names.join(", "))
    }
}

fn by_whom(is_rnic: bool) -> &'static str {
    if is_rnic {
        ": an RNIC's listener takes the host's TCP port, so that software and the RNIC cannot both \
             listen there (software answers RNICs, too: leave the device out, or take another port)"
    } else {
        ": another program listens there for RDMA (take another port)"
    }
}

/// Returns what helps against an error of a call.
fn hint(call: &str, error: &io::Error) -> &'static str {
    match (call, error.raw_os_error()) {
        ("rdma_resolve_addr", Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => {
            " (no RDMA device has the address)"
        }
        ("rdma_accept" | "rdma_reject", Some(libc::ECONNRESET | libc::EINVAL | libc::ENOTCONN)) => {
            " (the peer has gone)"
        }
        (_, Some(libc::ENOMEM)) => " (queues are locked memory, too: raise RLIMIT_MEMLOCK, see `ulimit -l`)",
        (_, Some(libc::EACCES | libc::EPERM)) => {
            " (/dev/infiniband cannot be used, or the process has changed its user since it opened the device)"
        }
        _ => "",
    }
}

/// The reason why a connection did not come about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectFailed {
    /// The way to the peer was not found.
    #[error("no way to the peer: error {status}")]
    NoRoute {
        /// The device's answer.
        status: i32,
    },
    /// Nothing listens at the address.
    #[error("nothing listens for RDMA at that address and port (reason {status})")]
    Refused {
        /// The device's answer.
        status: i32,
    },
    /// The peer's program rejected the connection.
    #[error("the peer rejected the connection")]
    Rejected {
        /// Private data of the peer's program; on InfiniBand with zeros behind it.
        private_data: Vec<u8>,
    },
    /// The peer does not answer.
    #[error("the peer does not answer: error {status}")]
    Unreachable {
        /// The device's answer.
        status: i32,
    },
    /// Another error.
    #[error("the connection failed: {0}")]
    Failed(io::Error),
}

/// The reason why a request was not posted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// Too many requests are outstanding.
    #[error("the queue holds {capacity} requests already: poll for completions first")]
    QueueFull {
        /// Requests that the queue holds.
        capacity: usize,
    },
    /// There is no connection, or none any more.
    #[error("there is no connection to send on")]
    NotConnected,
    /// The request has more pieces of memory than the device takes.
    #[error("{count} pieces of memory: the device takes at most {max} in a request")]
    TooManyPieces {
        /// Pieces of the request.
        count: usize,
        /// The device's limit.
        max: usize,
    },
    /// More octets are inline than the device takes.
    #[error("{len} inline octets: the device takes at most {max}")]
    InlineTooLong {
        /// Octets of the request.
        len: usize,
        /// The queue pair's limit.
        max: usize,
    },
    /// The message is longer than the device's longest.
    #[error("a message of {len} octets: the device's longest has {max}")]
    MessageTooLong {
        /// Octets of the message.
        len: u64,
        /// The device's limit.
        max: u64,
    },
    /// A piece of memory has no name of the device's.
    #[error("a piece of memory that is not registered with the device")]
    Unregistered,
    /// The connection was agreed on without Reads and atomics.
    #[error("a Read or atomic on a connection with ORD 0")]
    NoReads,
    /// The device lacks the operation, or a part of it.
    #[error("the device does not have {what}")]
    Unsupported {
        /// The thing that is lacking.
        what: &'static str,
    },
    /// The process runs for another user than when the device was opened.
    #[error("the process has changed its user or groups since it opened the device: open it anew")]
    Credentials,
    /// The device refused the request.
    #[error("the device refused the request: {0}")]
    Device(io::Error),
}

impl From<io::Error> for PostError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => PostError::Credentials,
            _ => PostError::Device(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_their_remedy() {
        let limit = DeviceError::LockedMemory { len: 1 << 24, limit: 8 << 20 };
        assert!(limit.to_string().contains("ulimit -l"), "{limit}");
        let gone = io::Error::from_raw_os_error(libc::ECONNRESET);
        let gone = DeviceError::call("rdma_accept", "siw0", gone);
        assert!(gone.to_string().contains("peer has gone"), "{gone}");
        let none = DeviceError::NoDevice { name: "siw1".to_owned(), there: vec!["siw0".to_owned()] };
        assert_eq!(none.to_string(), "there is no RDMA device siw1: there are siw0");
        let denied = PostError::from(io::Error::from_raw_os_error(libc::EACCES));
        assert!(matches!(denied, PostError::Credentials), "{denied}");
    }
}
