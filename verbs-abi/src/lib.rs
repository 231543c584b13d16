//! `librddp_verbs.so`: libibverbs and librdmacm over the software RNIC, for programs that were
//! built for the real ones.
//!
//! The library has every public symbol of both, each under its version, and so may be loaded in
//! their place, by two links with their names, or before them. `docs/verbs.md` says how to use it
//! and what works.
//!
//! | module | subject |
//! |---|---|
//! | `device` | a device as programs see it: names, numbers, limits |
//! | `settings` | what the environment and the policy file set for connections |
//! | `engine` | a device at work in this process: the RNIC, and the thread that tells of connections |
//! | `fifo` | events that wait behind a descriptor |
//! | `roce` | names of queue pairs that are joined by numbers: GIDs, numbers, hellos |
//! | `ports` | the ports of a process at which requests come for these queue pairs |
//! | `steps` | steps of queue pairs between their states, and the attributes of each |
//! | `datagrams` | sockets of queue pairs of unreliable datagrams |
//! | `rsocket` | the protocol of rsockets |
//! | `faults` | faults on demand |
//! | `words` | numbers of C's headers and the words of `rddp-rnic` |
//! | `errors`, `refusal` | error numbers; the reasons of refused calls, in words |
//! | `c` | C structures, functions and handles: all that takes a program's pointers |
//!
//! A panic is a defect, and ends the process where it reaches an exported function.
#![deny(unsafe_code)]
#![warn(clippy::unwrap_used)]

mod c;
mod datagrams;
mod device;
mod engine;
mod errors;
mod faults;
mod fifo;
mod ports;
mod refusal;
mod roce;
mod rsocket;
mod settings;
mod steps;
mod words;
