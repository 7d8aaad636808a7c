//! Each method of each trait reaches its own place in the network.

use k8s_openapi::api::core::v1::{Pod, Service};
use staffetta_driver::{Allocation, DriverError, PublicIp, Reason};
use staffetta_memory::http::{Fault, Method};

use crate::world::{Drivers, ListenerCalls, Place, Remote, any_address, balancer, http, instant, owner};

#[tokio::test]
async fn every_method_of_every_trait_hits_the_faults_of_its_own_name() {
    let remote = Remote::start(instant());
    for method in Method::ALL {
        let error = DriverError::new(Reason::Unsupported, method.path());
        remote.client.inject(*method, 1, &Fault::Fail(error)).await.unwrap();
    }
    let drivers = remote.drivers("east");
    for method in Method::ALL {
        let error = failure(&drivers, *method).await;
        assert!(
            error.to_string().starts_with(&format!("{method}: it is not supported")),
            "{method}: {error}"
        );
    }
}

/// The error of a call of the method.
async fn failure(drivers: &Drivers, method: Method) -> DriverError {
    let there = Place::InMemory.drivers(instant());
    let (pod, service, project) = (Pod::default(), Service::default(), "p".into());
    let request = there.vif_request("a").await;
    let vif = there.vifs.request_vif(&request).await.unwrap();
    let spec = balancer("10.0.0.1");
    let made = there.balancers.ensure_load_balancer(&owner("a"), &spec).await.unwrap();
    let ip =
        PublicIp { id: "i".into(), ip: [203, 0, 113, 2].into(), allocation: Allocation::Pool, port: None };
    let (vifs, balancers) = (&drivers.vifs, &drivers.balancers);
    match method {
        Method::PodProject => drivers.pod_projects.project(&pod).await.unwrap_err(),
        Method::PodSubnets => drivers.pod_subnets.subnets(&pod, &project).await.unwrap_err(),
        Method::PodSecurityGroups => {
            drivers.pod_security_groups.security_groups(&pod, &project).await.unwrap_err()
        }
        Method::RequestVif => vifs.request_vif(&request).await.unwrap_err(),
        Method::ReleaseVif => vifs.release_vif(&owner("a"), &vif).await.unwrap_err(),
        Method::ActivateVif => vifs.activate_vif(&owner("a"), &vif).await.unwrap_err(),
        Method::ListVifs => vifs.vifs(None).await.unwrap_err(),
        Method::ServiceProject => drivers.service_projects.project(&service).await.unwrap_err(),
        Method::ServiceSubnets => drivers.service_subnets.subnets(&service, &project).await.unwrap_err(),
        Method::ServiceSecurityGroups => {
            drivers.service_security_groups.security_groups(&service, &project).await.unwrap_err()
        }
        Method::ListLoadBalancers => balancers.load_balancers(None).await.unwrap_err(),
        Method::EnsureLoadBalancer => balancers.ensure_load_balancer(&owner("a"), &spec).await.unwrap_err(),
        Method::GetProgress => balancers.progress(&made).await.unwrap_err(),
        Method::ReleaseLoadBalancer => {
            balancers.release_load_balancer(&owner("a"), &made.id).await.unwrap_err()
        }
        Method::ChangeListener => balancers.ensure_listener(&made, &http()).await.unwrap_err(),
        Method::ListPublicIps => drivers.public_ips.public_ips(None).await.unwrap_err(),
        Method::AcquirePublicIp => drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap_err(),
        Method::AssociatePublicIp => drivers.public_ips.associate(&ip, &"p".into()).await.unwrap_err(),
        Method::DisassociatePublicIp => drivers.public_ips.disassociate(&ip, &"p".into()).await.unwrap_err(),
        Method::ReleasePublicIp => drivers.public_ips.release(&owner("a"), &ip).await.unwrap_err(),
    }
}
