//! The queues of a queue pair, below every wire: what is posted, the memory that it may use, and
//! how it completes.
//!
//! | file | what |
//! |---|---|
//! | `sq`, `rq` | the two queues |
//! | `srq` | the queue behind a shared receive queue |
//! | `given` | its receives that a device of the host has |
//! | `attributes`, `memory` | what a queue pair was made with, and the memory that it may use |
//! | `options`, `patience` | the choices of a queue pair, and how long it waits for its peer |
//! | `limits` | requests that a device of the host does not have |
//! | `context` | all of this, lent to a connection for one call |
//! | `state` | the states of a queue pair |
//! | `unpolled` | completions whose requests still count |

pub(crate) mod attributes;
pub(crate) mod context;
mod given;
mod limits;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod patience;
pub(crate) mod rq;
pub(crate) mod sq;
pub(crate) mod srq;
pub(crate) mod state;
pub(crate) mod unpolled;
