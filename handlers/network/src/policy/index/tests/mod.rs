//! Compares the groups with an oracle that follows Kubernetes' documentation.

mod cases;
mod laws;
mod oracle;
mod world;
