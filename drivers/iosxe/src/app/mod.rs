//! What a pod becomes on a device: one application a container, or a reason why it cannot be.

mod addresses;
mod digest;
mod fields;
mod id;
mod image;
mod mark;
mod network;
mod refusal;
mod resources;
mod run_options;
mod wanted;

pub(crate) use addresses::free_address;
#[cfg(test)]
pub(crate) use digest::digest;
pub(crate) use id::is_of;
pub(crate) use image::copy_of;
pub(crate) use mark::Mark;
pub(crate) use network::PodNetwork;
pub(crate) use refusal::Refusal;
pub(crate) use resources::Limits;
pub(crate) use wanted::{Translator, WantedApp};
