//! Access to the cloud, and the messages when it fails. Each failure ends without a restart of the controller.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use http::Method;
use staffetta_real_openstack::Match;

use crate::process::Process;
use crate::world::World;

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

/// The time limit until a catalogue that lacked a service is read again: a minute, and the delays of a busy machine.
const CATALOGUE: Duration = Duration::from_secs(240);

fn logins(world: &World) -> usize {
    world.gate.count(&Match::any().method(Method::POST).path("/identity/v3/auth/tokens"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_wrong_password_is_reported_and_the_right_one_is_taken_without_a_restart_on_a_real_openstack() {
    let world = World::start().await;
    let file = world.folder().join("password");
    std::fs::write(&file, "a guess").unwrap();
    let controller = world.try_controller(&world.options_by_file(&file, "")).await;
    world.pod("web").await;
    world
        .until("/readyz says that the login was refused", async || {
            let said = world.readiness(&controller).await;
            assert!(!said.contains("a guess"), "{said}");
            said.contains("log in to Keystone") && said.contains("the request was rejected")
        })
        .await;
    std::fs::write(&file, world.tenant.login().password).unwrap();
    world.until_active(&["web"]).await;

    // Somebody changes the password: the token is worthless at once, and so is the password that the file still has.
    world.tenant.change_password("another").await;
    let before = logins(&world);
    world.pod("late").await;
    let said = world.until_reported("late", "DriverRefused").await;
    assert!(said.contains("log in to Keystone") && !said.contains("another"), "{said}");
    let tried = logins(&world) - before;
    assert!(tried <= 10, "{tried} logins with a password that is wrong");
    std::fs::write(&file, "another").unwrap();
    world.until_active(&["late"]).await;
    assert_eq!(world.ports().await.len(), 2);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn with_an_application_credential_pods_get_their_ports_and_a_revoked_token_costs_none_on_a_real_openstack()
 {
    let world = World::start().await;
    let (id, secret) = world.tenant.application_credential().await;
    let auth_url = world.tenant.login_through(&world.gate).auth_url;
    let credential = format!(
        "auth_type = \"v3applicationcredential\"\nauth_url = {auth_url:?}\napplication_credential_id = {id:?}\n\
         application_credential_secret = {secret:?}\n"
    );
    let mut all: toml::Table = toml::from_str(&world.options("")).unwrap();
    all.insert("neutron".into(), toml::from_str::<toml::Table>(&credential).unwrap().into());
    let controller = world.try_controller(&all.to_string()).await;
    world.pod("web").await;
    world.until_active(&["web"]).await;
    world.stack.revoke(&world.gate.token().unwrap()).await;
    world.pod("late").await;
    world.until_active(&["late"]).await;
    assert_eq!(world.ports().await.len(), 2);
    let checks = world.checks(&controller).await;
    for check in ["openstack answers", "Neutron has the extension binding", "the quotas of the project"] {
        assert!(checks.contains(&format!("\"check\":\"{check}")), "{check}: {checks}");
    }
    assert!(!checks.contains("\"failed\"") && !checks.contains("not known"), "{checks}");
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_catalogue_without_neutron_is_reported_and_read_anew_on_a_real_openstack() {
    let world = World::start().await;
    let region = format!("of-{}", world.tenant.login().project);
    world.stack.region(&region).await;
    let controller =
        world.try_controller(&world.options(&format!("[neutron]\nregion_name = {region:?}\n"))).await;
    world.pod("web").await;
    world
        .until("/readyz says what the catalogue lacks", async || {
            let said = world.readiness(&controller).await;
            said.contains("network") && said.contains(&region) && said.contains("RegionOne")
        })
        .await;
    world.stack.move_into(&region).await;
    world
        .until_within(CATALOGUE, "the pod is active", async || {
            world.vifs("web").await.first().is_some_and(|vif| vif.active)
        })
        .await;
    controller.stop().await.unwrap();
}

/// The file that the environment names.
const FILE: &str = "OS_CLIENT_CONFIG_FILE";

/// The options of a controller that finds all else in clouds.yaml.
fn by_clouds(world: &World) -> String {
    let mut all: toml::Table = toml::from_str(&world.options("")).unwrap();
    let neutron: toml::Table = toml::from_str("cloud = \"staffetta\"").unwrap();
    all.insert("neutron".into(), neutron.into());
    all.to_string()
}

/// Runs the program, which cannot start, and answers its status and what it said.
async fn refused(world: &World, clouds: &Path) -> (Option<i32>, String) {
    let config = world.folder().join("staffetta.toml");
    std::fs::write(&config, by_clouds(world)).unwrap();
    let mut command = tokio::process::Command::new(PROGRAM);
    command.arg("run").arg("--config").arg(&config).arg("--kubeconfig").arg(world.kubeconfig());
    let output = command.env(FILE, clouds).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(crate::world::PATIENCE, output).await.expect("it ends").unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn mistakes_in_clouds_yaml_are_reported_at_once_and_without_them_it_is_used_on_a_real_openstack() {
    let world = World::start().await;
    let clouds: PathBuf = world.folder().join("clouds.yaml");
    let right = world.tenant.login_through(&world.gate).clouds();
    let auth_url = format!("auth_url: {}", world.tenant.login_through(&world.gate).auth_url);
    assert!(right.contains(&auth_url));
    let password = format!("password: {}", world.tenant.login().password);
    let wrong = right.replace(&auth_url, "auth_url: keystone").replace(&password, "password: a-secret");
    let wrong = wrong.replace("region_name: RegionOne", "interface: outer");
    std::fs::write(&clouds, wrong).unwrap();
    let (status, said) = refused(&world, &clouds).await;
    assert_eq!(status, Some(1), "{said}");
    for place in ["clouds.yaml:3:16: there is no interface \"outer\"", "clouds.yaml:5:17: is not a URL"] {
        assert!(said.contains(place), "{place}\n{said}");
    }
    assert!(!said.contains("a-secret"), "{said}");

    std::fs::write(&clouds, right).unwrap();
    let kubeconfig = std::fs::read_to_string(world.kubeconfig()).unwrap();
    let environment = [(FILE, clouds.as_path())];
    let program = Path::new(PROGRAM);
    let mut controller =
        Process::start_in(&environment, program, world.folder(), &by_clouds(&world), &kubeconfig).await;
    world.pod("web").await;
    world.until_active(&["web"]).await;
    assert!(controller.terminate().await.success());
}
