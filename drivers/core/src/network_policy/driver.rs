//! The driver of the security groups of network policies, and observers of network policies.

use async_trait::async_trait;
use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::error::DriverError;
use crate::id::{GroupName, SecurityGroupId, Uid, VifId};
use crate::network_policy::{ExistingRule, RuleChange, SecurityGroup, VifSecurityGroups};
use crate::owner::Owner;

/// Manages the security groups that enforce network policies, and assigns them to VIFs.
///
/// Guarantees of every implementation:
///
/// * A group carries the mark of this cluster, its name and its owner from its creation, so that it is found even if the answer
///   to the request was lost. [`create_group`](Self::create_group) does not look for an existing one: after an ambiguous error the
///   caller lists the groups first.
/// * Every method waits for its own requests only; each change can be repeated with the same result.
/// * A missing resource is [`Reason::NotFound`](crate::Reason::NotFound), except in a deletion. A group of a VIF is not deleted:
///   that is a [conflict](crate::Reason::Conflict).
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
    /// Lists the groups with the mark of this cluster, with their rules.
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError>;

    /// Creates a group. The cloud may give it rules of its own, which are returned, and are in force until they are removed.
    async fn create_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError>;

    /// Changes the rules of a group, and returns the added ones. Rules are removed first, so that an exhausted quota leaves
    /// nothing open. A rule that exists already counts as added. After an error a part may be done.
    async fn update_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<ExistingRule>, DriverError>;

    /// Deletes a group with its rules, and the rules of other groups that name it. One that does not exist counts as deleted.
    async fn delete_group(&self, group: &SecurityGroupId) -> Result<(), DriverError>;

    /// Lists the security groups of the VIFs with the mark of this cluster, pooled ones included.
    async fn vif_groups(&self) -> Result<Vec<VifSecurityGroups>, DriverError>;

    /// Replaces the groups of a VIF, all at the same moment.
    async fn set_vif_groups(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError>;
}

/// Observes all network policies, for a driver that needs them without a call to the API server.
///
/// The handler that uses the driver feeds it from its watch of policies, with all existing ones before the first call of the
/// driver. A method runs within the watch and must not block.
pub trait NetworkPolicyObserver: Send + Sync {
    /// Records a policy that exists, in its current state.
    fn present(&self, policy: &NetworkPolicy);

    /// Records that the policy with that UID is gone.
    fn gone(&self, uid: &Uid);
}
