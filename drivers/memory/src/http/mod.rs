//! The simulated cloud as a separate process, and the drivers that call it over HTTP.
//!
//! A [`Server`] continues to run when a controller that uses it stops or crashes, and its [`EffectLog`] contains all resources that
//! controllers created and released. The program `staffetta-simulated-network` runs only a server. A [`Client`] inspects the cloud, plans
//! faults, and creates [`SimulatedDriver`]s, which implement the driver traits of pods and services.
//!
//! ```
//! use staffetta_driver::{PodVifDriver, Reason};
//! use staffetta_memory::Fault;
//! use staffetta_memory::http::{Client, Method, ResourceKind, Server, ServerOptions, SimulatedOptions};
//! # use staffetta_driver::DriverError;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let server = Server::start(&ServerOptions::default())?;
//! let client = Client::new(&SimulatedOptions { url: server.url().into(), ..SimulatedOptions::default() })?;
//! let driver = client.driver("east".into());
//!
//! client.inject(Method::ListVifs, 1, &Fault::Fail(DriverError::new(Reason::Unavailable, "list"))).await?;
//! assert!(driver.vifs(None).await.unwrap_err().transient());
//! assert!(driver.vifs(None).await?.is_empty());
//! assert!(client.effects().await?.owners(ResourceKind::Port).is_empty());
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! | path | purpose |
//! |---|---|
//! | `POST /v1/<trait>/<method>` | calls a driver, see [`Method`]: `{"cluster": ..., "arguments": [...]}` |
//! | `GET /effects` | lists all creations, changes and releases of resources so far |
//! | `GET /ports`, `/load_balancers`, `/public_ips` | lists the existing resources with their owners |
//! | `GET /faults` | counts the planned faults that have not happened yet |
//! | `POST /faults`, `DELETE /faults` | plans a fault: `{"call": "pod_vif/request_vif", "times": 1, "fault": "hang"}`; cancels all |
//! | `GET /livez` | responds while the server runs |
//!
//! The response to a call has the status 200 and contains the result of the method, or has the status 422 and contains the
//! [`DriverError`](staffetta_driver::DriverError).

mod client;
mod cloud;
mod driver;
mod effects;
mod exchange;
mod method;
mod options;
mod routes;
mod server;

use serde::{Deserialize, Serialize};
use staffetta_driver::ClusterId;

pub use self::client::Client;
pub use self::driver::SimulatedDriver;
pub use self::effects::{EffectKind, EffectLog, LoggedEffect, OwnerCounts, ResourceKind};
pub use self::method::Method;
pub use self::options::{SimulatedOptions, SimulatedOptionsError};
pub use self::server::{Server, ServerOptions};
pub use crate::Fault;

/// The name of the HTTP header with the request id, which the client chooses.
const REQUEST_ID: &str = "x-request-id";

/// The JSON body of the request that calls a method of a driver.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallBody<A> {
    /// The cluster in the ownership marks of created resources.
    cluster: ClusterId,
    /// The arguments of the method, in their order.
    arguments: A,
}

/// The JSON body of `POST /faults`, which plans `fault` for the next `times` calls of the method `call`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedFault {
    call: Method,
    times: usize,
    fault: Fault,
}
