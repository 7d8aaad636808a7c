//! Identifiers of resources in the external systems. Each kind is a string with a type of its own, so that
//! the compiler rejects the id of a subnet where the id of a network is required. An [`Owner`] has the id of a Kubernetes object.

mod owner;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use owner::{Owned, Owner};

/// Defines a string type for each kind of identifier.
macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Returns the identifier as a string.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }
    )+};
}

identifiers! {
    /// The id of this cluster. It is a part of the mark on all resources that the drivers create, so that two clusters can share
    /// one cloud.
    ClusterId;
    /// The key that identifies a container among all containers of a machine, as a tunnel reports it.
    ContainerKey;
    /// The name of a security group within its cluster, which stands for the purpose of the group. Every process uses the same name
    /// for the same purpose, and so finds the group that another process created.
    GroupName;
    /// The id of a machine of the cloud, as in the provider id of its node.
    InstanceId;
    /// The id of a network interface of a machine (in EC2 an elastic network interface).
    InterfaceId;
    /// The id of a listener of a load balancer.
    ListenerId;
    /// The id of a load balancer.
    LoadBalancerId;
    /// The id of a member of a load balancer's pool.
    MemberId;
    /// The id of a network of the cloud.
    NetworkId;
    /// The id of a pool of a load balancer.
    PoolId;
    /// The id of a port of the cloud.
    PortId;
    /// The id of a project (tenant) of the cloud.
    ProjectId;
    /// The id of a public address of the cloud (in OpenStack a floating IP).
    PublicIpId;
    /// The id of a security group of the cloud.
    SecurityGroupId;
    /// The id of a rule of a security group of the cloud.
    SecurityRuleId;
    /// The id of a subnet of the cloud.
    SubnetId;
    /// The UID of a Kubernetes object.
    Uid;
    /// The id of a VIF, which is the id of its port in the cloud.
    VifId;
}
