//! Makes, changes, finds and removes the security groups of network policies.

use async_trait::async_trait;

use crate::error::DriverError;
use crate::id::{GroupName, SecurityGroupId, VifId};
use crate::owner::Owner;
use crate::security_group::{Guarded, HeldRule, RuleChange, SecurityGroup};

/// Makes the security groups by which network policies are kept, and says which VIFs they guard.
///
/// What every implementation guarantees:
///
/// * A group carries the mark of this cluster, its name and its owner from its first moment, so that it is found even when the
///   answer to the request got lost. [`make_group`](Self::make_group) does not look for one that was made before: whoever does
///   not know what became of a call lists the groups first.
/// * No call waits for something to happen on the other side; each change can be made again with the same result.
/// * Of what does not exist, [`Reason::NotFound`](crate::Reason::NotFound) is told, except where it was to be removed. A group
///   that guards a VIF is not removed: that is a [conflict](crate::Reason::Conflict).
///
/// ```
/// use async_trait::async_trait;
/// use staffetta_driver::{
///     DriverError, GroupName, Guarded, HeldRule, NetworkPolicyDriver, Owner, Reason, RuleChange, SecurityGroup,
///     SecurityGroupId, VifId,
/// };
///
/// /// A world that cannot guard anybody.
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
///     async fn make_group(&self, _: &GroupName, _: Option<&Owner>) -> Result<SecurityGroup, DriverError> {
///         unsupported()
///     }
///     async fn change_rules(&self, _: &SecurityGroupId, _: &RuleChange) -> Result<Vec<HeldRule>, DriverError> {
///         unsupported()
///     }
///     async fn remove_group(&self, _: &SecurityGroupId) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn guards(&self) -> Result<Vec<Guarded>, DriverError> {
///         Ok(Vec::new())
///     }
///     async fn guard(&self, _: &VifId, _: &[SecurityGroupId]) -> Result<(), DriverError> {
///         unsupported()
///     }
/// }
/// ```
#[async_trait]
pub trait NetworkPolicyDriver: Send + Sync {
    /// All groups with the mark of this cluster, with their rules.
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError>;

    /// Makes a group. It may come with rules that nobody asked for; they are told, and allow what they say until they are
    /// removed.
    async fn make_group(&self, name: &GroupName, owner: Option<&Owner>)
    -> Result<SecurityGroup, DriverError>;

    /// Changes the rules of a group, and answers those that were added. First goes what is to go, so that a quota that is
    /// used up keeps nothing open. A rule that exists already counts as added. When it fails, some of it may be done.
    async fn change_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<HeldRule>, DriverError>;

    /// Removes a group with its rules, and the rules of other groups that name it. One that does not exist is removed.
    async fn remove_group(&self, group: &SecurityGroupId) -> Result<(), DriverError>;

    /// What guards the VIFs with the mark of this cluster, those in stock too.
    async fn guards(&self) -> Result<Vec<Guarded>, DriverError>;

    /// Puts just these groups in front of a VIF, all at the same moment.
    async fn guard(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError>;
}
