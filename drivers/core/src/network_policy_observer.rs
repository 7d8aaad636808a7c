//! Who learns of network policies.

use k8s_openapi::api::networking::v1::NetworkPolicy;

use crate::id::Uid;

/// Learns of all network policies, for a driver that answers by what they say.
///
/// A handler that uses such a driver feeds it by the one watch of policies, and it knows all of them before the driver is
/// asked for the first time. A method runs in the watch itself: it must be short and must not block.
pub trait NetworkPolicyObserver: Send + Sync {
    /// The policy exists, and is as it is here.
    fn present(&self, policy: &NetworkPolicy);

    /// The policy with that UID is gone.
    fn gone(&self, uid: &Uid);
}
