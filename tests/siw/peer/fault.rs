//! Scenario `fault`: one violation, and what is reported to each end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rddp_rnic::{Access, Gather, Remote, SendWr, Stag, Status};

use crate::Outcome;
use crate::link::{Link, TOKEN, message};
use crate::pattern::FILL;
use crate::transfer;

/// The kind in which the target's source becomes shorter while it is read.
pub const TRUNCATED: &str = "read-truncated";

const OCTETS: u32 = 64;
const OUTSIDE: u64 = 32;
const RECEIVES_LEFT: usize = 3;
const UNKNOWN: u32 = 0x5a5a_5a00;
const BAD_KEY: u32 = 1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Misdeed {
    Write,
    Read,
    Invalidate,
    TooLong,
    TooMany,
    Own,
    ReadTruncated,
}

/// The second half of a kind's name, taken apart.
struct FaultCase {
    misdeed: Misdeed,
    stag_change: u32,
    /// Place in the token, as a TO relative to its first.
    offset: Option<u64>,
    withheld: Access,
    other_pd: bool,
    invalidate_first: bool,
}

fn kind(name: &str) -> Outcome<FaultCase> {
    let (misdeed, how) = match name {
        "send-too-long" => (Misdeed::TooLong, ""),
        "send-no-receive" => (Misdeed::TooMany, ""),
        "local-error" => (Misdeed::Own, ""),
        TRUNCATED => (Misdeed::ReadTruncated, ""),
        _ => match name.split_once('-') {
            Some(("write", how)) => (Misdeed::Write, how),
            Some(("read", how)) => (Misdeed::Read, how),
            Some(("invalidate", how)) => (Misdeed::Invalidate, how),
            _ => return Err(format!("no kind of fault {name}").into()),
        },
    };
    let withheld = if misdeed == Misdeed::Write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
    let plain = FaultCase {
        misdeed,
        stag_change: 0,
        offset: Some(0),
        withheld: Access::empty(),
        other_pd: false,
        invalidate_first: false,
    };
    Ok(match how {
        "" => plain,
        "unknown" => FaultCase { stag_change: UNKNOWN, ..plain },
        "bad-key" => FaultCase { stag_change: BAD_KEY, ..plain },
        "bounds" => FaultCase { offset: Some(TOKEN as u64 - OUTSIDE), ..plain },
        "before" => FaultCase { offset: Some(OUTSIDE.wrapping_neg()), ..plain },
        "wrap" => FaultCase { offset: None, ..plain },
        "no-right" => FaultCase { withheld, ..plain },
        "other-pd" => FaultCase { other_pd: true, ..plain },
        "invalidated" => FaultCase { invalidate_first: true, ..plain },
        _ => return Err(format!("no kind of fault {name}").into()),
    })
}

/// The token's rights, and whether it has a PD of its own.
pub fn token(name: &str) -> Outcome<(Access, bool)> {
    let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_INVALIDATE;
    if name.is_empty() {
        return Ok((all, false));
    }
    let kind = kind(name)?;
    Ok((all - kind.withheld, kind.other_pd))
}

pub fn run(link: &mut Link<'_>) -> Outcome<()> {
    let options = link.options;
    let kind = kind(&options.kind)?;
    let we_do = options.does(options.role);
    if we_do {
        misbehave(link, &kind)?;
        link.say(&format!("did what {} says", options.kind));
    } else if kind.misdeed == Misdeed::ReadTruncated {
        truncate_while_read(link)?;
    }
    link.wait_for_end()?;
    if !link.is_device() {
        check_terminate(link, &kind, we_do)?;
    }
    for receive in 0..RECEIVES_LEFT {
        link.expect_received(if we_do { Status::Flushed } else { status_at_target(&kind, receive) })?;
    }
    link.say("the receives ended as they have to");
    link.check_regions()
}

/// Checks the Terminate, of which no device tells.
fn check_terminate(link: &Link<'_>, kind: &FaultCase, we_do: bool) -> Outcome<()> {
    let options = link.options;
    let we_sent = we_do == (kind.misdeed == Misdeed::Own);
    let (terminate, verb) = match we_sent {
        true => (link.qp.terminate_sent(), "sent"),
        false => (link.qp.terminate_received(), "received"),
    };
    let code = terminate.ok_or_else(|| format!("no Terminate was {verb}"))?.code;
    link.say(&format!("{verb} Terminate {code}"));
    if options.terminate.is_some_and(|wanted| wanted != code.0) {
        return Err(format!(
            "Terminate {code} was {verb}, {:#06x} is expected",
            options.terminate.unwrap_or(0)
        )
        .into());
    }
    Ok(())
}

/// Cuts off all of the source's file once part of it has been sent. The rest of the Read is longer
/// than what TCP takes in advance.
fn truncate_while_read(link: &Link<'_>) -> Outcome<()> {
    let file = link.file.as_ref().ok_or("the source is no file")?;
    let deadline = Instant::now() + link.options.timeout;
    while link.qp.counters().octets_sent < 1 << 20 {
        link.expect(Instant::now() < deadline, "octets of the file sent")?;
        sleep(Duration::from_millis(1));
    }
    Ok(file.set_len(0)?)
}

fn status_at_target(kind: &FaultCase, receive: usize) -> Status {
    match kind.misdeed {
        Misdeed::TooMany => Status::Success,
        _ if kind.invalidate_first && receive == 0 => Status::Success,
        Misdeed::Invalidate if receive == 0 => Status::RemoteInvalidate,
        Misdeed::TooLong if receive == 0 => Status::MessageTooLong,
        _ => Status::Flushed,
    }
}

fn misbehave(link: &mut Link<'_>, kind: &FaultCase) -> Outcome<()> {
    let token = link.peer_token.ok_or("no advert")?;
    let changed = Stag(token.stag.0 ^ kind.stag_change);
    match kind.misdeed {
        Misdeed::Write | Misdeed::Read => {
            if kind.invalidate_first {
                send_invalidate(link, token.stag)?;
            }
            let to = kind.offset.map_or(OUTSIDE.wrapping_neg(), |offset| token.to.wrapping_add(offset));
            access(link, kind, Remote { stag: changed, to })
        }
        Misdeed::Invalidate => send_invalidate(link, changed),
        Misdeed::TooLong => send_fill(link),
        Misdeed::TooMany => {
            for _ in 0..=RECEIVES_LEFT {
                link.send_octets(&message("DONE", 0))?;
            }
            Ok(())
        }
        Misdeed::Own => {
            // Valid when it is posted, and invalidated before it is sent.
            let invalidate = SendWr::invalidate(0, link.sink.stag()).unsignaled();
            let list = [invalidate, SendWr::send(0, link.sink.sge(0..OCTETS as usize))];
            link.qp.post_sends(&list).map_err(|refused| refused.error)?;
            link.expect_sent(Status::LocalProtection).map(drop)
        }
        Misdeed::ReadTruncated => {
            link.post(&transfer::request(link, 0)?)?;
            link.expect_sent(Status::RemoteAccess).map(drop)
        }
    }
}

fn access(link: &mut Link<'_>, kind: &FaultCase, remote: Remote) -> Outcome<()> {
    let len = OCTETS as usize;
    if kind.misdeed == Misdeed::Write {
        link.post(&SendWr::write_inline(0, &vec![0; len], remote))?;
        return link.expect_refused(false);
    }
    // The sink of a Read that brings nothing: the margins of a region have room for it.
    link.post(&SendWr::read(0, link.sink.sge(0..len), remote))?;
    link.expect_refused(true)
}

fn send_invalidate(link: &mut Link<'_>, stag: Stag) -> Outcome<()> {
    link.post(&SendWr::send_invalidate(0, Gather::Inline(message("DONE", 0)), stag))?;
    link.expect_sent(Status::Success).map(drop)
}

/// A Send of `size` octets of fill where 16 are expected. It may be flushed: the peer can end the
/// connection before all of it has gone.
fn send_fill(link: &mut Link<'_>) -> Outcome<()> {
    let size = if link.options.size == 0 { OCTETS as usize } else { link.options.size };
    let octet = link.token.sge(0..TOKEN);
    let mut list = vec![octet; size / TOKEN];
    list.push(link.token.sge(0..size % TOKEN));
    if list.len() <= rddp_rnic::Rnic::CAPABILITIES.max_sge {
        link.post(&SendWr::send(0, list))?;
        // A device may be told of the peer's refusal first.
        return if link.is_device() { link.next_sent() } else { link.expect_sent(Status::Success) }.map(drop);
    }
    Err(format!("no Send of {size} octets of fill {FILL:#x} here").into())
}
