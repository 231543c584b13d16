//! Options of ids.

use std::ffi::{c_int, c_void};

use nix::errno::Errno;

use super::super::abi::{option, rdma_cm_id};
use super::super::border::minus;
use super::super::handle::find;
use super::id::Id;
use crate::errors::Outcome;
use crate::refusal::because;

/// Options that a program has set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    pub(super) tos: Option<u8>,
    /// An IPv6 id takes no IPv4 connections.
    pub(super) one_family: Option<bool>,
    pub(super) timeout: Option<u8>,
}

impl Settings {
    fn set(&mut self, level: c_int, name: c_int, value: &[u8]) -> Outcome<()> {
        let octet = || {
            <[u8; 1]>::try_from(value)
                .map(|[octet]| octet)
                .map_err(|_| because(Errno::EINVAL, "the option is one octet long"))
        };
        let flag = || {
            let octets =
                <[u8; 4]>::try_from(value).map_err(|_| because(Errno::EINVAL, "the option is an int"))?;
            Ok(c_int::from_ne_bytes(octets) != 0)
        };
        match (level, name) {
            (option::LEVEL_ID, option::TOS) => self.tos = Some(octet()?),
            // Every id has it: see `Id::bind`.
            (option::LEVEL_ID, option::REUSEADDR) => drop(flag()?),
            (option::LEVEL_ID, option::AFONLY) => self.one_family = Some(flag()?),
            (option::LEVEL_ID, option::ACK_TIMEOUT) => self.timeout = Some(octet()?),
            _ => return Err(because(Errno::ENOSYS, "the device has no such option")),
        }
        Ok(())
    }
}

impl Id {
    fn set(&self, level: c_int, name: c_int, value: &[u8]) -> Outcome<()> {
        let mut state = self.state.lock();
        state.settings.set(level, name, value)?;
        // A queue pair that is there already has the time limit, too.
        if let (Some(timeout), Some(qp)) = (state.settings.timeout, state.qp.upgrade()) {
            qp.attributes.lock().timeout = timeout;
            qp.limit_silence();
        }
        Ok(())
    }
}

pub(in crate::c) unsafe extern "C" fn rdma_set_option(
    handle: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    // No option is longer than a number.
    let value = if value.is_null() || len > 8 {
        Err(because(Errno::EINVAL, "the option has no value, or one that is too long"))
    } else {
        // SAFETY: the program says how long the value is.
        Ok(unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) })
    };
    minus("rdma_set_option", find::<Id>(handle).and_then(|id| id.set(level, name, value?)))
}
