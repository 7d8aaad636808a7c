//! Faults of a Kubernetes API server, each on the embedded server and on a real one with the same code. The controller is the one that
//! ships; it reaches the server through a proxy that injects the faults.

mod answers;
mod gaps;
mod outages;
mod services;
mod silence;
mod world;
