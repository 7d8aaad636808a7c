//! Simulated bases of [Koupleless](https://koupleless.io), which load modules as Arklet does, with the faults of real ones.
//!
//! A [`SimulatedBase`] reports to a controller over HTTP or MQTT, serves the commands of Arklet, and counts what it is asked. Bases
//! are tasks of the current runtime, so one process can have thousands. Their behaviour can be changed while they run:
//!
//! ```
//! use staffetta_koupleless_base::{AnswerFault, BaseCommand, SimulatedBase, SimulatedBaseOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let options = SimulatedBaseOptions { identity: "base-1".into(), ..SimulatedBaseOptions::default() };
//! let base = SimulatedBase::http(options, &[]).await?;
//! assert!(base.address().is_some());
//! // It installs a module, and its answer gets lost. Then it sends no heartbeats.
//! base.behave(|behaviour| {
//!     behaviour.answers.insert(BaseCommand::InstallBiz, AnswerFault::Lose);
//!     behaviour.reports = false;
//! });
//! assert!(base.modules().is_empty() && base.operations().is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! | module | content |
//! |---|---|
//! | `arklet` | the modules of a base and the commands that change them, without I/O |
//! | `behaviour` | how a base behaves, and its faults |
//! | `process` | the state of a base, shared by its tasks |
//! | `http` | the endpoints of a base, and its reports over HTTP |
//! | `mqtt` | the topics of a base |
//! | `broker` | a broker of MQTT |

mod arklet;
mod base;
mod behaviour;
mod broker;
mod command;
mod http;
mod module;
mod mqtt;
mod options;
mod process;
mod response;

pub use arklet::ModuleOperation;
pub use base::SimulatedBase;
pub use behaviour::{AnswerFault, Behaviour};
pub use broker::SimulatedBroker;
pub use command::BaseCommand;
pub use module::InstalledModule;
pub use mqtt::BaseBroker;
pub use options::SimulatedBaseOptions;
