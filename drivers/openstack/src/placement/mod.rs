//! The drivers that choose the project, the subnets and the security groups of pods and services.

mod annotation_project;
mod defaults;
mod namespaces;
mod subnets;

pub use annotation_project::AnnotationProject;
pub use defaults::{
    DefaultProject, DefaultSecurityGroups, DefaultServiceSubnets, NamespaceSubnetOptions, NeutronDefaults,
};
pub use namespaces::{Namespaces, PROJECT};
pub(crate) use subnets::SubnetMap;
pub use subnets::{DefaultPodSubnets, NamespacePodSubnets, Subnets};
