//! The plan for services, with or without a `KuryrLoadBalancer`.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde_json::{Value, json};
use staffetta_driver::{
    Adoption, Allocation, ExistingLoadBalancer, ExistingMark, LoadBalancerId, Owner, PublicIp,
};
use staffetta_handler::causes;
use staffetta_network::lb::{FINALIZER, STATE_ANNOTATION, annotation_of_status, resources_of_annotation};
use staffetta_network::lbaasspec::{LbaasServiceSpec, SPEC_ANNOTATION};

use super::super::kuryr::{KuryrKind, ObjectKey, finalizers_of, key_of, owner_uid};
use super::super::read::ClusterState;
use super::super::write::MetadataWrite;
use super::{Obstacle, PlannedTakeover, StepList, refused};

/// Plans the takeover of the services that Kuryr manages. Refuses the `KuryrLoadBalancer`s without a service.
pub(super) fn plan(state: &ClusterState) -> Vec<PlannedTakeover> {
    let services = state.services.iter().filter(|service| state.is_kuryrs(service));
    let mut planned: Vec<_> = services
        .map(|service| PlannedTakeover {
            kind: "Service",
            key: key_of(service),
            steps: plan_service(state, service).map(|steps| steps.0),
        })
        .collect();
    let existing: BTreeSet<ObjectKey> = state.services.iter().map(key_of).collect();
    let orphans = state.kuryr.load_balancers.iter().filter(|(key, _)| !existing.contains(*key));
    planned.extend(orphans.filter(|(_, orphan)| !finalizers_of(*orphan).is_empty()).map(|(key, _)| {
        PlannedTakeover {
            kind: KuryrKind::LOAD_BALANCER.0,
            key: key.clone(),
            steps: Err(refused("its service does not exist; delete its load balancer, then its finalizer")),
        }
    }));
    planned
}

/// Plans the takeover of a service: its load balancer and its public address get our ownership mark, the service gets our annotation and
/// finalizer instead of Kuryr's, and its `KuryrLoadBalancer` is released at last. The load balancer must have the address, the project
/// and the subnet that our drivers would choose, so that nothing is created a second time; otherwise the takeover is refused.
fn plan_service(state: &ClusterState, service: &Service) -> Result<StepList, Obstacle> {
    let (key, owner) = (key_of(service), Owner::of(&service.metadata));
    let (object, theirs) = (state.kuryr.load_balancers.get(&key), finalizers_of(service));
    let mut steps = StepList::default();
    let is_ours = service.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    if theirs.is_empty() && is_ours && object.is_none_or(|object| finalizers_of(object).is_empty()) {
        return Ok(steps);
    }
    let is_marked = |found: &ExistingLoadBalancer| matches!(&found.mark, ExistingMark::Owned(marked) if marked.uid == owner.uid);
    if is_ours && theirs.is_empty() && state.load_balancers.iter().any(is_marked) {
        // Our controller may have replaced the load balancer that Kuryr recorded.
        steps.release(KuryrKind::LOAD_BALANCER, &state.kuryr.load_balancers, &key);
        return Ok(steps);
    }
    if !state.has_handlers(&["lb", "lbaasspec"]) {
        return Err(refused("the handlers `lb` and `lbaasspec` are not enabled"));
    }
    if object.and_then(owner_uid).is_some_and(|uid| uid != owner.uid.as_str()) {
        return Err(refused("its KuryrLoadBalancer is that of an earlier service with the same name"));
    }
    let empty = json!({});
    let status =
        object.map(|object| object.data.get("status").filter(|status| !status.is_null()).unwrap_or(&empty));
    let Recorded { text, load_balancer, public_ip } = recorded(state, service, status)?;
    let spec = match state.specs.get(&key) {
        Some(Ok(Some(spec))) => Some(spec),
        Some(Err(error)) => return Err(refused(error.as_str())),
        Some(Ok(None)) | None => None,
    };
    let Some(found) = find(state, service, load_balancer.as_ref(), spec)? else {
        // Kuryr has created none, so the service gets one of ours if it needs one.
        steps.write(MetadataWrite::of(service, &theirs));
        steps.release(KuryrKind::LOAD_BALANCER, &state.kuryr.load_balancers, &key);
        return Ok(steps);
    };
    let Some(spec) = spec else {
        return Err(refused("it gets no load balancer from staffetta, and has one of Kuryr"));
    };
    check(found, spec)?;
    steps.adopt(
        &found.mark,
        &owner,
        format!("load balancer {}", found.id),
        Adoption::LoadBalancer(found.id.clone(), owner.clone()),
    )?;
    if let Some(public_ip) = public_ip.filter(|public_ip| public_ip.allocation == Allocation::Pool) {
        adopt_public_ip(state, found, &public_ip, &owner, &mut steps)?;
    }
    let mut write = MetadataWrite::of(service, &theirs);
    if !is_ours {
        // Without a spec, our controller would release the load balancer.
        write = write.annotate(SPEC_ANNOTATION, &spec.to_text());
        write = text.iter().fold(write, |write, text| write.annotate(STATE_ANNOTATION, text));
    }
    steps.write(write.add_finalizer(FINALIZER));
    steps.release(KuryrKind::LOAD_BALANCER, &state.kuryr.load_balancers, &key);
    Ok(steps)
}

/// The load balancer and the public address that Kuryr recorded.
#[derive(Default)]
struct Recorded {
    /// The record in the form of the annotation on services; `None` without a load balancer, or if parts of the record are missing. Then our
    /// controller reads the load balancer from the cloud.
    text: Option<String>,
    load_balancer: Option<LoadBalancerId>,
    public_ip: Option<PublicIp>,
}

/// Returns what Kuryr recorded in `status`, that of the `KuryrLoadBalancer`, or without one in the annotation of the service or of its
/// `Endpoints`. A status needs no more than the id of the load balancer, because the cloud knows the rest. Fails if the record is malformed.
fn recorded(state: &ClusterState, service: &Service, status: Option<&Value>) -> Result<Recorded, Obstacle> {
    let malformed = |error| refused(format!("its KuryrLoadBalancer is malformed: {error}"));
    let annotated = || service.annotations().get(STATE_ANNOTATION);
    let text = match status {
        Some(status) => annotation_of_status(status),
        None => match annotated().or_else(|| state.states_on_endpoints.get(&key_of(service))) {
            Some(text) => Ok(text.clone()),
            None => return Ok(Recorded::default()),
        },
    };
    let id = status.and_then(|status| status["loadbalancer"]["id"].as_str());
    let (text, known) = match (text, status.zip(id)) {
        (Ok(text), _) => (text, None),
        (Err(_), Some((status, id))) => {
            let address = json!({ "service_pub_ip_info": status["service_pub_ip_info"] });
            (annotation_of_status(&address).map_err(malformed)?, Some(id.into()))
        }
        (Err(error), None) => return Err(malformed(error)),
    };
    let (found, public_ip) = resources_of_annotation(&text).map_err(|error| refused(causes(&error)))?;
    let text = found.is_some().then_some(text);
    Ok(Recorded { text, load_balancer: known.or(found.map(|found| found.id)), public_ip })
}

/// Finds the load balancer that Kuryr recorded or, if Kuryr was stopped before it could record it, the one with the name and address of
/// the service; `None` if there is none. Fails if the load balancer that Kuryr recorded does not exist.
fn find<'a>(
    state: &'a ClusterState,
    service: &Service,
    recorded: Option<&LoadBalancerId>,
    spec: Option<&LbaasServiceSpec>,
) -> Result<Option<&'a ExistingLoadBalancer>, Obstacle> {
    if let Some(recorded) = recorded {
        let found = state.load_balancers.iter().find(|found| found.id == *recorded);
        let missing = || {
            refused(format!("load balancer {recorded} does not exist in the projects of the configuration"))
        };
        return found.ok_or_else(missing).map(Some);
    }
    let (namespace, name) = key_of(service);
    let name = format!("{namespace}/{name}");
    let is_it = |found: &&ExistingLoadBalancer| {
        found.name == name && spec.is_some_and(|spec| check(found, spec).is_ok())
    };
    Ok(state.load_balancers.iter().find(is_it))
}

/// Fails unless the load balancer has the address of the service, in the subnet and project of the configuration: our controller would
/// replace any other.
fn check(found: &ExistingLoadBalancer, spec: &LbaasServiceSpec) -> Result<(), Obstacle> {
    let differs = |what: &str, has: String, wants: &dyn ToString| {
        let wants = wants.to_string();
        let text = format!("load balancer {} has the {what} {has}, the service needs {wants}", found.id);
        if has == wants { Ok(()) } else { Err(refused(text)) }
    };
    differs("address", found.vip.map(|vip| vip.to_string()).unwrap_or_default(), &spec.ip)?;
    differs("subnet", found.subnet.as_ref().map(ToString::to_string).unwrap_or_default(), &spec.subnet_id)?;
    differs("project", found.project.to_string(), &spec.project_id)
}

/// Plans that a floating IP gets our ownership mark. It must exist with the recorded address and belong to the port of the load balancer,
/// because users may change what Kuryr recorded. Refused otherwise, and if it has the mark of another owner.
fn adopt_public_ip(
    state: &ClusterState,
    load_balancer: &ExistingLoadBalancer,
    recorded: &PublicIp,
    owner: &Owner,
    steps: &mut StepList,
) -> Result<(), Obstacle> {
    let found = state.public_ips.iter().find(|found| found.id == recorded.id);
    let Some(found) = found.filter(|found| found.ip == recorded.ip && found.port == load_balancer.port)
    else {
        let text = format!("floating IP {} is not that of load balancer {}", recorded.ip, load_balancer.id);
        return Err(refused(text));
    };
    let adoption = Adoption::PublicIp(found.id.clone(), owner.clone());
    steps.adopt(&found.mark, owner, format!("floating IP {}", found.ip), adoption)
}
