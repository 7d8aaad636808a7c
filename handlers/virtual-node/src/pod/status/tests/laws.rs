//! Property tests of the status, over all states that a machine may report.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use proptest::prelude::*;
use serde_json::json;
use staffetta_driver::Owner;
use staffetta_driver::app_hosting::{DeploymentStage, HostedContainer, HostedContainerState, HostedPod};

use super::super::*;
use crate::pod::Change;

/// Generates the observation of two containers: nothing, or a state for each.
fn observations() -> impl Strategy<Value = Vec<Option<[HostedContainerState; 2]>>> {
    let state = || {
        prop_oneof![
            Just(HostedContainerState::Waiting {
                stage: DeploymentStage::Installing,
                message: String::new()
            }),
            Just(HostedContainerState::Running),
            Just(HostedContainerState::Ended { message: String::new() }),
            Just(HostedContainerState::Failed { reason: "Ended".into(), message: String::new() }),
        ]
    };
    prop::collection::vec(prop::option::of([state(), state()]), 1..12)
}

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "restartPolicy": policy, "containers": [{ "name": "a", "image": "i" }, { "name": "b", "image": "i" }] } }))
    .unwrap()
}

fn workload(pod: &Pod, states: &[HostedContainerState; 2]) -> HostedPod {
    let containers = ["a", "b"].into_iter().zip(states).map(|(name, state)| HostedContainer {
        name: name.into(),
        id: format!("x://{name}"),
        state: state.clone(),
    });
    HostedPod { owner: Owner::of(&pod.metadata), marked: true, containers: containers.collect(), ip: None }
}

fn containers(pod: &Pod) -> Vec<ContainerStatus> {
    pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default()
}

proptest! {
    #[test]
    fn a_phase_never_goes_back_counts_never_fall_and_the_same_sight_is_written_once(
        observations in observations(),
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
    ) {
        let mut pod = pod(policy);
        for (second, states_seen) in (1_i64..).zip(observations) {
            let workload = states_seen.as_ref().map(|states| workload(&pod, states));
            let observation = PodObservation { workload: workload.as_ref(), why: ("ContainerCreating", ""), change: Change::Nothing, host_ip: None };
            let before = pod.clone();
            let wanted = status(&pod, &observation, Timestamp::from_second(second).unwrap());
            let phase = wanted.phase.clone().unwrap();
            let was = before.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
            prop_assert!(!(was == "Running" && phase == "Pending"), "{was} became {phase}");
            if phase == "Failed" || phase == "Succeeded" {
                prop_assert!(states_seen.is_some() && policy != "Always", "only what its containers did ends a pod");
            }
            pod.status = Some(wanted);
            for (old, new) in containers(&before).iter().zip(containers(&pod)) {
                prop_assert!(new.restart_count >= old.restart_count && new.restart_count <= old.restart_count + 1);
            }
            let again = status(&pod, &observation, Timestamp::from_second(second + 1000).unwrap());
            prop_assert!(patch(&pod, &again).is_none(), "the same observation says nothing new");
            if phase == "Failed" || phase == "Succeeded" {
                break;
            }
        }
    }
}
