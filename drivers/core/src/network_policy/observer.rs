//! Observers of network policies.

use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::id::Uid;

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
