//! Classifiers: who owns one, and removal of those whose owner is dead.
//!
//! Before Linux 6.6 the program is attached by a classifier of tc, which stays on its interface
//! when its process is killed, and keeps the maps alive: registered memory among them. So each has
//! a handle of its own, and its owner holds a name of that handle for as long as it lives: that of
//! a socket, which the kernel closes with the process. Who can take the name of a classifier that
//! exists knows that its owner is dead. Names of abstract sockets belong to the network namespace
//! as interfaces do, whatever namespaces of processes or files its users are in.

use std::collections::HashSet;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use aya::programs::TcAttachType;
use aya::programs::tc::{NlOptions, SchedClassifierLink, TcHandle};

use super::netlink::{self, Filter};
use super::{PatchError, patch};

/// A classifier by which a process, alive or dead, has put the program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// Handle, which no other classifier of the program has on the interface.
    pub handle: u32,
}

impl Classifier {
    /// Returns all of an interface of this thread's network namespace.
    ///
    /// # Errors
    /// There is no such interface, or the kernel does not tell.
    pub fn all(interface: &str) -> Result<Vec<Self>, PatchError> {
        let filters = filters(netlink::index(interface)?)?;
        let ours = filters.into_iter().filter(|filter| filter.name == patch::PLACE);
        Ok(ours.map(|Filter { handle, .. }| Self { handle }).collect())
    }
}

/// Removes the classifiers on an interface whose owners are dead.
pub(super) fn remove_dead(interface: &str) -> Result<(), PatchError> {
    let index = netlink::index(interface)?;
    for Classifier { handle } in Classifier::all(interface)? {
        // Held until the classifier is gone, so that nobody makes a new one of this handle.
        if let Some(dead) = Handle::take(index, handle)? {
            dead.remove_classifier(interface)?;
        }
    }
    Ok(())
}

/// Returns the eBPF filters of the program's priority.
fn filters(index: u32) -> Result<Vec<Filter>, PatchError> {
    let mut filters = netlink::filters(index)?;
    filters.retain(|filter| filter.priority == PRIORITY);
    Ok(filters)
}

/// A classifier's handle, which this process has to itself on the interface.
#[derive(Debug)]
pub(super) struct Handle {
    number: u32,
    _name: UnixDatagram,
}

impl Handle {
    /// Takes the first that nobody has, and no classifier.
    pub(super) fn take_free(interface: &str) -> Result<Self, PatchError> {
        let index = netlink::index(interface)?;
        let used: HashSet<u32> = filters(index)?.iter().map(|filter| filter.handle).collect();
        for number in HANDLES.filter(|number| !used.contains(number)) {
            if let Some(handle) = Self::take(index, number)? {
                return Ok(handle);
            }
        }
        Err(PatchError::Full("classifiers"))
    }

    /// Takes this one, if nobody has it.
    fn take(index: u32, number: u32) -> Result<Option<Self>, PatchError> {
        let taken = SocketAddr::from_abstract_name(format!("rddp-kernel-{index}-{number}"))
            .and_then(|name| UnixDatagram::bind_addr(&name));
        match taken {
            Ok(name) => Ok(Some(Self { number, _name: name })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
            Err(error) => Err(PatchError::call("bind", error)),
        }
    }

    /// Removes the classifier of this handle, if it is there. That it could not be removed is no
    /// reason not to attach: it places nothing.
    fn remove_classifier(&self, interface: &str) -> Result<(), PatchError> {
        let NlOptions { priority, handle, classid } = self.options();
        SchedClassifierLink::attached(interface, TcAttachType::Ingress, priority, handle, classid)
            .map(drop) // which removes it
            .map_err(|error| PatchError::call("if_nametoindex", error))
    }

    /// Returns how to attach by a classifier of this handle.
    pub(super) fn options(&self) -> NlOptions {
        NlOptions { priority: PRIORITY, handle: TcHandle::from(self.number), classid: None }
    }
}

/// Priority of the program's classifiers: an unusual number, as all filters of one priority must be
/// of one kind, and a low one, as others in front may end the search.
const PRIORITY: u16 = 41;
const HANDLES: std::ops::RangeInclusive<u32> = 1..=0xffff;
