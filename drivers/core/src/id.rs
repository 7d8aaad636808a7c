//! Identifiers: a text each, told apart by type, so that a subnet never passes for a network.

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
    /// The cluster whose mark is on everything that its drivers make, so that two clusters can share one other world.
    ClusterId;
    /// What a security group is to the cluster that made it: the same for the same purpose, whichever process asks.
    GroupName;
    /// A listener of a load balancer.
    ListenerId;
    /// A load balancer.
    LoadBalancerId;
    /// A member of a load balancer's pool.
    MemberId;
    /// A network of the other world.
    NetworkId;
    /// A pool of a load balancer.
    PoolId;
    /// A port of the other world.
    PortId;
    /// A project (tenant) of the other world.
    ProjectId;
    /// A public address of the other world.
    PublicIpId;
    /// A security group of the other world.
    SecurityGroupId;
    /// A rule of a security group of the other world.
    SecurityRuleId;
    /// A subnet of the other world.
    SubnetId;
    /// The UID of a Kubernetes object.
    Uid;
    /// A VIF: the id of the port in the other world.
    VifId;
}
