//! The OpenStack services that the drivers call.

/// An OpenStack service that the drivers call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceKind {
    /// Neutron, with the API version 2.0.
    Network,
    /// Octavia, with the API version 2, whose paths all begin with `lbaas/`.
    LoadBalancer,
}

impl ServiceKind {
    /// The number of service kinds. `kind as usize` is less than it and serves as an index.
    pub(crate) const COUNT: usize = 2;

    /// Returns the service type by which Keystone's catalogue lists the service.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
        }
    }

    /// Returns two parts of each URL: the version, which follows an endpoint that does not end with a version, and the path between the
    /// version and the name of a collection.
    pub(crate) fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::Network => ("v2.0", ""),
            Self::LoadBalancer => ("v2", "lbaas/"),
        }
    }
}
