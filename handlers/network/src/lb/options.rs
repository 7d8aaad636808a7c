//! The section `[load_balancers]`.

use std::num::NonZeroU32;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::HealthMonitor;

/// How services are balanced: the handler `lb`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadBalancerOptions {
    /// The time between two comparisons of all load balancers with what they are to be, in seconds: what somebody changed,
    /// broke or removed is brought back then. 0: never.
    #[schemars(range(max = 31_622_400))]
    pub check_interval_s: u64,
    /// From where a service with `loadBalancerSourceRanges` is reached besides: the networks of pods and nodes. Its cluster IP
    /// and its public address are one load balancer, which would turn away the cluster itself otherwise.
    #[schemars(example = "10.10.0.0/16")]
    pub internal_cidrs: Vec<IpNet>,
    /// Whether load balancers ask the members of their pools how they are, beyond the readiness of the pods, which
    /// Kubernetes tells in any case.
    pub health_monitor: bool,
    /// The time between two such questions, in seconds.
    pub health_monitor_delay_s: NonZeroU32,
    /// How long an answer may take, in seconds. Less than `health_monitor_delay_s`.
    pub health_monitor_timeout_s: NonZeroU32,
    /// After how many answers in a row a member counts as well again, and after how many missing ones it does not.
    #[schemars(range(min = 1, max = 10))]
    pub health_monitor_max_retries: u8,
}

impl Default for LoadBalancerOptions {
    fn default() -> Self {
        let count = |number| NonZeroU32::new(number).expect("the defaults are not zero");
        Self {
            check_interval_s: 600,
            internal_cidrs: Vec::new(),
            health_monitor: false,
            health_monitor_delay_s: count(5),
            health_monitor_timeout_s: count(3),
            health_monitor_max_retries: 3,
        }
    }
}

impl LoadBalancerOptions {
    /// What fits one by one but not together.
    pub fn contradiction(&self) -> Option<String> {
        let (delay, timeout) = (self.health_monitor_delay_s, self.health_monitor_timeout_s);
        (timeout >= delay).then(|| {
            format!(
                "`load_balancers.health_monitor_timeout_s` ({timeout}) is not less than \
                 `load_balancers.health_monitor_delay_s` ({delay})"
            )
        })
    }

    /// How members are asked how they are, if they are.
    pub(super) fn monitor(&self) -> Option<HealthMonitor> {
        self.health_monitor.then(|| HealthMonitor {
            delay_s: self.health_monitor_delay_s.get(),
            timeout_s: self.health_monitor_timeout_s.get(),
            max_retries: self.health_monitor_max_retries,
        })
    }

    /// The time between two comparisons; none for never.
    pub(super) fn check_interval(&self) -> Option<Duration> {
        (self.check_interval_s > 0).then(|| Duration::from_secs(self.check_interval_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_over_before_the_next_one() {
        let mut options = LoadBalancerOptions::default();
        assert_eq!((options.contradiction(), options.monitor()), (None, None));
        options.health_monitor_timeout_s = options.health_monitor_delay_s;
        let text = options.contradiction().unwrap();
        assert!(text.contains("health_monitor_timeout_s") && text.contains("(5)"), "{text}");
    }
}
