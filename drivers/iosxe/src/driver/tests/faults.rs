//! Tests of failures of the device.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_device_that_cannot_be_reached_or_understood_is_unavailable_and_nothing_is_absent() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    device.accepted();
    for hour in 0..2 {
        (device.inner().unreachable, device.inner().malformed) = (hour == 0, hour == 1);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let errors = [
            driver.check_connection().await.unwrap_err(),
            driver.list_pods().await.unwrap_err(),
            driver.deploy_pod(&pod(1)).await.unwrap_err(),
            driver.delete_pod(&pod(1).owner()).await.unwrap_err(),
            driver.get_device_resources().await.unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.reason() == Reason::Unavailable), "{errors:?}");
    }
    device.inner().malformed = false;
    deploy(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), [""; 0], "it ran all the time");
}

#[tokio::test(start_paused = true)]
async fn a_device_that_forgot_its_applications_gets_them_again() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    for keeps_configuration in [false, true] {
        deploy(&driver, &pod(1)).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        device.inner().oper.clear();
        if !keeps_configuration {
            device.inner().config.clear();
        }
        deploy(&driver, &pod(1)).await;
        assert_eq!(status(&driver, 1).await.unwrap().containers[0].state, HostedContainerState::Running);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_got_lost_is_no_reason_to_do_it_twice() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    let mut lost = 0;
    for _ in 0..100 {
        device.inner().loses_answer = true;
        match driver.deploy_pod(&pod(1)).await {
            Ok(PodProgress::Done) => break,
            Ok(progress) => tokio::time::sleep(progress.poll_after().unwrap()).await,
            Err(error) => {
                assert!(error.ambiguous());
                lost += 1;
            }
        }
    }
    assert_eq!((lost, device.accepted()), (4, steps(&["configure", "install", "activate", "start"], 1)));
}

#[tokio::test(start_paused = true)]
async fn applications_of_others_are_neither_reported_nor_touched() {
    let device = Arc::new(Device::default());
    let west = driver_of(&device, "west", &json!({}));
    deploy(&west, &pod(1)).await;
    device.inner().config.insert("guest".into(), json!({ "application-name": "guest" }));
    device.inner().oper.insert("guest".into(), Oper::in_state("RUNNING"));
    device.accepted();
    let east = driver(&device);
    assert!(east.list_pods().await.unwrap().is_empty());
    assert!(east.delete_pod(&pod(1).owner()).await.unwrap().is_done());
    let (reason, message, _) = failing(&east, &pod(1)).await;
    assert_eq!(reason, "DriverRefused");
    assert!(message.contains("belongs to another pod or cluster"), "{message}");
    assert_eq!(device.accepted(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_application_belongs_to_another_cluster_holds_up_no_other() {
    let device = Arc::new(Device::default());
    deploy(&driver_of(&device, "west", &json!({})), &pod(1)).await;
    device.accepted();
    let containers = ["app", "db"].map(|name| json!({ "name": name, "image": "flash:/a.tar" }));
    let (driver, pod) = (driver(&device), pod_with(1, &json!(containers), "Always"));
    let begun = Instant::now();
    loop {
        let (reason, message, poll_after) = failing(&driver, &pod).await;
        assert_eq!(reason, "DriverRefused");
        assert!(message.starts_with("app: ") && message.contains("belongs to another"), "{message}");
        if poll_after > Duration::from_secs(10) {
            break;
        }
        tokio::time::sleep(poll_after).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let accepted = device.accepted();
    let words: Vec<_> = accepted.iter().filter_map(|step| step.split(' ').next()).collect();
    assert_eq!(words, ["configure", "install", "activate", "start"], "they are those of `db`");
    let hosted = driver.get_pod_status(&pod.owner()).await.unwrap().unwrap();
    assert_eq!(hosted.containers[0].state, HostedContainerState::Running);
}

#[tokio::test(start_paused = true)]
async fn an_application_of_an_earlier_agent_is_taken_over_for_its_pod() {
    let device = Arc::new(Device::default());
    let labels = format!(
        "--label cisco.vk/pod-name=web-1 --label cisco.vk/pod-namespace=shop --label cisco.vk/pod-uid={} \
         --label cisco.vk/container-name=app",
        uid(1)
    );
    let earlier = json!({
        "application-name": "cvk0000_x", "run-optss": { "run-opts": [{ "line-index": 1, "line-run-opts": labels }] },
    });
    device.inner().config.insert("cvk0000_x".into(), earlier);
    device.inner().oper.insert("cvk0000_x".into(), Oper::in_state("RUNNING"));
    let driver = driver(&device);
    let hosted = status(&driver, 1).await.unwrap();
    assert!(!hosted.marked, "it is nobody's orphan");
    assert!(driver.deploy_pod(&pod(1)).await.unwrap().is_done());
    assert!(device.accepted().is_empty());
    let changed = pod_with(1, &json!([{ "name": "app", "image": "flash:/b.tar" }]), "Always");
    loop {
        let progress = driver.update_pod(&changed).await.unwrap();
        let Some(poll_after) = progress.poll_after() else { break };
        tokio::time::sleep(poll_after).await;
    }
    let earlier = ["stop", "deactivate", "uninstall", "remove"].map(|word| format!("{word} cvk0000_x"));
    let made = steps(&["configure", "install", "activate", "start"], 1);
    assert_eq!(device.accepted(), [&earlier[..], &made].concat(), "it changed, and is made anew");
    delete(&driver, &changed).await;
    assert!(device.inner().config.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_install_is_reported_in_the_words_of_the_device_and_tried_again_after_a_pause() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().fails_installs = Some("not enough space");
    let (reason, message, poll_after) = failing(&driver, &pod(1)).await;
    assert_eq!((&*reason, message.as_str()), ("ErrImagePull", "app: installing: not enough space"));
    let hosted = status(&driver, 1).await.unwrap();
    let state = &hosted.containers[0].state;
    assert!(
        matches!(state, HostedContainerState::Waiting { message, .. } if message == "not enough space"),
        "{state:?}"
    );
    assert_eq!(device.accepted(), steps(&["configure", "install"], 1));
    device.inner().fails_installs = None;
    assert!(!driver.deploy_pod(&pod(1)).await.unwrap().is_done());
    assert_eq!(device.accepted(), [""; 0], "however often somebody asks");
    tokio::time::sleep(poll_after).await;
    deploy(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), steps(&["install", "activate", "start"], 1));
}

#[tokio::test(start_paused = true)]
async fn an_install_of_somebody_else_that_never_ends_is_reported_and_asked_after_ever_more_seldom() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().oper.insert("guest".into(), Oper::in_state("INSTALLING"));
    let begun = Instant::now();
    let (reason, message, _) = failing(&driver, &pod(1)).await;
    assert_eq!(reason, "ErrImagePull");
    assert_eq!(message, "app: waiting for the install of guest, for more than 600 s");
    let requests = device.inner().requests;
    while begun.elapsed() < Duration::from_secs(3 * 3600) {
        let (.., poll_after) = failing(&driver, &pod(1)).await;
        tokio::time::sleep(poll_after).await;
    }
    assert!(device.inner().requests - requests < 100, "{}", device.inner().requests - requests);
    device.inner().oper.remove("guest");
    deploy(&driver, &pod(1)).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_device_tells_of_others_and_is_no_text_holds_up_no_install_and_a_long_text_is_cut() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    let reported = |message: Value| json!({ "app-id": "guest", "status": "im-app-fail", "message": message });
    device.inner().notifications.extend([reported(json!(null)), reported(json!(7))]);
    deploy(&driver, &pod(1)).await;
    device.inner().fails_installs = Some(&*"no room\n".repeat(10_000).leak());
    let (_, message, _) = failing(&driver, &pod(2)).await;
    assert!(
        message.starts_with("app: installing: no roomno room") && message.len() == 317,
        "{}",
        message.len()
    );
    let state = &status(&driver, 2).await.unwrap().containers[0].state;
    assert!(
        matches!(state, HostedContainerState::Waiting { message, .. } if message.len() == 300),
        "{state:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_installed_on_a_device_that_hosts_nothing() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().disabled = true;
    driver.deploy_pod(&pod(1)).await.unwrap();
    let progress = driver.deploy_pod(&pod(1)).await.unwrap();
    assert!(matches!(&progress, PodProgress::Failing { reason, .. } if reason == "AppHostingDisabled"));
    assert_eq!(device.accepted(), steps(&["configure"], 1));
    device.inner().disabled = false;
    deploy(&driver, &pod(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_the_device_did_by_itself_is_no_failure() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    while device.inner().oper.get(&id(1)).is_none_or(|oper| oper.state != "DEPLOYED") {
        let progress = driver.deploy_pod(&pod(1)).await.unwrap();
        tokio::time::sleep(progress.poll_after().unwrap()).await;
    }
    device.inner().refusals.push("HTTP 400 operation-failed: it is activated already");
    let refused = driver.deploy_pod(&pod(1)).await.unwrap();
    assert!(matches!(refused, PodProgress::Working { .. }), "{refused:?}");
    device.inner().oper.insert(id(1), Oper::in_state("RUNNING"));
    let begun = Instant::now();
    deploy(&driver, &pod(1)).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_while_it_is_installed_leaves_nothing() {
    for calls in 1..6 {
        let device = Arc::new(Device::default());
        let driver = driver(&device);
        for _ in 0..calls {
            let progress = driver.deploy_pod(&pod(1)).await.unwrap();
            tokio::time::sleep(progress.poll_after().unwrap_or_default()).await;
        }
        delete(&driver, &pod(1)).await;
        assert!(device.inner().config.is_empty() && device.inner().oper.is_empty(), "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_pods_of_one_name_are_two() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    let named = |number| {
        let mut request = pod(number);
        Arc::make_mut(&mut request.pod).metadata.name = Some("web".into());
        request
    };
    deploy(&driver, &named(1)).await;
    deploy(&driver, &named(2)).await;
    delete(&driver, &named(1)).await;
    let pods = driver.list_pods().await.unwrap();
    assert_eq!(pods.iter().map(|pod| pod.owner.uid.to_string()).collect::<Vec<_>>(), [uid(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_is_refused_before_anything_is_asked_of_the_device() {
    let device = Arc::new(Device::default());
    let pod = pod_with(1, &json!([{ "name": "app", "image": "nginx:latest" }]), "Always");
    let error = driver(&device).deploy_pod(&pod).await.unwrap_err();
    assert!(error.to_string().contains("spec.containers{app}.image: `nginx:latest`"), "{error}");
    assert_eq!(device.inner().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_nobody_knows_is_waited_for() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    device.accepted();
    device.inner().oper.insert(id(1), Oper::in_state("DANCING"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let progress = driver.deploy_pod(&pod(1)).await.unwrap();
    assert!(
        matches!(&progress, PodProgress::Working { state, .. } if state.contains("DANCING")),
        "{progress:?}"
    );
    let state = &status(&driver, 1).await.unwrap().containers[0].state;
    assert!(matches!(state, HostedContainerState::Waiting { .. }));
    assert_eq!(device.accepted(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_activation_that_fails_is_reported_in_the_words_of_the_device_and_tried_after_pauses_that_double()
{
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().fails_activations = Some("not enough CPU is available");
    let (begun, mut reported) = (Instant::now(), Vec::new());
    while begun.elapsed() < Duration::from_secs(60) {
        let progress = driver.deploy_pod(&pod(1)).await.unwrap();
        if let PodProgress::Failing { reason, message, .. } = &progress {
            reported.push((reason.to_string(), message.clone()));
        }
        tokio::time::sleep(progress.poll_after().unwrap()).await;
    }
    let expected =
        ("CreateContainerError".to_owned(), "app: activating: not enough CPU is available".to_owned());
    let all = reported.iter().all(|reported| *reported == expected);
    assert!(!reported.is_empty() && all, "{reported:?}");
    let attempts = device.accepted().iter().filter(|step| step.starts_with("activate")).count();
    assert_eq!(attempts, 5, "after 2, 4, 8 and 16 s, and each is known to have failed soon");
    let state = &status(&driver, 1).await.unwrap().containers[0].state;
    assert!(
        matches!(state, HostedContainerState::Waiting { message, .. } if message.contains("CPU")),
        "{state:?}"
    );
    device.inner().fails_activations = None;
    deploy(&driver, &pod(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_answer_nobody_waited_for_is_seen_at_the_next_look() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    // A process that has read the device for a while.
    for _ in 0..4 {
        driver.list_pods().await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    device.inner().swallows_answers = true;
    let cut_short = tokio::time::timeout(Duration::from_millis(100), driver.deploy_pod(&pod(1))).await;
    assert!(cut_short.is_err());
    device.inner().swallows_answers = false;
    let begun = Instant::now();
    deploy(&driver, &pod(1)).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(device.accepted(), steps(&["configure", "install", "activate", "start"], 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_out_of_the_configuration_while_the_device_may_hide_what_it_has() {
    let device = Arc::new(Device::default());
    let before = driver(&device);
    deploy(&before, &pod(1)).await;
    device.accepted();
    // It starts, and shows none of its applications for a while.
    device.inner().disabled = true;
    for driver in [before, driver(&device)] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let progress = driver.delete_pod(&pod(1).owner()).await.unwrap();
        let hidden =
            matches!(&progress, PodProgress::Failing { reason, .. } if reason == "AppHostingDisabled");
        assert!(hidden, "{progress:?}");
    }
    assert_eq!(device.accepted(), [""; 0]);
    device.inner().disabled = false;
    delete(&driver(&device), &pod(1)).await;
    assert!(device.inner().config.is_empty() && device.inner().oper.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_only_configured_goes_from_a_device_that_hosts_nothing() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().disabled = true;
    for _ in 0..3 {
        let progress = driver.deploy_pod(&pod(1)).await.unwrap();
        tokio::time::sleep(progress.poll_after().unwrap()).await;
    }
    assert!(driver.delete_pod(&pod(1).owner()).await.is_ok());
    delete(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), steps(&["configure", "remove"], 1));
}
