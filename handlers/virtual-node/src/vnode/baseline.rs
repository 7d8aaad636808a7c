//! The containers with which a base is to start.

use k8s_openapi::api::core::v1::Container;
use staffetta_driver::tunnel::{NodeId, QueryBaselineRequest};

/// Supplies the baseline of a base: the containers with which it is to start. The handler calls it for each baseline query of a base, in
/// every replica, leading or not. Implementations answer from memory and do not wait.
pub trait BaselineSource: Send + Sync + 'static {
    /// Returns the containers with which `base` is to start; `None` while that is not known yet, and the base then asks
    /// again. An empty list means that it starts without modules. `environment` is that of this controller
    /// ([`VnodeOptions::environment`](super::VnodeOptions::environment)).
    fn baseline(
        &self,
        base: &NodeId,
        environment: &str,
        request: &QueryBaselineRequest,
    ) -> Option<Vec<Container>>;

    /// Returns a container for which `is_it` returns `true` and that was in a baseline since the start of this process; `None` if there is
    /// none, or if such a container is in a baseline now.
    fn former_baseline_container(&self, is_it: &dyn Fn(&Container) -> bool) -> Option<Container>;
}
