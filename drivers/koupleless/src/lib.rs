//! Tunnels to the bases of [Koupleless](https://koupleless.io): long-running Java processes that load modules.
//!
//! A base runs Arklet, an agent that reports the base and its modules, and loads and unloads modules on request. [`HttpTunnel`] and
//! [`MqttTunnel`] implement [`Tunnel`](staffetta_driver::tunnel::Tunnel) with the HTTP API and the MQTT topics of Arklet.
//!
//! A container of a pod is a module: its name is the module's name, its environment variable `BIZ_VERSION` the version, and its
//! image the URL of the JAR file.
//!
//! | module | content |
//! |---|---|
//! | `clock` | the boot clock, and a fence that stops work if the process was suspended |
//! | `http` | the tunnel over HTTP: a listener for what bases report, and requests to bases |
//! | `mqtt` | the tunnel over MQTT 3.1.1 or 5: topics, subscriptions, and what is accepted from bases |
//! | `module` | a container as a module of Arklet |
//! | `operations` | the requests under way, without I/O |
//! | `wire` | the JSON of Arklet, and its translation into the terms of tunnels |

mod clear_on_drop;
mod clock;
mod http;
mod module;
mod mqtt;
mod operations;
mod options;
mod wire;

pub use http::HttpTunnel;
pub use mqtt::{MqttTunnel, MqttTunnelOptions, MqttVersion};
pub use options::HttpTunnelOptions;
