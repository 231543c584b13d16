//! Events as lines of text.

use core::fmt;

use rddp_ddp::Header;
use rddp_mpa::{DEPTH_MAX, FrameKind};
use rddp_sdp::wire::{Body, Flags, Mode};

use crate::event::{Detail, Fpdu, Greeting, Sdp, Startup};

impl fmt::Display for Startup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind == FrameKind::Request { "Request" } else { "Reply" };
        write!(f, "MPA {kind} rev={} M={} C={}", self.revision, bit(self.markers), bit(self.crc))?;
        if self.rejected {
            f.write_str(" rejected")?;
        }
        if let Some(data) = &self.enhanced {
            for (name, depth) in [("IRD", data.ird), ("ORD", data.ord)] {
                if depth <= DEPTH_MAX {
                    write!(f, " {name}={depth}")?;
                }
            }
            let rtr = &data.rtr;
            for (name, is_named) in [("send", rtr.send), ("write", rtr.write), ("read", rtr.read)] {
                if is_named {
                    write!(f, " rtr={name}")?;
                }
            }
        }
        write!(f, " private_data={}", self.private_data_len)?;
        match &self.greeting {
            None => {
                let data = &self.private_data;
                if !data.is_empty() {
                    write!(f, " \"{}\"", data.escape_ascii())?;
                }
                not_captured(f, self.private_data_len - data.len())
            }
            Some(Greeting::Hello(hello)) => {
                let (version, addresses) = (hello.version, hello.addresses);
                write!(f, " SDP Hello v{}.{}", version.major, version.minor)?;
                write!(f, " Bufs={} MaxAdverts={}", hello.bufs, hello.max_adverts)?;
                write!(f, " LocalRcvSz={}", hello.local_size)?;
                write!(f, " DesRemRcvSz={} port={}", hello.desired_remote_size, hello.port)?;
                write!(f, " {} -> {}", addresses.source(), addresses.destination())?;
                f.write_str(if hello.rddp { " rddp" } else { "" })
            }
            Some(Greeting::HelloAck(ack)) => {
                write!(f, " SDP HelloAck v{}.{}", ack.version.major, ack.version.minor)?;
                write!(f, " Bufs={} MaxAdverts={}", ack.bufs, ack.max_adverts)?;
                write!(f, " ActRcvSz={}{}", ack.actual_size, if ack.rddp { " rddp" } else { "" })
            }
        }
    }
}

impl fmt::Display for Fpdu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.opcode {
            Some(opcode) => write!(f, "{opcode}")?,
            None => write!(f, "opcode {:#x}", self.header.control() & 0xf)?,
        }
        match &self.header {
            Header::Tagged(header) => write!(f, " stag={} to={:#x}", header.stag, header.to)?,
            Header::Untagged(header) => {
                write!(f, " qn={} msn={} mo={}", header.qn, header.msn, header.mo)?;
            }
        }
        write!(f, " len={}{}", self.payload_len, if self.header.last() { " L" } else { "" })?;
        match &self.detail {
            Detail::None | Detail::NotCaptured => {}
            Detail::Invalidate(stag) => write!(f, " invalidates {stag:#010x}")?,
            Detail::Read(read) => write!(f, " {read}")?,
            Detail::AtomicRequest(atomic) => {
                write!(
                    f,
                    " id={} stag={} to={:#x} {:?}",
                    atomic.request_id, atomic.stag, atomic.to, atomic.op
                )?;
            }
            Detail::AtomicResponse(atomic) => {
                write!(f, " id={} original={:#x}", atomic.request_id, atomic.original)?;
            }
            Detail::Terminate(terminate) => write!(f, " {}", terminate.code)?,
        }
        match self.captured {
            Some(captured) if captured == self.payload_len => f.write_str(" (CRC not captured)"),
            Some(captured) => not_captured(f, self.payload_len - captured),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Sdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (header, message) = (&self.message.header, &self.message);
        write!(f, "SDP {} MSeq={} MSeqAck={}", header.mid, header.mseq, header.mseq_ack)?;
        write!(f, " Bufs={} Len={}", header.bufs, header.len)?;
        for (flag, name) in
            [(Flags::OOB_PRES, "OOB_PRES"), (Flags::OOB_PEND, "OOB_PEND"), (Flags::REQ_PIPE, "REQ_PIPE")]
        {
            if header.flags.contains(flag) {
                write!(f, " {name}")?;
            }
        }
        match message.body {
            Body::RdmaWrCompl { octets } | Body::RdmaRdCompl { octets } => write!(f, " octets={octets}")?,
            Body::ModeChange { of_receivers_half, mode } => {
                let half = if of_receivers_half { "receiver" } else { "sender" };
                write!(f, " of the {half}'s half to {}", mode_name(mode))?;
            }
            Body::ChRcvBuf { size } | Body::ChRcvBufAck { size } => write!(f, " size={size}")?,
            Body::SuspComm { service_id } => write!(f, " service={service_id:#018x}")?,
            Body::SrcAvail { advert } => {
                write!(f, " advert={} stag={:#010x} to={:#x}", advert.len, advert.stag, advert.to)?;
            }
            Body::SinkAvail { advert, non_discards } => {
                write!(f, " advert={} stag={:#010x} to={:#x}", advert.len, advert.stag, advert.to)?;
                write!(f, " NonDiscards={non_discards}")?;
            }
            _ => {}
        }
        if message.payload_len > 0 {
            write!(f, " payload={}", message.payload_len)?;
        }
        Ok(())
    }
}

/// Returns the name of a mode.
#[must_use]
pub const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Buffered => "Buffered",
        Mode::Combined => "Combined",
        Mode::Pipelined => "Pipelined",
    }
}

fn not_captured(f: &mut fmt::Formatter<'_>, octets: usize) -> fmt::Result {
    if octets > 0 { write!(f, " ({octets} octets not captured)") } else { Ok(()) }
}

fn bit(flag: bool) -> u8 {
    u8::from(flag)
}
