//! What policies mean, as groups and by the words of Kubernetes' documentation.

mod cases;
mod laws;
mod oracle;
mod world;
