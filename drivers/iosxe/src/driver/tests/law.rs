//! The law of absence: whatever one read of the device returns, and whenever the process is replaced, an untouched app that runs stays as it
//! is, no two pods have one address, and nothing is left of a deleted pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;

use super::*;

/// The wrong responses to a read. The driver reads the configuration and the operational data, and may get the one for the other.
const WRONG: [WrongAnswer; 11] = [
    WrongAnswer::Fails(Reason::Refused),
    WrongAnswer::Fails(Reason::Unavailable),
    WrongAnswer::Body(""),
    WrongAnswer::Body("{}"),
    WrongAnswer::Body("<html>"),
    WrongAnswer::Body(r#"{"m:app-hosting-cfg-data":{"ap"#),
    WrongAnswer::Body(r#"{"m:app-hosting-cfg-data":{}}"#),
    WrongAnswer::Body(r#"{"m:app-hosting-cfg-data":{"apps":{"app":[]}}}"#),
    WrongAnswer::Body(r#"{"m:app-hosting-oper-data":{}}"#),
    WrongAnswer::Body(r#"{"m:app-hosting-oper-data":{"app":[],"app-globals":{"iox-enabled":true}}}"#),
    WrongAnswer::Body(r#"{"m:app-hosting-oper-data":{"app-globals":{"iox-enabled":true}}}"#),
];

#[derive(Clone, Debug)]
enum Act {
    /// A pod is created, unless there is one of this number.
    Create(u8),
    /// The deletion of a pod is requested.
    Delete(u8),
    /// The read after so many others gets a wrong response.
    Wrong(usize, WrongAnswer),
    /// The next change is executed, and its response is lost.
    LoseAnswer,
    /// The process is replaced by a new one. Without the first flag, the status of each pod lacks what the last process saw last. With the
    /// second one, the new process reads the device once before it knows the pods.
    Restart(bool, bool),
    /// The handler goes on for so many seconds.
    Wait(u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        2 => (1..4_u8).prop_map(Act::Create),
        1 => (1..4_u8).prop_map(Act::Delete),
        4 => (0..6_usize, prop::sample::select(&WRONG[..])).prop_map(|(after, wrong)| Act::Wrong(after, wrong)),
        1 => Just(Act::LoseAnswer),
        2 => any::<(bool, bool)>().prop_map(|(is_written, reads_first)| Act::Restart(is_written, reads_first)),
        4 => (1..30_u8).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..40)
}

/// A device, the pods of its node in the cluster, and the process that runs them.
struct World {
    device: Arc<Device>,
    driver: IosXeDriver,
    /// The pods, by number, each with its status and `true` if its deletion is requested.
    pods: BTreeMap<u8, (Pod, bool)>,
    /// The statuses before the last reads.
    before: BTreeMap<u8, Pod>,
}

impl World {
    fn new() -> Self {
        let device = Arc::new(Device::default());
        let driver = driver_of(&device, "east", &with_addresses("10.0.0.0/28"));
        Self { device, driver, pods: BTreeMap::new(), before: BTreeMap::new() }
    }

    /// Reads the device and takes a step for each pod, as the handler does.
    async fn step(&mut self) {
        let pods: Vec<_> = self.pods.values().map(|(pod, _)| Arc::new(pod.clone())).collect();
        self.driver.expect_pods(&pods);
        if let Ok(listed) = self.driver.list_pods().await {
            for (number, (pod, leaves)) in &mut self.pods {
                let hosted = listed.iter().find(|hosted| hosted.owner.uid.as_str() == uid(*number));
                let ran = phase(pod) == Some("Running");
                let runs = hosted.is_some_and(|it| it.containers[0].state == HostedContainerState::Running);
                assert!(runs || !ran || *leaves, "a pod that runs is reported as {hosted:?}");
                let Some(hosted) = hosted else { continue };
                self.before.insert(*number, pod.clone());
                *pod = shown(*number, hosted);
            }
        }
        let numbers: Vec<_> = self.pods.keys().copied().collect();
        for number in numbers {
            let (object, leaves) = self.pods[&number].clone();
            let request = PodRequest { pod: Arc::new(object), environment: [].into() };
            // A step that fails is taken again.
            let progress = if leaves {
                self.driver.delete_pod(&request.owner()).await
            } else {
                self.driver.deploy_pod(&request).await
            };
            if leaves && progress.is_ok_and(|progress| progress.is_done()) {
                self.pods.remove(&number);
            }
            self.check();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    /// Asserts that no step was taken for an app that runs and is to run, and that each address is that of one app.
    fn check(&self) {
        let accepted = self.device.accepted();
        for (number, (pod, leaves)) in &self.pods {
            let own: Vec<_> = accepted.iter().filter(|step| step.ends_with(&id(*number))).collect();
            assert!(own.is_empty() || *leaves || phase(pod) != Some("Running"), "{own:?} of a pod that runs");
        }
        let inner = self.device.inner();
        let mut addresses: Vec<_> = inner.config.values().map(address_of).collect();
        let all = addresses.len();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), all, "two apps have one address");
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Create(number) => {
                let object = || (Pod::clone(&pod(number).pod), false);
                self.pods.entry(number).or_insert_with(object);
            }
            Act::Delete(number) => {
                if let Some((_, leaves)) = self.pods.get_mut(&number) {
                    *leaves = true;
                }
            }
            Act::Wrong(after, wrong) => self.device.inner().wrong.push((after, wrong)),
            Act::LoseAnswer => self.device.inner().loses_answer = true,
            Act::Restart(is_written, reads_first) => {
                for (number, before) in self.before.iter().filter(|_| !is_written) {
                    if let Some((pod, _)) = self.pods.get_mut(number) {
                        pod.clone_from(before);
                    }
                }
                self.driver = driver_of(&self.device, "east", &with_addresses("10.0.0.0/28"));
                if reads_first {
                    // It may fail.
                    let _ = self.driver.list_pods().await;
                }
            }
            Act::Wait(seconds) => {
                for _ in 0..seconds {
                    self.step().await;
                }
            }
        }
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn address_of(app: &Value) -> String {
    app["application-network-resource"]["virtualportgroup-guest-ip-address-1"].as_str().unwrap().to_owned()
}

/// Returns the pod with the status that the handler writes for this workload.
fn shown(number: u8, hosted: &HostedPod) -> Pod {
    let container = &hosted.containers[0];
    let runs = container.state == HostedContainerState::Running;
    let state = if runs { json!({ "running": {} }) } else { json!({ "waiting": {} }) };
    let mut pod = Pod::clone(&pod(number).pod);
    let status = json!({
        "phase": if runs { "Running" } else { "Pending" },
        "podIPs": hosted.ip.map(|ip| vec![json!({ "ip": ip })]), "podIP": hosted.ip,
        "containerStatuses": [{
            "name": container.name, "image": "", "imageID": "", "ready": runs, "restartCount": 0,
            "containerID": container.id, "state": state,
        }],
    });
    pod.status = serde_json::from_value(status).unwrap();
    pod
}

#[tokio::test(start_paused = true)]
async fn a_new_process_believes_the_status_of_a_pod_until_enough_reads_lack_its_state() {
    let mut world = World::new();
    let acts = [
        Act::Create(1),
        Act::Wait(20),
        // The state is lacking in the read before the new process knows the pods, and in the first one after it.
        Act::Wrong(0, WrongAnswer::Body("")),
        Act::Wrong(2, WrongAnswer::Body("")),
        Act::Restart(true, true),
        Act::Wait(1),
    ];
    for act in acts {
        world.act(act).await;
    }
    assert_eq!(world.pods.values().map(|(pod, _)| phase(pod)).collect::<Vec<_>>(), [Some("Running")]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_wrong_answer_and_no_restart_touches_an_app_that_runs_shares_an_address_or_leaves_a_rest(acts in acts()) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut world = World::new();
            for act in acts {
                world.act(act).await;
            }
            for (_, leaves) in world.pods.values_mut() {
                *leaves = true;
            }
            for _ in 0..400 {
                world.step().await;
            }
            assert!(world.pods.is_empty(), "{:?} are never gone", world.pods.keys());
            // A lost answer that no request of these turns has met must not meet the list below.
            world.device.inner().loses_answer = false;
            // What no pod has any more is removed as an orphan.
            for orphan in world.driver.list_pods().await.unwrap().iter() {
                while !world.driver.delete_pod(&orphan.owner).await.unwrap().is_done() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            let inner = world.device.inner();
            assert!(inner.config.is_empty() && inner.oper.is_empty(), "left: {:?} {:?}", inner.config.keys(), inner.oper.keys());
        });
    }
}
