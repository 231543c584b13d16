//! Files of captured packets: pcap, and pcapng.

use core::time::Duration;

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The time since 1970; zero where the file has none.
    pub time: Duration,
    /// The kind of link header (`LINKTYPE`).
    pub link: u16,
    /// The octets that were captured.
    pub octets: &'a [u8],
    /// Octets of the packet that were not captured.
    pub cut: usize,
    /// The packet is of the interface to which `RDDP_CAPTURE` writes connections of plain TCP.
    pub is_plain: bool,
}

/// A reason why a file, or the rest of it, cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file is neither pcap nor pcapng.
    #[error("neither a pcap nor a pcapng file")]
    Format,
    /// The file ends within a packet.
    #[error("the file ends within the packet or block at octet {0}")]
    Truncated(usize),
    /// A block of a pcapng file contradicts itself.
    #[error("the block at octet {0} is malformed")]
    Block(usize),
}

/// Returns the packets of a file, in its order. After an error there are no more.
///
/// # Errors
/// The file is neither pcap nor pcapng.
pub fn packets(file: &[u8]) -> Result<Packets<'_>, CaptureError> {
    let magic = file.first_chunk::<4>().ok_or(CaptureError::Format)?;
    let classic =
        |big, nanoseconds, header| (Format::classic(file, big, nanoseconds, header), CLASSIC_HEADER);
    let (format, at) = match u32::from_le_bytes(*magic) {
        0xa1b2_c3d4 => classic(false, 1000, RECORD_HEADER),
        0xa1b2_3c4d => classic(false, 1, RECORD_HEADER),
        0xa1b2_cd34 => classic(false, 1000, LONG_RECORD_HEADER),
        0xd4c3_b2a1 => classic(true, 1000, RECORD_HEADER),
        0x4d3c_b2a1 => classic(true, 1, RECORD_HEADER),
        0x34cd_b2a1 => classic(true, 1000, LONG_RECORD_HEADER),
        SECTION => (Some(Format::Blocks { big: false, interfaces: Vec::new() }), 0),
        _ => return Err(CaptureError::Format),
    };
    let format = format.ok_or(CaptureError::Truncated(0))?;
    Ok(Packets { file, at, format, is_over: false })
}

/// The packets of a file.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    file: &'a [u8],
    at: usize,
    format: Format,
    is_over: bool,
}

#[derive(Clone, Debug)]
enum Format {
    Classic {
        big: bool,
        nanoseconds: u64,
        link: u16,
        /// Octets in front of each packet.
        header: usize,
    },
    Blocks {
        big: bool,
        interfaces: Vec<Interface>,
    },
}

/// An interface of a section of a pcapng file.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u16,
    /// The most octets that are captured of a packet.
    snap_len: usize,
    /// Units of time in a second.
    ticks: u64,
    is_plain: bool,
}

impl Format {
    fn classic(file: &[u8], big: bool, nanoseconds: u64, header: usize) -> Option<Self> {
        let link = Numbers { octets: file.get(..CLASSIC_HEADER)?, big }.u32(20)?;
        // Above are flags about the frames' own checksum.
        Some(Self::Classic { big, nanoseconds, link: link as u16, header })
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = Result<Packet<'a>, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over && self.at < self.file.len() {
            let found = match self.format {
                Format::Classic { big, nanoseconds, link, header } => {
                    self.record(big, nanoseconds, link, header).map(Some)
                }
                Format::Blocks { .. } => self.block(),
            };
            match found {
                Ok(None) => {}
                Ok(Some(packet)) => return Some(Ok(packet)),
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl<'a> Packets<'a> {
    /// Reads a packet of a pcap file.
    fn record(
        &mut self,
        big: bool,
        nanoseconds: u64,
        link: u16,
        header: usize,
    ) -> Result<Packet<'a>, CaptureError> {
        let at = self.at;
        let rest = Numbers { octets: &self.file[at..], big };
        let read = || {
            let (len, whole) = (rest.u32(8)? as usize, rest.u32(12)? as usize);
            let octets = rest.octets.get(header..header.checked_add(len)?)?;
            let part = u64::from(rest.u32(4)?) * nanoseconds;
            let time = Duration::from_secs(rest.u32(0)?.into()) + Duration::from_nanos(part);
            Some(Packet { time, link, octets, cut: whole.saturating_sub(len), is_plain: false })
        };
        let packet = read().ok_or(CaptureError::Truncated(at))?;
        self.at += header + packet.octets.len();
        Ok(packet)
    }

    /// Reads a block of a pcapng file, which may have a packet.
    fn block(&mut self) -> Result<Option<Packet<'a>>, CaptureError> {
        let (file, at) = (self.file, self.at);
        let Format::Blocks { big, interfaces } = &mut self.format else { return Ok(None) };
        let rest = &file[at..];
        if rest.first_chunk() == Some(&SECTION.to_le_bytes()) {
            // The order of octets is that of the section, and its first number says which.
            *big = rest.get(8..12) == Some(&BYTE_ORDER.to_be_bytes());
            interfaces.clear();
        }
        let front = Numbers { octets: rest, big: *big };
        let (kind, len) = front.u32(0).zip(front.u32(4)).ok_or(CaptureError::Truncated(at))?;
        let len = len as usize;
        if len < BLOCK_OVERHEAD || !len.is_multiple_of(4) {
            return Err(CaptureError::Block(at));
        }
        let block = &rest.get(..len).ok_or(CaptureError::Truncated(at))?[8..len - 4];
        self.at += len;
        let body = Numbers { octets: block, big: *big };
        match kind {
            INTERFACE => interfaces.push(body.interface().ok_or(CaptureError::Block(at))?),
            PACKET => {
                let interface = body.u32(0).and_then(|number| interfaces.get(number as usize));
                return body.packet(interface).ok_or(CaptureError::Block(at)).map(Some);
            }
            OLD_PACKET => {
                let interface = body.u16(0).and_then(|number| interfaces.get(usize::from(number)));
                return body.packet(interface).ok_or(CaptureError::Block(at)).map(Some);
            }
            SIMPLE_PACKET => return body.simple(interfaces).ok_or(CaptureError::Block(at)).map(Some),
            _ => {}
        }
        Ok(None)
    }
}

/// Numbers at fixed places, in either order of octets.
#[derive(Clone, Copy)]
struct Numbers<'a> {
    octets: &'a [u8],
    big: bool,
}

impl<'a> Numbers<'a> {
    fn u16(&self, at: usize) -> Option<u16> {
        let octets = *self.octets.get(at..)?.first_chunk()?;
        Some(if self.big { u16::from_be_bytes(octets) } else { u16::from_le_bytes(octets) })
    }

    fn u32(&self, at: usize) -> Option<u32> {
        let octets = *self.octets.get(at..)?.first_chunk()?;
        Some(if self.big { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) })
    }

    /// Reads an Interface Description Block.
    fn interface(&self) -> Option<Interface> {
        let (link, mut at, mut ticks, mut is_plain) = (self.u16(0)?, 8, 1_000_000, false);
        while let Some((code, len)) = self.u16(at).zip(self.u16(at + 2)) {
            match (code, self.octets.get(at + 4)) {
                (0, _) => break,
                (TIME_RESOLUTION, Some(resolution)) => ticks = ticks_of(*resolution)?,
                (NAME, _) => is_plain = self.octets.get(at + 4..at + 4 + usize::from(len)) == Some(PLAIN),
                _ => {}
            }
            at += 4 + usize::from(len).next_multiple_of(4);
        }
        // No limit is written as 0.
        let snap_len = self.u32(4).filter(|len| *len > 0).unwrap_or(u32::MAX) as usize;
        Some(Interface { link, snap_len, ticks, is_plain })
    }

    /// Reads an Enhanced Packet Block, or a Packet Block, behind the number of its interface.
    fn packet(&self, interface: Option<&Interface>) -> Option<Packet<'a>> {
        let interface = interface?;
        let ticks = u128::from(u64::from(self.u32(4)?) << 32 | u64::from(self.u32(8)?));
        let nanoseconds = ticks * 1_000_000_000 / u128::from(interface.ticks);
        let (len, whole) = (self.u32(12)? as usize, self.u32(16)? as usize);
        Some(Packet {
            time: Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX)),
            link: interface.link,
            octets: self.octets.get(20..20_usize.checked_add(len)?)?,
            cut: whole.saturating_sub(len),
            is_plain: interface.is_plain,
        })
    }

    /// Reads a Simple Packet Block, which is of the first interface and has no time.
    fn simple(&self, interfaces: &[Interface]) -> Option<Packet<'a>> {
        let (whole, interface) = (self.u32(0)? as usize, interfaces.first()?);
        let octets = self.octets.get(4..)?;
        let octets = &octets[..octets.len().min(whole).min(interface.snap_len)];
        let cut = whole - octets.len();
        let Interface { link, is_plain, .. } = *interface;
        Some(Packet { time: Duration::ZERO, link, octets, cut, is_plain })
    }
}

/// Returns the units in a second of a resolution: a power of ten, or of two.
fn ticks_of(resolution: u8) -> Option<u64> {
    let base: u64 = if resolution & 0x80 == 0 { 10 } else { 2 };
    base.checked_pow(u32::from(resolution & 0x7f))
}

/// Octets of a pcap file's header, and of each packet's.
const CLASSIC_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
/// Octets in front of each where they have interface and protocol, too (Kuznetzov's libpcap).
const LONG_RECORD_HEADER: usize = 24;

/// Octets of a block around its body.
const BLOCK_OVERHEAD: usize = 12;

/// Types of blocks. That of a section reads alike in either order of octets.
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// The options of an interface that have its name, and its unit of time.
const NAME: u16 = 2;
const TIME_RESOLUTION: u16 = 9;

/// The name of the interface for connections of plain TCP.
const PLAIN: &[u8] = b"rddp-tcp";
