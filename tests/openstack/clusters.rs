//! Controllers of several clusters in one project, and of one cluster under two names.

use std::collections::BTreeSet;

use staffetta_real_openstack::Port;

use crate::world::World;

/// Another name for a cluster, which no other test has.
fn name_of_the_west(world: &World) -> String {
    format!("[kubernetes]\ncluster_id = \"west-{}\"\n", world.tenant.login().project)
}

fn ids(ports: Vec<Port>) -> BTreeSet<String> {
    ports.into_iter().map(|port| port.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn two_clusters_in_one_project_leave_each_others_ports_alone_on_a_real_openstack() {
    let east = World::start().await;
    let west = east.neighbour().await;
    let controllers = [east.controller("").await, west.controller(&name_of_the_west(&east)).await];
    for name in ["stays", "goes"] {
        east.pod(name).await;
        west.pod(name).await;
    }
    east.until_active(&["stays", "goes"]).await;
    west.until_active(&["stays", "goes"]).await;
    assert_eq!(east.ports().await.len(), 4, "each pod has its own");
    east.end_pod("goes").await;
    east.until_gone("goes").await;
    east.until_ports(3).await;
    let [of_east, of_west] = controllers;
    of_west.stop().await.unwrap();
    // Starts and sweeps of the east see the ports of the west, whose controller is gone.
    east.pod("more").await;
    east.until_active(&["more"]).await;
    of_east.stop().await.unwrap();
    let of_east = east.controller("").await;
    east.pod("last").await;
    east.until_active(&["last"]).await;
    let expected: BTreeSet<_> = &east.named().await | &west.named().await;
    assert_eq!((expected.len(), ids(east.ports().await)), (5, expected));
    of_east.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn two_controllers_of_one_cluster_under_two_names_share_no_port_and_leave_none_on_a_real_openstack() {
    let world = World::start().await;
    let controllers = [world.controller("").await, world.controller(&name_of_the_west(&world)).await];
    let names: Vec<_> = (0..6).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    world.until_active(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert!(world.named().await.is_subset(&ids(world.ports().await)), "no two pods name one port");
    for name in &names {
        world.end_pod(name).await;
    }
    world.until_ports(0).await;
    for controller in controllers {
        controller.stop().await.unwrap();
    }
}
