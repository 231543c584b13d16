//! Scenario `lost`: the peer is killed, or the link is cut, and this end notices.

use std::time::{Duration, Instant};

use rddp_rnic::Status;

use crate::Outcome;
use crate::link::Link;
use crate::transfer;

/// DONE, VERIFIED and the spare one.
const RECEIVES: usize = 3;

/// Time between two looks at the connection.
const LOOK: Duration = Duration::from_millis(100);

pub fn run(link: &mut Link<'_>) -> Outcome<()> {
    let options = link.options;
    println!("waits, process {}", std::process::id());
    let begun = Instant::now();
    if options.does(options.role) && options.items() > 0 {
        work_until_lost(link)?;
    }
    link.wait_for_end()?;
    println!("lost after {} ms", begun.elapsed().as_millis());
    for _ in 0..RECEIVES {
        link.expect_received(Status::Flushed)?;
    }
    link.say("the receives are flushed");
    Ok(())
}

/// Does the items, each when the one before is done, until one is not.
fn work_until_lost(link: &mut Link<'_>) -> Outcome<()> {
    for k in (0..link.options.items()).cycle() {
        if link.post(&transfer::request(link, k)?).is_err() {
            break;
        }
        while !link.sent_within(LOOK)? {
            // Posted behind the end: to a queue pair that waits for another connection.
            if link.has_ended() {
                return Ok(());
            }
        }
        if link.next_sent()?.status != Status::Success {
            break;
        }
    }
    Ok(())
}
