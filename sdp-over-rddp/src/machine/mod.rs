//! The state machine of one connection.
