//! An Octavia: load balancers whose changes take their time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Value, json};

use super::State;
use super::answer::{Answer, fault};
use super::query::Query;

/// The state of the fake Octavia. Members are in their pools.
pub(crate) struct Octavia {
    /// The newest version, after the point.
    pub(crate) version: u32,
    /// The duration of a change.
    pub(crate) delay: Duration,
    /// Changes never end.
    pub(crate) stuck: bool,
    /// The number of following changes that end in ERROR.
    pub(crate) doomed: usize,
    /// The quotas by Octavia's name for a kind of resource.
    quotas: BTreeMap<String, usize>,
    pub(crate) balancers: BTreeMap<String, Value>,
    pub(crate) listeners: BTreeMap<String, Value>,
    pub(crate) pools: BTreeMap<String, Value>,
    pub(crate) monitors: BTreeMap<String, Value>,
    /// The changes under way, and how they end.
    busy: BTreeMap<String, (Instant, &'static str)>,
}

impl Default for Octavia {
    fn default() -> Self {
        Self {
            version: 30,
            delay: Duration::from_millis(30),
            stuck: false,
            doomed: 0,
            quotas: BTreeMap::new(),
            balancers: BTreeMap::new(),
            listeners: BTreeMap::new(),
            pools: BTreeMap::new(),
            monitors: BTreeMap::new(),
            busy: BTreeMap::new(),
        }
    }
}

impl Octavia {
    /// Ends the changes whose time is over.
    fn finish_changes(&mut self) {
        let now = Instant::now();
        let over: Vec<String> =
            self.busy.iter().filter(|(_, (until, _))| *until <= now).map(|(id, _)| id.clone()).collect();
        for id in over {
            match self.busy.remove(&id).unwrap().1 {
                "DELETED" => self.remove(&id),
                end => {
                    self.balancers.get_mut(&id).unwrap()["provisioning_status"] = json!(end);
                    for pool in self.pools.values_mut().filter(|pool| pool["loadbalancers"][0]["id"] == id) {
                        pool["members"].as_array_mut().unwrap().retain(|member| !goes(member));
                    }
                }
            }
        }
    }

    /// Begins a change.
    fn begin(&mut self, id: &str, during: &str, end: &'static str) {
        self.balancers.get_mut(id).unwrap()["provisioning_status"] = json!(during);
        if !self.stuck {
            let end = if self.doomed > 0 { "ERROR" } else { end };
            self.doomed = self.doomed.saturating_sub(1);
            self.busy.insert(id.to_owned(), (Instant::now() + self.delay, end));
        }
    }

    /// A load balancer with all that hangs on it is gone at once.
    pub(crate) fn remove(&mut self, id: &str) {
        self.balancers.remove(id);
        self.busy.remove(id);
        self.listeners.retain(|_, listener| listener["loadbalancers"][0]["id"] != id);
        let gone: Vec<Value> =
            self.pools.values().filter(|pool| pool["loadbalancers"][0]["id"] == id).cloned().collect();
        for pool in gone {
            self.pools.remove(pool["id"].as_str().unwrap());
            self.monitors.remove(pool["healthmonitor_id"].as_str().unwrap_or_default());
        }
    }

    /// Ranges are refused as long as there are security groups.
    fn beside_groups<'v>(
        &self,
        balancer: &str,
        listeners: impl IntoIterator<Item = &'v Value>,
    ) -> Option<Answer> {
        let some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
        let guarded = some(&self.balancers[balancer]["vip_sg_ids"]);
        let ranged = listeners.into_iter().any(|listener| some(&listener["allowed_cidrs"]));
        let words = "Allowed CIDRs are not allowed when using custom VIP Security Groups.";
        (guarded && ranged).then(|| fault(400, &format!("Validation failure: {words}")))
    }

    /// An address, or the port that comes with it, is had by one load balancer at a time.
    fn taken(&self, wish: &Value) -> Option<Answer> {
        let have = |name: &str| self.balancers.iter().find(|(_, other)| other[name] == wish[name]);
        if let Some(port) = wish["vip_port_id"].as_str() {
            let (id, _) = have("vip_port_id")?;
            let words = format!("Port {port} is already used by device lb-{id} ");
            return Some(fault(400, &format!("Validation failure: {words}")));
        }
        let (_, other) =
            have("vip_address").filter(|(_, other)| other["vip_subnet_id"] == wish["vip_subnet_id"])?;
        let (address, subnet) = (&other["vip_address"], &other["vip_subnet_id"]);
        Some(fault(409, &format!("IP address {address} already allocated in subnet {subnet}")))
    }

    /// Rejects so many more of a kind if they exceed the quota.
    fn over_quota(&self, kind: &str, more: usize) -> Option<Answer> {
        let (present, words) = match kind {
            "load_balancer" => (self.balancers.len(), "Load Balancer"),
            "listener" => (self.listeners.len(), "Listener"),
            _ => (self.pools.len(), "Pool"),
        };
        let over = self.quotas.get(kind).is_some_and(|quota| more > 0 && present + more > *quota);
        over.then(|| fault(403, &format!("Quota has been met for resources: {words}")))
    }

    /// The quotas of a project. Octavia says nothing of what is in use, and calls some kinds by two names.
    fn limits(&self, project: &str) -> Answer {
        let limit = |kind: &str| self.quotas.get(kind).map_or(-1, |limit| i64::try_from(*limit).unwrap());
        let (balancer, monitor) = (limit("load_balancer"), limit("health_monitor"));
        let mut quota = json!({ "project_id": project, "load_balancer": balancer, "loadbalancer": balancer,
            "health_monitor": monitor, "healthmonitor": monitor });
        for kind in ["listener", "pool", "member", "l7policy", "l7rule"] {
            quota[kind] = json!(limit(kind));
        }
        Answer::json(200, json!({ "quota": quota }))
    }

    fn immutable(&self, id: &str) -> Option<Answer> {
        let busy = self.balancers[id]["provisioning_status"] != "ACTIVE";
        busy.then(|| fault(409, &format!("Load Balancer {id} is immutable and cannot be updated.")))
    }

    /// The load balancer with what hangs on it.
    fn whole(&self, id: &str) -> Value {
        let of = |things: &BTreeMap<String, Value>| {
            let hanging = things.values().filter(|thing| thing["loadbalancers"][0]["id"] == id);
            hanging.cloned().collect::<Vec<_>>()
        };
        let mut whole = self.balancers[id].clone();
        whole["listeners"] = json!(of(&self.listeners));
        let pools = of(&self.pools).into_iter().map(|mut pool| {
            if let Some(monitor) = pool["healthmonitor_id"].as_str() {
                pool["healthmonitor"] = self.monitors[monitor].clone();
            }
            pool
        });
        whole["pools"] = json!(pools.collect::<Vec<_>>());
        whole
    }
}

/// Returns `true` for a member that a change in progress removes.
fn goes(member: &Value) -> bool {
    member["provisioning_status"] == "PENDING_DELETE"
}

/// Of members, a pool shows just the ids, and the listeners on which it hangs by now.
fn shown(octavia: &Octavia) -> BTreeMap<String, Value> {
    let ids = |things: &mut dyn Iterator<Item = &Value>| {
        json!(things.map(|thing| json!({ "id": thing["id"] })).collect::<Vec<_>>())
    };
    let shown = |pool: &Value| {
        let mut shown = pool.clone();
        shown["members"] = ids(&mut pool["members"].as_array().unwrap().iter());
        let mut bearers =
            octavia.listeners.values().filter(|listener| listener["default_pool_id"] == pool["id"]);
        shown["listeners"] = ids(&mut bearers);
        shown
    };
    octavia.pools.iter().map(|(id, pool)| (id.clone(), shown(pool))).collect()
}

/// A load balancer in a list shows the ids of its listeners.
fn listed(octavia: &Octavia) -> BTreeMap<String, Value> {
    let listed = |(id, balancer): (&String, &Value)| {
        let listeners =
            octavia.listeners.values().filter(|listener| listener["loadbalancers"][0]["id"] == *id);
        let ids: Vec<_> = listeners.map(|listener| json!({ "id": listener["id"] })).collect();
        let mut listed = balancer.clone();
        listed["listeners"] = json!(ids);
        (id.clone(), listed)
    };
    octavia.balancers.iter().map(listed).collect()
}

impl State {
    /// The versions, at the root.
    pub(crate) fn versions(&self) -> Answer {
        let versions: Vec<_> =
            (0..=self.octavia.version).map(|minor| json!({ "id": format!("v2.{minor}") })).collect();
        Answer::json(200, json!({ "versions": versions }))
    }

    pub(crate) fn load_balancing(
        &mut self,
        method: &Method,
        parts: &[&str],
        query: &Query,
        body: &Value,
    ) -> Answer {
        self.octavia.finish_changes();
        if let ("PUT", ["quotas", _]) = (method.as_str(), parts) {
            for (kind, quota) in body["quota"].as_object().unwrap() {
                match usize::try_from(quota.as_i64().unwrap()) {
                    Ok(quota) => self.octavia.quotas.insert(kind.clone(), quota),
                    Err(_) => self.octavia.quotas.remove(kind),
                };
            }
            return Answer::json(202, body.clone());
        }
        if let ("GET", ["quotas", project]) = (method.as_str(), parts) {
            return self.octavia.limits(project);
        }
        let (octavia, page) = (&self.octavia, self.page);
        match (method.as_str(), parts) {
            ("POST", ["loadbalancers"]) => self.create_balancer(&body["loadbalancer"]),
            ("GET", ["loadbalancers"]) => query.list("loadbalancers", &listed(octavia), page),
            ("GET", ["listeners"]) => query.list("listeners", &octavia.listeners, page),
            ("GET", ["pools"]) => query.list("pools", &shown(octavia), page),
            ("GET", ["healthmonitors"]) => query.list("healthmonitors", &octavia.monitors, page),
            (_, ["loadbalancers", id, ..]) if !octavia.balancers.contains_key(*id) => {
                missing("Load Balancer", id)
            }
            (_, ["listeners", id, ..]) if !octavia.listeners.contains_key(*id) => missing("Listener", id),
            (_, ["pools", id, ..]) if !octavia.pools.contains_key(*id) => missing("Pool", id),
            ("GET", ["loadbalancers", id]) => {
                Answer::json(200, json!({ "loadbalancer": query.fields(&octavia.balancers[*id]) }))
            }
            ("GET", ["loadbalancers", id, "status"]) => {
                let whole = octavia.whole(id);
                let listeners = whole["listeners"].as_array().unwrap().iter().map(|listener| {
                    let pools = whole["pools"].as_array().unwrap().iter();
                    let of = |pool: &&Value| pool["id"] == listener["default_pool_id"];
                    json!({ "id": listener["id"], "pools": pools.filter(of).collect::<Vec<_>>() })
                });
                let listeners: Vec<_> = listeners.collect();
                Answer::json(
                    200,
                    json!({ "statuses": { "loadbalancer": { "id": id, "listeners": listeners } } }),
                )
            }
            ("GET", ["pools", id]) => Answer::json(200, json!({ "pool": query.fields(&octavia.pools[*id]) })),
            ("GET", ["pools", id, "members"]) => {
                Answer::json(200, json!({ "members": octavia.pools[*id]["members"] }))
            }
            ("PUT", ["loadbalancers", id]) => self.change_balancer(id, &body["loadbalancer"]),
            ("DELETE", ["loadbalancers", id]) => self.delete_balancer(id, query.says("cascade", "true")),
            ("POST", ["listeners"]) => self.create_listener(&body["listener"]),
            ("POST", ["pools"]) => self.create_pool(&body["pool"]),
            ("POST", ["healthmonitors"]) => self.create_monitor(&body["healthmonitor"]),
            ("PUT" | "DELETE", [collection, id, ..]) => {
                let keeps = self.octavia.version >= 11 && query.says("additive_only", "true");
                self.change(method, collection, parts, id, body, keeps)
            }
            _ => Answer::json(404, json!({ "code": 404, "title": "Not Found", "description": "" })),
        }
    }

    fn create_balancer(&mut self, wish: &Value) -> Answer {
        let listeners = wish["listeners"].as_array().cloned().unwrap_or_default();
        // Each listener comes with its pool.
        let wanted = [("load_balancer", 1), ("pool", listeners.len()), ("listener", listeners.len())];
        if let Some(refusal) = wanted.iter().find_map(|(kind, more)| self.octavia.over_quota(kind, *more)) {
            return refusal;
        }
        let provider = wish["provider"].as_str().unwrap_or("amphora").to_owned();
        if !["amphora", "ovn"].contains(&&*provider) {
            return fault(400, &format!("Provider '{provider}' is not enabled."));
        }
        if let Some(refusal) = listeners.iter().find_map(|listener| self.unserved(&provider, listener)) {
            return refusal;
        }
        if let Some(refusal) = self.octavia.taken(wish) {
            return refusal;
        }
        let id = self.id();
        let port = self.id();
        self.octavia.balancers.insert(
            id.clone(),
            json!({
                "id": id, "name": wish["name"], "project_id": wish["project_id"], "description": wish["description"],
                "tags": wish.get("tags").cloned().unwrap_or(json!([])), "vip_address": wish["vip_address"],
                "vip_subnet_id": wish["vip_subnet_id"], "vip_port_id": wish.get("vip_port_id").cloned().unwrap_or(json!(port)),
                "vip_sg_ids": wish.get("vip_sg_ids").cloned().unwrap_or(json!([])), "provider": provider,
                "provisioning_status": "PENDING_CREATE",
            }),
        );
        if let Some(refusal) = self.octavia.beside_groups(&id, &listeners) {
            self.octavia.balancers.remove(&id);
            return refusal;
        }
        for listener in &listeners {
            let pool = self.add_pool(&id, &listener["default_pool"]);
            self.add_listener(&id, listener, &json!(pool));
        }
        self.guard_port(&id);
        self.octavia.begin(&id, "PENDING_CREATE", "ACTIVE");
        Answer::json(201, json!({ "loadbalancer": self.octavia.whole(&id) }))
    }

    /// The reason why a provider does not support a listener.
    fn unserved(&self, provider: &str, listener: &Value) -> Option<Answer> {
        if listener["protocol"] == "SCTP" && self.octavia.version < 23 {
            return Some(fault(
                400,
                "Invalid input for field/attribute protocol. Value: 'SCTP'. Value should be one of: 'TCP', 'UDP'",
            ));
        }
        if listener["protocol"] == "SCTP" && self.lacks_sctp {
            return Some(fault(
                501,
                &format!("Provider '{provider}' does not support a requested option: SCTP"),
            ));
        }
        if provider == "ovn" && listener["allowed_cidrs"].as_array().is_some_and(|cidrs| !cidrs.is_empty()) {
            return Some(fault(
                501,
                "Provider 'ovn' does not support a requested option: OVN provider does not support allowed_cidrs option",
            ));
        }
        let algorithm = listener["default_pool"]["lb_algorithm"].as_str();
        if provider == "ovn" && algorithm.is_some_and(|algorithm| algorithm != "SOURCE_IP_PORT") {
            return Some(fault(
                501,
                "Provider 'ovn' does not support a requested option: OVN provider does not support this algorithm",
            ));
        }
        None
    }

    fn change_balancer(&mut self, id: &str, change: &Value) -> Answer {
        if let Some(refusal) = self.octavia.immutable(id) {
            return refusal;
        }
        for (name, value) in change.as_object().unwrap() {
            self.octavia.balancers.get_mut(id).unwrap()[name] = value.clone();
        }
        self.guard_port(id);
        self.octavia.begin(id, "PENDING_UPDATE", "ACTIVE");
        Answer::json(200, json!({ "loadbalancer": self.octavia.balancers[id] }))
    }

    /// The port of the address gets the group that Octavia made for the load balancer, those that it was told, and no other,
    /// whoever made the port.
    fn guard_port(&mut self, id: &str) {
        let balancer = &self.octavia.balancers[id];
        let reported = balancer["vip_sg_ids"].as_array().cloned().unwrap_or_default();
        let groups: Vec<_> = std::iter::once(json!(format!("lb-{id}"))).chain(reported).collect();
        if let Some(port) = balancer["vip_port_id"].as_str().and_then(|port| self.ports.get_mut(port)) {
            port["security_groups"] = json!(groups);
        }
    }

    fn delete_balancer(&mut self, id: &str, cascade: bool) -> Answer {
        let whole = self.octavia.whole(id);
        let has = |things: &str| !whole[things].as_array().unwrap().is_empty();
        if !cascade && (has("listeners") || has("pools")) {
            let words = format!("Cannot delete Load Balancer {id} - it has children");
            return fault(400, &format!("Validation failure: {words}"));
        }
        let status = self.octavia.balancers[id]["provisioning_status"].as_str().unwrap().to_owned();
        if status.starts_with("PENDING") {
            return fault(409, &format!("Invalid state {status} of loadbalancer resource {id}"));
        }
        self.octavia.begin(id, "PENDING_DELETE", "DELETED");
        Answer::empty(204)
    }

    fn create_listener(&mut self, wish: &Value) -> Answer {
        let balancer = wish["loadbalancer_id"].as_str().unwrap().to_owned();
        if !self.octavia.balancers.contains_key(&balancer) {
            return missing("Load Balancer", &balancer);
        }
        let provider = self.octavia.balancers[&balancer]["provider"].as_str().unwrap().to_owned();
        let refusal = self.octavia.over_quota("listener", 1).or_else(|| self.unserved(&provider, wish));
        let refusal = refusal.or_else(|| self.octavia.immutable(&balancer));
        if let Some(refusal) = refusal.or_else(|| self.octavia.beside_groups(&balancer, [wish])) {
            return refusal;
        }
        let any_protocol = self.octavia.version < 13;
        let same = |other: &Value| {
            other["loadbalancers"][0]["id"] == balancer
                && other["protocol_port"] == wish["protocol_port"]
                && (any_protocol || other["protocol"] == wish["protocol"])
        };
        if self.octavia.listeners.values().any(same) {
            return fault(
                409,
                "Another Listener on this Load Balancer is already using protocol TCP and protocol_port 80",
            );
        }
        let id = self.add_listener(&balancer, wish, &Value::Null);
        self.octavia.begin(&balancer, "PENDING_UPDATE", "ACTIVE");
        Answer::json(201, json!({ "listener": self.octavia.listeners[&id] }))
    }

    fn add_listener(&mut self, balancer: &str, wish: &Value, pool: &Value) -> String {
        let id = self.id();
        let listener = json!({
            "id": id, "name": wish["name"], "protocol": wish["protocol"], "protocol_port": wish["protocol_port"],
            "default_pool_id": pool, "timeout_client_data": wish["timeout_client_data"].as_u64().unwrap_or(50_000),
            "timeout_member_data": wish["timeout_member_data"].as_u64().unwrap_or(50_000),
            "allowed_cidrs": wish.get("allowed_cidrs").cloned().unwrap_or(Value::Null), "loadbalancers": [{ "id": balancer }],
            "project_id": self.octavia.balancers[balancer]["project_id"],
        });
        self.octavia.listeners.insert(id.clone(), listener);
        id
    }

    fn create_pool(&mut self, wish: &Value) -> Answer {
        let listener = wish["listener_id"].as_str().unwrap().to_owned();
        let Some(known) = self.octavia.listeners.get(&listener) else {
            return missing("Listener", &listener);
        };
        let balancer = known["loadbalancers"][0]["id"].as_str().unwrap().to_owned();
        let refusal = self.octavia.over_quota("pool", 1).or_else(|| self.octavia.immutable(&balancer));
        if let Some(refusal) = refusal {
            return refusal;
        }
        let id = self.add_pool(&balancer, wish);
        self.octavia.listeners.get_mut(&listener).unwrap()["default_pool_id"] = json!(id);
        self.octavia.begin(&balancer, "PENDING_UPDATE", "ACTIVE");
        Answer::json(201, json!({ "pool": self.octavia.pools[&id] }))
    }

    fn add_pool(&mut self, balancer: &str, wish: &Value) -> String {
        let id = self.id();
        let members = self.members(&[], wish["members"].as_array().map_or(&[][..], Vec::as_slice));
        let pool = json!({
            "id": id, "name": wish["name"], "protocol": wish["protocol"], "lb_algorithm": wish["lb_algorithm"],
            "session_persistence": wish.get("session_persistence").cloned().unwrap_or(Value::Null), "members": members,
            "healthmonitor_id": null, "loadbalancers": [{ "id": balancer }],
            "project_id": self.octavia.balancers[balancer]["project_id"],
        });
        self.octavia.pools.insert(id.clone(), pool);
        if wish["healthmonitor"].is_object() {
            self.add_monitor(&id, &wish["healthmonitor"]);
        }
        id
    }

    fn create_monitor(&mut self, wish: &Value) -> Answer {
        let pool = wish["pool_id"].as_str().unwrap().to_owned();
        let balancer = self.octavia.pools[&pool]["loadbalancers"][0]["id"].as_str().unwrap().to_owned();
        if let Some(refusal) = self.octavia.immutable(&balancer) {
            return refusal;
        }
        let id = self.add_monitor(&pool, wish);
        self.octavia.begin(&balancer, "PENDING_UPDATE", "ACTIVE");
        Answer::json(201, json!({ "healthmonitor": self.octavia.monitors[&id] }))
    }

    fn add_monitor(&mut self, pool: &str, wish: &Value) -> String {
        let id = self.id();
        let mut monitor = wish.clone();
        monitor["id"] = json!(id);
        monitor["project_id"] = self.octavia.pools[pool]["project_id"].clone();
        self.octavia.monitors.insert(id.clone(), monitor);
        self.octavia.pools.get_mut(pool).unwrap()["healthmonitor_id"] = json!(id);
        id
    }

    /// Members as they are wished; those that are there keep their ids and their subnets.
    fn members(&mut self, present: &[Value], wishes: &[Value]) -> Vec<Value> {
        let mut members = Vec::new();
        let at = |member: &Value| format!("{}:{}", member["address"], member["protocol_port"]);
        let present: BTreeMap<String, &Value> = present.iter().map(|member| (at(member), member)).collect();
        for wish in wishes {
            let mut member = wish.clone();
            match present.get(&at(wish)) {
                Some(kept) => {
                    member["id"] = kept["id"].clone();
                    member["subnet_id"] = kept["subnet_id"].clone();
                }
                None => member["id"] = json!(self.id()),
            }
            members.push(member);
        }
        members
    }

    /// Changes or deletes a listener, a pool, its members, or a monitor. `keeps`: members that the body lacks stay.
    fn change(
        &mut self,
        method: &Method,
        collection: &str,
        parts: &[&str],
        id: &str,
        body: &Value,
        keeps: bool,
    ) -> Answer {
        let pool_of_monitor = || {
            let pool = self.octavia.pools.values().find(|pool| pool["healthmonitor_id"] == id)?;
            Some(pool["id"].as_str().unwrap().to_owned())
        };
        let pool = pool_of_monitor();
        let thing = match collection {
            "listeners" => &self.octavia.listeners[id],
            "pools" => &self.octavia.pools[id],
            _ => match &pool {
                Some(pool) => &self.octavia.pools[pool],
                None => return missing("Health Monitor", id),
            },
        };
        let balancer = thing["loadbalancers"][0]["id"].as_str().unwrap().to_owned();
        if let Some(refusal) = self.octavia.immutable(&balancer) {
            return refusal;
        }
        if let Some(refusal) = self.octavia.beside_groups(&balancer, [&body["listener"]]) {
            return refusal;
        }
        let members = parts.get(2) == Some(&"members");
        match (method.as_str(), collection) {
            ("PUT", "pools") if parts.len() == 4 => {
                let pool = self.octavia.pools.get_mut(id).unwrap()["members"].as_array_mut().unwrap();
                let Some(member) = pool.iter_mut().find(|member| member["id"] == parts[3]) else {
                    return missing("Member", parts[3]);
                };
                for (name, value) in body["member"].as_object().unwrap() {
                    member[name] = value.clone();
                }
            }
            ("PUT", "pools") if members => {
                let present = self.octavia.pools[id]["members"].as_array().unwrap().clone();
                let mut set = self.members(&present, body["members"].as_array().unwrap());
                let kept: BTreeSet<String> = set.iter().map(|member| member["id"].to_string()).collect();
                // What is removed goes when the change is done, and is told of until then.
                for mut member in present {
                    if !kept.contains(&member["id"].to_string()) {
                        if !keeps {
                            member["provisioning_status"] = json!("PENDING_DELETE");
                        }
                        set.push(member);
                    }
                }
                self.octavia.pools.get_mut(id).unwrap()["members"] = json!(set);
            }
            ("PUT", _) => {
                let (things, key) = match collection {
                    "listeners" => (&mut self.octavia.listeners, "listener"),
                    "pools" => (&mut self.octavia.pools, "pool"),
                    _ => (&mut self.octavia.monitors, "healthmonitor"),
                };
                for (name, value) in body[key].as_object().unwrap() {
                    things.get_mut(id).unwrap()[name] = value.clone();
                }
            }
            (_, "pools") if members => {
                let pool = self.octavia.pools.get_mut(id).unwrap()["members"].as_array_mut().unwrap();
                let Some(member) = pool.iter_mut().find(|member| member["id"] == parts[3]) else {
                    return missing("Member", parts[3]);
                };
                member["provisioning_status"] = json!("PENDING_DELETE");
            }
            (_, "listeners") => drop(self.octavia.listeners.remove(id)),
            (_, "pools") => {
                self.octavia.pools.remove(id);
                for listener in
                    self.octavia.listeners.values_mut().filter(|other| other["default_pool_id"] == id)
                {
                    listener["default_pool_id"] = Value::Null;
                }
            }
            _ => {
                self.octavia.monitors.remove(id);
                self.octavia.pools.get_mut(&pool.unwrap()).unwrap()["healthmonitor_id"] = Value::Null;
            }
        }
        self.octavia.begin(&balancer, "PENDING_UPDATE", "ACTIVE");
        match (method.as_str(), members) {
            ("DELETE", _) => Answer::empty(204),
            (_, true) => Answer::empty(202),
            _ => Answer::json(200, json!({})),
        }
    }
}

fn missing(kind: &str, id: &str) -> Answer {
    fault(404, &format!("{kind} {id} not found."))
}
