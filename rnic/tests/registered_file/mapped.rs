//! Regions over a range of a file that is mapped.

use rddp_rnic::{Access, ConnectOptions, Error, FileMapping, MemError, MemoryRegion, Status};

use crate::{LEN, Named, START, Scene, all_options, octets};

const RIGHTS: [Access; 2] = [Access::REMOTE_READ, Access::REMOTE_READ.union(Access::STABLE)];

fn register(scene: &Scene, access: Access) -> MemoryRegion {
    let mapping = FileMapping::new(&scene.named.file).unwrap();
    assert_eq!(mapping.len(), START + LEN + 500);
    scene.server.pd.register_mapping(&mapping, START..START + LEN, access).unwrap()
}

#[test]
fn a_mapped_file_is_read_with_its_copies_and_without() {
    for options in all_options() {
        for access in RIGHTS {
            let mut scene = Scene::new(&options);
            scene.region = register(&scene, access);
            for (offset, len) in [(0, LEN), (1, 1), (4095, 100_000), (LEN - 1, 1)] {
                assert!(scene.read_octets(offset, len) == octets(offset..offset + len), "{access:?}");
            }
            scene.refuses(scene.region.remote(1), LEN, 0x0101);
        }
    }
}

/// RFC 5040 §4.8: what is no longer there is out of bounds. Nothing else ends.
#[test]
fn a_mapped_file_that_is_cut_short_ends_the_connection_alone() {
    for options in all_options() {
        for access in RIGHTS {
            let mut scene = Scene::new(&options);
            scene.region = register(&scene, access);
            scene.named.cut(100_000);
            assert_ne!(scene.read(scene.region.remote(0), LEN).status, Status::Success);
            scene.others_go_on();
            assert!(matches!(scene.region.read(LEN - 1, 1), Err(MemError::Faulted(_))));
        }
    }
}

#[test]
fn a_mapped_file_is_cut_short_while_it_is_read() {
    for options in all_options() {
        for access in RIGHTS {
            let mut scene = Scene::new(&options);
            scene.region = register(&scene, access);
            let is_over = std::thread::scope(|threads| {
                threads.spawn(|| (0..LEN).rev().step_by(20_000).for_each(|len| scene.named.cut(len)));
                (0..10_000).any(|_| scene.read(scene.region.remote(0), LEN).status != Status::Success)
            });
            assert!(is_over);
            scene.others_go_on();
        }
    }
}

#[test]
fn a_mapping_lasts_as_long_as_a_region_of_it() {
    let scene = Scene::new(&ConnectOptions::default());
    let mapping = FileMapping::new(&scene.named.file).unwrap();
    let pd = &scene.server.pd;
    let regions = [0..10, 5..20].map(|range| pd.register_mapping(&mapping, range, RIGHTS[0]).unwrap());
    drop(mapping);
    assert_eq!(regions[0].read(5, 5).unwrap(), regions[1].read(0, 5).unwrap());
}

#[test]
fn rights_by_which_a_mapped_file_would_change_and_wrong_ranges_are_refused() {
    let scene = Scene::new(&ConnectOptions::default());
    let mapping = FileMapping::new(&Named::new().file).unwrap();
    let refusal = |range, access| match scene.server.pd.register_mapping(&mapping, range, access) {
        Err(Error::Memory(error)) => error,
        other => panic!("{other:?}"),
    };
    let len = mapping.len();
    for bad in [Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::STABLE] {
        assert!(matches!(refusal(0..len, bad), MemError::NotForFile(_)), "{bad:?}");
    }
    for bad in [0..len + 1, len + 1..len + 1, 0..usize::MAX] {
        assert!(matches!(refusal(bad, RIGHTS[0]), MemError::NotInFile { .. }));
    }
    assert!(matches!(FileMapping::new(&std::fs::File::open("/").unwrap()), Err(MemError::File(_))));
}
