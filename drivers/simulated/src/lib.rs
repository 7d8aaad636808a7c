//! A simulated foreign network in a process of its own, and the drivers that reach it over HTTP.
//!
//! The network is the one that `staffetta-driver` keeps in memory, behind a [`Server`]: the same quotas, cool-downs,
//! delays and ownership marks. It outlives the controllers that use it, however they end, and its [`Ledger`] says what
//! they made and released. The program `staffetta-simulated-network` is a server and nothing else.
//!
//! A [`Client`] looks into it, injects faults, and makes [`SimulatedDriver`]s, which implement every driver trait.
//!
//! ```
//! use staffetta_driver::{PodVifDriver, Reason};
//! use staffetta_simulated::{Client, Fault, Kind, Method, Options, Server, SimulatedOptions};
//! # use staffetta_driver::DriverError;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let server = Server::start(&Options::default())?;
//! let client = Client::new(&SimulatedOptions { url: server.url().into(), ..SimulatedOptions::default() })?;
//! let driver = client.driver("east".into());
//!
//! client.inject(Method::ListVifs, 1, &Fault::Fail(DriverError::new(Reason::Unavailable, "list"))).await?;
//! assert!(driver.vifs(None).await.unwrap_err().transient());
//! assert!(driver.vifs(None).await?.is_empty());
//! assert!(client.ledger().await?.owners(Kind::Port).is_empty());
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! | path | what it answers |
//! |---|---|
//! | `POST /v1/<trait>/<method>` | a call of a driver, see [`Method`]: `{"cluster": ..., "arguments": {...}}` |
//! | `GET /ledger?after=N` | the entries behind number N, a thousand at most |
//! | `GET /ports`, `/load_balancers`, `/public_ips` | what exists, with its owners |
//! | `POST /faults`, `DELETE /faults` | plans a fault: `{"call": "pod_vif/request_vif", "times": 1, "fault": "hang"}`; takes all back |
//! | `GET /livez` | that it is there |
//!
//! The answer of a call is 200 with what it returned, or 422 with the [`DriverError`](staffetta_driver::DriverError).

mod client;
mod ledger;
mod method;
mod server;
mod wire;

pub use client::{BadOptions, Client, SimulatedDriver, SimulatedOptions};
pub use ledger::{Effect, Entry, Kind, Ledger, Tally};
pub use method::Method;
pub use server::{Options, Server};
pub use staffetta_driver::memory::Fault;
pub use wire::NetworkPort;
