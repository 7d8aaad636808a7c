//! `staffetta cni-daemon`: runs the daemon of the CNI plugin on a node.
//!
//! The daemon is a controller with one handler, which watches the pods of its node, without a leader election. Its server
//! listens before the API server answers, so that pods can be unbound at any time.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use serde::Deserialize;
use serde_json::{Value, json};
use staffetta_cni::conflist::{conflist, install};
use staffetta_cni_daemon::{Acceptance, Bindings, CniDaemon, CniDaemonOptions, CniServer, HANDLER, Records};
use staffetta_driver::VifBindingDriver;
use staffetta_handler::{Registry, SetupError};
use staffetta_network::proof::{ProofKey, ProofKeyError};
use tower::BoxError;
use tracing::{info, warn};

use crate::base::config::{self, Configuration, ConfigurationError, FileSchema, KubernetesOptions};
use crate::base::connect::Connection;
use crate::control::assembly::cni;
use crate::control::run::{self, RunError, block_on, start};

/// The error of a CNI configuration file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {} (`cni_daemon.conflist`)", path.display())]
struct ConflistError {
    path: PathBuf,
    source: io::Error,
}

/// Loads the configuration of the daemon. To save memory on each node, the schema has only the sections that the daemon needs and those
/// that the file or one of `variables` sets. After a mistake, the configuration is loaded again with the schema of all sections, so that
/// the error can suggest any known name.
pub(crate) fn load(
    registry: &Registry,
    file: Option<&Path>,
    variables: Vec<(OsString, OsString)>,
) -> Result<Configuration, ConfigurationError> {
    let schema = schema(registry, file, &variables)?;
    Configuration::load(&schema, file, variables.iter().cloned())
        .or_else(|_| Configuration::load(&FileSchema::assemble(registry)?, file, variables))
}

/// Returns the schema of the sections that the daemon needs, and of those that the file or one of `variables` may set.
fn schema(
    registry: &Registry,
    file: Option<&Path>,
    variables: &[(OsString, OsString)],
) -> Result<FileSchema, ConfigurationError> {
    let mut needed = Registry::default();
    config::register(&mut needed);
    cni::sections(&mut needed);
    let needed: Vec<_> = needed.sections().map(|section| section.name.clone()).collect();
    // A file that cannot be read is reported when the configuration is loaded.
    let text = file.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let set_in_environment = |name: &str| {
        variables.iter().any(|(variable, _)| variable.to_string_lossy().to_lowercase().contains(name))
    };
    FileSchema::of_sections(registry, |name| {
        needed.iter().any(|needed| needed == name) || text.contains(name) || set_in_environment(name)
    })
}

/// Runs the daemon until SIGTERM or SIGINT.
pub(crate) fn run(registry: Registry, mut configuration: Configuration) -> Result<(), RunError> {
    adapt(&mut configuration);
    let runtime = start(&configuration)?;
    run::log_start(&registry, &configuration);
    block_on(runtime, serve(registry, &configuration)).map_err(RunError::Command)
}

/// Replaces options of the controller, such as its handlers, the leader election and the selection of objects, by what the daemon needs.
fn adapt(configuration: &mut Configuration) {
    let value = &mut configuration.value;
    let kubernetes = &mut value["kubernetes"];
    kubernetes["enabled_handlers"] = json!([HANDLER]);
    // The daemon binds what the controller has selected: pods with its finalizer.
    kubernetes["namespaces"] = json!([]);
    kubernetes["namespace_labels"] = Value::Null;
    kubernetes["object_labels"] = Value::Null;
    // Nothing is created outside the cluster, so nothing carries the id, and the daemon need not read it.
    if kubernetes["cluster_id"].is_null() {
        kubernetes["cluster_id"] = HANDLER.into();
    }
    value["leader_election"]["enabled"] = false.into();
    value["webhook"]["listen"] = Value::Null;
    let sections = Configuration::deserialize(&*value).expect("the overridden options are valid");
    let kubeconfig = configuration.kubernetes.kubeconfig.take();
    configuration.kubernetes = KubernetesOptions { kubeconfig, ..sections.kubernetes };
    configuration.leader_election = sections.leader_election;
    configuration.webhook = sections.webhook;
}

/// Runs the server of the plugin and the controller until both have ended, or one of them fails. The CNI configuration file is written only
/// when the controller has listed the pods of the node, so that the container runtime calls the plugin no earlier.
async fn serve(registry: Registry, configuration: &Configuration) -> Result<(), BoxError> {
    let shutdown = run::shutdown_signal().map_err(RunError::Start)?;
    let connection = run::connection_before(&shutdown, configuration).await?;
    let (registry, daemon, options) = assemble(registry, configuration, &connection)?;
    let server = CniServer::bind(&options.listen).await?;
    info!(address = String::from(options.listen.clone()), "the server of the CNI plugin is listening");
    let server = tokio::spawn(server.serve(Arc::clone(&daemon), shutdown.clone().cancelled_owned()));
    daemon.release_earlier_boot().await;
    let mut controller = run::controller(registry, configuration, connection, shutdown.clone()).await?;
    let running = async {
        controller.ready().await?;
        // It may have ended before the pods were known.
        if !controller.token().is_cancelled() {
            daemon.set_ready();
            if let Some(path) = &options.conflist {
                publish(path, &options)?;
            }
        }
        controller.ended().await?;
        shutdown.cancel();
        Ok::<_, BoxError>(())
    };
    let serving = async { Ok(server.await??) };
    tokio::try_join!(running, serving).map(drop)
}

/// Creates the daemon with the registered drivers that bind VIFs, and adds its handler to the registry. Returns both, with the options of
/// the daemon. Fails if `cni_daemon.node_name` is not set.
fn assemble(
    registry: Registry,
    configuration: &Configuration,
    connection: &Connection,
) -> Result<(Registry, Arc<CniDaemon>, CniDaemonOptions), BoxError> {
    let registry = Arc::new(registry);
    let setup = registry.setup(connection.client.clone(), configuration.value.clone(), None);
    let options: CniDaemonOptions = setup.section(cni::SECTION)?;
    let bindings: Bindings = setup.drivers::<dyn VifBindingDriver>()?;
    drop(setup);
    let node_name = options.node_name.clone().ok_or_else(|| {
        SetupError::Invalid("`cni_daemon.node_name` is missing (STAFFETTA_CNI_DAEMON__NODE_NAME)".to_owned())
    })?;
    let records = Records::open(&options.state_folder)?;
    let limit = Duration::from_secs(options.vif_annotation_timeout.get());
    let acceptance = acceptance(configuration, &options)?;
    let daemon = Arc::new(CniDaemon::new(records, bindings, limit).accepting(acceptance));
    let mut registry = Arc::into_inner(registry).expect("the setup, its only other owner, is dropped");
    cni::handler(&mut registry, Arc::clone(&daemon), node_name);
    Ok((registry, daemon, options))
}

/// Returns what the daemon binds: VIFs of the classes in `cni_daemon.vif_classes` or else of the configured VIF driver, with a proof if there
/// is a key. Fails if the key cannot be read.
fn acceptance(
    configuration: &Configuration,
    options: &CniDaemonOptions,
) -> Result<Acceptance, ProofKeyError> {
    let of_driver: &[&str] = match configuration.value["kubernetes"]["pod_vif_driver"].as_str() {
        Some("nested-vlan") => &["VIFVlanNested"],
        Some("nested-macvlan") => &["VIFMacvlanNested"],
        _ => &["VIFOpenVSwitch", "VIFBridge"],
    };
    let classes = match &*options.vif_classes {
        [] => of_driver.iter().map(|&class| class.to_owned()).collect(),
        chosen => chosen.iter().cloned().collect(),
    };
    let key = configuration.kubernetes.vif_proof_key_file.as_deref().map(ProofKey::read).transpose()?;
    if key.is_none() {
        warn!(
            "without `kubernetes.vif_proof_key_file`, whoever may change a pod of this node chooses the VIF that it gets"
        );
    }
    Ok(Acceptance { classes: Some(classes), key })
}

/// Writes the CNI configuration file (conflist), which makes the container runtime use the plugin.
fn publish(path: &Path, options: &CniDaemonOptions) -> Result<(), ConflistError> {
    let list = conflist(&String::from(options.listen.clone()), &options.chained_plugins);
    install(path, list.as_bytes(), 0o644)
        .map_err(|source| ConflistError { path: path.to_owned(), source })?;
    info!(path = %path.display(), "the CNI configuration is in place");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::api::core::v1::Pod;
    use staffetta_handler::Event;

    use super::*;
    use crate::control::controller::ObjectSelection;

    #[test]
    fn the_daemon_binds_the_classes_of_its_driver_or_those_in_its_options_and_proven_ones_with_a_key() {
        let registry = crate::control::assembly::registry();
        let schema = FileSchema::assemble(&registry).unwrap();
        let of = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), text).unwrap();
            let configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
            let options = serde_json::from_value(configuration.value[cni::SECTION].clone()).unwrap();
            acceptance(&configuration, &options)
        };
        let classes =
            |text: &str| of(text).unwrap().classes.unwrap().into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(classes(""), "VIFBridge VIFOpenVSwitch");
        assert_eq!(classes("[kubernetes]\npod_vif_driver = \"nested-vlan\"\n"), "VIFVlanNested");
        assert_eq!(classes("[kubernetes]\npod_vif_driver = \"nested-macvlan\"\n"), "VIFMacvlanNested");
        assert_eq!(classes("[cni_daemon]\nvif_classes = [\"VIFBridge\"]\n"), "VIFBridge");
        assert!(of("").unwrap().key.is_none());
        let key = tempfile::NamedTempFile::new().unwrap();
        fs::write(key.path(), "0123456789abcdef0123456789abcdef\n").unwrap();
        let option = format!("[kubernetes]\nvif_proof_key_file = {:?}\n", key.path());
        assert!(of(&option).unwrap().key.is_some());
        assert!(of("[kubernetes]\nvif_proof_key_file = \"/none\"\n").is_err());
    }

    #[test]
    fn the_daemon_binds_what_the_controller_has_selected() {
        let registry = crate::control::assembly::registry();
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = "namespaces = [\"shop\"]\nnamespace_labels = \"team=net\"\nobject_labels = \"a=b\"\n";
        fs::write(file.path(), format!("[kubernetes]\n{options}")).unwrap();
        let schema = FileSchema::assemble(&registry).unwrap();
        let mut configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
        let pod: Pod =
            serde_json::from_value(serde_json::json!({ "metadata": { "namespace": "bank" } })).unwrap();
        let pod = Event::Added(Arc::new(pod)).erase();
        assert!(!ObjectSelection::new(&configuration.kubernetes).admits(&pod, false).is_taken());
        adapt(&mut configuration);
        assert!(ObjectSelection::new(&configuration.kubernetes).admits(&pod, false).is_taken());
        // The check of the rights reads these values.
        assert_eq!(configuration.value["kubernetes"]["namespace_labels"], Value::Null);
        assert_eq!(configuration.value["kubernetes"]["cluster_id"], HANDLER);
    }

    #[test]
    fn the_schema_has_what_the_daemon_needs_and_what_is_set_and_after_a_mistake_all() {
        let registry = crate::control::assembly::registry();
        let variables = |all: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
            all.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect()
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        let sections = |text: &str, set: &[(&str, &str)]| -> BTreeSet<String> {
            fs::write(file.path(), text).unwrap();
            let schema = schema(&registry, Some(file.path()), &variables(set)).unwrap().to_json();
            schema["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let of_the_daemon = sections("", &[("STAFFETTA_CNI_DAEMON__NODE_NAME", "n")]);
        for needed in ["kubernetes", "traces", "cni_daemon", "binding", "node_port"] {
            assert!(of_the_daemon.contains(needed), "{needed}");
        }
        assert!(!of_the_daemon.contains("neutron") && !of_the_daemon.contains("vnode"));
        let with_vnode: BTreeSet<_> = of_the_daemon.iter().cloned().chain(["vnode".to_owned()]).collect();
        assert_eq!(sections("[vnode]\n", &[]), with_vnode);
        assert_eq!(sections("", &[("STAFFETTA_VNODE__ENVIRONMENT", "dev")]), with_vnode);

        let all = FileSchema::assemble(&registry).unwrap();
        let load = |text: &str| {
            fs::write(file.path(), text).unwrap();
            load(&registry, Some(file.path()), Vec::new())
        };
        for mistake in ["[vnod]\n", "[relay]\nqueue_deep = 1\n", "[relay\n"] {
            let error = load(mistake).unwrap_err().to_string();
            let of_all = Configuration::load(&all, Some(file.path()), []).unwrap_err().to_string();
            assert_eq!(error, of_all);
        }
        assert!(load("[vnod]\n").unwrap_err().to_string().contains("[vnode]"));
        assert_eq!(load("[cni_daemon]\nnode_name = \"n\"\n").unwrap().value["cni_daemon"]["node_name"], "n");
    }
}
