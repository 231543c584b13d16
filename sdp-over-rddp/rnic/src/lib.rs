//! The Sockets Direct Protocol over an RDMA device: the software RNIC.
#![forbid(unsafe_code)]
