//! The section `[vnode]`.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The handler `vnode`: bases of Koupleless, each a node of the cluster on which pods become modules. It runs in every
/// replica, and the replicas share the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VnodeOptions {
    /// The tunnels to the bases, by name. Several may be in use at the same time.
    #[schemars(extend("uniqueItems" = true), length(min = 1))]
    pub tunnels: Vec<String>,
    /// The environment of the bases, a part of the names of their nodes and topics: lower-case letters, digits and inner
    /// hyphens.
    #[schemars(length(min = 1, max = 40))]
    pub environment: String,
    /// The interval at which a base is asked for its modules, in milliseconds. A base that answers, and whose heartbeats arrive at
    /// least every one and a half intervals, is asked for them once in `health_interval_ms`.
    pub poll_interval_ms: NonZeroU64,
    /// The interval at which a base is asked for its health, and for its modules even if its heartbeats arrive, in milliseconds, varied
    /// by up to a tenth. While its heartbeats arrive and its modules stay the same, its health is asked for in every fifth interval. A
    /// module that somebody unloads at the base itself is missed after this time at most, unless the base
    /// reports it, as Arklet does over MQTT.
    pub health_interval_ms: NonZeroU64,
    /// The time since the last answer or heartbeat of a base after which its node becomes not ready, in milliseconds.
    /// Heartbeats after a query that the base does not answer do not count, so a base that only sends heartbeats is not ready
    /// after this time and `health_interval_ms`.
    pub unreachable_after_ms: NonZeroU64,
    /// The time since the last answer or counted heartbeat of a base after which it is dead and its node is removed, in
    /// milliseconds. A replica that takes a base over waits as long before it judges the base.
    pub dead_after_ms: NonZeroU64,
    /// The time after which the Lease of a node expires that no replica renews, in seconds. Another replica then takes
    /// the node over.
    pub lease_duration_s: NonZeroU32,
    /// The interval between two renewals of the Lease of a node, in seconds; at most a third of its duration.
    pub lease_renew_s: NonZeroU32,
    /// The time limit of starting or stopping a module, in milliseconds, after which the request is repeated. It must be
    /// longer than that of each tunnel.
    pub operation_timeout_ms: NonZeroU64,
    /// The time after which a module that no pod on its node has is unloaded, in milliseconds; at least `dead_after_ms`. Only
    /// modules are unloaded that a pod on the node had at an earlier report, or that a peer Deployment has named since the
    /// process started and none names any more. Without this option, such modules stay.
    #[schemars(example = 600_000_u64)]
    pub uninstall_unowned_after_ms: Option<NonZeroU64>,
    /// The maximum number of pods on a node.
    pub max_pods: NonZeroU32,
}

impl Default for VnodeOptions {
    fn default() -> Self {
        let count = |number| NonZeroU64::new(number).expect("the defaults are not zero");
        let few = |number| NonZeroU32::new(number).expect("the defaults are not zero");
        Self {
            tunnels: vec!["http".to_owned()],
            environment: "dev".to_owned(),
            poll_interval_ms: count(10_000),
            health_interval_ms: count(60_000),
            unreachable_after_ms: count(25_000),
            dead_after_ms: count(60_000),
            lease_duration_s: few(40),
            lease_renew_s: few(10),
            operation_timeout_ms: count(330_000),
            uninstall_unowned_after_ms: None,
            max_pods: few(65_535),
        }
    }
}

impl VnodeOptions {
    /// Returns the time limit for a tunnel to send a request that changes a base, after which the request is dropped: an eighth of
    /// `lease_duration_s`. A replica stops acting for a node a quarter of `lease_duration_s` before another replica may take the node, so
    /// its last request is sent or dropped before the other replica acts.
    pub fn send_limit(&self) -> Duration {
        Duration::from_secs(self.lease_duration_s.get().into()) / 8
    }

    /// Returns a message about the first conflict between options, or invalid option; `None` if there is none.
    pub fn contradiction(&self) -> Option<String> {
        let environment = self.environment.as_bytes();
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        let ends = [environment.first(), environment.last()];
        let valid = environment.len() <= 40
            && environment.iter().all(inner)
            && ends.iter().all(|end| end.is_some_and(|byte| *byte != b'-'));
        if !valid {
            return Some(
                "`vnode.environment` must have 1 to 40 lower-case letters, digits and inner hyphens"
                    .to_owned(),
            );
        }
        if self.tunnels.is_empty() {
            return Some("`vnode.tunnels` must name a tunnel".to_owned());
        }
        if self.lease_renew_s.get().saturating_mul(3) > self.lease_duration_s.get() {
            return Some(
                "`vnode.lease_renew_s` must be at most a third of `vnode.lease_duration_s`, so that a renewal can be repeated"
                    .to_owned(),
            );
        }
        if self.unreachable_after_ms <= self.poll_interval_ms {
            return Some(
                "`vnode.unreachable_after_ms` must be longer than `vnode.poll_interval_ms`".to_owned(),
            );
        }
        if self.dead_after_ms < self.unreachable_after_ms {
            return Some("`vnode.dead_after_ms` must be at least `vnode.unreachable_after_ms`".to_owned());
        }
        self.uninstall_unowned_after_ms
            .is_some_and(|after| after < self.dead_after_ms)
            .then(|| "`vnode.uninstall_unowned_after_ms` must be at least `vnode.dead_after_ms`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_request_is_sent_before_another_replica_may_act_also_with_a_short_lease() {
        for (lease_duration_s, limit_ms) in [(40, 5_000), (8, 1_000)] {
            let options = json!({ "lease_duration_s": lease_duration_s });
            let options: VnodeOptions = serde_json::from_value(options).unwrap();
            assert_eq!(options.send_limit(), Duration::from_millis(limit_ms));
        }
    }

    #[test]
    fn the_defaults_agree_and_a_contradiction_names_its_options() {
        let contradiction = |options: Value| {
            serde_json::from_value::<VnodeOptions>(options).unwrap().contradiction().unwrap_or_default()
        };
        assert_eq!(contradiction(json!({})), "");
        for (options, name) in [
            (json!({ "environment": "Prod" }), "vnode.environment"),
            (json!({ "environment": "a.b" }), "vnode.environment"),
            (json!({ "environment": "-a" }), "vnode.environment"),
            (json!({ "tunnels": [] }), "vnode.tunnels"),
            (json!({ "lease_renew_s": 14 }), "vnode.lease_renew_s"),
            (json!({ "unreachable_after_ms": 10_000 }), "vnode.unreachable_after_ms"),
            (json!({ "dead_after_ms": 24_999 }), "vnode.dead_after_ms"),
            (json!({ "uninstall_unowned_after_ms": 59_999 }), "vnode.uninstall_unowned_after_ms"),
        ] {
            assert!(contradiction(options.clone()).contains(name), "{options}");
        }
    }
}
