//! The containers with which a base is to start.

use k8s_openapi::api::core::v1::Container;
use staffetta_driver::tunnel::{NodeId, QueryBaselineRequest};

/// Knows the containers with which a base is to start. The handler asks it for each baseline query of a base, in every
/// replica, leading or not. It answers from memory and does not wait.
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

    /// Returns a container that `is_it` accepts and that was in a baseline since the start of this process; `None` if there was
    /// none, or a baseline still has it.
    fn formerly_named(&self, is_it: &dyn Fn(&Container) -> bool) -> Option<Container>;
}
