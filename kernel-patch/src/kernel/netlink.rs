//! The question which eBPF filters are at the ingress of an interface (rtnetlink).

use std::io;
use std::iter::from_fn;
use std::os::fd::AsRawFd;

use libc::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, RTM_GETTFILTER, RTM_NEWTFILTER};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use super::PatchError;

/// An eBPF filter, as the kernel tells of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) priority: u16,
    pub(super) handle: u32,
    pub(super) name: String,
}

/// Returns the number of an interface of this thread's network namespace.
pub(super) fn index(interface: &str) -> Result<u32, PatchError> {
    if_nametoindex(interface).map_err(|error| PatchError::call("if_nametoindex", error.into()))
}

/// Returns the eBPF filters for all protocols at the ingress of an interface.
pub(super) fn filters(index: u32) -> Result<Vec<Filter>, PatchError> {
    ask(&request(index)).map_err(|error| PatchError::call("RTM_GETTFILTER", error))
}

fn ask(request: &[u8]) -> io::Result<Vec<Filter>> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    send(socket.as_raw_fd(), request, MsgFlags::empty())?;
    let mut found = Vec::new();
    let mut octets = vec![0; LONGEST_ANSWER];
    loop {
        let len = recv(socket.as_raw_fd(), &mut octets, MsgFlags::empty())?;
        if take(&octets[..len], &mut found)? {
            return Ok(found);
        }
    }
}

fn request(index: u32) -> Vec<u8> {
    let kind_and_flags = [RTM_GETTFILTER, (NLM_F_REQUEST | NLM_F_DUMP) as u16].map(u16::to_ne_bytes);
    let [sequence, sender, family, any_handle] = [0_u32; 4];
    // The kernel leaves out filters of other protocols.
    let protocol = u32::from((libc::ETH_P_ALL as u16).to_be());
    let words = [sequence, sender, family, index, any_handle, INGRESS, protocol].map(u32::to_ne_bytes);
    let len = (HEADER + TCMSG) as u32;
    [&len.to_ne_bytes(), kind_and_flags.as_flattened(), words.as_flattened()].concat()
}

/// Takes the filters out of one part of the answer; returns whether it is the last.
fn take(part: &[u8], found: &mut Vec<Filter>) -> io::Result<bool> {
    for (kind, body) in messages(part) {
        if kind == RTM_NEWTFILTER {
            found.extend(filter(body));
        } else if kind == NLMSG_ERROR as u16 {
            let errno = u32_at(body, 0).unwrap_or_default() as i32;
            return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
        } else if kind == NLMSG_DONE as u16 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads a `struct tcmsg` and what follows it. None if this is not an eBPF filter that has a name.
fn filter(body: &[u8]) -> Option<Filter> {
    let attributes = body.get(TCMSG..)?;
    if attribute(attributes, TCA_KIND)? != b"bpf\0" {
        return None;
    }
    let name = attribute(attribute(attributes, TCA_OPTIONS)?, TCA_BPF_NAME)?.strip_suffix(b"\0")?;
    let priority = (u32_at(body, field::INFO)? >> 16) as u16;
    Some(Filter {
        priority,
        handle: u32_at(body, field::HANDLE)?,
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

/// Cuts messages, up to the first whose length cannot be right.
fn messages(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    from_fn(move || {
        let (len, kind) = (u32_at(octets, 0)?, u16_at(octets, 4)?);
        cut(&mut octets, len as usize, HEADER).map(|body| (kind, body))
    })
}

/// Returns the first attribute of this kind, without its header.
fn attribute(mut octets: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (len, this) = (u16_at(octets, 0)?, u16_at(octets, 2)?);
        let body = cut(&mut octets, len.into(), ATTRIBUTE_HEADER)?;
        if this & libc::NLA_TYPE_MASK as u16 == kind {
            return Some(body);
        }
    }
}

/// Takes `len` octets and their padding off the front; returns them without their header.
fn cut<'a>(octets: &mut &'a [u8], len: usize, header: usize) -> Option<&'a [u8]> {
    let body = octets.get(header..len)?;
    *octets = octets.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some(body)
}

fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    octets.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Offsets in `struct tcmsg`.
mod field {
    pub(super) const HANDLE: usize = 8;
    pub(super) const INFO: usize = 16;
}

/// Octets of `struct nlmsghdr`.
const HEADER: usize = 16;
const TCMSG: usize = 20;
const ATTRIBUTE_HEADER: usize = 4;
/// The kernel makes no longer parts for who reads so much at once.
const LONGEST_ANSWER: usize = 32 << 10;
/// The parent of filters at the ingress: `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`.
const INGRESS: u32 = 0xffff_fff2;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_NAME: u16 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets of Linux 6.18 about an interface: a head without a handle, a filter, and the end.
    fn answer() -> Vec<u8> {
        let attribute = |kind: u16, body: &[u8]| {
            let mut octets = [body.len() as u16 + 4, kind].map(u16::to_ne_bytes).concat();
            octets.extend(body);
            octets.resize(octets.len().next_multiple_of(4), 0);
            octets
        };
        let message = |kind: u16, body: &[u8]| {
            let mut octets = (HEADER as u32 + body.len() as u32).to_ne_bytes().to_vec();
            octets.extend([kind, 2].map(u16::to_ne_bytes).as_flattened());
            octets.extend([0; 8]);
            octets.extend(body);
            octets
        };
        let tcmsg = |handle: u32| [0, 1, handle, INGRESS, 41 << 16 | 0x0300].map(u32::to_ne_bytes).concat();
        let kind = attribute(TCA_KIND, b"bpf\0");
        let fd_and_name = [attribute(11, &7_u32.to_ne_bytes()), attribute(TCA_BPF_NAME, b"place_ingress\0")];
        let options = attribute(TCA_OPTIONS, &fd_and_name.concat());
        [
            message(RTM_NEWTFILTER, &[tcmsg(0), kind.clone()].concat()),
            message(RTM_NEWTFILTER, &[tcmsg(3), kind, attribute(11, &[0; 4]), options].concat()),
            message(NLMSG_DONE as u16, &[0; 4]),
        ]
        .concat()
    }

    #[test]
    fn a_filter_with_a_name_is_found() {
        let mut found = Vec::new();
        assert!(take(&answer(), &mut found).unwrap());
        let filter = Filter { priority: 41, handle: 3, name: "place_ingress".into() };
        assert_eq!(found, [filter]);
    }

    #[test]
    fn an_error_of_the_kernel_is_reported() {
        let errno = (-libc::EPERM).to_ne_bytes();
        let octets = [&20_u32.to_ne_bytes()[..], &2_u16.to_ne_bytes(), &[0; 10], &errno].concat();
        let error = take(&octets, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }

    #[test]
    fn no_octets_make_the_reader_panic() {
        let whole = answer();
        for len in 0..whole.len() {
            let _ = take(&whole[..len], &mut Vec::new());
        }
        for at in 0..whole.len() {
            for to in 0..=u8::MAX {
                let mut octets = whole.clone();
                octets[at] = to;
                let _ = take(&octets, &mut Vec::new());
            }
        }
        let mut random = rddp_test_support::Random::new(41);
        for _ in 0..10_000 {
            let mut octets: Vec<u8> = (0..random.below(200)).map(|_| random.number() as u8).collect();
            let _ = take(&octets, &mut Vec::new());
            // Lengths that are right more often.
            octets.iter_mut().for_each(|octet| *octet &= 0x1f & random.number() as u8);
            let _ = take(&octets, &mut Vec::new());
        }
    }
}
