//! The project, subnet and security groups of services in the simulated cloud, from the options.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Service;

use super::MemoryServices;
use staffetta_driver::{
    DriverError, ProjectId, SecurityGroupId, ServiceProjectDriver, ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver, SubnetId,
};

/// All services belong to the project of the options.
pub struct MemoryServiceProject(pub Arc<MemoryServices>);

#[async_trait]
impl ServiceProjectDriver for MemoryServiceProject {
    async fn project(&self, _: &Service) -> Result<ProjectId, DriverError> {
        Ok(self.0.options().project.clone())
    }
}

/// All cluster IPs lie in the service subnet of the options.
pub struct MemoryServiceSubnets(pub Arc<MemoryServices>);

#[async_trait]
impl ServiceSubnetsDriver for MemoryServiceSubnets {
    async fn subnets(&self, _: &Service, _: &ProjectId) -> Result<Vec<SubnetId>, DriverError> {
        let subnet = self.0.options().service_subnet;
        Ok(vec![subnet.map_or_else(|| "services".into(), |cidr| format!("subnet-{}", cidr.trunc()).into())])
    }
}

/// All load balancers belong to the security groups of the options.
pub struct MemoryServiceSecurityGroups(pub Arc<MemoryServices>);

#[async_trait]
impl ServiceSecurityGroupsDriver for MemoryServiceSecurityGroups {
    async fn security_groups(&self, _: &Service, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
        Ok(self.0.options().service_security_groups.clone())
    }
}
