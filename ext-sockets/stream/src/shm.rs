//! Octets that streams take of `/dev/shm`, for programs that tell a user whether there is enough.

use super::sys;

/// Octets of a stream's state.
pub const STATE: u64 = sys::SLOT as u64;

/// Octets that a stream takes beside its state while octets are owed to TCP, were read of an FPDU
/// in part, or wait for the startup to be over; with the Sockets Direct Protocol several times
/// while octets stand outside the kernel. [`SharedState::blocks`](crate::SharedState::blocks) says
/// how often at this moment.
pub const BLOCK: u64 = sys::BLOCK as u64;

/// Returns the octets that a user's states may take in a folder where `free` octets are free, if
/// they take none yet.
#[must_use]
pub fn for_states(free: u64) -> u64 {
    sys::longest_file(0, free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_take_half_of_what_is_free_and_no_more_than_a_file_holds() {
        assert_eq!((for_states(0), for_states(64 << 20)), (0, 32 << 20));
        assert_eq!(for_states(u64::MAX), 4 << 30);
    }
}
