//! A project of one test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::agents::Agents;
use crate::api::{Api, PASSWORD};
use crate::gate::Gate;
use crate::login::Login;
use crate::things::{Port, Subnet, Trunk};
use crate::user::User;

/// The roles of a controller's user: use the project, bind ports, manage load balancers.
const ROLES: [&str; 3] = ["member", "service", "load-balancer_member"];

/// The number of tenants created by this process.
static MADE: AtomicUsize = AtomicUsize::new(0);

/// A project that no other test uses, and a user in it. The project, its contents and the user are not deleted when this value is
/// dropped.
pub struct Tenant {
    /// The id of the project.
    pub id: String,
    /// The id of the user.
    user: String,
    /// The name of both.
    name: String,
    pub(crate) api: Arc<Api>,
}

impl Tenant {
    pub(crate) async fn new(api: Arc<Api>) -> Self {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}", std::process::id());
        let project = json!({ "project": { "name": name, "domain_id": "default" } });
        let id = id_of(&api.identity(Method::POST, "projects", Some(project)).await["project"]);
        let user = json!({ "user": { "name": name, "domain_id": "default", "password": PASSWORD } });
        let user = id_of(&api.identity(Method::POST, "users", Some(user)).await["user"]);
        for role in ROLES {
            let found = api.identity(Method::GET, &format!("roles?name={role}"), None).await;
            let role = id_of(&found["roles"][0]);
            api.identity(Method::PUT, &format!("projects/{id}/users/{user}/roles/{role}"), None).await;
        }
        Self { id, user, name, api }
    }

    /// Returns the credentials of a controller in this project.
    #[must_use]
    pub fn login(&self) -> Login {
        self.login_at(&self.api.keystone)
    }

    /// Returns the same credentials with the address of `gate` in place of Keystone.
    #[must_use]
    pub fn login_through(&self, gate: &Gate) -> Login {
        self.login_at(&gate.keystone())
    }

    fn login_at(&self, keystone: &str) -> Login {
        Login {
            auth_url: format!("{keystone}/v3"),
            username: self.name.clone(),
            password: PASSWORD.to_owned(),
            project: self.name.clone(),
        }
    }

    /// Logs in a user that sends requests to Neutron without a driver.
    pub async fn user(&self, login: &Login) -> User {
        User::log_in(login).await
    }

    /// Changes the password of the controller's user. All its tokens become invalid.
    pub async fn change_password(&self, password: &str) {
        let user = json!({ "user": { "password": password } });
        self.api.identity(Method::PATCH, &format!("users/{}", self.user), Some(user)).await;
    }

    /// Creates an application credential of the controller's user. Returns its id and its secret.
    pub async fn application_credential(&self) -> (String, String) {
        let token = self.api.token_of(&self.name).await;
        let body = json!({ "application_credential": { "name": self.name } });
        let path = format!("users/{}/application_credentials", self.user);
        let made = self.api.identity_as(&token, Method::POST, &path, body).await;
        let made = &made["application_credential"];
        (id_of(made), made["secret"].as_str().expect("the secret is shown once").to_owned())
    }

    /// Returns the name of a node that no other test uses.
    #[must_use]
    pub fn node_name(&self, name: &str) -> String {
        format!("{name}-{}", self.name)
    }

    /// Adds a node, whose agent reports ports up after `delay` from their binding; without a delay, only on
    /// [`Agents::up`](crate::Agents::up). Returns its full name, see [`node_name`](Self::node_name).
    pub async fn node(&self, name: &str, delay: Option<Duration>) -> String {
        let name = self.node_name(name);
        Agents(Arc::clone(&self.api)).node(&name, delay).await;
        name
    }

    /// Creates a network with a subnet of this IPv4 prefix, whose first address is the gateway.
    pub async fn subnet(&self, prefix: &str) -> Subnet {
        let network = self.create("network", json!({ "name": "pods" })).await;
        let network = id_of(&network);
        let subnet = json!({ "name": "pods", "network_id": network, "ip_version": 4, "cidr": prefix, "enable_dhcp": false });
        Subnet { id: id_of(&self.create("subnet", subnet).await), network }
    }

    /// Creates a security group, and returns its id.
    pub async fn security_group(&self, name: &str) -> String {
        id_of(&self.create("security_group", json!({ "name": name })).await)
    }

    /// Creates a router, and returns its id.
    pub async fn router(&self) -> String {
        id_of(&self.create("router", json!({ "name": "pods" })).await)
    }

    /// Creates a subnet pool for subnets with prefixes of this length, and returns its id.
    pub async fn subnet_pool(&self, prefix: &str, length: u8) -> String {
        let pool = json!({ "name": "namespaces", "prefixes": [prefix], "default_prefixlen": length });
        id_of(&self.create("subnetpool", pool).await)
    }

    /// Creates a port for a node in `subnet`, with a trunk on it.
    pub async fn trunk(&self, node: &str, subnet: &Subnet) -> Trunk {
        let port =
            json!({ "name": node, "network_id": subnet.network, "fixed_ips": [{ "subnet_id": subnet.id }] });
        let port: Port = typed(self.create("port", port).await);
        let trunk = id_of(&self.create("trunk", json!({ "name": node, "port_id": port.id })).await);
        // A port that is bound already cannot become the parent of a trunk.
        self.update("port", &port.id, json!({ "binding:host_id": node })).await;
        let address = port.address().expect("it has one address in the subnet");
        Trunk { id: trunk, port: port.id, address }
    }

    /// Returns the subports of a trunk: the VLAN id and the id of the port.
    pub async fn subports(&self, trunk: &Trunk) -> Vec<(u64, String)> {
        let found = self.api.network(Method::GET, &format!("trunks/{}", trunk.id), None).await;
        let ports = found["trunk"]["sub_ports"].as_array().cloned().unwrap_or_default();
        let subport = |port: &Value| {
            let vlan = port["segmentation_id"].as_u64().expect("a subport has a VLAN");
            (vlan, port["port_id"].as_str().expect("a subport is a port").to_owned())
        };
        ports.iter().map(subport).collect()
    }

    /// Adds a port with this VLAN id to a trunk, as another program would.
    pub async fn add_subport(&self, trunk: &Trunk, subnet: &Subnet, vlan: u64) {
        let port = self.create_port(subnet, json!({ "name": "foreign" })).await;
        let subport = json!({ "port_id": port.id, "segmentation_type": "vlan", "segmentation_id": vlan });
        let body = json!({ "sub_ports": [subport] });
        self.api.network(Method::PUT, &format!("trunks/{}/add_subports", trunk.id), Some(body)).await;
    }

    /// Returns all ports of the project.
    pub async fn ports(&self) -> Vec<Port> {
        self.list("ports", "").await
    }

    /// Returns the ports of the project in a network, without those of its routers.
    pub async fn pod_ports(&self, network: &str) -> Vec<Port> {
        let mut ports: Vec<Port> = self.list("ports", &format!("&network_id={network}")).await;
        ports.retain(|port| !port.device_owner.starts_with("network:"));
        ports
    }

    /// Returns a port; `None` if it does not exist.
    pub async fn port(&self, id: &str) -> Option<Port> {
        let (status, answer) = self.api.try_network(Method::GET, &format!("ports/{id}"), None).await;
        (status != StatusCode::NOT_FOUND).then(|| {
            assert!(status.is_success(), "the port {id}: {status} {answer}");
            typed(answer["port"].clone())
        })
    }

    /// Returns the resources of a kind, by its plural in the Neutron API: `networks`, `subnets`, `security-groups` ...
    pub async fn things(&self, kind: &str) -> Vec<Value> {
        self.list(kind, "").await
    }

    /// Creates a port as another program would, with these fields in addition to the network.
    pub async fn create_port(&self, subnet: &Subnet, fields: Value) -> Port {
        let mut port = json!({ "network_id": subnet.network, "fixed_ips": [{ "subnet_id": subnet.id }] });
        if let (Value::Object(port), Value::Object(fields)) = (&mut port, fields) {
            port.extend(fields);
        }
        typed(self.create("port", port).await)
    }

    /// Returns the status and the type of the error with which Neutron rejects a port in `subnet`.
    pub async fn refusal(&self, subnet: &Subnet) -> (StatusCode, String) {
        let port = json!({ "port": self.owned(json!({ "network_id": subnet.network })) });
        let (status, answer) = self.api.try_network(Method::POST, "ports", Some(port)).await;
        (status, answer["NeutronError"]["type"].as_str().unwrap_or_default().to_owned())
    }

    /// Creates several ports by one request, with exactly these fields.
    pub async fn create_ports(&self, ports: Vec<Value>) -> Vec<Port> {
        let ports: Vec<_> = ports.into_iter().map(|port| self.owned(port)).collect();
        let answer = self.api.network(Method::POST, "ports", Some(json!({ "ports": ports }))).await;
        typed(answer["ports"].clone())
    }

    /// Changes a resource, as another program would.
    pub async fn update(&self, kind: &str, id: &str, fields: Value) {
        self.api
            .network(Method::PUT, &format!("{}s/{id}", dashed(kind)), Some(json!({ kind: fields })))
            .await;
    }

    /// Deletes a resource if it exists, as another program would.
    pub async fn delete(&self, kind: &str, id: &str) {
        let path = format!("{}s/{id}", dashed(kind));
        let (status, answer) = self.api.try_network(Method::DELETE, &path, None).await;
        assert!(status.is_success() || status == StatusCode::NOT_FOUND, "{path}: {status} {answer}");
    }

    /// Sets the quota of a kind (`port`, `network` ...); -1 for unlimited.
    pub async fn quota(&self, kind: &str, limit: i64) {
        self.api
            .network(Method::PUT, &format!("quotas/{}", self.id), Some(json!({ "quota": { kind: limit } })))
            .await;
    }

    /// Lets another project use a resource of this project: a `network`, a `security_group` ...
    pub async fn share(&self, kind: &str, id: &str, with: &Self) {
        let policy = json!({ "object_type": kind, "object_id": id, "action": "access_as_shared", "target_tenant": with.id });
        let body = json!({ "rbac_policy": self.owned(policy) });
        self.api.network(Method::POST, "rbac-policies", Some(body)).await;
    }

    async fn create(&self, kind: &str, fields: Value) -> Value {
        let body = json!({ kind: self.owned(fields) });
        self.api.network(Method::POST, &format!("{}s", dashed(kind)), Some(body)).await[kind].clone()
    }

    fn owned(&self, mut fields: Value) -> Value {
        fields["project_id"] = json!(self.id);
        fields
    }

    async fn list<T: DeserializeOwned>(&self, kind: &str, query: &str) -> Vec<T> {
        let path = format!("{kind}?project_id={}{query}", self.id);
        typed(self.api.network(Method::GET, &path, None).await[kind.replace('-', "_")].clone())
    }
}

fn dashed(kind: &str) -> String {
    kind.replace('_', "-")
}

fn id_of(thing: &Value) -> String {
    thing["id"].as_str().unwrap_or_else(|| panic!("a thing without an id: {thing}")).to_owned()
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    let words = value.to_string();
    serde_json::from_value(value).unwrap_or_else(|error| panic!("{error}: {words}"))
}
