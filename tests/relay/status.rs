//! Tests of `staffetta status`, as used to find the reason why a pod is stuck.

use serde_json::{Value, json};
use staffetta::controller::Controller;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, VifMethod};

use crate::world::{World, active};

/// The exit code, standard output and standard error of the program.
async fn status(controller: &Controller, arguments: &[&str]) -> (i32, String, String) {
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_staffetta"))
        .arg("status")
        .args(["--admin", &controller.admin().to_string()])
        .args(arguments)
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .output()
        .await
        .unwrap();
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), said, complained)
}

/// The one line of `text` that contains `words`, without the room between its columns.
fn line(text: &str, words: &str) -> String {
    let mut found = text.lines().filter(|line| line.contains(words));
    let line = found.next().unwrap_or_else(|| panic!("no line says `{words}`:\n{text}"));
    assert!(found.next().is_none(), "more than one line says `{words}`:\n{text}");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_person_sees_in_one_command_which_object_is_stuck_and_why() {
    let world = World::new().await;
    let refused =
        || Fault::Fail(DriverError::new(Reason::Refused, "ask the switch").detail("VLAN 7 is full"));
    world.vifs.faults().inject(VifMethod::Request, 1000, refused());
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    let mut shown = String::new();
    world
        .until("the pod is shown", async || {
            let (code, said, complained) = status(&controller, &[]).await;
            assert_eq!((code, complained.as_str()), (0, ""));
            shown = said;
            shown.contains("default/web")
        })
        .await;
    assert!(shown.starts_with("staffetta 0.1.0 on "), "{shown}");
    assert!(line(&shown, "staffetta 0.1.0 on ").contains(": unopposed, ready, up for "), "{shown}");
    let row = line(&shown, "default/web ");
    assert!(row.starts_with("vif Pod default/web failed "), "{row}");
    assert!(row.contains("VLAN 7 is full"), "{row}");
    let problem = "  DriverRefused: 1 object of vif for ";
    assert!(shown.lines().nth(1).is_some_and(|line| line.starts_with(problem)), "{shown}");
    let handler = shown.lines().find(|line| line.starts_with("vif ") && line.ends_with("open")).unwrap();
    assert_eq!(handler.split_whitespace().collect::<Vec<_>>(), ["vif", "0", "0", "0", "0", "1", "open"]);

    let (code, details, _) = status(&controller, &["web", "-n", "default"]).await;
    assert_eq!(code, 0);
    let row = |name: &str| line(&details, &format!("  {name} "));
    let state = line(&details, "(added)");
    assert!(
        state.starts_with("vif failed (added) for ") && state.contains(", next attempt in "),
        "{details}"
    );
    assert!(row("attempts").starts_with("attempts 1 failed, the first "), "{details}");
    assert!(row("error").ends_with("VLAN 7 is full"), "{details}");

    for elsewhere in [["-n", "other"], ["--kind", "service"], ["--phase", "queued"], ["--handler", "lb"]] {
        let (code, said, _) = status(&controller, &elsewhere).await;
        assert!(code == 0 && !said.contains("VLAN 7"), "{elsewhere:?}: {said}");
    }
    let (_, said, _) = status(&controller, &["web", "-n", "default", "--phase", "queued"]).await;
    assert!(
        said.ends_with("No work is queued or in progress for that name: the object is handled, or no enabled handler selects it.\n"),
        "{said}"
    );
    for typo in [["web", "-n", "other"], ["wbe", "-n", "default"], ["web", "--kind", "service"]] {
        let (_, said, _) = status(&controller, &typo).await;
        let unknown = "No watched object has that name; check the name, the namespace and the kind.\n";
        assert!(said.ends_with(unknown), "{typo:?}: {said}");
    }

    let (_, answer, _) = status(&controller, &["-o", "json", "--kind", "Pod"]).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["ready"], &answer["objects"][0]["name"]), (&json!(true), &json!("web")));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn hundreds_of_objects_that_fail_for_one_reason_fit_on_a_screen() {
    const PODS: usize = 300;
    let world = World::new().await;
    let refused = Fault::Fail(DriverError::new(Reason::Refused, "ask the switch").detail("VLAN 7 is full"));
    world.vifs.faults().inject(VifMethod::Request, 100 * PODS, refused);
    let controller = world.controller().await;
    for number in 0..PODS {
        world.pod(&format!("web-{number}"), json!({}), json!({})).await;
    }
    let problem = format!("  DriverRefused: {PODS} objects of vif for ");
    let mut shown = String::new();
    world
        .until("all pods fail", async || {
            shown = status(&controller, &[]).await.1;
            shown.contains(&problem)
        })
        .await;
    assert!(shown.lines().count() <= 16, "{shown}");
    assert!(shown.contains(", such as Pod default/web-") && shown.contains("VLAN 7 is full"), "{shown}");
    assert!(shown.contains("\n    remedy: "), "{shown}");
    assert!(shown.contains(&format!("{PODS} objects fail or are stuck; list them with --all")), "{shown}");
    let rows = async |arguments: &[&str]| {
        let said = status(&controller, arguments).await.1;
        said.lines().filter(|line| line.starts_with("vif ") && line.contains("default/web-")).count()
    };
    assert_eq!((rows(&[]).await, rows(&["--all"]).await, rows(&["-n", "default"]).await), (0, PODS, PODS));
    let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_staffetta"))
        .args(["explain", "namespace/default", "--admin", &controller.admin().to_string()])
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("fail or are stuck in this namespace:\n") && said.contains(&problem), "{said}");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_at_work_is_shown_when_asked_for_until_it_is_handled() {
    let world = World::new().await;
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::Hang);
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    let shown = async |arguments: &[&str]| status(&controller, arguments).await.1.contains("default/web");
    world.until("the pod is at work", async || shown(&["--phase", "running"]).await).await;
    assert!(shown(&["--all"]).await && !shown(&["--phase", "failed"]).await);
    drop(controller);

    let controller = world.controller().await;
    world.vif_of("web", active).await;
    world
        .until("it is handled", async || {
            status(&controller, &[]).await.1.ends_with("Every object is handled.\n")
        })
        .await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_question_that_the_controller_refuses_is_bad_usage() {
    let world = World::new().await;
    let controller = world.controller().await;
    let (code, said, complained) = status(&controller, &["--handler", "odd"]).await;
    assert_eq!((code, said.as_str()), (2, ""));
    assert_eq!(complained, "error: the handler `odd` is not enabled; those are: `vif`, `lb`, `lbaasspec`\n");
    controller.stop().await.unwrap();
}
