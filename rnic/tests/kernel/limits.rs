//! Connections and STags beyond those that the program knows: they stay at user level, and are
//! counted.

use rddp_kernel_patch::layout::{CONNECTIONS, STAGS};
use rddp_rnic::{Access, LeftToUser, Placement, RegionOptions};
use rddp_test_support::plain;

use super::common::raw::{client_server, listen_for, open_for};
use super::hostile::Scene;
use super::path_test::net::in_namespace;

#[test]
fn connections_that_the_program_does_not_know_are_counted() {
    in_namespace(|| {
        let scene = Scene::new();
        let mut others = Vec::new();
        for number in 2..=CONNECTIONS + 2 {
            let end = scene.end.sibling_with(|config| config.placement = Placement::Auto);
            let (mut peer, _) = listen_for(&end, &client_server(), &plain());
            open_for(&mut peer, &end);
            assert_eq!(end.qp.kernel_counts().is_some(), number <= CONNECTIONS);
            others.push((end, peer));
        }
        assert_eq!(scene.end.rnic.left_to_user().connections, 2);
    });
}

#[test]
fn stags_that_the_program_does_not_know_are_counted() {
    in_namespace(|| {
        let scene = Scene::new();
        let options = RegionOptions { kernel: true, ..Default::default() };
        let more = |_| scene.end.pd.allocate_with(8, Access::LOCAL_WRITE, &options).unwrap();
        let mut regions: Vec<_> = (1..STAGS / 2).map(more).collect();
        assert_eq!(scene.end.rnic.left_to_user(), LeftToUser::default());
        regions.extend((STAGS / 2..=STAGS).map(more));
        let left = scene.end.rnic.left_to_user();
        assert!(left.stags >= 1 && left.connections == 0, "{left:?} of {}", 1 + regions.len());
    });
}
