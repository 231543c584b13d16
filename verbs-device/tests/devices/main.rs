//! The crate with devices of its own fake libraries (`tests/fake`): each quirk of real devices is a
//! test, and no kernel, root or library of rdma-core is needed.

mod closing;
mod logged;
mod memory;
mod opening;
mod shared;
mod sizes;
mod support;
mod windows;
mod working;
