//! Identifiers: a text each, distinguished by type, so that a subnet never passes for a network.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! identifiers {
    ($($(#[$doc:meta])* $name:ident;)+) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The identifier as text.
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
    /// The cluster whose mark is on everything that its drivers create, so that two clusters can share one cloud.
    ClusterId;
    /// The purpose of a security group within its cluster: the same for the same purpose in every process.
    GroupName;
    /// A listener of a load balancer.
    ListenerId;
    /// A load balancer.
    LoadBalancerId;
    /// A member of a load balancer's pool.
    MemberId;
    /// A network of the cloud.
    NetworkId;
    /// A pool of a load balancer.
    PoolId;
    /// A port of the cloud.
    PortId;
    /// A project (tenant) of the cloud.
    ProjectId;
    /// A public address of the cloud.
    PublicIpId;
    /// A security group of the cloud.
    SecurityGroupId;
    /// A rule of a security group of the cloud.
    SecurityRuleId;
    /// A subnet of the cloud.
    SubnetId;
    /// The UID of a Kubernetes object.
    Uid;
    /// A VIF: the id of the port in the cloud.
    VifId;
}
