//! `epoll`: the kernel's interest in a socket of ours is the library's to set.
//!
//! What the program wants of such a socket lies in an [entry](pool::Entry), and the kernel has in
//! its set what the socket is interested in at the moment, with a [key](pool::Key) that leads to the
//! entry in place of the program's data. What the kernel answers is translated in place. When what a
//! wait depends on changes, so does the kernel's interest, at once: another thread may sleep in
//! `epoll_wait`. No event is made up: where there is something to tell that the kernel would not
//! say, its interest is set so that it does. Entries lie in memory that the children of `fork`
//! share, as they share the sets.
//!
//! | file | what |
//! |---|---|
//! | `pool.rs` | the entries, and the keys that lead to them |
//! | `watches.rs` | where this process has put its entries |
//! | `interest.rs` | what the kernel is asked to watch for |
//! | `control.rs` | `epoll_ctl` |
//! | `sets.rs` | what the kernel has in a set |
//! | `close.rs` | when entries end |
//! | `wait.rs` | `epoll_wait` and its like |

mod close;
mod control;
mod interest;
mod pool;
mod sets;
mod wait;
mod watches;

pub use close::{Elsewhere, closing, duplicated, forking, gone, withdraw};
pub use control::{control, is_concerned};
pub use interest::{changed, kind_changed, tell_again};
pub(crate) use pool::Pool;
pub use wait::{given_late, has_entries, wait};
pub use watches::{Watches, watches};
