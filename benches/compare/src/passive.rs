//! The passive end: does what the active end's control connection says.

use std::net::{IpAddr, TcpListener};

use crate::Outcome;
use crate::control::Control;
use crate::counted::Counted;
use crate::host::{Usage, allow_connections, cpu_s};
use crate::spec::{ControlMessage, Latency, Slice, Spec, Tally};
use crate::{rdma, tcp};

enum Lane {
    Tcp(Box<tcp::Passive>),
    Rdma(Box<rdma::Passive>),
}

/// Serves one active end until it goes.
pub(crate) fn serve(address: &str) -> Outcome<()> {
    let address: IpAddr = address.parse()?;
    let listener = TcpListener::bind((address, 0))?;
    println!("{}", listener.local_addr()?.port());
    let mut control = Control::new(listener.accept()?.0)?;
    let mut lanes = Vec::new();
    while let Some(message) = control.hear()? {
        match message {
            ControlMessage::Open(spec) => lanes.push(open(&spec, address, &mut control)?),
            ControlMessage::Slice(slice) => {
                let lane = lanes.get_mut(slice.lane).ok_or("there is no such lane")?;
                let tally = run(lane, slice, &mut control)?;
                control.tell(&ControlMessage::Done(tally))?;
            }
            ControlMessage::Usage => control.tell(&ControlMessage::Used(Usage::now()?))?,
            other => return Err(format!("the active end said {other:?}").into()),
        }
    }
    Ok(())
}

fn open(spec: &Spec, address: IpAddr, control: &mut Control) -> Outcome<Lane> {
    spec.check()?;
    allow_connections(spec.connections)?;
    if spec.is_stream() {
        let listener = TcpListener::bind((address, 0))?;
        tcp::prepare(&listener, spec)?;
        control.tell(&ControlMessage::Listening { port: listener.local_addr()?.port() })?;
        let lane = Box::new(tcp::Passive::accept(spec, listener)?);
        control.tell(&ControlMessage::Ready)?;
        return Ok(Lane::Tcp(lane));
    }
    let mut lane = Box::new(rdma::Passive::listen(spec, address)?);
    control.tell(&ControlMessage::Listening { port: lane.port()? })?;
    lane.accept()?;
    let theirs = control.expect()?;
    control.tell(&lane.memory())?;
    lane.aim(theirs);
    Ok(Lane::Rdma(lane))
}

fn run(lane: &mut Lane, slice: Slice, control: &mut Control) -> Outcome<Tally> {
    let (mut tally, before) = (Tally::default(), lane.counted()?);
    let cpu_before = cpu_s()?;
    if let Lane::Rdma(lane) = lane {
        lane.prepare(slice.kind)?;
    }
    control.tell(&ControlMessage::Ready)?;
    tally.latency_ns = lane.serve(slice, control)?;
    tally.cpu_s = cpu_s()? - cpu_before;
    lane.counted()?.enter(&before, &mut tally);
    Ok(tally)
}

impl Lane {
    fn serve(&mut self, slice: Slice, control: &mut Control) -> Outcome<Option<Latency>> {
        match self {
            Lane::Tcp(lane) => lane.serve(slice.kind, control),
            Lane::Rdma(lane) => lane.serve(slice.kind, control),
        }
    }

    fn counted(&self) -> Outcome<Counted> {
        Ok(match self {
            Lane::Tcp(lane) => Counted::Stream(lane.counted()?),
            Lane::Rdma(lane) => Counted::Rdma(lane.counters()),
        })
    }
}
