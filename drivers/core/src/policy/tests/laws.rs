//! Laws that hold in every cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use proptest::prelude::*;

use super::oracle::{End, may};
use super::world::{
    Enforced, NAMESPACES, World, any_pod, any_policy, any_world, book, labels, make_groups, namespace, tell,
};
use crate::id::SecurityGroupId;
use crate::policy::{GroupWish, PolicyBook};
use crate::{NamespaceObserver, NetworkPolicyObserver, Uid};

const PROBES: [(&str, i32); 7] =
    [("TCP", 80), ("TCP", 81), ("TCP", 8080), ("UDP", 53), ("UDP", 80), ("SCTP", 9000), ("TCP", 53)];
const OUTSIDE: [&str; 4] = ["10.0.0.200", "192.0.2.1", "2001:db8::1", "2001:db8:8000::1"];

/// Something that happens to a cluster.
#[derive(Clone, Debug)]
enum Change {
    Pod(Box<Pod>),
    NoPod(u8),
    Policy(Box<NetworkPolicy>),
    NoPolicy(usize),
    Namespace(Box<Namespace>),
    NoNamespace(usize),
    /// Somebody asks what is due.
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

/// Makes the change in the world, and tells the book.
fn apply(world: &mut World, book: &PolicyBook, change: Change) {
    match change {
        Change::Pod(pod) => {
            // A pod never moves to another namespace: that is another pod.
            if let Some(before) = world.pods.iter().find(|known| known.metadata.uid == pod.metadata.uid)
                && before.metadata.namespace != pod.metadata.namespace
            {
                book.pod_gone(&uid(pod.metadata.uid.as_ref()));
            }
            world.pods.retain(|known| known.metadata.uid != pod.metadata.uid);
            book.pod_present(&pod);
            world.pods.push(*pod);
        }
        Change::NoPod(number) => {
            let gone = format!("pod-{number}");
            world.pods.retain(|known| known.metadata.uid.as_ref() != Some(&gone));
            book.pod_gone(&gone.into());
        }
        Change::Policy(policy) => {
            world.policies.retain(|known| known.metadata.uid != policy.metadata.uid);
            NetworkPolicyObserver::present(book, &policy);
            world.policies.push(*policy);
        }
        Change::NoPolicy(index) if !world.policies.is_empty() => {
            let policy = world.policies.remove(index % world.policies.len());
            NetworkPolicyObserver::gone(book, &uid(policy.metadata.uid.as_ref()));
        }
        Change::Namespace(namespace) => {
            world.namespaces.retain(|known| known.metadata.name != namespace.metadata.name);
            NamespaceObserver::present(book, &namespace);
            world.namespaces.push(*namespace);
        }
        Change::NoNamespace(index) if !world.namespaces.is_empty() => {
            let namespace = world.namespaces.remove(index % world.namespaces.len());
            let name = namespace.metadata.name.clone().unwrap();
            NamespaceObserver::gone(book, &name, &uid(namespace.metadata.uid.as_ref()));
        }
        Change::NoPolicy(_) | Change::NoNamespace(_) | Change::Look => {}
    }
}

type Seen = (BTreeMap<Uid, Option<Vec<SecurityGroupId>>>, BTreeMap<Uid, Vec<GroupWish>>);

/// All that the book says of a world.
fn seen(world: &World, book: &PolicyBook) -> Seen {
    make_groups(book);
    let pods = world.pods.iter().map(|pod| uid(pod.metadata.uid.as_ref()));
    let policies = world.policies.iter().map(|policy| uid(policy.metadata.uid.as_ref()));
    let pods = pods.map(|uid| (uid.clone(), book.guards(&uid).unwrap())).collect();
    (pods, policies.map(|uid| (uid.clone(), book.groups(&uid))).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_groups_let_pass_just_what_the_policies_allow(world in any_world()) {
        let book = book(&world);
        tell(&book, &world);
        let enforced = Enforced::of(&world, &book);
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
    fn after_any_changes_all_is_as_if_it_had_always_been_so(changes in prop::collection::vec(change(), 0..30)) {
        let mut world = World::default();
        let grown = book(&world);
        for change in changes {
            let look = matches!(change, Change::Look);
            apply(&mut world, &grown, change);
            if look {
                grown.take_due();
            }
        }
        let fresh = book(&world);
        tell(&fresh, &world);
        prop_assert_eq!(seen(&world, &grown), seen(&world, &fresh));
        prop_assert_eq!(grown.names(), fresh.names());
    }

    #[test]
    fn whatever_comes_out_differently_is_due(
        world in any_world(), changes in prop::collection::vec(change(), 1..4),
    ) {
        let book = book(&world);
        let mut world = world;
        tell(&book, &world);
        let (pods, policies) = seen(&world, &book);
        book.take_due();
        for change in changes {
            apply(&mut world, &book, change);
        }
        let due = book.take_due();
        let (pods_now, policies_now) = seen(&world, &book);
        for (uid, groups) in pods_now {
            let told = due.pods.iter().any(|pod| pod.uid == uid);
            prop_assert!(told || pods.get(&uid) == Some(&groups) || groups.is_none(), "{uid}");
        }
        for (uid, wishes) in policies_now {
            let told = due.policies.iter().any(|policy| policy.uid == uid);
            prop_assert!(told || policies.get(&uid) == Some(&wishes), "{uid}");
        }
    }
}
