//! The project, subnets and security groups of pods in the simulated network, from the options.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use super::MemoryNetwork;
use staffetta_driver::{
    DriverError, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, ProjectId, Reason,
    SecurityGroupId, Subnet, SubnetId,
};

/// All pods belong to the project of the options.
pub struct MemoryPodProject(pub Arc<MemoryNetwork>);

#[async_trait]
impl PodProjectDriver for MemoryPodProject {
    async fn project(&self, _: &Pod) -> Result<ProjectId, DriverError> {
        Ok(self.0.options().project.clone())
    }
}

/// A pod belongs to the subnets that the options name for its namespace, or else to those for all pods.
pub struct MemoryPodSubnets(pub Arc<MemoryNetwork>);

#[async_trait]
impl PodSubnetsDriver for MemoryPodSubnets {
    async fn subnets(&self, pod: &Pod, _: &ProjectId) -> Result<Vec<Subnet>, DriverError> {
        let options = self.0.options();
        let of_namespace =
            pod.metadata.namespace.as_ref().and_then(|namespace| options.namespace_subnets.get(namespace));
        let cidrs = of_namespace.unwrap_or(&options.pod_subnets);
        Ok(cidrs.iter().map(|cidr| self.0.subnet(*cidr)).collect())
    }

    async fn subnet(&self, id: &SubnetId) -> Result<Subnet, DriverError> {
        self.0.subnet_named(id).ok_or_else(|| {
            DriverError::new(Reason::NotFound, "find a subnet by its id").detail(format!("subnet {id}"))
        })
    }
}

/// All pods belong to the security groups of the options.
pub struct MemoryPodSecurityGroups(pub Arc<MemoryNetwork>);

#[async_trait]
impl PodSecurityGroupsDriver for MemoryPodSecurityGroups {
    async fn security_groups(&self, _: &Pod, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
        Ok(self.0.options().pod_security_groups.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryOptions;

    #[tokio::test]
    async fn a_namespace_with_subnets_of_its_own_gets_those() {
        let own: ipnet::IpNet = "10.11.0.0/29".parse().unwrap();
        let options = MemoryOptions {
            namespace_subnets: [("small".into(), vec![own])].into(),
            ..MemoryOptions::default()
        };
        let driver = MemoryPodSubnets(Arc::new(MemoryNetwork::new(options)));
        let mut pod = Pod::default();
        for (namespace, cidr) in [("small", "10.11.0.0/29"), ("other", "10.10.0.0/16")] {
            pod.metadata.namespace = Some(namespace.into());
            let subnets = driver.subnets(&pod, &"memory".into()).await.unwrap();
            assert_eq!(subnets.iter().map(|subnet| subnet.cidr.to_string()).collect::<Vec<_>>(), [cidr]);
        }
    }
}
