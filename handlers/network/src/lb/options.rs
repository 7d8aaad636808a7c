//! The section `[load_balancers]` of the configuration.

use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::HealthMonitor;

/// Options of the handler `lb`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadBalancerOptions {
    /// The interval in seconds at which the load balancers are compared with the annotations
    /// `openstack.org/kuryr-lbaas-state` that this process wrote, so that manual changes and failures
    /// are repaired. 0 disables the comparison.
    #[schemars(range(max = 31_622_400))]
    pub check_interval_s: u64,
    /// The networks of pods and nodes, which may always reach a service with
    /// `loadBalancerSourceRanges`. Its cluster IP and its public address belong to one load
    /// balancer, which would reject the cluster itself otherwise.
    #[schemars(example = "10.10.0.0/16")]
    pub internal_cidrs: Vec<IpNet>,
    /// Takes over load balancers and floating IPs that carry no ownership mark, if the annotation
    /// `openstack.org/kuryr-lbaas-state` of a service names them: they get the mark of this cluster,
    /// and are changed and released with the service. A load balancer must have the address, the
    /// subnet and the project of the service. Enable it only for a migration from Kuryr, because
    /// everybody who may write the annotation chooses what is taken over. Without it, such a service
    /// gets an Event, and nothing is created for it.
    pub adopt_unmarked: bool,
    /// Enables health checks of pool members, in addition to the readiness of the pods.
    pub health_monitor: bool,
    /// The interval in seconds between two health checks.
    pub health_monitor_delay_s: NonZeroU32,
    /// The timeout of a health check in seconds. Must be less than `health_monitor_delay_s`.
    pub health_monitor_timeout_s: NonZeroU32,
    /// The number of consecutive successful or failed health checks that change the status of a
    /// member.
    #[schemars(range(min = 1, max = 10))]
    pub health_monitor_max_retries: u8,
}

impl Default for LoadBalancerOptions {
    fn default() -> Self {
        let count = |number| NonZeroU32::new(number).expect("the defaults are not zero");
        Self {
            check_interval_s: 600,
            internal_cidrs: Vec::new(),
            adopt_unmarked: false,
            health_monitor: false,
            health_monitor_delay_s: count(5),
            health_monitor_timeout_s: count(3),
            health_monitor_max_retries: 3,
        }
    }
}

impl LoadBalancerOptions {
    /// Returns a description of a contradiction between options that are valid one by one, or
    /// `None` if there is none. The timeout of a health check must be less than its delay.
    pub fn contradiction(&self) -> Option<String> {
        let (delay, timeout) = (self.health_monitor_delay_s, self.health_monitor_timeout_s);
        (timeout >= delay).then(|| {
            format!(
                "`load_balancers.health_monitor_timeout_s` ({timeout}) is not less than \
                 `load_balancers.health_monitor_delay_s` ({delay})"
            )
        })
    }

    /// Returns the health check of pool members, or `None` if health checks are disabled.
    pub(super) fn monitor(&self) -> Option<HealthMonitor> {
        self.health_monitor.then(|| HealthMonitor {
            delay_s: self.health_monitor_delay_s.get(),
            timeout_s: self.health_monitor_timeout_s.get(),
            max_retries: self.health_monitor_max_retries,
        })
    }

    /// Returns the interval between two comparisons of load balancers with annotations, or `None` if they are disabled.
    pub(super) fn check_interval(&self) -> Option<Duration> {
        (self.check_interval_s > 0).then(|| Duration::from_secs(self.check_interval_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_health_check_must_time_out_before_the_next_one() {
        let mut options = LoadBalancerOptions::default();
        assert_eq!((options.contradiction(), options.monitor()), (None, None));
        options.health_monitor_timeout_s = options.health_monitor_delay_s;
        let text = options.contradiction().unwrap();
        assert!(text.contains("health_monitor_timeout_s") && text.contains("(5)"), "{text}");
    }
}
