//! What stands outside for one service.

use std::collections::HashMap;

use staffetta_driver::{Allocation, LoadBalancer, PortId, Provisioning, PublicIp, PublicIpId};

/// What stands outside for one service, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) load_balancer: Option<LoadBalancer>,
    pub(super) public_ip: Option<PublicIp>,
    /// A predecessor of this program made it: it bears no mark of ours yet.
    pub(super) unmarked: bool,
}

impl Standing {
    pub(super) fn is_empty(&self) -> bool {
        self.load_balancer.is_none() && self.public_ip.is_none()
    }

    /// The public address, once it leads to the load balancer.
    pub(super) fn reachable(&self) -> Option<&PublicIp> {
        let port = &self.load_balancer.as_ref()?.port;
        self.public_ip.as_ref().filter(|public_ip| public_ip.port.as_ref() == Some(port))
    }

    /// What the marks tell, completed by what bears none: the annotation alone knows of an address that the user made,
    /// and of what a predecessor made.
    pub(super) fn completed_by(mut self, annotated: Standing) -> Self {
        let pooled = annotated.public_ip.as_ref().is_some_and(|ip| ip.allocation == Allocation::Pool);
        if annotated.unmarked {
            self.unmarked = self.load_balancer.is_none() || (pooled && self.public_ip.is_none());
            self.load_balancer = self.load_balancer.or(annotated.load_balancer);
        }
        if self.public_ip.is_none() && (annotated.unmarked || !pooled) {
            self.public_ip = annotated.public_ip;
            self.disown_elsewhere();
        }
        self
    }

    /// An address that the user named and that leads to another port than that of the load balancer is none of ours, whatever the
    /// annotation says.
    pub(super) fn disown_elsewhere(&mut self) {
        if self.has_users() && self.reachable().is_none() {
            self.public_ip = None;
        }
    }

    /// Whether the load balancer is in the state ERROR. A port by itself never was one.
    pub(super) fn is_broken(&self) -> bool {
        let broken = |found: &LoadBalancer| found.status == Provisioning::Error && !found.is_port_alone();
        self.load_balancer.as_ref().is_some_and(broken)
    }

    /// Whether it has an address that the user named.
    pub(super) fn has_users(&self) -> bool {
        self.public_ip.as_ref().is_some_and(|public_ip| public_ip.allocation == Allocation::User)
    }

    /// What is shown, and an address that the user named only if it is seen among those that bear no mark, and leads where it is
    /// shown to lead. Whether another may be used, its driver says when it is wanted.
    pub(super) fn seen_with(mut self, unmarked: &HashMap<PublicIpId, PublicIp>) -> Self {
        if self.has_users() {
            let shown = self.public_ip.take();
            self.public_ip = shown.filter(|shown| {
                let seen = unmarked.get(&shown.id);
                seen.is_some_and(|seen| (seen.ip, &seen.port) == (shown.ip, &shown.port))
            });
        }
        self
    }

    /// Whether nothing makes the difference but the passing of time, the order of what has none, and the name, which is for
    /// people and theirs to change.
    pub(super) fn is_as(&self, other: &Standing) -> bool {
        self.still() == other.still()
    }

    fn still(&self) -> Standing {
        let mut still = self.clone();
        if let Some(load_balancer) = &mut still.load_balancer {
            load_balancer.name.clear();
            if load_balancer.status == Provisioning::Pending {
                load_balancer.status = Provisioning::Active;
            }
            load_balancer.listeners.sort_by_key(|listener| listener.at);
            for pool in load_balancer.listeners.iter_mut().filter_map(|listener| listener.pool.as_mut()) {
                pool.members.sort_by(|one, other| one.spec.cmp(&other.spec));
            }
        }
        still
    }

    /// The public address leads there from now on.
    pub(super) fn lead_to(&mut self, port: Option<PortId>) {
        if let Some(public_ip) = &mut self.public_ip {
            public_ip.port = port;
        }
    }

    /// What the other side is doing with the load balancer, if there is one.
    pub(super) fn status(&self) -> Option<Provisioning> {
        self.load_balancer.as_ref().map(|load_balancer| load_balancer.status)
    }

    /// The load balancer is `status` from now on.
    pub(super) fn becomes(&mut self, status: Provisioning) {
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
    fn what_bears_no_mark_is_known_from_the_annotation_alone() {
        let users = Standing { public_ip: Some(public_ip(Allocation::User)), ..Standing::default() };
        let pooled = Standing { public_ip: Some(public_ip(Allocation::Pool)), ..Standing::default() };
        let balancer = load_balancer("default/web", "10.0.0.1");
        let marked = |port: &str| {
            let found = LoadBalancer { port: port.into(), ..balancer.clone() };
            Standing { load_balancer: Some(found), ..Standing::default() }
        };
        assert_eq!(marked("port").completed_by(users.clone()).public_ip, users.public_ip);
        assert_eq!(marked("another").completed_by(users.clone()).public_ip, None, "it leads elsewhere");
        assert_eq!(Standing::default().completed_by(users).public_ip, None, "there is nowhere to lead to");
        assert_eq!(marked("port").completed_by(pooled).public_ip, None, "the marks would tell of it");
    }

    #[test]
    fn an_address_of_the_user_counts_only_where_it_is_seen_to_lead() {
        let shown = Standing { public_ip: Some(public_ip(Allocation::User)), ..Standing::default() };
        let seen = |port: Option<&str>| {
            let seen = PublicIp { port: port.map(PortId::from), ..public_ip(Allocation::User) };
            shown.clone().seen_with(&HashMap::from([(seen.id.clone(), seen)])).public_ip
        };
        assert_eq!(seen(Some("port")), shown.public_ip);
        assert_eq!(seen(None), None, "acquiring it tells");
        assert_eq!(seen(Some("another")), None);
        assert_eq!(shown.clone().seen_with(&HashMap::new()).public_ip, None);
        let pooled = Standing { public_ip: Some(public_ip(Allocation::Pool)), ..Standing::default() };
        assert_eq!(pooled.clone().seen_with(&HashMap::new()), pooled, "its mark tells");
    }

    #[test]
    fn what_a_predecessor_made_stays_unmarked_until_marks_tell_of_all_of_it() {
        let lb = Some(load_balancer("default/web", "10.0.0.1"));
        let ip = Some(public_ip(Allocation::Pool));
        let annotated = Standing { load_balancer: lb.clone(), public_ip: ip.clone(), unmarked: true };
        let half = Standing { load_balancer: lb.clone(), ..Standing::default() };
        assert_eq!(Standing::default().completed_by(annotated.clone()), annotated);
        assert_eq!(half.completed_by(annotated.clone()), annotated);
        let whole = Standing { load_balancer: lb, public_ip: ip, unmarked: false };
        assert_eq!(whole.clone().completed_by(annotated), whole);
    }

    #[test]
    fn the_name_and_the_order_of_listeners_and_members_make_no_difference_and_what_is_broken_does() {
        let tree = |ports: [u16; 2], ips: [&str; 2]| LoadBalancer {
            listeners: ports.map(|port| listener(Protocol::Tcp, port, &ips)).into(),
            ..load_balancer("default/web", "10.0.0.1")
        };
        let standing = |tree| Standing { load_balancer: Some(tree), ..Standing::default() };
        let one = standing(tree([80, 81], ["10.1.0.1", "10.1.0.2"]));
        let mut other = standing(tree([81, 80], ["10.1.0.2", "10.1.0.1"]));
        other.becomes(Provisioning::Pending);
        other.load_balancer.as_mut().unwrap().name = "another".into();
        assert!(one.is_as(&other));
        other.becomes(Provisioning::Error);
        assert!(!one.is_as(&other));
        assert!(!one.is_as(&standing(tree([80, 81], ["10.1.0.1", "10.1.0.3"]))));
    }

    #[test]
    fn an_address_counts_only_when_it_leads_to_the_load_balancer() {
        let mut standing = Standing {
            load_balancer: Some(load_balancer("default/web", "10.0.0.1")),
            public_ip: Some(public_ip(Allocation::Pool)),
            unmarked: false,
        };
        assert_eq!(standing.reachable(), standing.public_ip.as_ref());
        standing.public_ip.as_mut().unwrap().port = Some("another".into());
        assert_eq!(standing.reachable(), None);
    }
}
