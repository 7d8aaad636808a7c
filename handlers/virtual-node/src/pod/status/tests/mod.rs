//! Tests of the status of a pod.
mod laws;

use k8s_openapi::api::core::v1::ContainerStatus;
use staffetta_driver::Owner;
use staffetta_driver::app_hosting::{DeploymentStage, HostedContainer, HostedContainerState};

use super::*;
use crate::pod::Change;

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "restartPolicy": policy, "containers": [{ "name": "app", "image": "i" }] } }))
    .unwrap()
}

fn workload(state: HostedContainerState) -> HostedPod {
    let owner = Owner::of(&pod("Always").metadata);
    let containers = vec![HostedContainer { name: "app".into(), id: "x://1".into(), state }];
    HostedPod { owner, marked: true, containers, ip: None }
}

const RUNS: HostedContainerState = HostedContainerState::Running;

fn ended(exit_code: i32) -> HostedContainerState {
    let (reason, message) = ("Ended".into(), String::new());
    match exit_code {
        0 => HostedContainerState::Ended { message },
        _ => HostedContainerState::Failed { reason, message },
    }
}

/// Returns the pod with the status that follows from `workload` at the time `at`.
fn observed(mut pod: Pod, workload: Option<&HostedPod>, at: i64) -> Pod {
    let observation = PodObservation {
        workload,
        why: ("ContainerCreating", "installing"),
        change: Change::Nothing,
        host_ip: None,
    };
    let wanted = status(&pod, &observation, time(at));
    assert_eq!(
        patch(&pod, &wanted).is_none(),
        pod.status.as_ref().is_some_and(|is| json!(is) == json!(wanted))
    );
    pod.status = Some(wanted);
    pod
}

fn app(pod: &Pod) -> &ContainerStatus {
    &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0]
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().unwrap().phase.as_deref().unwrap()
}

fn started(pod: &Pod) -> i64 {
    app(pod).state.as_ref().unwrap().running.as_ref().unwrap().started_at.as_ref().unwrap().0.as_second()
}

#[test]
fn times_are_those_of_the_first_sight_and_stay() {
    let running = workload(RUNS);
    let pod = observed(pod("Always"), None, 1);
    assert_eq!(phase(&pod), "Pending");
    let pod = observed(pod, Some(&running), 5);
    let later = observed(pod.clone(), Some(&running), 9);
    assert_eq!(
        (started(&later), later.status.as_ref().unwrap().start_time.as_ref().unwrap().0),
        (5, time(1))
    );
    assert_eq!(json!(pod), json!(later), "nothing is to be written");
}

#[test]
fn a_container_that_was_lost_waits_and_counts_as_restarted_once_it_runs() {
    let running = workload(RUNS);
    let pod = observed(pod("Never"), Some(&running), 1);
    let lost = observed(pod, None, 2);
    assert_eq!((phase(&lost), app(&lost).restart_count, app(&lost).ready), ("Running", 0, false));
    let last = app(&lost).last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    let again = observed(observed(lost, None, 3), Some(&running), 4);
    assert_eq!((phase(&again), app(&again).restart_count, started(&again)), ("Running", 1, 4));
    assert_eq!(app(&observed(again, Some(&running), 5)).restart_count, 1);
}

#[test]
fn what_ended_decides_the_phase_as_the_restart_policy_says() {
    for (policy, code, expected) in [
        ("Never", 0, "Succeeded"),
        ("Never", 1, "Failed"),
        ("OnFailure", 0, "Succeeded"),
        ("OnFailure", 1, "Running"),
        ("Always", 0, "Running"),
        ("Always", 1, "Running"),
    ] {
        let pod = observed(pod(policy), Some(&workload(RUNS)), 1);
        let over = observed(pod, Some(&workload(ended(code))), 2);
        assert_eq!(phase(&over), expected, "{policy} {code}");
        assert_eq!(app(&over).state.as_ref().unwrap().terminated.as_ref().unwrap().exit_code, code);
        assert_eq!(json!(over), json!(observed(over.clone(), Some(&workload(ended(code))), 9)), "told once");
    }
}

#[test]
fn a_readiness_gate_keeps_a_pod_from_being_ready_until_its_condition_is_there() {
    let mut pod = pod("Always");
    pod.spec.as_mut().unwrap().readiness_gates =
        serde_json::from_value(json!([{ "conditionType": "g" }])).unwrap();
    let ready = |pod: &Pod| {
        let conditions = pod.status.as_ref().unwrap().conditions.clone().unwrap();
        conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap().status
    };
    let mut pod = observed(pod, Some(&workload(RUNS)), 1);
    assert_eq!(ready(&pod), "False");
    let gate = serde_json::from_value(json!({ "type": "g", "status": "True" })).unwrap();
    pod.status.as_mut().unwrap().conditions.as_mut().unwrap().push(gate);
    assert_eq!(ready(&observed(pod, Some(&workload(RUNS)), 2)), "True");
}

#[test]
fn a_condition_that_holds_again_loses_its_reason() {
    let unready = observed(pod("Always"), None, 1);
    let running = workload(RUNS);
    let observation =
        PodObservation { workload: Some(&running), why: ("", ""), change: Change::Nothing, host_ip: None };
    let change = patch(&unready, &status(&unready, &observation, time(2))).unwrap();
    let conditions = change["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap();
    assert_eq!(ready["status"], "True");
    for field in ["reason", "message"] {
        assert_eq!(ready.get(field), Some(&json!(null)), "a merge would keep the {field}");
    }
}

#[test]
fn an_address_that_changes_replaces_the_one_before_and_one_that_is_not_reported_stays() {
    let at = |ip: Option<&str>| HostedPod { ip: ip.map(|ip| ip.parse().unwrap()), ..workload(RUNS) };
    let pod = observed(pod("Always"), Some(&at(Some("10.0.0.1"))), 1);
    let observed = |workload| PodObservation {
        workload: Some(workload),
        why: ("", ""),
        change: Change::Nothing,
        host_ip: None,
    };
    let (silent, other) = (at(None), at(Some("10.0.0.2")));
    assert!(patch(&pod, &status(&pod, &observed(&silent), time(2))).is_none());
    let changed = patch(&pod, &status(&pod, &observed(&other), time(2))).unwrap();
    assert_eq!(changed["podIPs"], json!([{ "$patch": "replace" }, { "ip": "10.0.0.2" }]));
}

#[test]
fn a_container_that_is_replaced_keeps_its_image_until_the_other_one_is_there_and_says_how_it_ended() {
    let before = observed(pod("Always"), Some(&workload(RUNS)), 1);
    let mut changed = before.clone();
    changed.spec.as_mut().unwrap().containers[0].image = Some("j".into());
    let stopped =
        PodObservation { workload: None, why: ("", "is stopped"), change: Change::UnderWay, host_ip: None };
    changed.status = Some(status(&changed, &stopped, time(2)));
    let last = app(&changed).last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((app(&changed).image.as_str(), last.reason.as_deref()), ("i", Some("Replaced")));
    assert_eq!(app(&observed(changed, Some(&workload(RUNS)), 3)).image, "j");
}

#[test]
fn a_container_that_ends_while_it_is_replaced_does_not_end_its_pod() {
    for policy in ["Never", "OnFailure", "Always"] {
        for code in [0, 1] {
            let mut pod = observed(pod(policy), Some(&workload(RUNS)), 1);
            let stopped = workload(ended(code));
            let why = ("ContainerCreating", "stopping");
            let seen =
                PodObservation { workload: Some(&stopped), why, change: Change::UnderWay, host_ip: None };
            pod.status = Some(status(&pod, &seen, time(2)));
            assert_eq!(phase(&pod), "Running", "{policy} {code}");
            let last = app(&pod).last_state.as_ref().unwrap().terminated.as_ref().unwrap();
            assert_eq!(last.reason.as_deref(), Some("Replaced"));
            assert!(app(&pod).state.as_ref().unwrap().waiting.is_some());
        }
    }
}

#[test]
fn a_state_that_nobody_knows_makes_a_container_unready_and_ends_nothing() {
    let unknown = DeploymentStage::Unknown;
    let unknown = HostedContainerState::Waiting { stage: unknown, message: "App state: DANCING".into() };
    for (state, code) in [(RUNS, None), (ended(0), Some(0)), (ended(1), Some(1))] {
        let before = observed(pod("Always"), Some(&workload(state)), 1);
        let after = observed(before.clone(), Some(&workload(unknown.clone())), 2);
        assert_eq!((&app(&after).state, &app(&after).last_state), (&app(&before).state, &None));
        assert_eq!((phase(&after), app(&after).ready), ("Running", false));
        assert_eq!(exit_code(app(&after)), code);
        let again = observed(after, Some(&workload(RUNS)), 3);
        assert_eq!(app(&again).restart_count, i32::from(code.is_some()));
    }
    let waits = observed(pod("Always"), Some(&workload(unknown)), 1);
    let reason = app(&waits).state.as_ref().unwrap().waiting.as_ref().unwrap().reason.as_deref();
    assert_eq!(reason, Some("Unknown"));
}

#[test]
fn a_container_that_was_lost_while_its_change_is_refused_keeps_its_image_and_was_not_replaced() {
    let mut pod = observed(pod("Always"), Some(&workload(RUNS)), 1);
    pod.spec.as_mut().unwrap().containers[0].image = Some("j".into());
    let refused = ("Unsupported", "no such image");
    let stopped = PodObservation { workload: None, why: refused, change: Change::Refused, host_ip: None };
    pod.status = Some(status(&pod, &stopped, time(2)));
    let last = app(&pod).last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((app(&pod).image.as_str(), last.reason.as_deref()), ("i", Some("ContainerStatusUnknown")));
}

fn final_status_of(states: &[Value]) -> Option<Value> {
    let container = |number: usize| json!({ "name": format!("c{number}"), "image": "i" });
    let status = |(number, state): (usize, &Value)| json!({ "name": format!("c{number}"), "image": "i", "imageID": "i", "ready": true, "restartCount": 2, "state": state });
    let pod = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "u1" },
        "spec": { "containers": (0..2).map(container).collect::<Vec<_>>() },
        "status": { "phase": "Running", "podIP": "10.0.0.1",
            "containerStatuses": states.iter().enumerate().map(status).collect::<Vec<_>>() },
    });
    final_status(&serde_json::from_value(pod).unwrap(), Timestamp::from_second(9).unwrap())
}

#[test]
fn what_ran_was_killed_and_what_had_ended_keeps_how() {
    let running = json!({ "running": { "startedAt": "1970-01-01T00:00:01Z" } });
    let ended = json!({ "terminated": { "exitCode": 0, "reason": "Completed" } });
    let over = final_status_of(&[running, ended.clone()]).unwrap();
    assert_eq!((&over["phase"], &over["podIP"]), (&json!("Failed"), &json!("10.0.0.1")));
    let killed = &over["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&killed["exitCode"], &killed["startedAt"]), (&json!(137), &json!("1970-01-01T00:00:01Z")));
    assert_eq!(over["containerStatuses"][1]["state"], ended);
    assert_eq!(over["containerStatuses"][0]["restartCount"], 2);
    assert_eq!(final_status_of(&[ended.clone(), ended]).unwrap()["phase"], "Succeeded");
    assert_eq!(final_status_of(&[]).unwrap()["phase"], "Failed", "it never ran");
}
