//! The labels and taints of the nodes of bases and of the pods for them, which are those of Koupleless.

/// The label with the kind of an object: [`COMPONENT_NODE`], [`COMPONENT_POD`] or [`COMPONENT_DEPLOYMENT`].
pub(crate) const COMPONENT: &str = "virtual-kubelet.koupleless.io/component";

/// The value of [`COMPONENT`] of a node.
pub(crate) const COMPONENT_NODE: &str = "vnode";

/// The value of [`COMPONENT`] of a pod whose containers are modules. Only such pods are watched.
pub(crate) const COMPONENT_POD: &str = "module";

/// The value of [`COMPONENT`] of a Deployment whose pods have modules as containers.
pub(crate) const COMPONENT_DEPLOYMENT: &str = "module-deployment";

/// The label of nodes and Deployments with the environment of their bases (`vnode.environment`).
pub(crate) const ENVIRONMENT: &str = "virtual-kubelet.koupleless.io/env";

/// The label of a node with the name of its base, which bases of the same kind share.
pub(crate) const BASE_NAME: &str = "base.koupleless.io/name";

/// The label of a node with the version of its base.
pub(crate) const BASE_VERSION: &str = "base.koupleless.io/version";

/// The label of a node with the host name of its base.
pub(crate) const BASE_HOST_NAME: &str = "base.koupleless.io/host-name";

/// The label of a node with the key of its tunnel, by which a process that starts or takes the node over finds the
/// tunnel.
pub(crate) const TUNNEL: &str = "base.koupleless.io/tunnel";

/// The label of a node with the TCP port at which its base accepts requests.
pub(crate) const TUNNEL_PORT: &str = "base.koupleless.io/tunnel-port";

/// The annotation of a node in which the controller keeps, as a JSON object, what the tunnel must know about the base, such as its gateway,
/// so that it is known after a restart or a take-over.
pub(crate) const TUNNEL_DATA: &str = "staffetta.dev/tunnel-data";

/// The taint of all nodes of bases, with the value `True` and the effect `NoExecute`.
pub(crate) const VIRTUAL_NODE_TAINT: &str = "schedule.koupleless.io/virtual-node";

/// The taint of all nodes of bases with their environment as the value, and with the effect `NoExecute`.
pub(crate) const ENVIRONMENT_TAINT: &str = "schedule.koupleless.io/node-env";
