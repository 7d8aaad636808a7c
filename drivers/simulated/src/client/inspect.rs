//! Looks into the network, and what goes wrong in it: for tests.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use staffetta_driver::memory::Fault;
use staffetta_driver::{DriverError, LoadBalancer, Marked, PublicIp, Reason};

use super::Client;
use crate::ledger::Ledger;
use crate::method::{Method, Step};
use crate::wire::{Injection, NetworkPort, Page};

impl Client {
    /// Fails while the network does not answer.
    pub async fn check(&self) -> Result<(), DriverError> {
        self.look::<String>("livez", "see whether the simulated network is there").await.map(drop)
    }

    /// Everything that took effect so far. It is whole or an error: a network that has forgotten its beginning says so.
    pub async fn ledger(&self) -> Result<Ledger, DriverError> {
        const STEP: &str = "read the ledger";
        let (mut entries, mut after) = (Vec::new(), 0);
        loop {
            let page: Page = self.look(&format!("ledger?after={after}"), STEP).await?;
            if page.forgotten > after {
                let detail = format!("the network has forgotten the first {} entries", page.forgotten);
                return Err(DriverError::new(Reason::NotFound, STEP).detail(detail));
            }
            let Some(last) = page.entries.last() else { return Ok(Ledger::new(entries)) };
            after = last.number;
            entries.extend(page.entries);
        }
    }

    /// The ports that exist, whoever made them.
    pub async fn ports(&self) -> Result<Vec<NetworkPort>, DriverError> {
        self.look("ports", "list the ports").await
    }

    /// The load balancers that exist, whoever made them.
    pub async fn load_balancers(&self) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
        self.look("load_balancers", "list the load balancers").await
    }

    /// The public addresses that are in use, whoever took them.
    pub async fn public_ips(&self) -> Result<Vec<Marked<PublicIp>>, DriverError> {
        self.look("public_ips", "list the public addresses").await
    }

    /// The next `times` calls of `method` that have no fault yet get this one. A hundred thousand at most.
    pub async fn inject(&self, method: Method, times: usize, fault: &Fault) -> Result<(), DriverError> {
        let injection = Injection { call: method, times, fault: Cow::Borrowed(fault) };
        let request = self.http.post(format!("{}/faults", self.url)).json(&injection);
        self.exchange(request, Step::Changes("plan a fault")).await
    }

    /// Takes back the faults that no call has met yet.
    pub async fn clear_faults(&self) -> Result<(), DriverError> {
        let request = self.http.delete(format!("{}/faults", self.url));
        self.exchange(request, Step::Changes("take back the faults")).await
    }

    async fn look<A: DeserializeOwned>(&self, path: &str, step: &'static str) -> Result<A, DriverError> {
        self.exchange(self.http.get(format!("{}/{path}", self.url)), Step::Reads(step)).await
    }
}
