//! Just enough of the controllers of a cluster: deployments become pods, pods get nodes, services get endpoints.
