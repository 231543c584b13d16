//! A dry run: the changes that the arrival of a tree would make.

use std::os::fd::OwnedFd;

use super::arrival::Arrival;
use super::counts::Named;
use super::record::Name;
use super::refused::Sent;
use super::widened::would_set_dir_mode;
use super::would::{Would, tell_would};

impl Arrival {
    /// Notes a directory or a link that would be made.
    pub(super) fn would_make(&mut self, name: Name<'_>, number: usize, sent: Sent) {
        match self.named {
            Named::There => self.wanted.would_make(number),
            Named::Here { .. } if sent == Sent::Link => tell_would(Would::Link, name.octets()),
            Named::Here { .. } if self.tells() => tell_would(Would::Make, name.octets()),
            Named::Here { .. } => {}
        }
    }

    /// Notes a file that would be sent.
    pub(super) fn would_take(&mut self, name: Name<'_>, size: u64) {
        match self.named {
            Named::There => self.wanted.wants(None),
            Named::Here { .. } => {
                self.wanted.same();
                self.counts.files += 1;
                self.counts.octets += size;
                tell_would(Would::Send, name.octets());
            }
        }
    }

    /// Notes a file that is there, and would get other permissions.
    pub(super) fn would_permit(&mut self, name: Name<'_>) {
        match self.named {
            Named::There => self.wanted.would_permit(),
            Named::Here { .. } => {
                self.wanted.same();
                tell_would(Would::Permit, name.octets());
            }
        }
    }

    /// Notes a directory that is there, if it would get other permissions.
    pub(super) fn would_permit_dir(
        &mut self,
        dir: &OwnedFd,
        name: Name<'_>,
        number: usize,
        mode: u32,
    ) -> nix::Result<()> {
        if !would_set_dir_mode(dir, mode)? {
            return Ok(());
        }
        match self.named {
            Named::There => self.wanted.would_permit_dir(number),
            Named::Here { .. } if self.tells() => tell_would(Would::Permit, name.octets()),
            Named::Here { .. } => {}
        }
        Ok(())
    }
}
