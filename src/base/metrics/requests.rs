//! Metrics of the requests to the API server, to OpenStack and to EC2, and of the commands of the CNI plugin.

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use staffetta_driver::{RequestObserver, RequestOutcome};

use super::family::{MetricFamily, histogram};
use super::last_requests::LastRequests;
use super::names;

/// The values of the label `method` for requests to the API server. The last value represents all other methods.
const API_METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OTHER"];

/// The values of the label `code`: the status codes that an API server or a proxy in front of it uses, `<other>` for all other codes, and
/// `<error>` for a request without a response.
const CODES: [&str; 21] = [
    "200", "201", "202", "400", "401", "403", "404", "405", "408", "409", "410", "413", "415", "422", "429",
    "500", "502", "503", "504", "<other>", "<error>",
];

/// The OpenStack services, by their types in the service catalogue of Keystone.
const SERVICES: [&str; 3] = ["identity", "network", "load-balancer"];

/// The methods of requests to OpenStack.
const CLOUD_METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// The counts of the requests to one API server by method and status code, and their durations.
pub(crate) struct ApiRequestMetrics {
    host: String,
    pub(super) requests: MetricFamily<Counter>,
    pub(super) durations: MetricFamily<Histogram>,
}

impl ApiRequestMetrics {
    /// Creates the metrics of the API server at `host`, as `host:port`.
    pub(crate) fn new(host: impl Into<String>) -> Self {
        let (host, requests) =
            (host.into(), MetricFamily::new(&names::REST_CLIENT_REQUESTS, Counter::default));
        let durations = MetricFamily::new(&names::REST_CLIENT_DURATION, histogram as _);
        requests.create(&[&CODES, &API_METHODS, &[&host]]);
        durations.create(&[&API_METHODS, &[&host]]);
        Self { host, requests, durations }
    }

    /// Counts a request that ended after `time`, with the status code `code` or, for `None`, without a response.
    pub(crate) fn ended(&self, method: &Method, code: Option<StatusCode>, time: Duration) {
        let method = API_METHODS.into_iter().find(|known| method == known).unwrap_or("OTHER");
        let code = code.as_ref().map_or("<error>", StatusCode::as_str);
        let code = CODES.into_iter().find(|known| *known == code).unwrap_or("<other>");
        self.requests.with(&[code, method, &self.host]).inc();
        self.durations.with(&[method, &self.host]).observe(time.as_secs_f64());
    }
}

/// The counts of the requests to OpenStack by service, method and outcome, and their durations.
pub(crate) struct CloudRequestMetrics {
    pub(super) requests: MetricFamily<Counter>,
    pub(super) durations: MetricFamily<Histogram>,
    pub(super) last: LastRequests,
}

impl Default for CloudRequestMetrics {
    fn default() -> Self {
        let requests = MetricFamily::new(&names::OPENSTACK_REQUESTS, Counter::default as _);
        let durations = MetricFamily::new(&names::OPENSTACK_DURATION, histogram as _);
        requests.create(&[&SERVICES, &CLOUD_METHODS, &RequestOutcome::ALL.map(RequestOutcome::name)]);
        durations.create(&[&SERVICES, &CLOUD_METHODS]);
        Self { requests, durations, last: LastRequests::default() }
    }
}

/// The actions of EC2 that the driver `ec2` calls.
const EC2_ACTIONS: [&str; 6] = [
    "AssignPrivateIpAddresses",
    "DescribeInstanceTypes",
    "DescribeInstances",
    "DescribeNetworkInterfaces",
    "DescribeSubnets",
    "UnassignPrivateIpAddresses",
];

/// The counts of the requests to EC2 by action and outcome.
pub(crate) struct Ec2RequestMetrics {
    pub(super) requests: MetricFamily<Counter>,
    pub(super) last: LastRequests,
}

impl Default for Ec2RequestMetrics {
    fn default() -> Self {
        let requests = MetricFamily::new(&names::EC2_REQUESTS, Counter::default as _);
        requests.create(&[&EC2_ACTIONS, &RequestOutcome::ALL.map(RequestOutcome::name)]);
        Self { requests, last: LastRequests::default() }
    }
}

impl RequestObserver for Ec2RequestMetrics {
    fn ended(&self, service: &'static str, action: &'static str, outcome: RequestOutcome, _: Duration) {
        self.last.record(service, outcome);
        self.requests.with(&[action, outcome.name()]).inc();
    }
}

impl RequestObserver for CloudRequestMetrics {
    fn ended(&self, service: &'static str, method: &'static str, outcome: RequestOutcome, time: Duration) {
        self.last.record(service, outcome);
        if SERVICES.contains(&service) && CLOUD_METHODS.contains(&method) {
            self.requests.with(&[service, method, outcome.name()]).inc();
            self.durations.with(&[service, method]).observe(time.as_secs_f64());
        }
    }
}

/// The commands of the CNI plugin that the daemon on a node executes.
const CNI_COMMANDS: [&str; 4] = ["add", "del", "check", "gc"];

/// The values of the label `error` of a command of the CNI plugin: `none` for success, or the kind of the error.
const CNI_ERRORS: [&str; 6] =
    ["none", "unknown_container", "bad_request", "try_again_later", "unavailable", "failed"];

/// The durations of the commands of the CNI plugin, by command and error. Only the daemon on a node has any series.
pub(crate) struct CniRequestMetrics(pub(super) MetricFamily<Histogram>);

impl Default for CniRequestMetrics {
    fn default() -> Self {
        Self(MetricFamily::new(&names::CNI_DURATION, histogram as _))
    }
}

impl CniRequestMetrics {
    /// Creates the series of all commands and errors with the value 0, at the start of the daemon on a node.
    pub(crate) fn start(&self) {
        self.0.create(&[&CNI_COMMANDS, &CNI_ERRORS]);
    }

    /// Records the duration of a command of the CNI plugin; `error` is `none` if it succeeded.
    pub(crate) fn ended(&self, command: &'static str, error: &'static str, time: Duration) {
        self.0.with(&[command, error]).observe(time.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ApiRequestMetrics {
        /// Returns the number of requests by `method` that ended with `code`.
        pub(crate) fn count(&self, method: &str, code: &str) -> u64 {
            self.requests.with(&[code, method, &self.host]).get()
        }
    }

    #[test]
    fn a_request_to_openstack_is_counted_by_service_method_and_outcome() {
        let metrics = CloudRequestMetrics::default();
        for (outcome, times) in [(RequestOutcome::Success, 2), (RequestOutcome::Conflict, 1)] {
            for _ in 0..times {
                metrics.ended("network", "POST", outcome, Duration::from_millis(5));
            }
        }
        metrics.ended("image", "POST", RequestOutcome::Success, Duration::ZERO);
        let mut counts = Vec::new();
        for (service, method) in
            SERVICES.iter().flat_map(|service| CLOUD_METHODS.map(|method| (*service, method)))
        {
            for outcome in RequestOutcome::ALL {
                let count = metrics.requests.with(&[service, method, outcome.name()]).get();
                counts.extend((count > 0).then_some((service, method, outcome.name(), count)));
            }
        }
        assert_eq!(counts, [("network", "POST", "success", 2), ("network", "POST", "conflict", 1)]);
    }
}
