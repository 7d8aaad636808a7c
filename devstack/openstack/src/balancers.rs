//! The load balancers and floating IPs of a project, read from Octavia and Neutron.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::tenant::Tenant;
use crate::things::{Balancer, Subnet};

impl Tenant {
    /// Returns all load balancers of the project, those being deleted included, sorted by name.
    pub async fn load_balancers(&self) -> Vec<Balancer> {
        let list = async |kind: &str| {
            let path = format!("{kind}?project_id={}", self.id);
            let answer = self.api.load_balancer(Method::GET, &path, None).await;
            answer[kind].as_array().expect("it is a list").clone()
        };
        let (listeners, pools) = (list("listeners").await, list("pools").await);
        let mut members = std::collections::HashMap::new();
        for pool in &pools {
            members.insert(text(&pool["id"]), self.members(&text(&pool["id"])).await);
        }
        let of = |thing: &&Value, id: &Value| thing["loadbalancers"][0]["id"] == *id;
        let mut balancers: Vec<_> = list("loadbalancers")
            .await
            .iter()
            .map(|reported| {
                let mut hanging: Vec<_> = listeners
                    .iter()
                    .filter(|listener| of(listener, &reported["id"]))
                    .map(|listener| {
                        let at = format!("{}:{}", text(&listener["protocol"]), listener["protocol_port"]);
                        let pool = listener["default_pool_id"].as_str().unwrap_or_default();
                        (at, members.get(pool).cloned().unwrap_or_default())
                    })
                    .collect();
                hanging.sort();
                Balancer {
                    id: text(&reported["id"]),
                    name: text(&reported["name"]),
                    status: text(&reported["provisioning_status"]),
                    port: text(&reported["vip_port_id"]),
                    listeners: hanging,
                    pools: pools
                        .iter()
                        .filter(|pool| of(pool, &reported["id"]))
                        .map(|pool| text(&pool["id"]))
                        .collect(),
                }
            })
            .collect();
        balancers.sort_by(|one, other| one.name.cmp(&other.name));
        balancers
    }

    /// Returns the number of ACTIVE load balancers of the project, by one request.
    pub async fn active_load_balancers(&self) -> usize {
        let path = format!("loadbalancers?project_id={}&provisioning_status=ACTIVE&fields=id", self.id);
        let answer = self.api.load_balancer(Method::GET, &path, None).await;
        answer["loadbalancers"].as_array().expect("it is a list").len()
    }

    /// The members of a pool as `10.0.0.1:8080`, sorted; none of a pool that is gone.
    async fn members(&self, pool: &str) -> Vec<String> {
        let path = format!("pools/{pool}/members");
        let (_, answer) = self.api.try_load_balancer(Method::GET, &path, None).await;
        let members = answer["members"].as_array().into_iter().flatten();
        let mut members: Vec<_> = members
            .map(|member| format!("{}:{}", text(&member["address"]), member["protocol_port"]))
            .collect();
        members.sort();
        members
    }

    /// Changes or deletes a resource of Octavia, as another program would. Repeats the request while the load balancer is busy.
    pub async fn meddle(&self, method: Method, path: &str, body: Value) {
        for _ in 0..1200 {
            let body = Some(body.clone()).filter(|body| !body.is_null());
            let (status, answer) = self.api.try_load_balancer(method.clone(), path, body).await;
            if status != StatusCode::CONFLICT {
                assert!(status.is_success() || status == StatusCode::NOT_FOUND, "{path}: {status} {answer}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{path} is busy for ever");
    }

    /// Sets the quota of load balancers; -1 for unlimited.
    pub async fn load_balancer_quota(&self, limit: i64) {
        let quota = json!({ "quota": { "load_balancer": limit } });
        self.api.load_balancer(Method::PUT, &format!("quotas/{}", self.id), Some(quota)).await;
    }

    /// Creates an external network with a subnet, reachable from `inner`.
    pub async fn external(&self, prefix: &str, inner: &Subnet) -> Subnet {
        let create = async |kind: &str, fields: Value| {
            let body = json!({ kind: fields });
            self.api.network(Method::POST, &format!("{kind}s"), Some(body)).await[kind].clone()
        };
        let wish = json!({ "name": "public", "project_id": self.id, "router:external": true });
        let network = text(&create("network", wish).await["id"]);
        let wish = json!({ "network_id": network, "ip_version": 4, "cidr": prefix, "enable_dhcp": false, "project_id": self.id });
        let id = text(&create("subnet", wish).await["id"]);
        let gateway = json!({ "network_id": network });
        let wish = json!({ "name": "edge", "project_id": self.id, "external_gateway_info": gateway });
        let router = text(&create("router", wish).await["id"]);
        let path = format!("routers/{router}/add_router_interface");
        self.api.network(Method::PUT, &path, Some(json!({ "subnet_id": inner.id }))).await;
        Subnet { id, network }
    }

    /// Returns the floating IPs of the project: each address, with the port with which it is associated.
    pub async fn floating_ips(&self) -> Vec<(String, Option<String>)> {
        let path = format!("floatingips?project_id={}", self.id);
        let answer = self.api.network(Method::GET, &path, None).await;
        let all = answer["floatingips"].as_array().expect("it is a list").iter();
        all.map(|floating| {
            (text(&floating["floating_ip_address"]), floating["port_id"].as_str().map(str::to_owned))
        })
        .collect()
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
