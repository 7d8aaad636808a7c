//! Responses of the API server that are errors, delayed, lost or invalid.

use std::time::Duration;

use kube::ResourceExt;
use kube::api::DeleteParams;
use staffetta_apiserver::Fault;
use tokio::time::Instant;

use super::services::services;
use super::world::{Task, World, pods};

/// The faults of a write, by name. Each is injected twice in a row.
fn refusals() -> Vec<(&'static str, Fault)> {
    let later = Fault::Refuse { code: 429, retry_after: Some(1) };
    vec![
        ("401", Fault::status(401)),
        ("403", Fault::status(403)),
        ("409", Fault::status(409)),
        ("422", Fault::invalid(&[("metadata.annotations", "FieldValueTooLong")])),
        ("429", later),
        ("busy", Fault::Busy { code: 429, retry_after: 1 }),
        ("500", Fault::status(500)),
        ("503", Fault::status(503)),
        ("504", Fault::status(504)),
        ("cut", Fault::Cut),
        ("lost", Fault::CutAfter),
        ("late", Fault::Delay(Duration::from_millis(300))),
        ("hangs", Fault::Hang),
        ("garbage", Fault::Garbage),
    ]
}

async fn writes(world: World) {
    let controller = world.ready_controller().await;
    for (name, fault) in refusals() {
        let before = world.asked("patch", "pods");
        world.faults().inject(pods("patch"), 2, fault);
        let name = format!("write-{name}");
        world.pod(&name).await;
        world.until_idle(&[&name]).await;
        // What a write did may be seen before the proxy has the answer to it.
        world.until("two writes are on record", async || world.asked("patch", "pods") >= before + 2).await;
        let asked = world.asked("patch", "pods") - before;
        assert!((2..=8).contains(&asked), "{name}: {asked} writes for two faults and two states");
        world.faults().clear();
        world.end_pod(&name).await;
        world.until_gone(&name).await;
        world.until_idle(&[]).await;
    }
    assert_eq!(world.asked("get", "pods"), 0, "nothing is read to be written");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_rejected_lost_or_late_is_repeated() {
    writes(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_write_that_is_rejected_lost_or_late_is_repeated_on_a_real_server() {
    let world = World::real(&[]).await;
    writes(world).await;
}

async fn service_writes(world: World) {
    let controller = world.ready(Task::Services).await;
    for (name, fault) in refusals() {
        let before = world.asked("patch", "services");
        world.faults().inject(services("patch"), 2, fault);
        let name = format!("write-{name}");
        world.service(&name).await;
        world.until("the faults have met their writes", async || world.faults().pending() == 0).await;
        world.until_served(&[&name]).await;
        world
            .until("two writes are on record", async || world.asked("patch", "services") >= before + 2)
            .await;
        let asked = world.asked("patch", "services") - before;
        assert!((2..=10).contains(&asked), "{name}: {asked} writes for two faults and two annotations");
        world.end_service(&name).await;
        world.until_service_is_gone(&name).await;
        world.until_served(&[]).await;
    }
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_write_on_a_service_that_is_rejected_lost_or_late_is_repeated() {
    service_writes(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_write_on_a_service_that_is_rejected_lost_or_late_is_repeated_on_a_real_server() {
    let world = World::real(&[]).await;
    service_writes(world).await;
}

async fn lists(world: World) {
    world.pod("before").await;
    for (name, fault) in refusals() {
        let slow = ["hangs", "late"].contains(&name);
        if slow || name == "409" || name == "422" {
            continue; // no answers to a list; one that is never answered is asked for again after a minute
        }
        let (before, begun) = (world.asked("list", "pods"), Instant::now());
        world.faults().inject(pods("list"), 2, fault);
        let controller = world.ready_controller().await;
        world.until_idle(&["before"]).await;
        let (asked, waited) = (world.asked("list", "pods") - before, begun.elapsed());
        assert!(asked <= 6, "{name}: {asked} lists in {waited:?}");
        // A second each if the server says so; else a second and then two, each less a quarter at most.
        assert!(waited >= Duration::from_secs(2), "{name}: after {waited:?}");
        assert_eq!(world.faults().pending(), 0, "{name}");
        controller.stop().await.unwrap();
        world.faults().clear();
    }
}

#[tokio::test]
async fn a_rejected_initial_list_is_retried_after_a_delay() {
    lists(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_rejected_initial_list_is_retried_after_a_delay_on_a_real_server() {
    let world = World::real(&[]).await;
    lists(world).await;
}

async fn watches(world: World) {
    let controller = world.ready_controller().await;
    let faults = [
        ("cut", Fault::CutMid),
        ("garbage", Fault::Garbage),
        ("error-410", Fault::watch_error(410)),
        ("error-500", Fault::watch_error(500)),
        ("refused-401", Fault::status(401)),
        ("refused-403", Fault::status(403)),
        ("refused-500", Fault::status(500)),
        ("refused-503", Fault::status(503)),
        ("refused-504", Fault::status(504)),
        ("later", Fault::Refuse { code: 429, retry_after: Some(1) }),
        ("busy", Fault::Busy { code: 503, retry_after: 1 }),
        ("hangs", Fault::Hang),
    ];
    for (name, fault) in faults {
        let before = world.asked("watch", "pods");
        world.faults().inject(pods("watch"), 1, fault);
        world.until("the fault has met a watch", async || world.faults().pending() == 0).await;
        let name = format!("watch-{name}");
        world.pod(&name).await;
        world.until_idle(&[&name]).await;
        let asked = world.asked("watch", "pods") - before;
        assert!(asked <= 20, "{name}: {asked} watches");
        world.end_pod(&name).await;
        world.until_gone(&name).await;
        world.until_idle(&[]).await;
    }
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_recovers_from_any_interruption() {
    watches(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_watch_recovers_from_any_interruption_on_a_real_server() {
    let world = World::real(&["--min-request-timeout=5"]).await;
    watches(world).await;
}

async fn odd_object(world: World) {
    world.faults().inject(pods("list"), 1, Fault::undecodable("odd", "/spec/containers"));
    world.pod("odd").await;
    world.pod("sound").await;
    let controller = world.ready_controller().await;
    world.until_idle(&["sound"]).await;
    controller.stop().await.unwrap();
    let controller = world.ready_controller().await;
    world.until_idle(&["odd", "sound"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn an_object_that_cannot_be_decoded_does_not_affect_others_of_its_list() {
    odd_object(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn an_object_that_cannot_be_decoded_does_not_affect_others_of_its_list_on_a_real_server() {
    let world = World::real(&[]).await;
    odd_object(world).await;
}

/// The clock of the server is far off: what it says of an end, in the dates of its answers too, is long ago, or never comes.
async fn skew(world: World) {
    let controller = world.ready_controller().await;
    for (name, date, seconds) in
        [("slow", "2001-01-01T00:00:00Z", -86_400), ("fast", "2099-01-01T00:00:00Z", 86_400)]
    {
        world.pod(name).await;
        world.until_idle(&[name]).await;
        // When this one is settled, all that happened to the first so far was told, with the right dates.
        let second = format!("{name}-2");
        world.pod(&second).await;
        world.until_idle(&[name, &second]).await;
        let pointer = "/metadata/deletionTimestamp".to_owned();
        let elsewhen = Fault::Replace { name: name.into(), pointer, value: date.into() };
        world.faults().skew_dates(seconds);
        let before = world.asked("watch", "pods");
        world.faults().inject(pods("watch"), usize::MAX, elsewhen);
        world.faults().cut_watches();
        world.until("a watch tells the wrong date", async || world.asked("watch", "pods") > before).await;

        world.pods().delete(name, &DeleteParams::default().grace_period(3600)).await.unwrap();
        // When this one is, its deletion was told too.
        let third = format!("{name}-3");
        world.pod(&third).await;
        world.until_idle(&[name, &second, &third]).await;
        let pod = world.pods().get(name).await.unwrap();
        assert_eq!(pod.finalizers(), ["staffetta.dev/vif"], "{name}: it uses its VIF until it ends");

        for name in [name, &second, &third] {
            world.end_pod(name).await;
            world.until_gone(name).await;
        }
        world.until_idle(&[]).await;
        world.faults().clear();
    }
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_with_a_wrong_finish_time_keeps_its_vif_until_it_is_finished() {
    skew(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_pod_with_a_wrong_finish_time_keeps_its_vif_until_it_is_finished_on_a_real_server() {
    let world = World::real(&["--min-request-timeout=5"]).await;
    skew(world).await;
}

#[tokio::test]
async fn a_watch_that_is_accepted_and_broken_each_time_is_listed_again() {
    const BREAKS: usize = 4;
    let world = World::embedded().await;
    let controller = world.ready_controller().await;
    let (before, begun) = (world.asked("list", "pods"), Instant::now());
    world.faults().inject(pods("watch"), BREAKS, Fault::watch_error(500));
    world.until("each fault has met a watch", async || world.faults().pending() == 0).await;
    world.pod("after").await;
    world.until_idle(&["after"]).await;
    // A question where the server is follows each break, and a list every second one.
    let (lists, waited) = (world.asked("list", "pods") - before, begun.elapsed());
    assert!(lists > BREAKS + 1, "{lists} lists and questions");
    // After two seconds without news it asks where the server is, too.
    let most = (BREAKS + BREAKS / 2) as u64 + waited.as_secs() / 2;
    assert!(lists as u64 <= most, "{lists} lists and questions in {waited:?}");
    assert!(waited >= Duration::from_secs(11), "the waits grow over the lists: {waited:?}");
    controller.stop().await.unwrap();
}

/// A server that has too much to do says in a header how long to leave it alone. Waits of our own are shorter here.
async fn busy(world: World) {
    const LEFT_ALONE: Duration = Duration::from_secs(5);
    let controller = world.ready_controller().await;
    for verb in ["patch", "watch"] {
        let begun = Instant::now();
        world.faults().inject(pods(verb), 1, Fault::Busy { code: 429, retry_after: LEFT_ALONE.as_secs() });
        // Meets the request that follows, and does nothing to it.
        world.faults().inject(pods(verb), 1, Fault::Delay(Duration::ZERO));
        world.pod(verb).await;
        world.until("it is asked again", async || world.faults().pending() == 0).await;
        let waited = begun.elapsed();
        assert!(waited >= LEFT_ALONE, "{verb}: again after {waited:?}");
    }
    world.until_idle(&["patch", "watch"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_busy_server_gets_no_request_within_its_retry_after_time() {
    busy(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_busy_server_gets_no_request_within_its_retry_after_time_on_a_real_server() {
    let world = World::real(&[]).await;
    busy(world).await;
}

/// Each watch ends as soon as it has begun, and not by an error: what kube makes of that is to ask again at once.
async fn ended_at_once(fault: Fault) {
    let world = World::embedded().await;
    let controller = world.ready_controller().await;
    let (before, begun) = (world.asked("watch", "pods"), Instant::now());
    world.faults().inject(pods("watch"), usize::MAX, fault);
    world.faults().cut_watches();
    world.pod("web").await;
    world.until_idle(&["web"]).await;
    let (asked, waited) = (world.asked("watch", "pods") - before, begun.elapsed());
    assert!(asked as u64 <= 4 + 2 * waited.as_secs(), "{asked} watches in {waited:?}");
    let page =
        reqwest::get(format!("http://{}/metrics", controller.admin())).await.unwrap().text().await.unwrap();
    let series = "staffetta_watch_errors_total{kind=\"Pod\"} ";
    let errors: u64 = page.lines().find_map(|line| line.strip_prefix(series)).unwrap().parse().unwrap();
    assert!(errors >= 2, "{errors} errors");
    world.faults().clear();
    world.pod("after").await;
    world.until_idle(&["after", "web"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_that_ends_at_once_each_time_is_an_error_with_the_usual_back_off() {
    let empty = Fault::Answer { code: 200, body: String::new() };
    tokio::join!(ended_at_once(Fault::CutMid), ended_at_once(empty));
}
