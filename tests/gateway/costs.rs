//! Traffic of one kind, whose system calls are counted by hand (docs/gateway.md): `COUNT` messages
//! of `LEN` octets, and `WAY` says of which kind.

use rddp_rnic::{Access, RecvWr, SendWr};
use rddp_test_support::pattern;

use crate::devices::{Kind, completion};
use crate::world::world;

fn number(name: &str) -> usize {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(8)
}

#[test]
#[ignore = "for strace, by hand"]
fn traffic_of_one_kind() {
    let (count, len, way) = (number("COUNT"), number("LEN"), std::env::var("WAY").unwrap_or_default());
    let world = world("gw_costs", Kind::Rxe);
    let (plain, mut program) = world.connect();
    let (source, there) = (plain.memory(&pattern(len, 1)), program.remote());
    let inbox = world.host.memory(len, Access::LOCAL_WRITE);
    for _ in 0..count {
        match way.as_str() {
            "write" => drop(plain.does(&SendWr::write(1, source.whole(), there))),
            "writes" => {
                for _ in 0..7 {
                    plain.qp.post_send(&SendWr::write(1, source.whole(), there).unsignaled()).unwrap();
                }
                plain.does(&SendWr::write(1, source.whole(), there));
            }
            "read" => drop(plain.does(&SendWr::read(1, source.whole(), there))),
            "out" => {
                plain.qp.post_recv(RecvWr::one(1, source.whole())).unwrap();
                program.end.post_send(&SendWr::send(2, inbox.piece(0, len))).unwrap();
                completion(&mut program.end);
                plain.completion();
            }
            _ => {
                program.end.post_receive(&RecvWr::one(1, inbox.piece(0, len))).unwrap();
                plain.qp.post_send(&SendWr::send(2, source.whole()).unsignaled()).unwrap();
                completion(&mut program.end);
            }
        }
    }
}
