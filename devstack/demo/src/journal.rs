//! Converts watch events to messages for the user. Pure.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::annotations::{interface_address, lbaas_spec, lbaas_state, vif};
use crate::judge::{is_module, is_on_device, is_on_windows, name};
use crate::news::Happening;

/// The last news of each object of one kind.
pub(crate) struct Journal {
    began: Instant,
    known: HashMap<String, Known>,
    /// The objects of the list that is being read.
    listed: HashSet<String>,
}

struct Known {
    since: Instant,
    object: String,
    what: String,
}

/// An object that can be told about.
pub(crate) trait Reported: Resource<DynamicType = ()> {
    const KIND: &'static str;

    /// The progress, in words.
    fn what(&self) -> String;
}

impl Journal {
    pub(crate) fn new(began: Instant) -> Self {
        Self { began, known: HashMap::new(), listed: HashSet::new() }
    }

    /// Returns the news in a watch event.
    pub(crate) fn note<K: Reported>(&mut self, event: &Event<K>, now: Instant) -> Vec<Happening> {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                self.listed.insert(object.uid().unwrap_or_default());
                return self.applied(object, now).into_iter().collect();
            }
            Event::Apply(object) => return self.applied(object, now).into_iter().collect(),
            Event::Delete(object) => {
                let gone = self.known.remove(&object.uid().unwrap_or_default());
                return gone.map(|known| self.happened::<K>(&known, now)).into_iter().collect();
            }
            Event::InitDone => {
                let vanished = self.known.extract_if(|uid, _| !self.listed.contains(uid));
                let vanished: Vec<_> = vanished.map(|(_, known)| known).collect();
                return vanished.iter().map(|known| self.happened::<K>(known, now)).collect();
            }
        }
        Vec::new()
    }

    fn applied<K: Reported>(&mut self, object: &K, now: Instant) -> Option<Happening> {
        let what = match object.meta().deletion_timestamp {
            Some(_) => "to be deleted".to_owned(),
            None => object.what(),
        };
        let uid = object.uid().unwrap_or_default();
        let since = match self.known.get(&uid) {
            Some(known) if known.what == what => return None,
            Some(known) => known.since,
            None => now,
        };
        let known = Known { since, object: name(object), what: what.clone() };
        let happening = Happening { what, gone: false, ..self.happened::<K>(&known, now) };
        self.known.insert(uid, known);
        Some(happening)
    }

    fn happened<K: Reported>(&self, known: &Known, now: Instant) -> Happening {
        Happening {
            at: now.saturating_duration_since(self.began),
            kind: K::KIND,
            object: known.object.clone(),
            what: "deleted".to_owned(),
            gone: true,
            age: now.checked_duration_since(known.since).unwrap_or(Duration::ZERO),
        }
    }
}

impl Reported for Pod {
    const KIND: &'static str = "Pod";

    fn what(&self) -> String {
        let spec = self.spec.as_ref();
        let running = self.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        if spec.and_then(|spec| spec.node_name.as_ref()).is_none() {
            return "waits for a node".into();
        }
        if spec.and_then(|spec| spec.host_network).unwrap_or(false) {
            return if running { "runs in the network of its node" } else { "starts" }.into();
        }
        if is_on_device(self) || is_module(self) {
            let waiting = if is_module(self) { "is to be loaded" } else { "becomes an app" };
            let node = spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            let address = self.status.as_ref().and_then(|status| status.pod_ip.as_deref());
            return match (running, address) {
                (true, Some(address)) => format!("runs on {node}, {address}"),
                (true, None) => format!("runs on {node}"),
                (false, _) => format!("{waiting} on {node}"),
            };
        }
        if is_on_windows(self) {
            return match (running, interface_address(self)) {
                (_, None) => "waits for an address of its node".into(),
                (false, Some(address)) => format!("has {address} of its node"),
                (true, Some(address)) => format!("runs, {address}"),
            };
        }
        let Some(vif) = vif(self) else { return "waits for a VIF".into() };
        let addresses: Vec<_> = vif.addresses.iter().map(|(address, _)| address.to_string()).collect();
        let state = match (vif.active, running) {
            (false, _) => "VIF requested",
            (true, false) => "VIF active",
            (true, true) => "runs",
        };
        format!("{state}, {}", addresses.join(" and "))
    }
}

impl Reported for Service {
    const KIND: &'static str = "Service";

    fn what(&self) -> String {
        match lbaas_state(self) {
            Some(state) => {
                let members = match state.members.len() {
                    1 => "1 member".to_owned(),
                    count => format!("{count} members"),
                };
                let public_ip = state.public_ip.map(|address| format!(", public {address}"));
                format!("load balancer {}, {members}{}", state.vip, public_ip.unwrap_or_default())
            }
            None if lbaas_spec(self).is_some() => "load balancer described".into(),
            None => "no load balancer".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::judge::testing::{object, vif_annotation};

    fn pod(uid: &str, annotation: Option<String>) -> Pod {
        let annotations = annotation.map(|text| json!({ "openstack.org/kuryr-vif": text }));
        object(json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": uid, "annotations": annotations },
            "spec": { "nodeName": "n", "containers": [] },
        }))
    }

    #[test]
    fn what_is_new_is_reported_with_the_time_since_the_object_was_made() {
        let now = Instant::now();
        let mut journal = Journal::new(now);
        let mut tell = |event: Event<Pod>, millis: u64| {
            let reported = journal.note(&event, now + Duration::from_millis(millis));
            reported
                .into_iter()
                .map(|one| (one.what, one.at.as_millis(), one.age.as_millis()))
                .collect::<Vec<_>>()
        };
        assert_eq!(tell(Event::Apply(pod("u", None)), 10), [("waits for a VIF".to_owned(), 10, 0)]);
        let requested = pod("u", Some(vif_annotation(false, "10.1.0.4")));
        assert_eq!(
            tell(Event::Apply(requested.clone()), 30),
            [("VIF requested, 10.1.0.4".to_owned(), 30, 20)]
        );
        assert_eq!(tell(Event::Apply(requested), 40), [], "it was said already");
        let active = pod("u", Some(vif_annotation(true, "10.1.0.4")));
        assert_eq!(tell(Event::Apply(active.clone()), 60), [("VIF active, 10.1.0.4".to_owned(), 60, 50)]);
        assert_eq!(tell(Event::Delete(active.clone()), 90), [("deleted".to_owned(), 90, 80)]);
        assert_eq!(tell(Event::Delete(active), 91), []);
    }

    #[test]
    fn what_a_new_list_does_not_show_is_deleted() {
        let mut journal = Journal::new(Instant::now());
        let mut tell = |event: Event<Pod>| {
            let reported = journal.note(&event, Instant::now());
            reported.into_iter().map(|one| one.what).collect::<Vec<_>>()
        };
        tell(Event::Apply(pod("u", None)));
        tell(Event::Apply(pod("v", None)));
        assert_eq!(tell(Event::Init), Vec::<String>::new());
        assert_eq!(tell(Event::InitApply(pod("v", None))), Vec::<String>::new());
        assert_eq!(tell(Event::InitDone), ["deleted"]);
    }
}
