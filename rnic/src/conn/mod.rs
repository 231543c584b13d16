//! How connections come about: TCP, then the MPA startup, then a QP at work on it.

pub(crate) mod answer;
mod begin;
pub(crate) mod connect;
pub(crate) mod half_open;
pub(crate) mod half_open_count;
pub(crate) mod linger;
pub(crate) mod listen;
mod port_mapper;
pub(crate) mod request;
pub(crate) mod socket;
mod stage;
pub(crate) mod startup;
mod steps;
pub(crate) mod sys;
