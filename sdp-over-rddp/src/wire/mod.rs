//! Messages of SDP, as octets and as values.
//!
//! A message is a base header of 16 octets (BSDH), for some an extended header, and for Data,
//! `SrcAvail` and `SinkAvail` a payload. Fields are in network order, nothing is padded.
//! [`Message::parse`] reads the headers; whether the message may come at this moment is checked in
//! [`machine`](crate::machine). Reserved fields are sent as 0 and not checked.
//!
//! [`Hello`] and [`HelloAck`] open a connection. They travel in the private data of its startup,
//! and are no [`Message`]: one that comes later is [`FormatError::LateHello`].
//!
//! Nothing here allocates, and no octets make it panic.

mod error;
mod fields;
mod header;
mod hello;
mod hello_ack;
mod message;
mod numbers;

pub use error::FormatError;
pub use header::{Flags, HEADER_LEN, Header, Mid};
pub use hello::{Addresses, Capabilities, Hello, Version};
pub use hello_ack::HelloAck;
pub use message::{Advert, Body, Front, LONGEST_CONTROL, Message, Mode};
pub use numbers::{SERVICE_ID_MASK, seq_before, service_id};
