//! The observed state of a service's load balancer and public address.

use std::collections::HashMap;

use staffetta_driver::{Allocation, LoadBalancer, PortId, ProvisioningStatus, PublicIp, PublicIpId};

/// The observed load balancer and public address of one service: Kuryr's `LBaaSState`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LbaasState {
    /// The load balancer; `None` if it does not exist.
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

    /// Returns the public address if it is associated with the load balancer.
    pub(super) fn reachable(&self) -> Option<&PublicIp> {
        let port = &self.load_balancer.as_ref()?.port;
        self.public_ip.as_ref().filter(|public_ip| public_ip.port.as_ref() == Some(port))
    }

    /// Adds the resources that carry no ownership mark, so that only the annotation names them: an
    /// address that the user provided, and resources that Kuryr created.
    pub(super) fn merge_annotated(mut self, annotated: LbaasState) -> Self {
        let pooled = annotated.public_ip.as_ref().is_some_and(|ip| ip.allocation == Allocation::Pool);
        if annotated.unmarked {
            self.unmarked = self.load_balancer.is_none() || (pooled && self.public_ip.is_none());
            self.load_balancer = self.load_balancer.or(annotated.load_balancer);
        }
        if self.public_ip.is_none() && (annotated.unmarked || !pooled) {
            self.public_ip = annotated.public_ip;
            self.drop_unassociated_user_ip();
        }
        self
    }

    /// Removes a user-provided address that is not associated with the load balancer. Such an
    /// address does not belong to this service, even if the annotation names it.
    pub(super) fn drop_unassociated_user_ip(&mut self) {
        if self.has_user_ip() && self.reachable().is_none() {
            self.public_ip = None;
        }
    }

    /// Returns `true` if the load balancer is in the state ERROR. A port without a load balancer,
    /// which an interrupted creation leaves, does not count.
    pub(super) fn is_broken(&self) -> bool {
        let broken =
            |found: &LoadBalancer| found.status == ProvisioningStatus::Error && !found.is_port_alone();
        self.load_balancer.as_ref().is_some_and(broken)
    }

    /// Returns `true` if the public address was provided by the user.
    pub(super) fn has_user_ip(&self) -> bool {
        self.public_ip.as_ref().is_some_and(|public_ip| public_ip.allocation == Allocation::User)
    }

    /// Removes a user-provided address unless it is among the `unmarked` addresses, with the same
    /// association. The driver decides about other addresses when they are requested.
    pub(super) fn confirm_user_ip(mut self, unmarked: &HashMap<PublicIpId, PublicIp>) -> Self {
        if self.has_user_ip() {
            self.public_ip = self.public_ip.take_if(|published| {
                let found = unmarked.get(&published.id);
                found.is_some_and(|found| (found.ip, &found.port) == (published.ip, &published.port))
            });
        }
        self
    }

    /// Returns `true` if two states are equal apart from pending changes, the order of listeners
    /// and members, and the name of the load balancer, which users may change.
    pub(super) fn is_equivalent(&self, other: &LbaasState) -> bool {
        self.normalized() == other.normalized()
    }

    /// Returns a copy for comparisons: sorted, without the name of the load balancer and pending
    /// changes.
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

    /// Returns the status of the load balancer, or `None` if there is no load balancer.
    pub(super) fn status(&self) -> Option<ProvisioningStatus> {
        self.load_balancer.as_ref().map(|load_balancer| load_balancer.status)
    }

    /// Sets the status of the load balancer. Does nothing if there is no load balancer.
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
    fn unmarked_resources_are_known_from_the_annotation_only() {
        let user_ip = LbaasState { public_ip: Some(public_ip(Allocation::User)), ..LbaasState::default() };
        let pooled = LbaasState { public_ip: Some(public_ip(Allocation::Pool)), ..LbaasState::default() };
        let balancer = load_balancer("default/web", "10.0.0.1");
        let marked = |port: &str| {
            let found = LoadBalancer { port: port.into(), ..balancer.clone() };
            LbaasState { load_balancer: Some(found), ..LbaasState::default() }
        };
        assert_eq!(marked("port").merge_annotated(user_ip.clone()).public_ip, user_ip.public_ip);
        assert_eq!(
            marked("another").merge_annotated(user_ip.clone()).public_ip,
            None,
            "it is associated with another port"
        );
        assert_eq!(
            LbaasState::default().merge_annotated(user_ip).public_ip,
            None,
            "there is no load balancer"
        );
        assert_eq!(marked("port").merge_annotated(pooled).public_ip, None, "its mark would be listed");
    }

    #[test]
    fn a_user_provided_address_counts_only_with_its_listed_association() {
        let published = LbaasState { public_ip: Some(public_ip(Allocation::User)), ..LbaasState::default() };
        let confirmed = |port: Option<&str>| {
            let listed = PublicIp { port: port.map(PortId::from), ..public_ip(Allocation::User) };
            published.clone().confirm_user_ip(&HashMap::from([(listed.id.clone(), listed)])).public_ip
        };
        assert_eq!(confirmed(Some("port")), published.public_ip);
        assert_eq!(confirmed(None), None, "it is acquired again");
        assert_eq!(confirmed(Some("another")), None);
        assert_eq!(published.clone().confirm_user_ip(&HashMap::new()).public_ip, None);
        let pooled = LbaasState { public_ip: Some(public_ip(Allocation::Pool)), ..LbaasState::default() };
        assert_eq!(pooled.clone().confirm_user_ip(&HashMap::new()), pooled, "its mark is listed");
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
