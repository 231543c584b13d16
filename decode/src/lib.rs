//! A decoder of captures: the messages of MPA, DDP, RDMAP and SDP in the TCP streams of a file.
#![forbid(unsafe_code)]
