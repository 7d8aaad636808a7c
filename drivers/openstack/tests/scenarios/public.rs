//! The driver `neutron_floating_ip`.

use std::net::IpAddr;

use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{Allocation, PortId, PublicIpRequest, Reason, ServicePublicIpDriver, Subnet};

use super::world::{World, text};

/// A request for an address that leads to a port.
fn request(world: &World, port: &str, named: Option<IpAddr>) -> PublicIpRequest {
    PublicIpRequest { project: world.project.clone(), named, port: port.into(), adopt: None }
}

/// The id of a port in a subnet that an external network reaches.
async fn port(world: &World, subnet: &Subnet) -> PortId {
    let wish = json!({ "network_id": subnet.network.id, "project_id": world.project, "fixed_ips": [{ "subnet_id": subnet.id }] });
    text(&world.create("ports", "port", wish).await["id"]).into()
}

async fn floating(world: &World, id: &str) -> Value {
    world.ask(Method::GET, &format!("floatingips/{id}"), &Value::Null).await.1["floatingip"].clone()
}

pub(crate) async fn an_address_out_of_the_pool_leads_to_the_port_and_goes_back_by_its_owner_only(
    world: &World,
) {
    let (subnet, pool) = (world.subnet("10.1.0.0/24").await, world.external("203.0.113.0/29").await);
    world.join(&subnet, &pool).await;
    let (east, west) = (world.floating("east", &pool), world.floating("west", &pool));
    let (web, port) = (world.owner("web"), port(world, &subnet).await);
    let taken = east.acquire(&web, &request(world, port.as_str(), None)).await.unwrap();
    assert_eq!((taken.allocation, &taken.port), (Allocation::Pool, &None));
    assert_eq!(east.acquire(&web, &request(world, port.as_str(), None)).await.unwrap(), taken);
    for _ in 0..2 {
        east.associate(&taken, &port).await.unwrap();
    }
    assert_eq!(floating(world, taken.id.as_str()).await["port_id"], json!(port));
    let marked = east.public_ips(Some(&web)).await.unwrap();
    assert_eq!(
        (marked.len(), &marked[0].owner, &marked[0].resource.port),
        (1, &Some(web.clone()), &Some(port.clone()))
    );
    assert!(west.public_ips(None).await.unwrap().is_empty());
    assert!(east.public_ips(Some(&world.owner("other"))).await.unwrap().is_empty());
    east.disassociate(&taken, &"00000000-0000-4000-8000-000000000000".into()).await.unwrap();
    assert_eq!(floating(world, taken.id.as_str()).await["port_id"], json!(port), "it leads elsewhere");
    east.disassociate(&taken, &port).await.unwrap();
    assert!(floating(world, taken.id.as_str()).await["port_id"].is_null());
    west.release(&web, &taken).await.unwrap();
    east.release(&world.owner("other"), &taken).await.unwrap();
    assert_eq!(east.public_ips(None).await.unwrap().len(), 1);
    for _ in 0..2 {
        east.release(&web, &taken).await.unwrap();
    }
    assert!(east.public_ips(None).await.unwrap().is_empty());
}

pub(crate) async fn an_empty_pool_is_reported_and_an_address_that_comes_back_is_used(world: &World) {
    // The router's address, and one more beside the first of the network.
    let (subnet, pool) = (world.subnet("10.1.0.0/24").await, world.external("203.0.113.8/29").await);
    let driver = world.floating("east", &pool);
    let port = port(world, &subnet).await;
    let mut last = None;
    let error = loop {
        let owner = world.owner(&format!("web-{}", last.as_ref().map_or(0, |(number, _)| *number) + 1));
        match driver.acquire(&owner, &request(world, port.as_str(), None)).await {
            Ok(taken) => last = Some((last.map_or(0, |(number, _)| number) + 1, taken)),
            Err(error) => break error,
        }
    };
    assert_eq!((error.reason(), error.ambiguous()), (Reason::NoAddress, false), "{error}");
    let (number, taken) = last.unwrap();
    driver.release(&world.owner(&format!("web-{number}")), &taken).await.unwrap();
    let again = driver.acquire(&world.owner("late"), &request(world, port.as_str(), None)).await.unwrap();
    assert_eq!(again.ip, taken.ip);
}

pub(crate) async fn an_address_that_the_user_named_must_exist_and_be_free_and_stays_the_users(world: &World) {
    let (subnet, pool) = (world.subnet("10.1.0.0/24").await, world.external("203.0.113.16/29").await);
    world.join(&subnet, &pool).await;
    let driver = world.floating("east", &pool);
    let (web, one, other) = (world.owner("web"), port(world, &subnet).await, port(world, &subnet).await);
    let missing =
        driver.acquire(&web, &request(world, one.as_str(), Some([192, 0, 2, 9].into()))).await.unwrap_err();
    assert_eq!(missing.reason(), Reason::NotFound);
    let wish = json!({ "floating_network_id": pool.network.id, "project_id": world.project });
    let users = world.create("floatingips", "floatingip", wish).await;
    let named: IpAddr = text(&users["floating_ip_address"]).parse().unwrap();
    let found = driver.acquire(&web, &request(world, one.as_str(), Some(named))).await.unwrap();
    assert_eq!((found.allocation, found.ip), (Allocation::User, named));
    driver.associate(&found, &one).await.unwrap();
    assert!(
        driver.acquire(&web, &request(world, one.as_str(), Some(named))).await.unwrap().port
            == Some(one.clone())
    );
    let busy = driver
        .acquire(&world.owner("other"), &request(world, other.as_str(), Some(named)))
        .await
        .unwrap_err();
    assert_eq!(busy.reason(), Reason::Conflict);
    assert_eq!(driver.associate(&found, &other).await.unwrap_err().reason(), Reason::Conflict);
    driver.disassociate(&found, &one).await.unwrap();
    driver.release(&web, &found).await.unwrap();
    assert_eq!(floating(world, found.id.as_str()).await["id"], users["id"], "it is never freed");
    let reported = driver.public_ips(None).await.unwrap();
    assert_eq!(
        (reported.len(), &reported[0].owner, &reported[0].resource.id),
        (1, &None, &found.id),
        "it bears no mark"
    );
    // What was taken for one service is not named for another.
    let taken = driver.acquire(&web, &request(world, one.as_str(), None)).await.unwrap();
    let anothers =
        driver.acquire(&world.owner("other"), &request(world, other.as_str(), Some(taken.ip))).await;
    assert_eq!(anothers.unwrap_err().reason(), Reason::Conflict);
}

pub(crate) async fn an_address_that_a_predecessor_took_is_marked_and_not_taken_again(world: &World) {
    let pool = world.external("203.0.113.24/29").await;
    let driver = world.floating("east", &pool);
    let wish = json!({ "floating_network_id": pool.network.id, "project_id": world.project, "description": "kuryr" });
    let theirs = world.create("floatingips", "floatingip", wish).await;
    let adopting = PublicIpRequest { adopt: Some(text(&theirs["id"]).into()), ..request(world, "p", None) };
    let adopted = driver.acquire(&world.owner("web"), &adopting).await.unwrap();
    assert_eq!((adopted.id.as_str(), adopted.allocation), (text(&theirs["id"]), Allocation::Pool));
    let other = driver.acquire(&world.owner("other"), &adopting).await.unwrap();
    assert_ne!(other.id, adopted.id, "it is another's by now");
    assert_eq!(driver.public_ips(None).await.unwrap().len(), 2);
}

pub(crate) async fn an_address_of_another_project_or_that_leads_elsewhere_is_left_alone(world: &World) {
    let (subnet, pool) = (world.subnet("10.1.0.0/24").await, world.external("203.0.113.32/28").await);
    world.join(&subnet, &pool).await;
    let (driver, one, other) =
        (world.floating("east", &pool), port(world, &subnet).await, port(world, &subnet).await);
    let wish =
        json!({ "floating_network_id": pool.network.id, "project_id": world.project, "port_id": other });
    let elsewhere = world.create("floatingips", "floatingip", wish).await;
    let (first, second) = world.project.as_str().split_at(16);
    let foreign = format!("{second}{first}");
    let wish = json!({ "floating_network_id": pool.network.id, "project_id": foreign });
    let foreign = world.create("floatingips", "floatingip", wish).await;
    for (number, theirs) in [&elsewhere, &foreign].into_iter().enumerate() {
        let adopt = Some(text(&theirs["id"]).into());
        let adopting = PublicIpRequest { adopt, ..request(world, one.as_str(), None) };
        let taken = driver.acquire(&world.owner(&format!("web-{number}")), &adopting).await.unwrap();
        assert_ne!(taken.id.as_str(), text(&theirs["id"]));
        let found = floating(world, text(&theirs["id"])).await;
        assert_eq!((&found["description"], &found["port_id"]), (&theirs["description"], &theirs["port_id"]));
    }
    let named: IpAddr = text(&foreign["floating_ip_address"]).parse().unwrap();
    let error = driver.acquire(&world.owner("web"), &request(world, one.as_str(), Some(named))).await;
    assert_eq!(error.unwrap_err().reason(), Reason::NotFound, "it is none of this project");
}
