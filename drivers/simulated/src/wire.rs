//! What travels between client and server. Each call is one struct, which the client fills with references and the
//! server reads into values of its own.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Pod, Service};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use staffetta_driver::memory::Fault;
use staffetta_driver::{
    Activation, ClusterId, Listener, ListenerSpec, LoadBalancer, LoadBalancerId, LoadBalancerSpec, Marked,
    Member, MemberSpec, Owner, PoolId, PortId, Progress, ProjectId, PublicIp, PublicIpRequest,
    SecurityGroupId, Subnet, SubnetId, Vif, VifRequest,
};

use crate::ledger::Entry;
use crate::method::Method;

/// The header with the id that the client gave its request.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// The arguments of one method.
pub(crate) trait Call: Serialize {
    /// What it returns.
    type Answer: Serialize + DeserializeOwned;
}

/// A call as it is sent.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Envelope<'a, C> {
    /// The cluster whose mark is on what is made.
    pub(crate) cluster: Cow<'a, ClusterId>,
    /// The arguments.
    pub(crate) arguments: C,
}

macro_rules! calls {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? } -> $answer:ty;)+) => {$(
        #[derive(Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name<'a> {
            $(pub(crate) $field: Cow<'a, $type>,)*
        }

        impl Call for $name<'_> {
            type Answer = $answer;
        }
    )+};
}

calls! {
    ProjectOfPod { pod: Pod } -> ProjectId;
    SubnetsOfPod { pod: Pod, project: ProjectId } -> Vec<Subnet>;
    SecurityGroupsOfPod { pod: Pod, project: ProjectId } -> Vec<SecurityGroupId>;
    RequestVif { request: VifRequest } -> Vif;
    ReleaseVif { owner: Owner, vif: Vif } -> ();
    ActivateVif { vif: Vif } -> Activation;
    Vifs { owner: Option<Owner> } -> Vec<Marked<Vif>>;
    ProjectOfService { service: Service } -> ProjectId;
    SubnetsOfService { service: Service, project: ProjectId } -> Vec<SubnetId>;
    SecurityGroupsOfService { service: Service, project: ProjectId } -> Vec<SecurityGroupId>;
    LoadBalancers { owner: Option<Owner> } -> Vec<Marked<LoadBalancer>>;
    EnsureLoadBalancer { owner: Owner, spec: LoadBalancerSpec } -> LoadBalancer;
    LoadBalancerProgress { load_balancer: LoadBalancer } -> Progress;
    ReleaseLoadBalancer { owner: Owner, id: LoadBalancerId } -> ();
    EnsureListener { load_balancer: LoadBalancer, spec: ListenerSpec } -> Listener;
    ReleaseListener { load_balancer: LoadBalancer, listener: Listener } -> Option<Listener>;
    SetMembers { load_balancer: LoadBalancer, pool: PoolId, members: [MemberSpec] } -> Vec<Member>;
    PublicIps { owner: Option<Owner> } -> Vec<Marked<PublicIp>>;
    AcquirePublicIp { owner: Owner, request: PublicIpRequest } -> PublicIp;
    AssociatePublicIp { public_ip: PublicIp, port: PortId } -> ();
    DisassociatePublicIp { public_ip: PublicIp, port: PortId } -> ();
    ReleasePublicIp { owner: Owner, public_ip: PublicIp } -> ();
}

/// A fault that is planned for the next calls of a method.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Injection<'a> {
    pub(crate) call: Method,
    #[serde(default = "once")]
    pub(crate) times: usize,
    pub(crate) fault: Cow<'a, Fault>,
}

fn once() -> usize {
    1
}

/// A part of the ledger.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Page {
    /// How many entries the network has forgotten: its oldest ones.
    pub(crate) forgotten: u64,
    /// The entries, oldest first.
    pub(crate) entries: Vec<Entry>,
}

/// A port of the simulated network, as it is now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkPort {
    /// The VIF.
    pub vif: Vif,
    /// The cluster whose mark it carries.
    pub cluster: Option<ClusterId>,
    /// The owner whose mark it carries.
    pub owner: Option<Owner>,
    /// The node on which it is bound.
    pub node_name: String,
    /// The project to which it belongs.
    pub project: ProjectId,
    /// The security groups that guard it.
    pub security_groups: Vec<SecurityGroupId>,
}
