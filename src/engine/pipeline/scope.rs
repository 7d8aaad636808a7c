//! The scope of a handler: the replicas in which it runs.

use staffetta_handler::Registry;

/// The replicas in which a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerScope {
    /// The replica that leads.
    Leader,
    /// Every replica, from the start of its process to the end.
    EveryReplica,
}

impl HandlerScope {
    /// Returns those of the handlers `enabled` that run in this scope, in the same order.
    pub(crate) fn handlers(self, registry: &Registry, enabled: &[String]) -> Vec<String> {
        let in_every_replica = self == Self::EveryReplica;
        enabled
            .iter()
            .filter(|name| registry.runs_in_every_replica(name) == in_every_replica)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use staffetta_handler::Registration;

    use super::*;

    #[test]
    fn a_handler_runs_in_the_scope_in_which_it_was_registered_last() {
        let mut registry = Registry::default();
        let build = |_: &staffetta_handler::Setup| Ok(Registration::new(()).erase());
        registry.handler("led", "", build);
        registry.handler("shared", "", build).in_every_replica = true;
        registry.handler("replaced", "", build).in_every_replica = true;
        registry.handler("replaced", "", build);
        let enabled = ["shared", "replaced", "led"].map(str::to_owned);
        assert_eq!(HandlerScope::Leader.handlers(&registry, &enabled), ["replaced", "led"]);
        assert_eq!(HandlerScope::EveryReplica.handlers(&registry, &enabled), ["shared"]);
    }
}
