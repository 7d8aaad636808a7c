//! Properties of every cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use proptest::prelude::*;

use super::oracle::{End, may};
use super::world::{
    Enforced, NAMESPACES, World, any_pod, any_policy, any_world, index, labels, make_groups, namespace,
    populate,
};
use crate::policy::index::{DesiredGroup, PolicyIndex};
use staffetta_driver::SecurityGroupId;
use staffetta_driver::{NamespaceObserver, NetworkPolicyObserver, Uid};

const PROBES: [(&str, i32); 7] =
    [("TCP", 80), ("TCP", 81), ("TCP", 8080), ("UDP", 53), ("UDP", 80), ("SCTP", 9000), ("TCP", 53)];
const OUTSIDE: [&str; 4] = ["10.0.0.200", "192.0.2.1", "2001:db8::1", "2001:db8:8000::1"];

/// A change of a cluster.
#[derive(Clone, Debug)]
enum Change {
    Pod(Box<Pod>),
    NoPod(u8),
    Policy(Box<NetworkPolicy>),
    NoPolicy(usize),
    Namespace(Box<Namespace>),
    NoNamespace(usize),
    /// Takes the changes of the index.
    Look,
}

fn change() -> impl Strategy<Value = Change> {
    let named = (prop::sample::select(NAMESPACES.to_vec()), labels());
    prop_oneof![
        4 => (1u8..5).prop_flat_map(any_pod).prop_map(|pod| Change::Pod(Box::new(pod))),
        1 => (1u8..5).prop_map(Change::NoPod),
        4 => (1u8..4).prop_flat_map(any_policy).prop_map(|policy| Change::Policy(Box::new(policy))),
        2 => any::<usize>().prop_map(Change::NoPolicy),
        2 => named.prop_map(|(name, labels)| Change::Namespace(Box::new(namespace(name, &labels)))),
        1 => any::<usize>().prop_map(Change::NoNamespace),
        3 => Just(Change::Look),
    ]
}

fn uid(text: Option<&String>) -> Uid {
    text.cloned().unwrap().into()
}

/// Applies the change to the world and to the index.
fn apply(world: &mut World, index: &PolicyIndex, change: Change) {
    match change {
        Change::Pod(pod) => {
            // A pod in another namespace is another pod.
            if let Some(before) = world.pods.iter().find(|known| known.metadata.uid == pod.metadata.uid)
                && before.metadata.namespace != pod.metadata.namespace
            {
                index.remove_pod(&uid(pod.metadata.uid.as_ref()));
            }
            world.pods.retain(|known| known.metadata.uid != pod.metadata.uid);
            index.set_pod(&pod);
            world.pods.push(*pod);
        }
        Change::NoPod(number) => {
            let gone = format!("pod-{number}");
            world.pods.retain(|known| known.metadata.uid.as_ref() != Some(&gone));
            index.remove_pod(&gone.into());
        }
        Change::Policy(policy) => {
            world.policies.retain(|known| known.metadata.uid != policy.metadata.uid);
            NetworkPolicyObserver::present(index, &policy);
            world.policies.push(*policy);
        }
        Change::NoPolicy(number) if !world.policies.is_empty() => {
            let policy = world.policies.remove(number % world.policies.len());
            NetworkPolicyObserver::gone(index, &uid(policy.metadata.uid.as_ref()));
        }
        Change::Namespace(namespace) => {
            world.namespaces.retain(|known| known.metadata.name != namespace.metadata.name);
            NamespaceObserver::present(index, &namespace);
            world.namespaces.push(*namespace);
        }
        Change::NoNamespace(number) if !world.namespaces.is_empty() => {
            let namespace = world.namespaces.remove(number % world.namespaces.len());
            let name = namespace.metadata.name.clone().unwrap();
            NamespaceObserver::gone(index, &name, &uid(namespace.metadata.uid.as_ref()));
        }
        Change::NoPolicy(_) | Change::NoNamespace(_) | Change::Look => {}
    }
}

type Seen = (BTreeMap<Uid, Option<Vec<SecurityGroupId>>>, BTreeMap<Uid, Vec<DesiredGroup>>);

/// Returns all results of the index for a world.
fn seen(world: &World, index: &PolicyIndex) -> Seen {
    make_groups(index);
    let pods = world.pods.iter().map(|pod| uid(pod.metadata.uid.as_ref()));
    let policies = world.policies.iter().map(|policy| uid(policy.metadata.uid.as_ref()));
    let pods = pods.map(|uid| (uid.clone(), index.pod_groups(&uid).unwrap())).collect();
    (pods, policies.map(|uid| (uid.clone(), index.policy_groups(&uid))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_groups_allow_exactly_what_the_policies_allow(world in any_world()) {
        let index = index(&world);
        populate(&index, &world);
        let enforced = Enforced::of(&world, &index);
        let outside = OUTSIDE.map(|text| End::Address(text.parse().unwrap()));
        let ends: Vec<_> = world.pods.iter().map(End::Pod).chain(outside).collect();
        for &from in &ends {
            for &to in &ends {
                for (protocol, port) in PROBES {
                    let (expected, found) =
                        (may(&world, from, to, protocol, port), enforced.may(from, to, protocol, port));
                    prop_assert_eq!(found, expected, "{} to {} {} {}", from.address(), to.address(), protocol, port);
                }
            }
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_order_of_changes(changes in prop::collection::vec(change(), 0..30)) {
        let mut world = World::default();
        let grown = index(&world);
        for change in changes {
            let look = matches!(change, Change::Look);
            apply(&mut world, &grown, change);
            if look {
                grown.take_changes();
            }
        }
        let fresh = index(&world);
        populate(&fresh, &world);
        prop_assert_eq!(seen(&world, &grown), seen(&world, &fresh));
        prop_assert_eq!(grown.group_names(), fresh.group_names());
    }

    #[test]
    fn every_difference_is_reported_as_a_change(
        world in any_world(), changes in prop::collection::vec(change(), 1..4),
    ) {
        let index = index(&world);
        let mut world = world;
        populate(&index, &world);
        let (pods, policies) = seen(&world, &index);
        index.take_changes();
        for change in changes {
            apply(&mut world, &index, change);
        }
        let changes = index.take_changes();
        let (pods_now, policies_now) = seen(&world, &index);
        for (uid, groups) in pods_now {
            let reported = changes.pods.iter().any(|pod| pod.uid == uid);
            prop_assert!(reported || pods.get(&uid) == Some(&groups) || groups.is_none(), "{uid}");
        }
        for (uid, groups) in policies_now {
            let reported = changes.policies.iter().any(|policy| policy.uid == uid);
            prop_assert!(reported || policies.get(&uid) == Some(&groups), "{uid}");
        }
    }
}
