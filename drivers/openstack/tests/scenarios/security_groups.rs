//! The security groups of network policies.

use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{
    Direction, IpFamily, NetworkPolicyDriver, PodVifDriver, Protocol, ProtocolPorts, Reason, Remote,
    RuleChange, SecurityGroup, SecurityGroupId, SecurityRule, VifId, VifSecurityGroups,
};

use super::world::World;

type Rule = SecurityRule<SecurityGroupId>;

fn rule(direction: Direction, ports: Option<(Protocol, u16, u16)>, remote: Remote<SecurityGroupId>) -> Rule {
    let family = match &remote {
        Remote::Net(net) => IpFamily::of(net),
        _ => IpFamily::V4,
    };
    let ports = ports.map(|(protocol, first, last)| ProtocolPorts { protocol, range: Some((first, last)) });
    SecurityRule { direction, family, ports, remote }
}

/// Rules of every form.
fn every_form(peers: &SecurityGroupId) -> Vec<Rule> {
    let net = |text: &str| Remote::Net(text.parse().unwrap());
    vec![
        rule(Direction::Ingress, Some((Protocol::Tcp, 80, 80)), Remote::Group(peers.clone())),
        rule(Direction::Ingress, Some((Protocol::Udp, 1000, 2000)), net("10.0.0.0/8")),
        rule(Direction::Ingress, Some((Protocol::Sctp, 9000, 9000)), net("2001:db8::/32")),
        rule(Direction::Egress, None, net("192.0.2.1/32")),
        SecurityRule {
            ports: Some(ProtocolPorts { protocol: Protocol::Tcp, range: None }),
            family: IpFamily::V6,
            ..rule(Direction::Egress, None, Remote::Any)
        },
    ]
}

fn sorted(group: &SecurityGroup) -> Vec<Rule> {
    let mut rules: Vec<_> = group.rules.iter().map(|held| held.rule.clone().unwrap()).collect();
    rules.sort();
    rules
}

async fn only(driver: &dyn NetworkPolicyDriver, name: &str) -> SecurityGroup {
    let mut groups = driver.groups().await.unwrap();
    groups.retain(|group| group.name.as_str() == name);
    assert_eq!(groups.len(), 1, "{groups:?}");
    groups.remove(0)
}

pub(crate) async fn a_group_is_found_by_its_mark_and_has_just_the_rules_that_are_wanted(world: &World) {
    let (driver, owner) = (world.policies("east"), world.owner("p"));
    let peers = driver.create_group(&"peers-1".into(), None).await.unwrap();
    let group = driver.create_group(&"policy-1".into(), Some(&owner)).await.unwrap();
    assert_eq!(group.rules.len(), 2, "a new group lets everything out");
    let mut wanted = every_form(&peers.id);
    driver.update_rules(&group.id, &RuleChange::between(&group.rules, &wanted)).await.unwrap();
    wanted.sort();
    let found = only(&driver, "policy-1").await;
    assert_eq!((sorted(&found), &found.id, &found.owner), (wanted.clone(), &group.id, &Some(owner)));
    assert!(RuleChange::between(&found.rules, &wanted).is_empty());
    // Of what differs, and nothing else.
    let fewer = &wanted[1..];
    let change = RuleChange::between(&found.rules, fewer);
    assert_eq!((change.remove.len(), change.add.len()), (1, 0));
    driver.update_rules(&group.id, &change).await.unwrap();
    assert_eq!(sorted(&only(&driver, "policy-1").await), fewer);
    assert_eq!(world.policies("west").groups().await.unwrap(), []);
}

pub(crate) async fn rules_that_exist_already_count_as_added(world: &World) {
    let driver = world.policies("east");
    let group = driver.create_group(&"policy-1".into(), None).await.unwrap();
    let wanted = every_form(&group.id);
    let some = RuleChange { add: wanted[..2].to_vec(), ..RuleChange::default() };
    let first = driver.update_rules(&group.id, &some).await.unwrap();
    let all = RuleChange { add: wanted.clone(), ..RuleChange::default() };
    for _ in 0..2 {
        let added = driver.update_rules(&group.id, &all).await.unwrap();
        assert_eq!(added.len(), wanted.len());
        assert!(first.iter().all(|held| added.contains(held)));
    }
    assert_eq!(only(&driver, "policy-1").await.rules.len(), wanted.len() + 2);
}

pub(crate) async fn a_group_that_guards_a_port_stays_and_goes_with_the_rules_that_name_it_later(
    world: &World,
) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.policies("east");
    let peers = driver.create_group(&"peers-1".into(), None).await.unwrap();
    let group = driver.create_group(&"policy-1".into(), None).await.unwrap();
    let change = RuleChange::between(&group.rules, &every_form(&peers.id));
    driver.update_rules(&group.id, &change).await.unwrap();
    let mut request = world.request("a", &host, &subnet);
    request.security_groups = vec![peers.id.clone()];
    let vifs = world.bound("east");
    let vif = vifs.request_vif(&request).await.unwrap();
    let error = driver.delete_group(&peers.id).await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), (Reason::Conflict, true), "{error}");
    vifs.release_vif(&request.owner, &vif).await.unwrap();
    driver.delete_group(&peers.id).await.unwrap();
    assert_eq!(only(&driver, "policy-1").await.rules.len(), 4);
    driver.delete_group(&group.id).await.unwrap();
    assert_eq!(driver.groups().await.unwrap(), []);
}

pub(crate) async fn a_port_gets_other_groups_all_at_once(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.policies("east");
    let mut groups = Vec::new();
    for name in ["a", "b", "c"] {
        groups.push(driver.create_group(&name.into(), None).await.unwrap().id);
    }
    groups.sort();
    let mut request = world.request("a", &host, &subnet);
    request.security_groups = groups[..1].to_vec();
    let vif = world.bound("east").request_vif(&request).await.unwrap();
    let guarded =
        |groups: &[SecurityGroupId]| VifSecurityGroups { vif: vif.id.clone(), groups: groups.to_vec() };
    assert_eq!(driver.vif_groups().await.unwrap(), [guarded(&groups[..1])]);
    driver.set_vif_groups(&vif.id, &groups[1..]).await.unwrap();
    assert_eq!(driver.vif_groups().await.unwrap(), [guarded(&groups[1..])]);
    driver.set_vif_groups(&vif.id, &[]).await.unwrap();
    assert_eq!(driver.vif_groups().await.unwrap(), [guarded(&[])]);
    assert_eq!(world.policies("west").vif_groups().await.unwrap(), []);
}

pub(crate) async fn a_foreign_port_is_left_alone_whoever_names_it(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.policies("east");
    let group = driver.create_group(&"a".into(), None).await.unwrap().id;
    let anothers = world.bound("west").request_vif(&world.request("a", &host, &subnet)).await.unwrap();
    let machines = |owner: &str| {
        json!({ "network_id": subnet.network.id, "project_id": world.project, "device_owner": owner,
            "fixed_ips": [{ "subnet_id": subnet.id }] })
    };
    let machine = world.create("ports", "port", machines("compute:nova")).await;
    let machine: VifId = machine["id"].as_str().unwrap().into();
    for vif in [&anothers.id, &machine] {
        let before = world.port(vif.as_str()).await["security_groups"].clone();
        let error = driver.set_vif_groups(vif, std::slice::from_ref(&group)).await.unwrap_err();
        assert_eq!(error.reason(), Reason::NotFound, "{error}");
        assert_eq!(world.port(vif.as_str()).await["security_groups"], before);
    }
    // One that Kuryr made for a pod is taken over with the pod.
    let kuryrs = world.create("ports", "port", machines("compute:kuryr")).await;
    let kuryrs: VifId = kuryrs["id"].as_str().unwrap().into();
    driver.set_vif_groups(&kuryrs, std::slice::from_ref(&group)).await.unwrap();
    assert_eq!(world.port(kuryrs.as_str()).await["security_groups"], json!([group]));
}

pub(crate) async fn quotas_of_groups_and_rules_are_reported_as_such(world: &World) {
    let driver = world.policies("east");
    let group = driver.create_group(&"policy-1".into(), None).await.unwrap();
    // A project has a group of its own beside those that are made, and no quota may be less than what is used.
    let path = format!("security-groups?project_id={}", world.project);
    let (_, answer) = world.ask(Method::GET, &path, &Value::Null).await;
    let groups = answer["security_groups"].as_array().unwrap();
    let rules = groups.iter().map(|group| group["security_group_rules"].as_array().unwrap().len()).sum();
    let used = |count: usize| i64::try_from(count).unwrap();
    world.allow("security_group", used(groups.len())).await;
    world.allow("security_group_rule", used(rules)).await;
    assert_eq!(driver.rule_quota().await.unwrap(), Some(rules));
    let error = driver.create_group(&"policy-2".into(), None).await.unwrap_err();
    assert_eq!((error.reason(), error.ambiguous()), (Reason::Quota, false), "{error}");
    let change = RuleChange::between(&group.rules, &every_form(&group.id));
    let error = driver.update_rules(&group.id, &change).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Quota, "{error}");
    assert_eq!(only(&driver, "policy-1").await.rules, [], "what was to go is gone all the same");
    world.allow("security_group", -1).await;
    world.allow("security_group_rule", -1).await;
    assert_eq!(driver.rule_quota().await.unwrap(), None);
    let change = RuleChange { remove: Vec::new(), ..change };
    assert_eq!(driver.update_rules(&group.id, &change).await.unwrap().len(), 5);
}

pub(crate) async fn what_does_not_exist_is_reported_or_counts_as_removed(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.policies("east");
    let gone = driver.create_group(&"gone".into(), None).await.unwrap();
    world.remove(&format!("security-groups/{}", gone.id)).await;
    driver.delete_group(&gone.id).await.unwrap();
    let change = RuleChange { remove: Vec::new(), add: every_form(&gone.id) };
    assert_eq!(driver.update_rules(&gone.id, &change).await.unwrap_err().reason(), Reason::NotFound);
    let group = driver.create_group(&"group".into(), None).await.unwrap();
    let twice = RuleChange { remove: vec![group.rules[0].id.clone()], add: Vec::new() };
    for _ in 0..2 {
        driver.update_rules(&group.id, &twice).await.unwrap();
    }
    assert_eq!(driver.update_rules(&group.id, &change).await.unwrap_err().reason(), Reason::NotFound);
    let vif = world.bound("east").request_vif(&world.request("a", &host, &subnet)).await.unwrap();
    let error = driver.set_vif_groups(&vif.id, std::slice::from_ref(&gone.id)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Conflict, "the port is there: {error}");
    world.remove(&format!("ports/{}", vif.id)).await;
    let error = driver.set_vif_groups(&vif.id, std::slice::from_ref(&group.id)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::NotFound);
    assert_eq!(
        driver.set_vif_groups(&"../networks".into(), &[]).await.unwrap_err().reason(),
        Reason::NotFound
    );
}
