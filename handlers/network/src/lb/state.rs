//! The observed state of a service's load balancer and public address.

use std::collections::HashMap;

use staffetta_driver::{Allocation, LoadBalancer, PortId, ProvisioningStatus, PublicIp};

/// The observed load balancer and public address of one service: Kuryr's `LBaaSState`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LbaasState {
    /// The load balancer of the service; `None` if it does not exist.
    pub(super) load_balancer: Option<LoadBalancer>,
    /// The public address; `None` if the service has none.
    pub(super) public_ip: Option<PublicIp>,
    /// `true` if another program wrote the annotation that names the resources, so that they may
    /// carry no ownership mark.
    pub(super) unmarked: bool,
}

impl LbaasState {
    /// Returns `true` if neither the load balancer nor the public address exists.
    pub(super) fn is_empty(&self) -> bool {
        self.load_balancer.is_none() && self.public_ip.is_none()
    }

    /// Returns `true` if `marked` contains the load balancer and the public address that this state
    /// names. A user-provided address is ignored, because it never carries an ownership mark.
    pub(super) fn is_among(&self, marked: &LbaasState) -> bool {
        let load_balancer = self.load_balancer.as_ref().map(|named| &named.id);
        let pooled = self.public_ip.as_ref().filter(|named| named.allocation == Allocation::Pool);
        load_balancer.is_none_or(|id| marked.load_balancer.as_ref().is_some_and(|found| found.id == *id))
            && pooled.is_none_or(|ip| marked.public_ip.as_ref().is_some_and(|found| found.id == ip.id))
    }

    /// Returns the public address if it is associated with the load balancer, and `None` otherwise.
    pub(super) fn reachable(&self) -> Option<&PublicIp> {
        let port = &self.load_balancer.as_ref()?.port;
        self.public_ip.as_ref().filter(|public_ip| public_ip.port.as_ref() == Some(port))
    }

    /// Sets the public address to the address without an ownership mark that is associated with the load balancer.
    /// `unmarked` contains these addresses by port. Does nothing if the state has a public address already.
    pub(super) fn add_user_ip(&mut self, unmarked: &HashMap<PortId, PublicIp>) {
        let port = self.load_balancer.as_ref().map(|load_balancer| &load_balancer.port);
        self.public_ip = self.public_ip.take().or_else(|| unmarked.get(port?).cloned());
    }

    /// Completes this state, which the ownership marks show, by `annotated`, the state in the
    /// annotation. Adds the resources that Kuryr created, which carry no ownership mark. Removes a
    /// user-provided address that the annotation does not name: another user associated it.
    pub(super) fn merge_annotated(mut self, annotated: LbaasState) -> Self {
        let identify = |public_ip: &PublicIp| (public_ip.id.clone(), public_ip.ip, public_ip.allocation);
        let named = annotated.public_ip.as_ref().map(identify);
        self.public_ip
            .take_if(|found| found.allocation == Allocation::User && named != Some(identify(found)));
        if annotated.unmarked {
            let pooled = annotated.public_ip.filter(|named| named.allocation == Allocation::Pool);
            self.unmarked = self.load_balancer.is_none() || (pooled.is_some() && self.public_ip.is_none());
            self.load_balancer = self.load_balancer.or(annotated.load_balancer);
            self.public_ip = self.public_ip.or(pooled);
        }
        self
    }

    /// Returns `true` if the load balancer is in the state ERROR. A port without a load balancer,
    /// which an interrupted creation leaves, does not count.
    pub(super) fn is_broken(&self) -> bool {
        let broken =
            |found: &LoadBalancer| found.status == ProvisioningStatus::Error && !found.is_port_alone();
        self.load_balancer.as_ref().is_some_and(broken)
    }

    /// Returns `true` if there is a public address and the user provided it, so that it is not from the pool.
    pub(super) fn has_user_ip(&self) -> bool {
        self.public_ip.as_ref().is_some_and(|public_ip| public_ip.allocation == Allocation::User)
    }

    /// Returns `true` if two states are equal apart from the order of listeners and members, and the
    /// name of the load balancer, which users may change. A pending load balancer counts as active.
    pub(super) fn is_equivalent(&self, other: &LbaasState) -> bool {
        self.normalized() == other.normalized()
    }

    /// Returns a copy for comparisons, with sorted listeners and members, without the name of the
    /// load balancer. A pending load balancer is active in the copy.
    fn normalized(&self) -> LbaasState {
        let mut state = self.clone();
        if let Some(load_balancer) = &mut state.load_balancer {
            load_balancer.name.clear();
            if load_balancer.status == ProvisioningStatus::Pending {
                load_balancer.status = ProvisioningStatus::Active;
            }
            load_balancer.listeners.sort_by_key(|listener| listener.at);
            for pool in load_balancer.listeners.iter_mut().filter_map(|listener| listener.pool.as_mut()) {
                pool.members.sort_by(|one, other| one.spec.cmp(&other.spec));
            }
        }
        state
    }

    /// Sets the port with which the public address is associated in this state; `None` for no port.
    pub(super) fn associate(&mut self, port: Option<PortId>) {
        if let Some(public_ip) = &mut self.public_ip {
            public_ip.port = port;
        }
    }

    /// Returns the provisioning status of the load balancer, or `None` if there is no load balancer.
    pub(super) fn status(&self) -> Option<ProvisioningStatus> {
        self.load_balancer.as_ref().map(|load_balancer| load_balancer.status)
    }

    /// Sets the provisioning status of the load balancer. Does nothing if there is no load balancer.
    pub(super) fn set_status(&mut self, status: ProvisioningStatus) {
        if let Some(load_balancer) = &mut self.load_balancer {
            load_balancer.status = status;
        }
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::Protocol;

    use super::*;
    use crate::lb::testing::{listener, load_balancer, public_ip};

    #[test]
    fn a_user_provided_address_counts_if_it_is_associated_and_annotated() {
        let annotated = LbaasState { public_ip: Some(public_ip(Allocation::User)), ..LbaasState::default() };
        let found = |port: Option<&str>| {
            let listed = PublicIp { port: port.map(PortId::from), ..public_ip(Allocation::User) };
            let unmarked = listed.port.clone().map(|port| (port, listed)).into_iter().collect();
            let balancer = Some(load_balancer("default/web", "10.0.0.1"));
            let mut state = LbaasState { load_balancer: balancer, ..LbaasState::default() };
            state.add_user_ip(&unmarked);
            state
        };
        let counts = |port, annotated: &LbaasState| found(port).merge_annotated(annotated.clone()).public_ip;
        assert_eq!(counts(Some("port"), &annotated), annotated.public_ip);
        assert_eq!(counts(None, &annotated), None, "it is acquired again");
        assert_eq!(counts(Some("another"), &annotated), None, "it is associated with another port");
        assert_eq!(counts(Some("port"), &LbaasState::default()), None, "another user associated it");
        let kuryrs = LbaasState {
            public_ip: Some(public_ip(Allocation::Pool)),
            unmarked: true,
            ..LbaasState::default()
        };
        assert_eq!(counts(Some("port"), &kuryrs), kuryrs.public_ip, "it is adopted");
        let mut alone = LbaasState::default();
        alone.add_user_ip(&HashMap::from([("port".into(), public_ip(Allocation::User))]));
        assert_eq!(alone.merge_annotated(annotated).public_ip, None, "there is no load balancer");
    }

    #[test]
    fn an_address_of_the_pool_counts_by_its_mark_only() {
        let pooled = LbaasState { public_ip: Some(public_ip(Allocation::Pool)), ..LbaasState::default() };
        assert_eq!(LbaasState::default().merge_annotated(pooled.clone()).public_ip, None);
        assert_eq!(pooled.clone().merge_annotated(LbaasState::default()), pooled);
    }

    #[test]
    fn resources_of_kuryr_stay_unmarked_until_all_of_them_carry_marks() {
        let lb = Some(load_balancer("default/web", "10.0.0.1"));
        let ip = Some(public_ip(Allocation::Pool));
        let annotated = LbaasState { load_balancer: lb.clone(), public_ip: ip.clone(), unmarked: true };
        let half = LbaasState { load_balancer: lb.clone(), ..LbaasState::default() };
        assert_eq!(LbaasState::default().merge_annotated(annotated.clone()), annotated);
        assert_eq!(half.merge_annotated(annotated.clone()), annotated);
        let whole = LbaasState { load_balancer: lb, public_ip: ip, unmarked: false };
        assert_eq!(whole.clone().merge_annotated(annotated), whole);
    }

    #[test]
    fn the_name_and_the_order_of_listeners_and_members_do_not_matter_but_an_error_does() {
        let tree = |ports: [u16; 2], ips: [&str; 2]| LoadBalancer {
            listeners: ports.map(|port| listener(Protocol::Tcp, port, &ips)).into(),
            ..load_balancer("default/web", "10.0.0.1")
        };
        let state = |tree| LbaasState { load_balancer: Some(tree), ..LbaasState::default() };
        let one = state(tree([80, 81], ["10.1.0.1", "10.1.0.2"]));
        let mut other = state(tree([81, 80], ["10.1.0.2", "10.1.0.1"]));
        other.set_status(ProvisioningStatus::Pending);
        other.load_balancer.as_mut().unwrap().name = "another".into();
        assert!(one.is_equivalent(&other));
        other.set_status(ProvisioningStatus::Error);
        assert!(!one.is_equivalent(&other));
        assert!(!one.is_equivalent(&state(tree([80, 81], ["10.1.0.1", "10.1.0.3"]))));
    }

    #[test]
    fn an_address_is_reachable_only_when_it_is_associated_with_the_load_balancer() {
        let mut state = LbaasState {
            load_balancer: Some(load_balancer("default/web", "10.0.0.1")),
            public_ip: Some(public_ip(Allocation::Pool)),
            unmarked: false,
        };
        assert_eq!(state.reachable(), state.public_ip.as_ref());
        state.public_ip.as_mut().unwrap().port = Some("another".into());
        assert_eq!(state.reachable(), None);
    }
}
