//! Names of connections, of which the program may have looked up one that means another since.

use aya::maps::{HashMap, Map, MapData, loaded_maps};
use rddp_kernel_patch::layout::Tuple;
use rddp_kernel_patch::segment::is_before;

use super::common::frame::write_fpdu;
use super::common::net::in_namespace;
use super::{BASE, STAG, Scene};

/// User space may give a connection's place to another one when the program has looked up the
/// first one's name. Nothing can be done between the two from here, so the name itself is made to
/// lead to the place of another connection.
#[test]
fn a_segment_of_another_connection_than_the_place_has_is_left_alone() {
    in_namespace(|| {
        let (one, two) = (Scene::new(0), Scene::new(0));
        // Of two places in sequence, so that the gate lets segments of the other one pass.
        let is_first = is_before(one.placing.first_seq(), two.placing.first_seq());
        let (mut scene, other) = if is_first { (one, two) } else { (two, one) };
        let mut names = names(scene.tuple);
        let place = names.get(&scene.tuple, 0).unwrap();
        names.insert(other.tuple, place, 0).unwrap();

        let before = scene.octets();
        scene.run(&other.write(BASE, b"other"));
        assert_eq!((scene.placing.counts().segments, scene.placing.take()), (1, None));
        assert!(scene.octets() == before, "octets have changed");
        // Its own segments are placed all the same.
        scene.run(&scene.frame(100, write_fpdu(STAG, BASE, b"its own")));
        assert!(scene.placing.take().is_some_and(|(_, good)| good));
    });
}

/// Returns the map of names that has this one.
fn names(tuple: Tuple) -> HashMap<MapData, Tuple, u32> {
    loaded_maps()
        .flatten()
        .filter(|map| map.name_as_str() == Some("tuples"))
        .filter_map(|map| HashMap::try_from(Map::HashMap(MapData::from_id(map.id()).ok()?)).ok())
        .find(|names| names.get(&tuple, 0).is_ok())
        .expect("the program's map")
}
