//! Metrics of the requests to the API server, to OpenStack and to EC2, and of the commands of the CNI plugin.

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use staffetta_driver::{RequestObserver, RequestOutcome};

use super::family::{MetricFamily, MetricsPage, histogram};
use super::names;

/// The values of the label `method` for requests to the API server. The last value represents all other methods.
const API_METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", OTHER_METHOD];
/// The label value for all methods that are not in [`API_METHODS`].
const OTHER_METHOD: &str = "OTHER";

/// The status codes that an API server or a proxy in front of it uses. The label `code` is one of these, [`OTHER_CODE`] or
/// [`NO_RESPONSE`].
const CODES: [u16; 19] =
    [200, 201, 202, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504];
/// The label value for all codes that are not in [`CODES`].
const OTHER_CODE: &str = "<other>";
/// The label value for requests without a response.
const NO_RESPONSE: &str = "<error>";

/// The OpenStack services, by their types in the service catalogue of Keystone.
const SERVICES: [&str; 3] = ["identity", "network", "load-balancer"];

/// The methods of requests to OpenStack.
const CLOUD_METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// Counts the requests to one API server by method and status code, and measures their durations.
pub(crate) struct ApiRequestMetrics {
    host: String,
    requests: MetricFamily<Counter>,
    durations: MetricFamily<Histogram>,
}

impl ApiRequestMetrics {
    /// Creates the metrics of the API server at `host`, as `host:port`.
    pub(crate) fn new(host: impl Into<String>) -> Self {
        let (host, requests) =
            (host.into(), MetricFamily::new(&names::REST_CLIENT_REQUESTS, Counter::default));
        let durations = MetricFamily::new(&names::REST_CLIENT_DURATION, histogram as _);
        for method in API_METHODS {
            for code in
                CODES.map(|code| code.to_string()).iter().map(String::as_str).chain([OTHER_CODE, NO_RESPONSE])
            {
                requests.with(&[code, method, &host]);
            }
            durations.with(&[method, &host]);
        }
        Self { host, requests, durations }
    }

    /// Counts a request that ended after `time`, with the status code `code` or, for `None`, without a response.
    pub(crate) fn ended(&self, method: &Method, code: Option<StatusCode>, time: Duration) {
        let method = API_METHODS.into_iter().find(|known| method == known).unwrap_or(OTHER_METHOD);
        let code = match &code {
            None => NO_RESPONSE,
            Some(code) if CODES.contains(&code.as_u16()) => code.as_str(),
            Some(_) => OTHER_CODE,
        };
        self.requests.with(&[code, method, &self.host]).inc();
        self.durations.with(&[method, &self.host]).observe(time.as_secs_f64());
    }

    /// Adds the counts of requests to the API server to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        page.family(&self.requests);
        page.family(&self.durations);
    }
}

/// Counts the requests to OpenStack by service, method and outcome, and measures their durations.
pub(crate) struct CloudRequestMetrics {
    requests: MetricFamily<Counter>,
    durations: MetricFamily<Histogram>,
}

impl Default for CloudRequestMetrics {
    fn default() -> Self {
        let requests = MetricFamily::new(&names::OPENSTACK_REQUESTS, Counter::default as _);
        let durations = MetricFamily::new(&names::OPENSTACK_DURATION, histogram as _);
        for (service, method) in
            SERVICES.iter().flat_map(|service| CLOUD_METHODS.map(|method| (*service, method)))
        {
            for outcome in RequestOutcome::ALL {
                requests.with(&[service, method, outcome.name()]);
            }
            durations.with(&[service, method]);
        }
        Self { requests, durations }
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

/// Counts the requests to EC2 by action and outcome.
pub(crate) struct Ec2RequestMetrics(MetricFamily<Counter>);

impl Default for Ec2RequestMetrics {
    fn default() -> Self {
        let requests = MetricFamily::new(&names::EC2_REQUESTS, Counter::default as _);
        for action in EC2_ACTIONS {
            for outcome in RequestOutcome::ALL {
                requests.with(&[action, outcome.name()]);
            }
        }
        Self(requests)
    }
}

impl Ec2RequestMetrics {
    /// Adds the counts of requests to EC2 to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        page.family(&self.0);
    }
}

impl RequestObserver for Ec2RequestMetrics {
    fn ended(&self, _: &'static str, action: &'static str, outcome: RequestOutcome, _: Duration) {
        self.0.with(&[action, outcome.name()]).inc();
    }
}

impl CloudRequestMetrics {
    /// Adds the counts of requests to OpenStack to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        page.family(&self.requests);
        page.family(&self.durations);
    }
}

impl RequestObserver for CloudRequestMetrics {
    fn ended(&self, service: &'static str, method: &'static str, outcome: RequestOutcome, time: Duration) {
        if SERVICES.contains(&service) && CLOUD_METHODS.contains(&method) {
            self.requests.with(&[service, method, outcome.name()]).inc();
            self.durations.with(&[service, method]).observe(time.as_secs_f64());
        }
    }
}

/// The commands of the CNI plugin that the daemon on a node executes.
const CNI_COMMANDS: [&str; 4] = ["add", "del", "check", "gc"];

/// The results of a command: success, and the kinds of errors.
const CNI_ERRORS: [&str; 6] =
    ["none", "unknown_container", "bad_request", "try_again_later", "unavailable", "failed"];

/// Counts the commands of the CNI plugin by result, and measures their durations. Only the daemon on a node has any series.
pub(crate) struct CniRequestMetrics {
    durations: MetricFamily<Histogram>,
}

impl Default for CniRequestMetrics {
    fn default() -> Self {
        Self { durations: MetricFamily::new(&names::CNI_DURATION, histogram as _) }
    }
}

impl CniRequestMetrics {
    /// Creates all series, with the value 0.
    pub(crate) fn start(&self) {
        for (command, error) in
            CNI_COMMANDS.iter().flat_map(|command| CNI_ERRORS.map(|error| (*command, error)))
        {
            self.durations.with(&[command, error]);
        }
    }

    /// Counts a command with its result and its duration.
    pub(crate) fn ended(&self, command: &'static str, error: &'static str, time: Duration) {
        self.durations.with(&[command, error]).observe(time.as_secs_f64());
    }

    /// Adds the counts of commands to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        page.family(&self.durations);
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
