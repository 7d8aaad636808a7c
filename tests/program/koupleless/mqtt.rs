//! The controller with bases that are reached over MQTT, and outages of the broker.

use std::time::{Duration, Instant};

use serde_json::json;
use staffetta_koupleless_base::{
    AnswerFault, BaseBroker, BaseCommand, SimulatedBase, SimulatedBaseOptions, SimulatedBroker,
};

use super::broker::Broker;
use super::modules::updated;
use super::world::{World, active, asked};
use crate::process::eventually;

/// The number of bases. The real broker has users for as many.
const BASES: u16 = 3;

/// A broker that can be stopped and started again.
enum AnyBroker {
    /// One of this process.
    Simulated(SimulatedBroker),
    /// A mosquitto.
    Real(Broker),
}

impl AnyBroker {
    async fn stop(&mut self) {
        match self {
            Self::Simulated(broker) => broker.stop().await,
            Self::Real(broker) => broker.stop(),
        }
    }

    async fn start(&mut self) {
        match self {
            Self::Simulated(broker) => broker.resume().await.unwrap(),
            Self::Real(broker) => broker.start(),
        }
    }

    /// Returns the options of a replica. The connection to a real broker is encrypted, and shows a certificate. The Lease is longer than
    /// over HTTP, because a connection that was not polled for an eighth of it is closed, and the machine may be busy with other tests.
    fn options(&self, version: &str) -> String {
        let connection = match self {
            Self::Simulated(broker) => format!("port = {}\ntls = false\n", broker.address().port()),
            Self::Real(broker) => {
                let [ca, certificate, key] =
                    ["ca.crt", "client.crt", "client.key"].map(|file| broker.pki(file));
                format!(
                    "port = {}\nca_file = \"{}\"\ncert_file = \"{}\"\nkey_file = \"{}\"\n",
                    broker.port(true),
                    ca.display(),
                    certificate.display(),
                    key.display()
                )
            }
        };
        format!(
            "tunnels = [\"mqtt\"]\nlease_duration_s = 24\nlease_renew_s = 6\n\
             [vnode_mqtt]\nbroker = \"127.0.0.1\"\n{connection}version = \"{version}\"\n\
             username = \"controller\"\npassword = \"controller\"\nresync_ms = 100\nkeep_alive_s = 4\n"
        )
    }

    fn base(&self, number: u16) -> SimulatedBase {
        self.base_with(SimulatedBaseOptions::numbered(number, 1))
    }

    fn base_with(&self, options: SimulatedBaseOptions) -> SimulatedBase {
        let port = match self {
            Self::Simulated(broker) => broker.address().port(),
            Self::Real(broker) => broker.port(false),
        };
        let broker = BaseBroker { host: "127.0.0.1".into(), port, environment: "dev".into() };
        let heartbeat = Duration::from_millis(300);
        let options = SimulatedBaseOptions { heartbeat, ..options };
        SimulatedBase::mqtt(SimulatedBaseOptions { first_heartbeat: Duration::ZERO, ..options }, broker)
    }
}

fn node(number: u16) -> String {
    format!("vnode.base-{number}.dev")
}

/// Runs two replicas, stops the broker in the middle, and then kills the replica that looks after the first base.
async fn outage(broker: AnyBroker, version: &str) {
    let mut broker = broker;
    let world = World::new(2).await;
    let options = broker.options(version);
    let replicas = [world.replica_with(0, &options).await, world.replica_with(1, &options).await];
    let bases: Vec<_> = (1..=BASES).map(|number| broker.base(number)).collect();
    let mut uids = Vec::new();
    for number in 1..=BASES {
        uids.push(world.node(&node(number), "True").await.metadata.uid);
        world.pod(&format!("web-{number}"), &node(number), "1").await;
    }
    for number in 1..=BASES {
        world.running(&format!("web-{number}")).await;
    }

    replicas[0].mqtt_is_connected(true).await;
    broker.stop().await;
    // They are asked for while nobody can be reached.
    world.pod("more", &node(1), "2").await;
    world.delete("web-2").await;
    world.node(&node(1), "False").await;
    replicas[0].mqtt_is_connected(false).await;
    broker.start().await;
    for (number, uid) in (1..=BASES).zip(uids) {
        assert_eq!(world.node(&node(number), "True").await.metadata.uid, uid, "no node was removed");
    }
    world.running("more").await;
    world.gone("web-2").await;
    assert_eq!(asked(&bases[0]), ["+cart:1", "+cart:2", "=cart:2"]);
    assert_eq!(
        (asked(&bases[1]), asked(&bases[2])),
        (vec!["+cart:1".into(), "-cart:1".into()], vec!["+cart:1".into()])
    );

    let holder = world.holder(&node(1)).await;
    for replica in &replicas {
        if replica.identity().await == holder {
            replica.process.kill("KILL").await;
        }
    }
    let taken = async || !["", &holder].contains(&world.holder(&node(1)).await.as_str());
    eventually("the base is taken over", taken).await;
    world.delete("more").await;
    world.gone("more").await;
    assert_eq!(asked(&bases[0])[3..], ["=cart:1", "-cart:2"]);
    assert_eq!(active(&bases[0]), ["cart:1"]);
}

#[tokio::test]
async fn a_command_that_fails_is_shown_with_its_pod_and_so_is_one_without_an_answer() {
    let broker = AnyBroker::Simulated(SimulatedBroker::start().await.unwrap());
    let world = World::new(1).await;
    let options =
        format!("operation_timeout_ms = 2000\n{}operation_timeout_ms = 1000\n", broker.options("3.1.1"));
    let replica = world.replica_with(0, &options).await;
    let full = SimulatedBaseOptions { max_metaspace: 1, ..SimulatedBaseOptions::numbered(1, 1) };
    let bases = [broker.base_with(full), broker.base(2)];
    bases[1].behave(|behaviour| drop(behaviour.answers.insert(BaseCommand::InstallBiz, AnswerFault::Hold)));
    for (number, answered) in [(1, true), (2, false)] {
        world.node(&node(number), "True").await;
        world.pod(&format!("web-{number}"), &node(number), "1").await;
        let request = replica.request_for(&format!("web-{number}"), "PUBLISH").await;
        let topic = json!(format!("koupleless_dev/base-{number}/installBiz"));
        assert_eq!((&request["path"], &request["answered"]), (&topic, &json!(answered)), "{request}");
        assert!(request["status"].is_null(), "MQTT has none");
    }
}

/// Loses all answers to commands, replaces and updates a module, restarts the broker, and updates and removes it.
async fn lost_answers(mut broker: AnyBroker, version: &str) {
    let world = World::new(1).await;
    let _replica = world.replica_with(0, &broker.options(version)).await;
    let base = broker.base(1);
    let lose = |command| base.behave(|behaviour| drop(behaviour.answers.insert(command, AnswerFault::Lose)));
    [BaseCommand::InstallBiz, BaseCommand::UninstallBiz, BaseCommand::SwitchBiz].into_iter().for_each(lose);
    world.node(&node(1), "True").await;
    updated(&world, &base).await;
    broker.stop().await;
    broker.start().await;
    world.change_image("new", "https://example.com/other.jar").await;
    eventually("the module is replaced", async || asked(&base).len() == 6).await;
    world.running("new").await;
    world.delete("new").await;
    world.gone("new").await;
    assert_eq!(asked(&base)[4..], ["-cart:2", "+cart:2", "-cart:2"]);
    assert!(active(&base).is_empty());
}

#[tokio::test]
async fn lost_answers_over_mqtt_block_and_repeat_nothing() {
    lost_answers(AnyBroker::Simulated(SimulatedBroker::start().await.unwrap()), "3.1.1").await;
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn lost_answers_block_and_repeat_nothing_on_a_real_broker() {
    for version in ["3.1.1", "5"] {
        lost_answers(AnyBroker::Real(Broker::private()), version).await;
    }
}

/// The back-off after the second failure of an operation is 20 s.
#[tokio::test]
#[ignore = "needs mosquitto"]
async fn a_pod_in_back_off_hears_that_its_module_is_active_on_a_real_broker() {
    for version in ["3.1.1", "5"] {
        let broker = AnyBroker::Real(Broker::private());
        let world = World::new(1).await;
        let _replica = world.replica_with(0, &broker.options(version)).await;
        let full = broker
            .base_with(SimulatedBaseOptions { max_metaspace: 1, ..SimulatedBaseOptions::numbered(1, 1) });
        world.node(&node(1), "True").await;
        world.pod("web-1", &node(1), "1").await;
        eventually("two attempts fail", async || full.received(BaseCommand::InstallBiz) == 2).await;
        drop(full);
        let failed = Instant::now();
        let built_in = vec![("cart".to_owned(), "1".to_owned())];
        let base =
            broker.base_with(SimulatedBaseOptions { built_in, ..SimulatedBaseOptions::numbered(1, 1) });
        world.running("web-1").await;
        let heard = failed.elapsed();
        println!("heard after {heard:?} over MQTT {version}");
        assert!(heard < Duration::from_secs(10), "{heard:?}, as if it had waited for its next attempt");
        assert_eq!(base.received(BaseCommand::InstallBiz), 0);
    }
}

#[tokio::test]
async fn the_node_of_a_base_whose_tunnel_is_not_configured_any_more_is_not_ready_and_stays() {
    let broker = AnyBroker::Simulated(SimulatedBroker::start().await.unwrap());
    let world = World::new(2).await;
    let mut over_http = world.replica(0).await;
    let _base = world.base(1).await;
    let uid = world.node(&node(1), "True").await.metadata.uid;
    assert!(over_http.process.terminate().await.success());
    let over_mqtt = world.replica_with(1, &broker.options("5")).await;
    world.node(&node(1), "False").await;
    drop(over_mqtt);
    let _again = world.replica(0).await;
    assert_eq!(world.node(&node(1), "True").await.metadata.uid, uid, "it is the same node");
    let events = world.events("MachineUnreachable").await;
    assert!(events.iter().any(|text| text.contains("vnode.tunnels")), "{events:?}");
}

#[tokio::test]
async fn an_outage_of_the_broker_removes_no_node_and_loses_or_repeats_no_operation() {
    outage(AnyBroker::Simulated(SimulatedBroker::start().await.unwrap()), "3.1.1").await;
}

#[tokio::test]
#[ignore = "needs mosquitto"]
async fn an_outage_of_the_broker_loses_or_repeats_no_operation_of_a_controller_on_a_real_broker() {
    for version in ["3.1.1", "5"] {
        outage(AnyBroker::Real(Broker::private()), version).await;
    }
}
