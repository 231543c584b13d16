//! Scenario `transfer`: items are done, everything is checked at both ends, the connection is
//! closed.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rddp_rnic::{Remote, SendWr, Status};

use crate::Outcome;
use crate::link::{Advert, Link, MARGIN};
use crate::options::Item;
use crate::pattern::FILL_WORD;

pub fn run(link: &mut Link<'_>) -> Outcome<()> {
    let options = link.options;
    let (we_do, peer_does) = (options.does(options.role), options.does(options.role.other()));
    let items = options.items() as u64;
    if we_do {
        do_items(link)?;
        link.send_message("DONE", items)?;
    }
    if peer_does {
        for k in (0..options.items()).filter(|&k| options.item(k).is_received()) {
            let completion = link.expect_received(Status::Success)?;
            link.check_flags(k, &completion)?;
        }
    }
    link.expect_message(0, "DONE", if peer_does { items } else { 0 })?;
    if !we_do {
        link.send_message("DONE", 0)?;
    }
    link.check_slots(&link.sink, we_do, true, "sink")?;
    link.check_regions()?;
    link.send_message("VERIFIED", 0)?;
    link.expect_message(1, "VERIFIED", 0)?;
    link.check_fpdus_sent()?;
    if options.close == options.role {
        if options.abort { link.qp.abort() } else { link.qp.disconnect() }
    }
    link.wait_for_end()?;
    link.expect_received(Status::Flushed)?;
    link.say("the spare receive is flushed");
    Ok(())
}

fn do_items(link: &mut Link<'_>) -> Outcome<()> {
    let options = link.options;
    if options.size == 0 && options.ops.contains(&Item::Read) {
        // siw handles a Read of no octets wrongly while it is sending.
        sleep(Duration::from_millis(100));
    }
    let begun = Instant::now();
    for k in 0..options.items() {
        link.post(&request(link, k)?)?;
    }
    for _ in 0..options.items() {
        link.expect_sent(Status::Success)?;
    }
    link.say(&format!("{} items of {} octets are done", options.items(), options.size));
    link.say(&format!("after {} ms", begun.elapsed().as_millis()));
    Ok(())
}

pub fn request(link: &Link<'_>, k: usize) -> Outcome<SendWr> {
    let (from, size) = (MARGIN + k * link.options.size, link.options.size);
    let slot = from..from + size;
    let at = |advert: Option<Advert>| {
        advert.map(|advert| Remote { stag: advert.stag, to: advert.to + from as u64 }).ok_or("no advert")
    };
    let word =
        || link.peer_token.map(|advert| Remote { stag: advert.stag, to: advert.to }).ok_or("no advert");
    let source = link.source.sge(slot.clone());
    Ok(match link.options.item(k) {
        Item::Immediate => SendWr::immediate(k as u64, immediate(k)),
        Item::WriteImmediate => SendWr::write_immediate(k as u64, source, at(link.peer_inbox)?, immediate(k)),
        Item::FetchAdd => SendWr::fetch_add(k as u64, link.sink.sge(slot), word()?, 1),
        Item::CmpSwap => SendWr::cmp_swap(k as u64, link.sink.sge(slot), word()?, FILL_WORD + 1, FILL_WORD),
        Item::Write => SendWr::write(k as u64, source, at(link.peer_inbox)?),
        Item::Read => SendWr::read(k as u64, link.sink.sge(slot), at(link.peer_source)?),
        Item::Send { solicited, invalidate } => {
            let wr = match invalidate {
                true => {
                    let token = link.peer_token.ok_or("no advert")?;
                    SendWr::send_invalidate(k as u64, source, token.stag)
                }
                false => SendWr::send(k as u64, source),
            };
            if solicited { wr.solicited() } else { wr }
        }
    })
}

/// Returns the Immediate Data of an item: its number, in the four octets that every device has.
pub fn immediate(k: usize) -> [u8; 8] {
    ((k as u64) << 32).to_be_bytes()
}
