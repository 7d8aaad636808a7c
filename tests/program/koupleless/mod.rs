//! Bases of Koupleless as nodes, as a black box: processes of the program on the embedded API server, and simulated bases that
//! count what they are asked.

#[allow(dead_code, reason = "tests of the tunnel use the rest")]
#[path = "../../../drivers/koupleless/tests/mqtt/broker.rs"]
mod broker;
#[allow(dead_code, reason = "tests of the tunnel use the rest")]
#[path = "../../../drivers/koupleless/tests/arklet/java.rs"]
mod java;
#[path = "../../support/port_forward.rs"]
mod port_forward;

mod arklet;
mod bases;
mod modules;
mod mqtt;
mod peers;
mod plugin;
mod replicas;
mod world;
