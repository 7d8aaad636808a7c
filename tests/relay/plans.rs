//! Tests that a controller does exactly what a previous dry run planned.

use futures_util::future::join_all;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use staffetta::dry_run::{DryRun, PlannedObject, PlannedStep, StepDetail};
use staffetta_driver::ListenerChange;
use staffetta_memory::{LoadBalancerCall, PublicIpCall, VifCall};
use std::collections::{BTreeMap, BTreeSet};

use crate::services::http;
use crate::world::{VIF, World};

/// Change to a pod while no controller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodFate {
    Stays,
    Terminates,
    Ends,
    Finishes,
    /// The finalizer is removed by someone else, and the pod is deleted.
    Forced,
    /// The annotation is removed.
    Stripped,
    /// The annotation is corrupted.
    Broken,
    /// The port is removed.
    Unplugged,
    New,
    NewOnHost,
    NewWithoutNode,
}

/// Change to a service while no controller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceFate {
    Stays,
    Goes,
    Forced,
    Moves,
    LosesItsEndpoints,
    GetsAnotherPort,
    BecomesPublic,
    BecomesPrivate,
    BecomesExternal,
    /// The load balancer is removed.
    Unplugged,
    New,
    NewAndPublic,
    NewAndHeadless,
}

#[derive(Clone, Debug)]
struct Cluster {
    pods: Vec<PodFate>,
    services: Vec<ServiceFate>,
}

fn cluster() -> impl Strategy<Value = Cluster> {
    use {PodFate as P, ServiceFate as S};
    let pod = prop::sample::select(vec![
        P::Stays,
        P::Terminates,
        P::Ends,
        P::Finishes,
        P::Forced,
        P::Stripped,
        P::Broken,
        P::Unplugged,
        P::New,
        P::NewOnHost,
        P::NewWithoutNode,
    ]);
    let service = prop::sample::select(vec![
        S::Stays,
        S::Goes,
        S::Forced,
        S::Moves,
        S::LosesItsEndpoints,
        S::GetsAnotherPort,
        S::BecomesPublic,
        S::BecomesPrivate,
        S::BecomesExternal,
        S::Unplugged,
        S::New,
        S::NewAndPublic,
        S::NewAndHeadless,
    ]);
    (prop::collection::vec(pod, 0..6), prop::collection::vec(service, 0..5))
        .prop_map(|(pods, services)| Cluster { pods, services })
}

#[test]
fn a_controller_does_exactly_what_the_dry_run_planned() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases: 1, max_shrink_iters: 30, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&prop::array::uniform12(cluster()), |clusters| {
        let outcomes = runtime.block_on(join_all(clusters.iter().map(planned_and_done)));
        for (dry_run, done) in outcomes {
            prop_assert_eq!(dry_run.summary.failures, 0, "{}", dry_run);
            prop_assert_eq!(planned(&dry_run), done, "{}", dry_run);
        }
        Ok(())
    });
    outcome.unwrap();
}

/// The dry run, and the actions of the controller after it, one line each.
async fn planned_and_done(cluster: &Cluster) -> (DryRun, BTreeSet<String>) {
    let world = World::new().await;
    let controller = world.controller().await;
    for (number, fate) in cluster.pods.iter().enumerate() {
        if !matches!(fate, PodFate::New | PodFate::NewOnHost | PodFate::NewWithoutNode) {
            world.pod(&format!("pod{number}"), json!({}), json!({})).await;
        }
    }
    for (number, fate) in cluster.services.iter().enumerate() {
        match fate {
            ServiceFate::New | ServiceFate::NewAndPublic | ServiceFate::NewAndHeadless => {}
            ServiceFate::BecomesPrivate | ServiceFate::Goes | ServiceFate::Forced => {
                world.serve(number, "LoadBalancer").await;
            }
            _ => world.serve(number, "ClusterIP").await,
        }
    }
    world.settled().await;
    controller.stop().await.unwrap();
    for (number, fate) in cluster.pods.iter().enumerate() {
        world.befall_pod(&format!("pod{number}"), *fate).await;
    }
    for (number, fate) in cluster.services.iter().enumerate() {
        world.befall_service(number, *fate).await;
    }

    let (before, called, mut names) = (world.state().await, world.called(), world.names());
    let dry_run = world.dry_run().await;
    assert_eq!(world.state().await, before, "a dry run writes nothing");
    assert_eq!(world.calls_since(called, &names), BTreeSet::new(), "and asks for nothing");

    let controller = world.controller().await;
    world.settled().await;
    controller.stop().await.unwrap();
    names.0.extend(world.names().0);
    let mut done = world.calls_since(called, &names);
    done.extend(changes(&before, &world.state().await));
    (dry_run, done)
}

impl World {
    /// Waits until the objects stay as they are and a dry run plans nothing. A dry run of objects that change repeats its writes.
    async fn settled(&self) {
        let mut last = None;
        self.until("the objects stay as they are", async || {
            let state = Some(self.state().await);
            std::mem::replace(&mut last, state.clone()) == state
        })
        .await;
        self.until("nothing would be done", async || self.dry_run().await.summary.steps.is_empty()).await;
    }

    async fn serve(&self, number: usize, kind: &str) {
        let name = format!("service{number}");
        self.service(&name, json!({ "type": kind, "ports": http() })).await;
        self.slice(&name, &[&format!("10.10.7.{number}"), &format!("10.10.8.{number}")]).await;
    }

    async fn befall_pod(&self, name: &str, fate: PodFate) {
        match fate {
            PodFate::Stays => {}
            PodFate::Terminates => drop(self.pods().delete(name, &DeleteParams::default()).await.unwrap()),
            PodFate::Ends => self.end_pod(name).await,
            PodFate::Finishes => {
                let finished = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
                self.pods().patch_status(name, &PatchParams::default(), &finished).await.unwrap();
            }
            PodFate::Forced => {
                self.change_pod(name, json!({ "metadata": { "finalizers": null } })).await;
                self.end_pod(name).await;
            }
            PodFate::Stripped => {
                self.change_pod(name, json!({ "metadata": { "annotations": { VIF: null } } })).await;
            }
            PodFate::Broken => {
                self.change_pod(name, json!({ "metadata": { "annotations": { VIF: "broken" } } })).await;
            }
            PodFate::Unplugged => {
                let ports = self.vifs.network().ports();
                let of_pod =
                    |owner: Option<&staffetta_driver::Owner>| owner.is_some_and(|owner| owner.name == name);
                let port = ports.into_iter().find(|port| of_pod(port.owner.as_ref())).unwrap();
                self.vifs.network().remove_port(&port.vif.id);
            }
            PodFate::New => drop(self.pod(name, json!({}), json!({})).await),
            PodFate::NewOnHost => drop(self.pod(name, json!({}), json!({ "hostNetwork": true })).await),
            PodFate::NewWithoutNode => drop(self.pod(name, json!({}), json!({ "nodeName": null })).await),
        }
    }

    async fn befall_service(&self, number: usize, fate: ServiceFate) {
        let name = &format!("service{number}");
        let delete = async || drop(self.web_services().delete(name, &DeleteParams::default()).await.unwrap());
        let change = async |spec: Value| self.change_service(name, json!({ "spec": spec })).await;
        match fate {
            ServiceFate::Stays => {}
            ServiceFate::Goes => delete().await,
            ServiceFate::Forced => {
                self.change_service(name, json!({ "metadata": { "finalizers": null } })).await;
                delete().await;
            }
            ServiceFate::Moves => self.set_endpoints(name, &[&format!("10.10.9.{number}")]).await,
            ServiceFate::LosesItsEndpoints => self.set_endpoints(name, &[]).await,
            ServiceFate::GetsAnotherPort => {
                change(json!({ "ports": [{ "name": "http", "port": 81, "protocol": "TCP" }] })).await;
            }
            ServiceFate::BecomesPublic => change(json!({ "type": "LoadBalancer" })).await,
            ServiceFate::BecomesPrivate => change(json!({ "type": "ClusterIP" })).await,
            ServiceFate::BecomesExternal => {
                change(json!({ "type": "ExternalName", "externalName": "example.com", "clusterIP": "", "clusterIPs": null })).await;
            }
            ServiceFate::Unplugged => {
                let named = format!("default/{name}");
                let all = self.services.load_balancers();
                let (_, found) = all.iter().find(|(_, found)| found.name == named).unwrap();
                self.services.remove_load_balancer(&found.id);
            }
            ServiceFate::New => self.serve(number, "ClusterIP").await,
            ServiceFate::NewAndPublic => self.serve(number, "LoadBalancer").await,
            ServiceFate::NewAndHeadless => {
                self.service(name, json!({ "clusterIP": "None", "ports": http() })).await;
            }
        }
    }

    /// The fields that handlers write: annotations, finalizers and status, by kind and name.
    async fn state(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap().items;
        let services = self.web_services().list(&ListParams::default()).await.unwrap().items;
        let pods = pods
            .into_iter()
            .map(|pod| (format!("Pod {}", pod.name_any()), pod.metadata.clone(), Value::Null));
        let services = services.into_iter().map(|service| {
            let status = serde_json::to_value(&service.status).unwrap();
            (format!("Service {}", service.name_any()), service.metadata.clone(), status)
        });
        let written = pods.chain(services).map(|(name, meta, status)| {
            let annotations = meta.annotations.unwrap_or_default().into_iter();
            let mut written: BTreeMap<_, _> =
                annotations.map(|(key, value)| (format!("annotation {key}"), value)).collect();
            let finalizers = meta.finalizers.unwrap_or_default().into_iter();
            written.extend(finalizers.map(|finalizer| (format!("finalizer {finalizer}"), String::new())));
            let ingress = &status["loadBalancer"]["ingress"];
            if !ingress.is_null() {
                written.insert("status.loadBalancer.ingress".into(), ingress.to_string());
            }
            (name, written)
        });
        written.collect()
    }

    /// The names of everything that exists outside.
    fn names(&self) -> Names {
        let mut names = BTreeMap::new();
        for (_, found) in self.services.load_balancers() {
            names.insert(found.id.to_string(), found.name.clone());
            for listener in &found.listeners {
                if let Some(pool) = &listener.pool {
                    names.insert(pool.id.to_string(), format!("{} {}", found.name, listener.at));
                }
            }
        }
        for (owner, found) in self.services.public_ips() {
            names.insert(found.id.to_string(), owner.unwrap().uid.to_string());
        }
        Names(names)
    }

    /// The number of calls of each driver so far.
    fn called(&self) -> [usize; 3] {
        [self.vifs.calls().len(), self.load_balancers.calls().len(), self.public_ips.calls().len()]
    }

    /// The later calls that change something, one line each. Activations are left out, because a planned VIF is active at once.
    fn calls_since(&self, then: [usize; 3], names: &Names) -> BTreeSet<String> {
        let [vifs, balancers, public_ips] = then;
        let vifs = self.vifs.calls().into_iter().skip(vifs).filter_map(|call| match call {
            VifCall::List(_) | VifCall::Activate(_) => None,
            VifCall::Request(uid) => Some(format!("request {uid}")),
            VifCall::Release(uid, _) => Some(format!("release {uid}")),
        });
        let balancers =
            self.load_balancers.calls().into_iter().skip(balancers).filter_map(|call| match call {
                LoadBalancerCall::List(_) | LoadBalancerCall::Progress(_) => None,
                LoadBalancerCall::Ensure(uid) => Some(format!("make {uid}")),
                LoadBalancerCall::Release(uid, _) => Some(format!("remove {uid}")),
                LoadBalancerCall::ChangeListener(id, change) => {
                    let (id, at) = (names.of(&id), change.at());
                    Some(match change {
                        ListenerChange::Ensure(_) => format!("listen {id} {at}"),
                        ListenerChange::Release(_) => format!("silence {id} {at}"),
                        ListenerChange::SetMembers(_, members) => format!("set {id} {at} {}", members.len()),
                    })
                }
            });
        let public_ips = self.public_ips.calls().into_iter().skip(public_ips).filter_map(|call| match call {
            PublicIpCall::List(_) => None,
            PublicIpCall::Acquire(uid) => Some(format!("take {uid}")),
            PublicIpCall::Release(uid, _) => Some(format!("give {uid}")),
            PublicIpCall::Associate(id, _) => Some(format!("lead {}", names.of(&id))),
            PublicIpCall::Disassociate(id, _) => Some(format!("mislead {}", names.of(&id))),
        });
        vifs.chain(balancers).chain(public_ips).collect()
    }
}

/// Names in place of ids, which a plan cannot know: by id the name of a load balancer, the listener of a pool, the owner of a
/// public address.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn of(&self, id: &impl ToString) -> String {
        self.0.get(&id.to_string()).cloned().unwrap_or_else(|| id.to_string())
    }
}

/// The differences, one line each. An object that is gone has lost its finalizers, and a pod its VIF too.
fn changes(
    before: &BTreeMap<String, BTreeMap<String, String>>,
    after: &BTreeMap<String, BTreeMap<String, String>>,
) -> BTreeSet<String> {
    let mut changes = BTreeSet::new();
    for (object, written) in before {
        let now = after.get(object);
        for (key, value) in written {
            match now.map(|now| now.get(key)) {
                Some(Some(same)) if same == value => {}
                Some(Some(_)) => {
                    changes.insert(format!("{object} ~ {key}"));
                }
                Some(None) => {
                    changes.insert(format!("{object} - {key}"));
                }
                None if key.starts_with("finalizer")
                    || [format!("annotation {VIF}"), "annotation staffetta.dev/cluster".into()]
                        .contains(key) =>
                {
                    changes.insert(format!("{object} - {key}"));
                }
                None => {}
            }
        }
        let new = now.into_iter().flatten().filter(|(key, _)| !written.contains_key(*key));
        changes.extend(new.map(|(key, _)| format!("{object} + {key}")));
    }
    changes
}

/// The steps of the plan in the same form.
fn planned(dry_run: &DryRun) -> BTreeSet<String> {
    let steps = dry_run
        .objects
        .iter()
        .flat_map(|planned| planned.steps.iter().flat_map(|step| described(&planned.object, step)));
    steps.collect()
}

fn described(object: &PlannedObject, step: &PlannedStep) -> Vec<String> {
    let with = |wanted: &str| {
        let found = step.with.iter().find_map(|detail| match detail {
            StepDetail::Argument { name, value } if name == wanted => Some(value.clone()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("{step:?} names no {wanted}"))
    };
    let uid = &object.uid;
    let line = match step.what.as_str() {
        "write" => {
            let changes = step.with.iter().map(|detail| match detail {
                StepDetail::Change { name, from: None, .. } => format!("+ {name}"),
                StepDetail::Change { name, to: None, .. } => format!("- {name}"),
                StepDetail::Change { name, .. } => format!("~ {name}"),
                StepDetail::Argument { name, .. } => panic!("{name} is no change"),
            });
            return changes.map(|change| format!("{} {} {change}", object.kind, object.name)).collect();
        }
        "request a VIF" => format!("request {uid}"),
        "release a VIF" => format!("release {uid}"),
        "create a load balancer" => format!("make {uid}"),
        "release a load balancer" => format!("remove {uid}"),
        "create a listener with its pool" => format!("listen {} {}", with("load balancer"), with("listener")),
        "release a listener with its pool" => {
            format!("silence {} {}", with("load balancer"), with("listener"))
        }
        "set the members of a pool" => {
            let members = with("members");
            let count = if members == "none" { 0 } else { members.split(", ").count() };
            format!("set {} {} {count}", with("load balancer"), with("listener"))
        }
        "allocate a public address" => format!("take {uid}"),
        "release a public address" => format!("give {uid}"),
        "associate a public address with a port" => format!("lead {uid}"),
        "disassociate a public address from a port" => format!("mislead {uid}"),
        other => panic!("nobody knows what it is to {other}"),
    };
    vec![line]
}
