//! The guarantees of the drivers of pods.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use staffetta_driver::{Activation, Owned, PodVifDriver, Reason, Vif};
use staffetta_memory::MemoryOptions;

use crate::world::{Place, instant, owner};

laws! {
    pods_and_services_belong_where_the_options_say,
    a_vif_is_what_was_asked_for,
    what_is_made_is_marked_and_the_marks_of_one_cluster_and_one_owner_are_listed,
    a_request_makes_a_port_each_time_so_that_who_lost_count_looks_for_the_marks,
    a_release_names_its_owner_and_may_be_repeated,
    a_port_that_is_down_says_when_to_ask_again,
    a_used_up_quota_is_an_error_that_passes_with_a_release,
    a_full_subnet_says_when_an_address_will_have_rested,
    the_pool_makes_and_releases_the_same_ports,
}

async fn pods_and_services_belong_where_the_options_say(place: Place) {
    let own = "10.11.0.0/29".parse().unwrap();
    let drivers = place.drivers(MemoryOptions {
        project: "blue".into(),
        namespace_subnets: [("small".into(), vec![own])].into(),
        pod_security_groups: vec!["pods".into()],
        service_subnet: Some("10.96.0.0/12".parse().unwrap()),
        service_security_groups: vec!["services".into()],
        ..instant()
    });
    let mut pod = Pod::default();
    let project = drivers.pod_projects.project(&pod).await.unwrap();
    assert_eq!(project, "blue".into());
    for (namespace, cidr) in [("small", "10.11.0.0/29"), ("other", "10.10.0.0/16")] {
        pod.metadata.namespace = Some(namespace.into());
        let subnets = drivers.pod_subnets.subnets(&pod, &project).await.unwrap();
        assert_eq!(subnets.iter().map(|subnet| subnet.cidr.to_string()).collect::<Vec<_>>(), [cidr]);
    }
    let groups = drivers.pod_security_groups.security_groups(&pod, &project).await.unwrap();
    assert_eq!(groups, ["pods".into()]);

    let service = Service::default();
    assert_eq!(drivers.service_projects.project(&service).await.unwrap(), project);
    let subnets = drivers.service_subnets.subnets(&service, &project).await.unwrap();
    assert_eq!(subnets, ["subnet-10.96.0.0/12".into()]);
    let groups = drivers.service_security_groups.security_groups(&service, &project).await.unwrap();
    assert_eq!(groups, ["services".into()]);
}

async fn a_vif_is_what_was_asked_for(place: Place) {
    let drivers = place.drivers(MemoryOptions { mtu: 1400, ..instant() });
    let request = drivers.vif_request("web").await;
    let vif = drivers.vifs.request_vif(&request).await.unwrap();
    assert!(vif.active);
    assert_eq!((vif.address.to_string().as_str(), vif.network.mtu), ("fa:16:3e:00:00:01", Some(1400)));
    assert_eq!(vif.subnets, [request.subnets[0].with_ips(vec![[10, 10, 0, 2].into()])]);
    assert_eq!(drivers.vifs.activate_vif(&owner("web"), &vif).await.unwrap(), Activation::Active(vif));
}

async fn what_is_made_is_marked_and_the_marks_of_one_cluster_and_one_owner_are_listed(place: Place) {
    let world = place.world(instant());
    let (east, west) = (world.drivers("east"), world.drivers("west"));
    let vif = east.vifs.request_vif(&east.vif_request("a").await).await.unwrap();
    east.vifs.request_vif(&east.vif_request("b").await).await.unwrap();
    west.vifs.request_vif(&west.vif_request("a").await).await.unwrap();
    assert_eq!(east.vifs.vifs(None).await.unwrap().len(), 2);
    let marked = Owned { owner: Some(owner("a")), resource: vif };
    assert_eq!(east.vifs.vifs(Some(&owner("a"))).await.unwrap(), [marked]);
    assert_eq!(west.vifs.vifs(Some(&owner("b"))).await.unwrap(), []);
}

async fn a_request_makes_a_port_each_time_so_that_who_lost_count_looks_for_the_marks(place: Place) {
    let drivers = place.drivers(instant());
    let request = drivers.vif_request("a").await;
    let first = drivers.vifs.request_vif(&request).await.unwrap();
    let second = drivers.vifs.request_vif(&request).await.unwrap();
    let marked = drivers.vifs.vifs(Some(&owner("a"))).await.unwrap();
    assert_eq!(marked.into_iter().map(|marked| marked.resource).collect::<Vec<_>>(), [first, second]);
}

async fn a_release_names_its_owner_and_may_be_repeated(place: Place) {
    let world = place.world(instant());
    let (east, west) = (world.drivers("east"), world.drivers("west"));
    let vif = east.vifs.request_vif(&east.vif_request("a").await).await.unwrap();
    east.vifs.release_vif(&owner("b"), &vif).await.unwrap();
    west.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    assert_eq!(held(&*east.vifs).await, std::slice::from_ref(&vif));
    east.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    east.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    assert_eq!(held(&*east.vifs).await, []);
    assert_eq!(east.vifs.activate_vif(&owner("a"), &vif).await.unwrap_err().reason(), Reason::NotFound);
}

async fn a_port_that_is_down_says_when_to_ask_again(place: Place) {
    let hour = Duration::from_secs(3600);
    let drivers = place.drivers(MemoryOptions { activation_delay_ms: 3_600_000, ..instant() });
    let vif = drivers.vifs.request_vif(&drivers.vif_request("a").await).await.unwrap();
    assert!(!vif.active);
    let activation = drivers.vifs.activate_vif(&owner("a"), &vif).await.unwrap();
    let Activation::NotYet { poll_after } = activation else { panic!("not before an hour has passed") };
    assert!(hour / 2 < poll_after && poll_after <= hour, "{poll_after:?}");
}

async fn a_used_up_quota_is_an_error_that_passes_with_a_release(place: Place) {
    let drivers = place.drivers(MemoryOptions { port_quota: Some(1), ..instant() });
    let vif = drivers.vifs.request_vif(&drivers.vif_request("a").await).await.unwrap();
    let request = drivers.vif_request("b").await;
    let refused = drivers.vifs.request_vif(&request).await.unwrap_err();
    assert_eq!((refused.reason(), refused.transient(), refused.ambiguous()), (Reason::Quota, true, false));
    assert!(refused.to_string().starts_with("make a port: the quota is used up: 1 ports are allowed"));
    drivers.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    drivers.vifs.request_vif(&request).await.unwrap();
}

async fn a_full_subnet_says_when_an_address_will_have_rested(place: Place) {
    let hour = Duration::from_secs(3600);
    let options =
        MemoryOptions { addresses_per_subnet: Some(1), cool_down_ms: 3_600_000, ..MemoryOptions::default() };
    let drivers = place.drivers(options);
    let vif = drivers.vifs.request_vif(&drivers.vif_request("a").await).await.unwrap();
    let request = drivers.vif_request("b").await;
    let full = drivers.vifs.request_vif(&request).await.unwrap_err();
    assert_eq!((full.reason(), full.retry_after()), (Reason::NoAddress, None));
    drivers.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    let full = drivers.vifs.request_vif(&request).await.unwrap_err();
    let rested = full.retry_after().unwrap();
    assert!(hour / 2 < rested && rested <= hour, "{rested:?}");
}

async fn the_pool_makes_and_releases_the_same_ports(place: Place) {
    let drivers = place.drivers(instant());
    let vif = drivers.pool.request_vif(&drivers.vif_request("a").await).await.unwrap();
    assert_eq!(held(&*drivers.vifs).await, std::slice::from_ref(&vif));
    assert_eq!(drivers.pool.vifs(Some(&owner("a"))).await.unwrap().len(), 1);
    assert_eq!(drivers.pool.activate_vif(&owner("a"), &vif).await.unwrap(), Activation::Active(vif.clone()));
    drivers.pool.release_vif(&owner("a"), &vif).await.unwrap();
    assert_eq!(held(&*drivers.vifs).await, []);
}

async fn held(vifs: &dyn PodVifDriver) -> Vec<Vif> {
    vifs.vifs(None).await.unwrap().into_iter().map(|marked| marked.resource).collect()
}
