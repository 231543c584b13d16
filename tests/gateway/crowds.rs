//! Many connections at once.

use rddp_rnic::{ConnectError, ConnectOptions, RecvWr, SendWr, Status};
use rddp_test_support::pattern;

use crate::devices::{Kind, completion};
use crate::world::{MOST, Plain, world};

#[test]
fn a_hundred_connections_carry_their_octets_and_one_more_has_no_place() {
    let world = world("gw_crowd", Kind::Adapter);
    let mut pairs: Vec<_> = (0..MOST).map(|_| world.connect()).collect();
    let plain = Plain::new(&world.rnic);
    let refused = plain.qp.connect(world.gateway.address, &ConnectOptions::default());
    assert!(
        matches!(refused, Err(ConnectError::Closed | ConnectError::Tcp(_) | ConnectError::Startup(_))),
        "{refused:?}"
    );
    let sources: Vec<_> =
        (0..).zip(&pairs).map(|(at, (plain, _))| plain.memory(&pattern(30_000, at))).collect();
    let inbox = world.host.memory(8, rddp_rnic::Access::LOCAL_WRITE);
    for (source, (plain, program)) in sources.iter().zip(&mut pairs) {
        program.end.post_receive(&RecvWr::one(1, inbox.piece(0, 8))).unwrap();
        plain.qp.post_send(&SendWr::write(2, source.whole(), program.remote()).unsignaled()).unwrap();
        plain.qp.post_send(&SendWr::send_inline(3, b"done").unsignaled()).unwrap();
    }
    for (at, (_, program)) in (0..).zip(&mut pairs) {
        assert_eq!(completion(&mut program.end).status, Status::Success);
        assert!(program.octets(0, 30_000) == pattern(30_000, at));
    }
    drop(pairs);
    let mut ended = 0;
    while ended < MOST {
        let told = world.gateway.told.recv_timeout(crate::world::PATIENCE).expect("all end");
        let crate::world::Told::Ended(counts, reason) = told else { continue };
        assert!(reason.is_orderly(), "{reason}");
        assert_eq!((counts.writes, counts.sends, counts.octets_in), (1, 1, 30_004));
        ended += 1;
    }
    // The place is free again, and nothing is left at the device but the listener and the inbox.
    let again = world.connect();
    drop((again, inbox));
    world.gateway.ended();
    let crate::world::World { listener, gateway, host, .. } = world;
    drop((gateway, listener));
    host.until_nothing_is_left();
}
