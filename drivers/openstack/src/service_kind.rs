//! The services of a cloud that the drivers call.

/// A service of a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceKind {
    /// Neutron, API version 2.0.
    Network,
    /// Octavia, API version 2; all paths are below `lbaas`.
    LoadBalancer,
}

impl ServiceKind {
    /// The number of services; `kind as usize` is an index below it.
    pub(crate) const COUNT: usize = 2;

    /// The service type in the catalogue.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
        }
    }

    /// The version segment of URLs, where the endpoint does not end with one, and the path between it and the collections.
    pub(crate) fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::Network => ("v2.0", ""),
            Self::LoadBalancer => ("v2", "lbaas/"),
        }
    }
}
