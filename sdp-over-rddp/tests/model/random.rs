//! Random interleavings: any action at any time, then everything drains and both ends close.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rddp_sdp::machine::{Blocked, Config, Half};
use rddp_sdp::wire::Mode;

use crate::actions::Action;
use crate::world::World;

/// Numbers that look random, the same for the same seed (xorshift64*).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        (mixed % u64::from(end)) as u32
    }

    fn one_in(&mut self, of: u32) -> bool {
        self.below(of) == 0
    }
}

fn config(dice: &mut Dice) -> [Config; 2] {
    let bufs = [3 + dice.below(6) as u16, 3 + dice.below(6) as u16];
    let sizes = [36 + dice.below(24), 36 + dice.below(24)];
    let adverts = [1 + dice.below(8) as u8, 1 + dice.below(8) as u8];
    [0, 1].map(|at| Config {
        bufs: bufs[at],
        buf_size: sizes[at],
        send_size: 100,
        max_adverts: adverts[at],
        peer_bufs: bufs[1 - at],
        peer_buf_size: sizes[1 - at],
        peer_max_adverts: adverts[1 - at],
    })
}

fn action(dice: &mut Dice) -> Action {
    let len = 1 + dice.below(60);
    match dice.below(60) {
        0..=11 => Action::Deliver,
        12..=19 => Action::Control,
        20..=22 => Action::Send { len, urgent: dice.one_in(8) },
        23..=26 => Action::Offer { len: len + 1, inline: 1 + dice.below(30) },
        27..=29 => Action::Write { len },
        30 => Action::Complete,
        31..=32 => Action::Resend { len, write: dice.one_in(2) },
        33..=36 => Action::Recv { len },
        37..=39 => Action::Read { len },
        40..=42 => Action::Serve,
        43 => Action::Refuse,
        44..=46 => Action::Advertise { len: dice.below(30) },
        47 => Action::CancelSources,
        48 => Action::CancelSinks,
        49 => {
            [Action::Spill, Action::Queue { len }, Action::GiveUp, Action::Withdraw][dice.below(4) as usize]
        }
        50..=54 => mode(dice),
        55 => [Action::Announce, Action::WaitForCredits][dice.below(2) as usize],
        56 => {
            [Action::Resize { by: len }, Action::AnswerResize { by: dice.below(9) }][dice.below(2) as usize]
        }
        57 if dice.one_in(12) => Action::Close,
        _ => Action::Release,
    }
}

fn mode(dice: &mut Dice) -> Action {
    let to = [Mode::Buffered, Mode::Combined, Mode::Pipelined, Mode::Pipelined][dice.below(4) as usize];
    Action::Mode { half: if dice.one_in(4) { Half::In } else { Half::Out }, to }
}

/// Runs one interleaving of `steps` actions.
pub(crate) fn run(seed: u64, steps: u32) {
    let mut dice = Dice::new(seed);
    // Numbers wrap on the way in one run of two.
    let mseq = if dice.one_in(2) { 0xffff_fff0 } else { 1 };
    let mut world = World::new(config(&mut dice), mseq);
    let aborts = dice.one_in(16);
    for _ in 0..steps {
        let at = dice.below(2) as usize;
        let action = action(&mut dice);
        world.act(at, action);
    }
    if aborts {
        abort(&mut world, &mut dice);
    } else {
        finish(&mut world, &mut dice);
    }
}

/// One end gives up: the other takes all that is under way, and nothing more goes out.
fn abort(world: &mut World, dice: &mut Dice) {
    let at = dice.below(2) as usize;
    world.act(at, Action::Abort);
    while world.act(1 - at, Action::Deliver) {}
    if world.ends[1 - at].got_abort {
        assert!(world.ends[1 - at].machine().aborted());
        assert!(!world.act(1 - at, Action::Control));
    }
    assert_eq!(world.ends[at].machine().data_room(), Err(Blocked::Closed));
}

/// All users are willing: everything drains, both counts agree, both halves close.
pub(crate) fn finish(world: &mut World, dice: &mut Dice) {
    settle(world, dice);
    for at in [0, 1] {
        let other = 1 - at;
        let (delivered, next) = (world.ends[other].delivered, world.ends[at].next);
        assert_eq!(delivered, next, "octets of end {at} are missing: {world:?}");
        assert!(!world.ends[at].machine().sources_out(), "an advert stays out");
        let sent = world.ends[at].machine().non_discards().0;
        let received = world.ends[other].machine().non_discards().1;
        let open = !world.ends[at].machine().sent_disconn();
        assert!(!open || sent == received, "NonDiscards part: {sent} and {received}");
    }
    for at in [0, 1] {
        world.act(at, Action::WaitForCredits);
        settle(world, dice);
        let room = world.ends[at].machine().data_room();
        assert_ne!(room, Err(Blocked::Credits), "credits of end {at} are lost");
    }
    world.act(0, Action::Close);
    world.act(1, Action::Close);
    settle(world, dice);
    for end in &mut world.ends {
        let machine = end.machine();
        assert!(machine.sent_disconn() && machine.received_disconn(), "not closed");
        assert!(machine.tables_idle(), "an advert is left");
        assert!(end.rooms.is_empty());
    }
    let first = [0, 1].map(|at| world.ends[at].machine().takes_down_transport());
    assert!(first[0] || first[1], "nobody takes down the transport");
}

/// Does what both ends do by themselves and what willing users do, in random order, until nothing
/// is left to do.
fn settle(world: &mut World, dice: &mut Dice) {
    const WILLING: [Action; 11] = [
        Action::Deliver,
        Action::Control,
        Action::Serve,
        Action::Read { len: 1000 },
        Action::Recv { len: 1000 },
        Action::Complete,
        Action::Resend { len: 1000, write: true },
        Action::Resend { len: 1000, write: false },
        Action::Release,
        Action::AnswerResize { by: 0 },
        Action::CancelSinks,
    ];
    let mut idle = 0;
    for _ in 0..20_000 {
        let (at, turn) = (dice.below(2) as usize, dice.below(WILLING.len() as u32) as usize);
        let mut done = false;
        // The first that can be done, from a random one on.
        for step in 0..2 * WILLING.len() {
            let at = (at + step / WILLING.len()) % 2;
            let action = WILLING[(turn + step) % WILLING.len()];
            let cancels = action == Action::CancelSinks && world.ends[at].machine().cancelling();
            done = !cancels && world.act(at, action);
            if done {
                break;
            }
        }
        if !done {
            // Who has octets to send again says so before it sleeps.
            for at in [0, 1] {
                if world.ends[at].machine().returned().is_some() {
                    world.act(at, Action::WaitForCredits);
                }
            }
            idle += 1;
            if idle == 2 {
                return;
            }
        } else {
            idle = 0;
        }
    }
    panic!("the two ends never come to rest");
}

/// Runs one interleaving per seed, and prints what to repeat when one fails: its seed and the
/// shortest prefix of it that fails.
pub(crate) fn explore(seeds: std::ops::Range<u64>, steps: u32) {
    for seed in seeds {
        if catch_unwind(|| run(seed, steps)).is_err() {
            let shorter =
                (0..=steps).find(|steps| catch_unwind(AssertUnwindSafe(|| run(seed, *steps))).is_err());
            let steps = shorter.unwrap_or(steps);
            eprintln!("seed {seed}, after {steps} steps:");
            run(seed, steps);
        }
    }
}
