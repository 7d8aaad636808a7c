//! Network policies as security groups: what there is to be is a function of the policies, pods and namespaces.
//!
//! A pod that no policy isolates has the groups of the configuration, or two that let everything pass. One that is isolated
//! has, instead of these, the group of each policy that selects it; for a direction in which it is not isolated, the group that
//! lets everything pass there; and the group `nodes`. Besides, every pod bears an empty group for each description of pods that
//! a policy names and that it fits: the rules name those. So a pod that changes its labels changes its groups, and no rule.
//!
//! | module | what it holds |
//! |---|---|
//! | `selector`, `block`, `pod` | labels, addresses and ports |
//! | `terms` | what one policy says |
//! | `name`, `rules` | the groups, and what they allow |
//! | `model` | all of it together, kept up to date |
//! | `book` | the same, shared, with the groups that exist |
//! | `driver` | with which groups a new pod is guarded |

mod block;
mod book;
mod driver;
mod model;
mod name;
mod pod;
mod rules;
mod selector;
mod terms;

pub use self::book::{AlwaysAllowed, Due, NotReady, PolicyBook};
pub use self::driver::PolicySecurityGroups;
pub use self::model::GroupWish;

#[cfg(test)]
mod tests;
