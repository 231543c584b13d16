//! The command, as its users run it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod activation;
mod attributes;
mod capture;
mod crowds;
mod decode;
mod demo;
mod disk;
mod doctor;
mod hostile;
mod left_out;
mod lies;
mod logs;
mod mirror;
mod output;
mod pages;
mod peer;
mod perf;
mod ping;
mod pipe;
mod portmap;
mod program;
mod run;
mod same;
mod site;
mod slow;
mod special;
mod stat;
mod strategies;
mod token;
mod transfer;
mod tree;
mod troubles;
mod unread;
mod usage;
mod verbs;
