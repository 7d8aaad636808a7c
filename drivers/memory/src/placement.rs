//! The drivers `memory` of projects, subnets and security groups, which return values of the options.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};

use super::network::subnet_id;
use super::{MemoryNetwork, MemoryServices};
use staffetta_driver::{
    DriverError, NamespaceProjectDriver, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver,
    ProjectId, Reason, SecurityGroupId, ServiceProjectDriver, ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver, Subnet, SubnetId,
};

/// All pods belong to the project of the options.
#[async_trait]
impl PodProjectDriver for MemoryNetwork {
    async fn project(&self, _: &Pod) -> Result<ProjectId, DriverError> {
        Ok(self.options().project.clone())
    }
}

/// A pod belongs to the subnets that the options name for its namespace or, if they do not name the namespace, to those for all pods.
#[async_trait]
impl PodSubnetsDriver for MemoryNetwork {
    async fn subnets(&self, pod: &Pod, _: &ProjectId) -> Result<Vec<Subnet>, DriverError> {
        let options = self.options();
        let of_namespace =
            pod.metadata.namespace.as_ref().and_then(|namespace| options.namespace_subnets.get(namespace));
        let cidrs = of_namespace.unwrap_or(&options.pod_subnets);
        Ok(cidrs.iter().map(|cidr| self.subnet(*cidr)).collect())
    }

    async fn subnet(&self, id: &SubnetId, _: &ProjectId) -> Result<Subnet, DriverError> {
        let cidr = self.options().subnets().find(|cidr| subnet_id(*cidr) == *id);
        cidr.map(|cidr| MemoryNetwork::subnet(self, cidr)).ok_or_else(|| {
            DriverError::new(Reason::NotFound, "find a subnet by its id").detail(format!("subnet {id}"))
        })
    }
}

/// All pods belong to the security groups of the options.
#[async_trait]
impl PodSecurityGroupsDriver for MemoryNetwork {
    async fn security_groups(&self, _: &Pod, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
        Ok(self.options().pod_security_groups.clone())
    }
}

/// All namespaces belong to the project of the options.
#[async_trait]
impl NamespaceProjectDriver for MemoryNetwork {
    async fn project(&self, _: &Namespace) -> Result<ProjectId, DriverError> {
        Ok(self.options().project.clone())
    }
}

/// All services belong to the project of the options.
#[async_trait]
impl ServiceProjectDriver for MemoryServices {
    async fn project(&self, _: &Service) -> Result<ProjectId, DriverError> {
        Ok(self.options().project.clone())
    }
}

/// All cluster IPs lie in the service subnet of the options or, without one, in a subnet with the id `services`.
#[async_trait]
impl ServiceSubnetsDriver for MemoryServices {
    async fn subnets(&self, _: &Service, _: &ProjectId) -> Result<Vec<SubnetId>, DriverError> {
        let subnet = self.options().service_subnet;
        Ok(vec![subnet.map_or_else(|| "services".into(), subnet_id)])
    }
}

/// All load balancers belong to the security groups of the options.
#[async_trait]
impl ServiceSecurityGroupsDriver for MemoryServices {
    async fn security_groups(&self, _: &Service, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
        Ok(self.options().service_security_groups.clone())
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
        let network = MemoryNetwork::new(options);
        let mut pod = Pod::default();
        for (namespace, cidr) in [("small", "10.11.0.0/29"), ("other", "10.10.0.0/16")] {
            pod.metadata.namespace = Some(namespace.into());
            let subnets = network.subnets(&pod, &"memory".into()).await.unwrap();
            assert_eq!(subnets.iter().map(|subnet| subnet.cidr.to_string()).collect::<Vec<_>>(), [cidr]);
        }
    }
}
