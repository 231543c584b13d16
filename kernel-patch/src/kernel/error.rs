//! [`PatchError`]: the reasons why placement in the kernel cannot be had.

use std::io;

/// A reason why the kernel does not place. Everything goes on at user level.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The program was not loaded: rights are missing, or the kernel is too old.
    #[error("the eBPF program was not loaded: {0}")]
    Load(#[from] aya::EbpfError),
    /// The verifier refused the program, or it could not be attached or run.
    #[error("the eBPF program: {0}")]
    Program(#[from] aya::programs::ProgramError),
    /// A map was not made or not changed.
    #[error("a map of the eBPF program: {0}")]
    Map(#[from] aya::maps::MapError),
    /// The kernel's description of its own types, `/sys/kernel/btf/vmlinux`, is missing or damaged.
    #[error("the kernel's BTF: {0}")]
    Btf(#[from] aya::BtfError),
    /// A system call failed.
    #[error("{call}: {error}")]
    Os {
        /// The call.
        call: &'static str,
        /// Reason of the failure.
        error: io::Error,
    },
    /// All that there is room for is in use.
    #[error("no more {0} for placement in the kernel")]
    Full(&'static str),
    /// TCP has no such connection in state ESTABLISHED, in this network namespace.
    #[error("TCP has no such connection")]
    NoConnection,
    /// The compiled program is not what this crate expects.
    #[error("the eBPF program has no {0}")]
    Missing(&'static str),
}

impl PatchError {
    pub(super) fn os(call: &'static str) -> Self {
        Self::call(call, io::Error::last_os_error())
    }

    pub(super) fn call(call: &'static str, error: io::Error) -> Self {
        Self::Os { call, error }
    }
}
