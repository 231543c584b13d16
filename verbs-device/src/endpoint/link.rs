//! An id, and what a thread shares with its owner that waits in `rdma_connect`.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::sys::{Id, Parameters};

/// The parts of an endpoint that outlive it, for as long as `rdma_connect` does not return: it
/// waits two minutes for a host that is silent, and knows no deadline. The queue pair is among
/// them: an endpoint that is dropped meanwhile has it [fail](crate::sys::Pair::fail) first.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) id: Id,
    /// Readable when `rdma_connect` has failed.
    pub(super) alarm: EventFd,
    refused: Mutex<Option<io::Error>>,
}

impl Link {
    pub(super) fn new(id: Id) -> io::Result<Self> {
        let alarm = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Link { id, alarm, refused: Mutex::new(None) })
    }

    /// Connects in a thread of its own, which ends by dropping what it holds.
    pub(super) fn connect(
        self: &Arc<Self>,
        parameters: Parameters,
        held: impl Send + 'static,
    ) -> io::Result<()> {
        let link = Arc::clone(self);
        let connect = move || {
            if let Err(error) = link.id.connect(&parameters) {
                *link.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                let _ = link.alarm.write(1);
            }
            // The queue pair, if the owner has gone, and then what was held for it.
            drop(link);
            drop(held);
        };
        thread::Builder::new().name("rddp-connect".to_owned()).spawn(connect).map(drop)
    }

    /// Takes the error of `rdma_connect`, if it has failed.
    pub(super) fn take_refusal(&self) -> Option<io::Error> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        if refused.is_some() {
            let _ = self.alarm.read();
        }
        refused
    }
}
