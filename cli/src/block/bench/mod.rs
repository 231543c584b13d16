//! `rddp block bench`: requests a second, and their latency, of a disk here or far away.

mod engine;

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::Args;
use rddp_command::failure::{EXIT_CODES, Failure, printable_name};
use rddp_command::out::{self, say};
use rddp_command::units::{octets, parse_octets, parse_seconds, rate};
use serde::Serialize;

use self::engine::{Engine, Load};
use super::desk::Desk;
use super::end::End;
use super::place::{Place, Way};
use crate::perf::{Micros, processor_seconds};

const EXAMPLES: &str = "\
Examples:
  rddp block bench nbd://192.0.2.1/a.img                   reads of 4 KiB, 16 under way
  rddp block bench -s 256K --depth 64 nbd://192.0.2.1/a.img
  rddp block bench --write --destroy-data nbd://192.0.2.1/scratch
  rddp block bench nvme://192.0.2.1/nqn.2026-01.example:a  a disk of an NVMe target, by RDMA
  rddp block bench /dev/sdb                                the disk itself, beside its server

Requests are for places at random, each a multiple of their size. Latency is from the moment a request is begun until
its answer is here. Processor time is this command's alone: of the server's, its host knows.";

/// Measure a disk, which is a file, a block device or a URI
#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"), after_help = "--help shows examples")]
pub(super) struct BenchArgs {
    /// The disk
    disk: String,

    /// Octets of a request
    #[arg(short, long, default_value = "4K", value_name = "OCTETS", value_parser = parse_size)]
    size: u32,

    /// Requests under way, on all connections together
    #[arg(long, default_value = "16", value_name = "COUNT")]
    depth: NonZeroUsize,

    /// Connections to a server that says that it allows for several
    #[arg(short = 'P', long, default_value = "1", value_name = "COUNT")]
    connections: NonZeroUsize,

    /// Seconds to measure for
    #[arg(short = 't', long, default_value = "5", value_name = "SECONDS", value_parser = parse_duration)]
    duration: Duration,

    /// Write, where else is read
    #[arg(long, requires = "destroy_data")]
    write: bool,

    /// Agree that --write destroys what the disk has
    #[arg(long, requires = "write")]
    destroy_data: bool,

    #[command(flatten)]
    client: super::ClientArgs,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Serialize)]
struct Summary<'a> {
    disk: &'a str,
    op: &'static str,
    size: u32,
    depth: usize,
    /// Connections that there were; none to a file.
    connections: usize,
    seconds: f64,
    requests: u64,
    iops: f64,
    bytes_per_s: f64,
    /// `None` if there was no request.
    lat_us: Option<Micros>,
    /// Processor time of this process, in seconds.
    cpu_s: f64,
}

fn parse_size(text: &str) -> Result<u32, String> {
    let size = parse_octets(text)?;
    u32::try_from(size).ok().filter(|size| *size > 0).ok_or_else(|| "from 1 octet to less than 4G".into())
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_seconds(text)?;
    if duration.is_zero() { Err("0 seconds measure nothing".into()) } else { Ok(duration) }
}

impl BenchArgs {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let desk = Desk::new()?;
        let way = Way { writable: self.write, connections: self.connections, client: &self.client };
        let mut end = Place::parse(&self.disk)?.open(&desk, way)?;
        self.check(&*end)?;
        let load = Load { size: self.size, depth: self.depth.get(), write: self.write };
        let mut engine = Engine::new(&desk, &mut *end, load)?;
        let before = processor_seconds();
        let seconds = engine.run(self.duration)?.as_secs_f64();
        let cpu_s = processor_seconds() - before;
        let (requests, lat_us) = (engine.requests, engine.latencies.micros());
        let iops = requests as f64 / seconds.max(1e-9);
        self.tell(&Summary {
            disk: &self.disk,
            op: if self.write { "write" } else { "read" },
            size: self.size,
            depth: load.depth,
            connections: end.limits().connections,
            seconds,
            requests,
            iops,
            bytes_per_s: iops * f64::from(self.size),
            lat_us,
            cpu_s,
        });
        Ok(())
    }

    /// Checks that the disk takes such requests, and so many.
    fn check(&self, end: &dyn End) -> Result<(), Failure> {
        let (export, limits) = (end.export(), end.limits());
        let (name, size) = (&export.name, u64::from(self.size));
        let cause = if self.depth.get() > limits.jobs {
            format!("{name} takes {} requests at a time", limits.jobs)
        } else if size > export.size {
            format!("{name} has {} octets, fewer than a request", export.size)
        } else if self.size > limits.longest || !self.size.is_multiple_of(limits.block) {
            format!("{name} takes requests of up to {} octets, multiples of {}", limits.longest, limits.block)
        } else {
            return Ok(());
        };
        Err(Failure::usage(cause).remedy("other --size, --depth or --connections"))
    }

    fn tell(&self, summary: &Summary<'_>) {
        if self.json {
            return out::json(summary);
        }
        let Summary {
            op, size, depth, connections, seconds, requests, iops, bytes_per_s, lat_us, cpu_s, ..
        } = summary;
        let (name, size) = (printable_name(&self.disk), octets(u64::from(*size)));
        let by = match connections {
            0 => String::new(),
            1 => " on 1 connection".into(),
            count => format!(" on {count} connections"),
        };
        say!("{name}: {op} of {size}, {depth} under way{by}, {seconds:.1} s");
        say!("{iops:.0} requests/s, {}", rate(*bytes_per_s));
        if let Some(Micros { p50, p99, p999 }) = lat_us {
            let each = cpu_s * 1e6 / *requests as f64;
            say!("latency p50 {p50:.1} us, p99 {p99:.1} us, p99.9 {p999:.1} us");
            say!("processor time {each:.1} us a request, of this command");
        }
    }
}
