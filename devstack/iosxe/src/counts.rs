//! Counts the requests to a device.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The number of requests by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The number of all requests.
    pub requests: u64,
    /// The number of requests by target: `GET app-hosting-oper-data`, `POST apps`, `install` ...
    pub by_kind: BTreeMap<String, u64>,
    /// The number of requests by the HTTP status of the response. Responses of injected faults are not counted, nor are requests
    /// without a response.
    pub by_status: BTreeMap<u16, u64>,
    /// The number of connections.
    pub connections: u64,
}

impl Counts {
    /// Returns the number of requests of this kind.
    pub fn of(&self, kind: &str) -> u64 {
        self.by_kind.get(kind).copied().unwrap_or_default()
    }

    pub(crate) fn request(&mut self, method: &str, path: &str, operation: Option<&str>) {
        let last = path.rsplit('/').next().unwrap_or_default();
        // The key of an entry would be a sort of its own.
        let last = last.split('=').next().unwrap_or_default();
        let last = last.rsplit(':').next().unwrap_or_default();
        let kind = operation.map_or_else(|| format!("{method} {last}"), str::to_owned);
        self.requests += 1;
        *self.by_kind.entry(kind).or_default() += 1;
    }

    pub(crate) fn answered(&mut self, status: u16) {
        *self.by_status.entry(status).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_what_they_ask() {
        let mut counts = Counts::default();
        counts.request("GET", "/restconf/data/Cisco-IOS-XE-arp-oper:arp-data", None);
        counts.request("DELETE", "/restconf/data/m:app-hosting-cfg-data/apps/app=a", None);
        counts.request("DELETE", "/restconf/data/m:app-hosting-cfg-data/apps/app=b", None);
        counts.request("POST", "/restconf/operations/Cisco-IOS-XE-rpc:app-hosting", Some("install"));
        assert_eq!((counts.of("GET arp-data"), counts.of("DELETE app"), counts.of("install")), (1, 2, 1));
        assert_eq!(counts.requests, 4);
    }
}
