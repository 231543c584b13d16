//! Both ends on this host, as two processes.

use std::net::SocketAddr;

use rddp_command::device::own_address;
use rddp_command::failure::Failure;

use super::cpu;
use super::measure::measure;
use super::op::Level;
use super::options::{LocalArgs, Options};
use super::report::{Outcome, Told};
use super::server::Listening;
use crate::child::Child;

/// Measures as `args` say, which have led to `options`.
pub(super) fn run(
    args: &LocalArgs,
    options: &Options,
    tell: &mut dyn FnMut(&Told),
) -> Result<Vec<Outcome>, Failure> {
    if options.setup.placement != Level::User {
        return Err(Failure::usage("--placement: nothing is lost between processes of one host")
            .remedy("rddp perf server --placement there, rddp perf client HOST --placement auto here"));
    }
    let (rnic, ipv6) = (options.device.towards(|| Ok(Vec::new()))?.open()?, args.ipv6);
    let (host, device) = (own_address(&rnic, ipv6)?.to_string(), rnic.device());
    let pin = args.pin;
    let args = ["perf", "server", "--bind", &host, "--port", "0", "--json", "--until-stdin-ends"];
    let args = [&args[..], &["--device", device]].concat();
    let processors = pin.then(cpu::two).transpose()?;
    if let Some([_, servers]) = processors {
        // It goes where its parent is.
        cpu::keep_on(servers)?;
    }
    let (_server, listening): (Child, Listening) = Child::start(&args)?;
    if let Some([own, _]) = processors {
        cpu::keep_on(own)?;
    }
    let addr: SocketAddr = listening.listening;
    measure(addr, options, tell)
}
