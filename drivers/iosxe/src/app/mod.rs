//! Translates a pod into applications of a device, one per container, or returns the reason why that is not possible.

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
pub(crate) use mark::AppMark;
pub(crate) use network::PodNetwork;
pub(crate) use resources::AppResourceLimits;
pub(crate) use wanted::{Translator, WantedApp};
