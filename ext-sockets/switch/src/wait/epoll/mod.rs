//! `epoll`: the library sets the kernel's interest in a socket of ours.
//!
//! The events that the program asked for are in an [entry](pool::Entry). The kernel's set has the
//! events that the socket is interested in at the moment and, in place of the program's data, a
//! [key](pool::Key) that leads to the entry. Events that the kernel reports are translated in
//! place. When the state of a socket changes, the kernel's interest is updated at once, as another
//! thread may sleep in `epoll_wait`. No event is invented: where there is something to report that
//! the kernel would not, its interest is set so that it does. Entries lie in memory that the
//! children of `fork` share, as they share the sets.
//!
//! | file | what |
//! |---|---|
//! | `pool.rs` | the entries, and the keys that lead to them |
//! | `watches.rs` | the list of entries that this process has made |
//! | `interest.rs` | the events that the kernel is asked to watch for |
//! | `control.rs` | `epoll_ctl` |
//! | `sets.rs` | the contents of a set, from `/proc` |
//! | `close.rs` | the end of entries |
//! | `replace.rs` | another file under the numbers of a socket |
//! | `wait.rs` | `epoll_wait` and its variants |

mod close;
mod control;
mod interest;
mod pool;
mod replace;
mod sets;
mod wait;
mod watches;

pub use close::{Elsewhere, closing, duplicated, forking, gone, withdraw};
pub use control::{control, is_concerned};
pub use interest::{changed, kind_changed, tell_again};
pub(crate) use pool::Pool;
pub use replace::replace;
pub use wait::{given_late, has_entries, wait};
pub use watches::{Watches, watches};
