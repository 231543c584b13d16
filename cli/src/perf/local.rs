//! Both ends on this host, as two processes.

use std::net::SocketAddr;

use super::control::Level;
use super::measure::measure;
use super::options::Options;
use super::report::{Outcome, Told};
use super::server::Listening;
use crate::child::Child;
use crate::failure::Failure;

pub(super) fn run(options: &Options, tell: &mut dyn FnMut(&Told)) -> Result<Vec<Outcome>, Failure> {
    let mut args =
        vec!["perf", "server", "--bind", "127.0.0.1", "--port", "0", "--json", "--until-stdin-ends"];
    if options.setup.placement != Level::User {
        args.push("--placement");
    }
    let (_server, listening): (Child, Listening) = Child::start(&args)?;
    let addr: SocketAddr = listening.listening;
    measure(addr, options, tell)
}
