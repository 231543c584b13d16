//! How connections come about: TCP, then the MPA startup, then a QP at work on it.

pub(crate) mod answer;
pub(crate) mod connect;
pub(crate) mod half_open;
pub(crate) mod linger;
pub(crate) mod listen;
mod port_mapper;
pub(crate) mod socket;
pub(crate) mod startup;
pub(crate) mod sys;
