//! Errors, each with its cause and what helps.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The reason why the libraries of RDMA devices cannot be used. The text says what helps, too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// A library cannot be loaded.
    Absent {
        /// The library.
        library: String,
        /// The dynamic linker's reason.
        why: String,
    },
    /// A library lacks a function.
    TooOld {
        /// The library.
        library: String,
        /// The function.
        symbol: String,
    },
    /// The library is `librddp_verbs.so`, whose device is rddp in software.
    Own {
        /// The library.
        library: String,
    },
}

impl LoadError {
    /// Returns the reason without what helps.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            LoadError::Absent { library, why } => format!("no RDMA devices without {library}: {why}"),
            LoadError::TooOld { library, symbol } => {
                format!("{library} is too old, or is none of rdma-core: it has no {symbol}")
            }
            LoadError::Own { library } => {
                format!("{library} is rddp's own librddp_verbs.so, whose devices are rddp itself")
            }
        }
    }

    /// Returns what helps.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            LoadError::Absent { .. } => {
                "install rdma-core's libibverbs and librdmacm: libibverbs1, librdmacm1 and \
                 ibverbs-providers of Debian"
            }
            LoadError::TooOld { .. } => "use rdma-core 15 or newer",
            LoadError::Own { .. } => {
                "run without it: not under `rddp run --verbs`; see LD_LIBRARY_PATH and LD_PRELOAD"
            }
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.cause(), self.remedy())
    }
}

impl std::error::Error for LoadError {}

/// An error of finding a device, registering memory or opening a connection. The text says what
/// helps, too, where that is known.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceError {
    /// The libraries cannot be used.
    Library(LoadError),
    /// No device has this name.
    NoDevice {
        /// The name.
        name: String,
        /// The names that there are.
        there: Vec<String>,
    },
    /// The device has no address, by which the connection manager would find it.
    NoAddress {
        /// The device.
        device: String,
    },
    /// The way to an address does not lead through the device.
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
    AddressInUse {
        /// The device.
        device: String,
        /// The address.
        address: SocketAddr,
        /// The device is an RNIC, whose listener takes the port of the host's TCP.
        is_rnic: bool,
    },
    /// The process may not lock as much memory.
    LockedMemory {
        /// Octets that were to be registered.
        len: usize,
        /// The limit in octets.
        limit: u64,
    },
    /// Memory was not registered.
    Memory {
        /// Octets that were to be registered.
        len: usize,
        /// The device's answer.
        error: io::Error,
    },
    /// Peers may not write where the owner may not.
    Rights,
    /// The device lacks what was asked for.
    Unsupported {
        /// The thing that is lacking.
        what: &'static str,
        /// The device.
        device: String,
    },
    /// The private data is longer than the transport carries.
    PrivateData {
        /// Octets that were to be sent.
        len: usize,
        /// The limit in octets.
        max: usize,
        /// The device.
        device: String,
    },
    /// The call belongs to another stage of a connection.
    Stage(&'static str),
    /// The device was removed: no more comes of it.
    Removed {
        /// The device.
        device: String,
    },
    /// A call of a library failed.
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

    /// Returns the reason without what helps.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            DeviceError::Library(error) => error.cause(),
            DeviceError::NoDevice { name, there } => {
                format!("there is no RDMA device {name}: {}", there_are(there))
            }
            DeviceError::NoAddress { device } => format!("{device} has no IP address"),
            DeviceError::Elsewhere { device, address, other, own } => {
                format!("{address} is not reached by {device}, but by {other}: its own addresses are {own:?}")
            }
            DeviceError::AddressInUse { device, address, is_rnic: true } => format!(
                "{address} is in use on {device}: an RNIC's listener takes the host's TCP port, so that \
                 software and the RNIC cannot both listen there"
            ),
            DeviceError::AddressInUse { device, address, is_rnic: false } => {
                format!("{address} is in use on {device}: another program listens there for RDMA")
            }
            DeviceError::LockedMemory { len, limit } => format!(
                "registering {len} octets needs more locked memory than this process may have ({limit} \
                 octets in all)"
            ),
            DeviceError::Memory { len, error } => format!("registering {len} octets failed: {error}"),
            DeviceError::Rights => {
                "a right of peers to write needs the right of this end to write (LOCAL_WRITE)".to_owned()
            }
            DeviceError::Unsupported { what, device } => format!("{device} does not have {what}"),
            DeviceError::PrivateData { len, max, device } => {
                format!("{len} octets of private data: {device} carries at most {max} here")
            }
            DeviceError::Stage(what) => (*what).to_owned(),
            DeviceError::Removed { device } => format!("{device} was removed from this host"),
            DeviceError::Call { call, device, error } => format!("{call} failed on {device}: {error}"),
        }
    }

    /// Returns what helps, or what else there is to say, if something is known.
    #[must_use]
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            DeviceError::Library(error) => Some(error.remedy()),
            DeviceError::NoDevice { there, .. } if there.is_empty() => Some("see `rdma link`"),
            DeviceError::NoAddress { .. } => Some(
                "give its network interface one: `rdma link` shows the interface, `ip address add` adds an \
                 address",
            ),
            DeviceError::Elsewhere { .. } => {
                Some("name that one, or see to the route: `ip route get` shows it")
            }
            DeviceError::AddressInUse { is_rnic: true, .. } => {
                Some("software answers RNICs, too: leave the device out, or take another port")
            }
            DeviceError::AddressInUse { is_rnic: false, .. } => Some("take another port"),
            DeviceError::LockedMemory { .. } => {
                Some("raise RLIMIT_MEMLOCK: `ulimit -l`; LimitMEMLOCK= of systemd")
            }
            DeviceError::Call { call, error, .. } => hint(call, error),
            _ => None,
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, " ({remedy})"))
    }
}

impl std::error::Error for DeviceError {}

impl From<LoadError> for DeviceError {
    fn from(error: LoadError) -> Self {
        DeviceError::Library(error)
    }
}

fn there_are(names: &[String]) -> String {
    if names.is_empty() { "this host has none".to_owned() } else { format!("there are {}", names.join(", ")) }
}

/// Returns what helps against an error of a call.
fn hint(call: &str, error: &io::Error) -> Option<&'static str> {
    match (call, error.raw_os_error()) {
        ("rdma_resolve_addr", Some(libc::EADDRNOTAVAIL | libc::ENODEV)) => {
            Some("no RDMA device has the address")
        }
        ("rdma_accept" | "rdma_reject", Some(libc::ECONNRESET | libc::EINVAL | libc::ENOTCONN)) => {
            Some("the peer has gone")
        }
        (_, Some(libc::EMFILE | libc::ENFILE)) => Some("raise the limit of open files, see `ulimit -n`"),
        (_, Some(libc::ENOMEM)) => {
            Some("queues are locked memory, too: raise RLIMIT_MEMLOCK, see `ulimit -l`")
        }
        (_, Some(libc::EACCES | libc::EPERM)) => Some(
            "/dev/infiniband cannot be used, or the process has changed its user since it opened the device",
        ),
        _ => None,
    }
}

/// The reason why a connection did not come about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectFailed {
    /// The way to the peer was not found.
    #[error("no way to the peer: {}", reason(*.status))]
    NoRoute {
        /// The device's answer.
        status: i32,
    },
    /// Nothing listens at the address, or the device there refuses.
    #[error("{}", refusal(*.status))]
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
    #[error("the peer does not answer: {}", reason(*.status))]
    Unreachable {
        /// The device's answer.
        status: i32,
    },
    /// The connection was ended while it was being made.
    #[error("the peer ended the connection while it was being made")]
    Ended,
    /// Another error.
    #[error("the connection failed: {0}")]
    Failed(io::Error),
}

/// Reason of a Reject of InfiniBand: there is no such service.
const NO_SERVICE: i32 = 8;

fn refusal(status: i32) -> String {
    match status.saturating_abs() {
        NO_SERVICE | libc::ECONNREFUSED => "nothing listens for RDMA at that address and port".to_owned(),
        _ => format!("the peer's device refuses the connection: {}", reason(status)),
    }
}

/// Returns the words for the status of an event: an errno with its sign turned, or a reason of a
/// Reject (InfiniBand Architecture Specification, volume 1, section 12.6.7.2).
fn reason(status: i32) -> String {
    match status {
        ..0 => io::Error::from_raw_os_error(status.saturating_abs()).to_string(),
        0 => "it does not say why".to_owned(),
        1 | 3 => "it has no room for another".to_owned(),
        4 => "it has not got an answer in time".to_owned(),
        10 => "it knows this end by another connection, which is over".to_owned(),
        _ => format!("reason {status} of InfiniBand's connection manager"),
    }
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
        let absent =
            DeviceError::from(LoadError::Absent { library: "libx.so".to_owned(), why: "gone".to_owned() });
        assert_eq!(absent.cause(), "no RDMA devices without libx.so: gone");
        assert!(absent.remedy().is_some_and(|remedy| absent.to_string().ends_with(&format!(" ({remedy})"))));
        let denied = PostError::from(io::Error::from_raw_os_error(libc::EACCES));
        assert!(matches!(denied, PostError::Credentials), "{denied}");
    }

    #[test]
    fn a_number_of_the_kernels_is_told_by_its_words() {
        let no_route = ConnectFailed::NoRoute { status: -libc::ENODEV }.to_string();
        assert_eq!(no_route, "no way to the peer: No such device (os error 19)");
        let nobody = [-libc::ECONNREFUSED, NO_SERVICE].map(|status| ConnectFailed::Refused { status });
        for failed in nobody {
            assert_eq!(failed.to_string(), "nothing listens for RDMA at that address and port");
        }
        let full = ConnectFailed::Refused { status: 3 }.to_string();
        assert!(full.ends_with("it has no room for another"), "{full}");
        let silent = ConnectFailed::Unreachable { status: -libc::ETIMEDOUT }.to_string();
        assert!(silent.contains("timed out"), "{silent}");
    }
}
