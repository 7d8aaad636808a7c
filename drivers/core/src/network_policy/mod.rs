//! The driver that manages the security groups of network policies, and the observer of network policies.

mod security_group;

use async_trait::async_trait;
use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::error::DriverError;
use crate::id::{GroupName, Owner, SecurityGroupId, Uid, VifId};

pub use self::security_group::{
    Direction, ExistingRule, IpFamily, ProtocolPorts, Remote, RuleChange, SecurityGroup, SecurityRule,
    VifSecurityGroups,
};

/// Manages the security groups that enforce network policies, and assigns them to VIFs.
///
/// Guarantees of every implementation:
///
/// * A group carries an ownership mark from its creation: the id of this cluster, the name of the group and its owner. It is
///   found by this mark even if the response to the request was lost. [`create_group`](Self::create_group) does not check for an
///   existing group: after an [ambiguous](DriverError::ambiguous) error the caller must list the groups first.
/// * Every method waits only for its own requests. Every change except the creation of a group is idempotent.
/// * A resource that does not exist is the error [`Reason::NotFound`](crate::Reason::NotFound), except in a deletion. A group
///   that a VIF still has is not deleted: this is a [conflict](crate::Reason::Conflict).
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, GroupName, VifSecurityGroups, ExistingRule, NetworkPolicyDriver, Owner, Reason, RuleChange, SecurityGroup,
///     SecurityGroupId, VifId,
/// };
///
/// /// A cloud without security groups.
/// struct Open;
///
/// fn unsupported<T>() -> Result<T, DriverError> {
///     Err(DriverError::new(Reason::Unsupported, "make a security group"))
/// }
///
/// #[async_trait]
/// impl NetworkPolicyDriver for Open {
///     async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError> {
///         Ok(Vec::new())
///     }
///     async fn create_group(&self, _: &GroupName, _: Option<&Owner>) -> Result<SecurityGroup, DriverError> {
///         unsupported()
///     }
///     async fn update_rules(&self, _: &SecurityGroupId, _: &RuleChange) -> Result<Vec<ExistingRule>, DriverError> {
///         unsupported()
///     }
///     async fn delete_group(&self, _: &SecurityGroupId) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn vif_groups(&self) -> Result<Vec<VifSecurityGroups>, DriverError> {
///         Ok(Vec::new())
///     }
///     async fn set_vif_groups(&self, _: &VifId, _: &[SecurityGroupId]) -> Result<(), DriverError> {
///         unsupported()
///     }
/// }
/// ```
#[async_trait]
pub trait NetworkPolicyDriver: Send + Sync {
    /// Lists the groups that carry this cluster's ownership mark, with their rules.
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError>;

    /// Creates a group for `owner`; `None` means a group of the whole cluster. The cloud may add rules to a new group. They are
    /// in the result, and apply until [`update_rules`](Self::update_rules) removes them.
    async fn create_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError>;

    /// Changes the rules of a group, and returns the added rules. Rules are removed first, so that if the quota of rules is
    /// exhausted, no unwanted traffic stays allowed. A rule that exists already counts as added. After an error, a part of the
    /// change may have been made.
    async fn update_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<ExistingRule>, DriverError>;

    /// Deletes a group with its rules, and the rules of other groups that refer to it. A group that does not exist counts as
    /// deleted.
    async fn delete_group(&self, group: &SecurityGroupId) -> Result<(), DriverError>;

    /// Lists the VIFs that carry this cluster's ownership mark, pooled VIFs included, with their security groups.
    async fn vif_groups(&self) -> Result<Vec<VifSecurityGroups>, DriverError>;

    /// Replaces all security groups of a VIF, in one request.
    async fn set_vif_groups(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError>;

    /// Returns the maximum number of rules that all security groups together may have; `None`, the default, if it is not known or
    /// unlimited.
    async fn rule_quota(&self) -> Result<Option<usize>, DriverError> {
        Ok(None)
    }
}

/// Receives all network policies, for a driver that needs them and does not call the API server itself.
///
/// The handler that uses the driver calls these methods from its watch of network policies. All existing policies are recorded
/// before the first call of the driver. The methods run within the watch and must not block.
pub trait NetworkPolicyObserver: Send + Sync {
    /// Records the current state of a policy: at the start, when it is created and when it changes.
    fn present(&self, policy: &NetworkPolicy);

    /// Records that the policy with this UID was deleted.
    fn gone(&self, uid: &Uid);
}
