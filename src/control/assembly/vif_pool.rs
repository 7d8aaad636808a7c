//! Registers the pools of VIFs with the section `[vif_pool]`, and the drivers for additional networks of pods.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use staffetta_driver::{BulkVifDriver, PodVifDriver, VifClass, VifPoolDriver};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_network::vif::VifAnnotations;
use staffetta_network::vif::networks::{
    AdditionalNetworks, MultiVifDriver, NetworkAttachmentDefinition, OneNetwork,
};
use staffetta_pool::{MultiVifPool, NoopVifPool, VifPoolPolicy, WarmVifPool};

use crate::base::config::{Configuration, TimeSpan};
use crate::base::metrics::Metrics;
use crate::engine::term::Term;

/// Options of the pools of VIFs. All numbers apply to each node, project, network and set of subnets separately.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the options have the names that kuryr.conf gives them")]
struct VifPool {
    /// The maximum number of ready VIFs; further released VIFs are deleted. VIFs that still wait for `ports_pool_update_frequency`
    /// count towards the maximum when new ones are created. 0 means no maximum, as in Kuryr: no VIF is deleted. Otherwise not less than
    /// `ports_pool_min`.
    ports_pool_max: usize,
    /// The minimum number of ready VIFs, which are created after the first request of a pod. More are kept ready after many recent
    /// requests.
    ports_pool_min: usize,
    /// The minimum number of VIFs that are created at a time, up to `ports_pool_max`.
    ports_pool_batch: NonZeroUsize,
    /// The time after which a released VIF may be used by another pod.
    ports_pool_update_frequency: TimeSpan,
    /// For the pool `multi_pool`: the pool of each VIF driver that nodes name in their label `pod_vif`. A node without the label
    /// uses the driver of `kubernetes.pod_vif_driver`, which must be listed here. The pool `noop` supports each VIF driver,
    /// `memory` supports `memory`, `neutron` supports `neutron-vif`, and `nested` supports `nested-vlan`.
    vif_pool_mapping: BTreeMap<String, String>,
}

/// Options of the driver `npwg_multiple_interfaces`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct AdditionalNetworksOptions {
    /// Restricts a pod to the `NetworkAttachmentDefinition`s of its own namespace and of `shared_namespaces`.
    namespace_isolation: bool,
    /// The namespaces whose `NetworkAttachmentDefinition`s every pod may use although `namespace_isolation` is set.
    shared_namespaces: Vec<String>,
}

impl Default for VifPool {
    fn default() -> Self {
        Self {
            ports_pool_max: 50,
            ports_pool_min: 5,
            ports_pool_batch: NonZeroUsize::new(10).expect("it is not zero"),
            ports_pool_update_frequency: TimeSpan::from_secs(20),
            vif_pool_mapping: BTreeMap::new(),
        }
    }
}

impl VifPool {
    /// Returns the sizes and times of a pool; fails if the minimum exceeds the maximum.
    fn policy(&self) -> Result<VifPoolPolicy, SetupError> {
        let (min, max) = (self.ports_pool_min, self.ports_pool_max);
        if max > 0 && min > max {
            let wrong =
                format!("`vif_pool.ports_pool_min` ({min}) is more than `vif_pool.ports_pool_max` ({max})");
            return Err(SetupError::Invalid(wrong));
        }
        let batch = self.ports_pool_batch.get();
        Ok(VifPoolPolicy { min, max, batch, cool_down: self.ports_pool_update_frequency.into() })
    }
}

/// The names of the pools that keep VIFs, each with the VIF driver that it supports.
const SUPPORTED: [(&str, &str); 3] =
    [("memory", "memory"), ("neutron", "neutron-vif"), ("nested", "nested-vlan")];

/// Returns the name of the pool that keeps VIFs of the VIF driver `driver` ready; `None` if there is none.
fn pool_of(driver: &str) -> Option<&'static str> {
    SUPPORTED.iter().find(|(_, supported)| *supported == driver).map(|(pool, _)| *pool)
}

/// Returns `configuration` with each VIF pool `noop` replaced by the pool that keeps VIFs of the same VIF driver ready, if there is one:
/// the cluster whose resources are listed may have used it.
pub(crate) fn with_pools(configuration: &Configuration) -> Configuration {
    let mut configuration = configuration.clone();
    let replace = |driver: &str, pool: &mut Value| {
        if *pool == "noop"
            && let Some(other) = pool_of(driver)
        {
            *pool = other.into();
        }
    };
    let driver = configuration.value["kubernetes"]["pod_vif_driver"].clone();
    replace(driver.as_str().unwrap_or_default(), &mut configuration.value["kubernetes"]["vif_pool_driver"]);
    let mapping = configuration.value["vif_pool"]["vif_pool_mapping"].as_object_mut();
    mapping.into_iter().flatten().for_each(|(driver, pool)| replace(driver, pool));
    configuration
}

/// Registers the pools `noop` and `multi_pool`, the section `[vif_pool]` of all pools, and the drivers of additional networks with their
/// section.
pub(super) fn drivers(registry: &mut Registry) {
    const NPWG: &str =
        "The networks of the NetworkAttachmentDefinitions (k8s.cni.cncf.io/v1) that a pod names.";
    registry.section::<VifPool>("vif_pool");
    registry.section::<AdditionalNetworksOptions>("additional_networks");
    drivers! { registry, setup:
        dyn VifPoolDriver, "noop", "Keeps none ready; each VIF is created on request." =>
            Arc::new(NoopVifPool::new(setup.driver::<dyn PodVifDriver>()?));
        dyn VifPoolDriver, "multi_pool", "Uses the pool of the VIF driver that the node names in its label `pod_vif`." =>
            Arc::new(multi_pool(setup)?);
        dyn MultiVifDriver, "noop", "A pod has one network." => { let _ = setup; Arc::new(OneNetwork) };
        dyn MultiVifDriver, "npwg_multiple_interfaces", NPWG => Arc::new(additional_networks(setup)?);
    }
}

/// Creates the driver of additional networks. Fails if the API server does not serve `NetworkAttachmentDefinitions`, because pods that
/// request networks would start without them.
fn additional_networks(setup: &Setup) -> Result<AdditionalNetworks, SetupError> {
    if !setup.serves::<NetworkAttachmentDefinition>() {
        return Err(SetupError::Invalid(
            "`kubernetes.multi_vif_driver = \"npwg_multiple_interfaces\"`: the API server does not serve \
             NetworkAttachmentDefinitions (k8s.cni.cncf.io/v1)"
                .to_owned(),
        ));
    }
    let options: AdditionalNetworksOptions = setup.section("additional_networks")?;
    let shared_namespaces = options.namespace_isolation.then_some(options.shared_namespaces);
    let driver = setup.driver_name::<dyn PodVifDriver>()?;
    Ok(AdditionalNetworks { networks: Arc::default(), shared_namespaces, driver })
}

/// Builds the pool `name`, one of `memory`, `neutron` and `nested`, which creates VIFs with `bulk` and keeps them ready for the VIF driver that
/// the pool supports. Fails for another name, or if the configuration selects the pool together with another VIF driver.
pub fn pooled(
    setup: &Setup,
    name: &'static str,
    bulk: Arc<dyn BulkVifDriver>,
) -> Result<Arc<dyn VifPoolDriver>, SetupError> {
    let supported = SUPPORTED.iter().find(|(pool, _)| *pool == name);
    let Some((_, driver)) = supported else {
        return Err(SetupError::Invalid(format!("there is no pool `{name}` that keeps VIFs ready")));
    };
    let is_selected = setup.driver_name::<dyn VifPoolDriver>()? == name;
    if is_selected && setup.driver_name::<dyn PodVifDriver>()? != *driver {
        let wrong = format!(
            "the pool `{name}` (`kubernetes.vif_pool_driver`) needs `kubernetes.pod_vif_driver = \"{driver}\"`"
        );
        return Err(SetupError::Invalid(wrong));
    }
    let policy = setup.section::<VifPool>("vif_pool")?.policy()?;
    let term = setup.shared(|| Ok(Term::unlimited()))?;
    let is_leader = Arc::new(move || term.is_active());
    let vifs = setup.driver_named::<dyn PodVifDriver>(driver)?;
    let published = Arc::new(VifAnnotations::new(setup.client()));
    let pool = WarmVifPool::new(bulk, vifs, published, policy, is_leader);
    setup.shared(|| Ok(Metrics::default()))?.pools.add(name, pool.metrics());
    Ok(Arc::new(pool))
}

/// Returns the name of the VIF driver that creates VIFs of this class; `None` for an unknown class.
fn driver_of_class(class: &VifClass) -> Option<&'static str> {
    match class {
        VifClass::OpenVSwitch { .. } | VifClass::Bridge { .. } | VifClass::VHostUser { .. } => {
            Some("neutron-vif")
        }
        VifClass::VlanNested { .. } => Some("nested-vlan"),
        VifClass::MacvlanNested { .. } => Some("nested-macvlan"),
        VifClass::DpdkNested { .. } => Some("nested-dpdk"),
        VifClass::Other { .. } => None,
    }
}

/// Creates the pool that chooses a VIF driver for each node, from `vif_pool.vif_pool_mapping`. The mapping must contain the default driver,
/// which nodes without a label use.
fn multi_pool(setup: &Setup) -> Result<MultiVifPool, SetupError> {
    let mapping = setup.section::<VifPool>("vif_pool")?.vif_pool_mapping;
    let mut pools = BTreeMap::new();
    for (driver, pool) in &mapping {
        pools.insert(driver.clone(), pool_for(setup, driver, pool)?);
    }
    let default = setup.driver_name::<dyn PodVifDriver>()?;
    MultiVifPool::new(pools, &default, driver_of_class).ok_or_else(|| {
        let wrong = format!(
            "`vif_pool.vif_pool_mapping` names no pool for `{default}`, the VIF driver of nodes without a label \
             (`kubernetes.pod_vif_driver`)"
        );
        SetupError::Invalid(wrong)
    })
}

/// Returns the pool `pool` for the VIF driver `driver`; fails if the pool does not support that driver.
fn pool_for(setup: &Setup, driver: &str, pool: &str) -> Result<Arc<dyn VifPoolDriver>, SetupError> {
    if pool == "noop" {
        return Ok(Arc::new(NoopVifPool::new(setup.driver_named::<dyn PodVifDriver>(driver)?)));
    }
    if !SUPPORTED.contains(&(pool, driver)) {
        let wrong = format!(
            "`vif_pool.vif_pool_mapping`: the pool `{pool}` does not support the VIF driver `{driver}`"
        );
        return Err(SetupError::Invalid(wrong));
    }
    setup.driver_named::<dyn VifPoolDriver>(pool)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_option_of_the_section_reaches_the_pool_policy() {
        let policy = |section| serde_json::from_value::<VifPool>(section).unwrap().policy().unwrap();
        let defaults = VifPoolPolicy { min: 5, max: 50, batch: 10, cool_down: Duration::from_secs(20) };
        assert_eq!(policy(json!({})), defaults);
        assert_eq!(policy(json!({ "ports_pool_min": 7 })), VifPoolPolicy { min: 7, ..defaults });
        assert_eq!(policy(json!({ "ports_pool_max": 7 })), VifPoolPolicy { max: 7, ..defaults });
        assert_eq!(policy(json!({ "ports_pool_batch": 7 })), VifPoolPolicy { batch: 7, ..defaults });
        let rests = VifPoolPolicy { cool_down: Duration::from_secs(7), ..defaults };
        assert_eq!(policy(json!({ "ports_pool_update_frequency": "7s" })), rests);
    }

    /// Returns the error of building the pool driver with this configuration; empty if it can be built.
    fn pool_error(configuration: &Value) -> String {
        let (service, _) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let registry = Arc::new(crate::control::assembly::registry());
        let client = Client::new(service, "default");
        let setup = registry.setup(client, configuration.clone(), Some(HashSet::new()));
        let made = setup.driver::<dyn VifPoolDriver>();
        made.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[tokio::test]
    async fn contradicting_options_of_a_pool_are_rejected_with_a_reason() {
        let kubernetes =
            json!({ "cluster_id": "east", "vif_pool_driver": "memory", "pod_vif_driver": "memory" });
        let figures = |min, max| json!({ "kubernetes": kubernetes, "vif_pool": { "ports_pool_min": min, "ports_pool_max": max } });
        assert_eq!(pool_error(&figures(5, 0)), "");
        assert!(pool_error(&figures(5, 4)).contains("`vif_pool.ports_pool_min` (5) is more than"));
        let other = json!({ "kubernetes": { "cluster_id": "east", "vif_pool_driver": "memory", "pod_vif_driver": "x" } });
        assert!(pool_error(&other).contains("needs `kubernetes.pod_vif_driver = \"memory\"`"));
    }

    #[tokio::test]
    async fn a_mapping_needs_a_pool_for_unlabelled_nodes_and_supported_pairs() {
        let mapped = |mapping: Value| {
            let kubernetes =
                json!({ "cluster_id": "east", "vif_pool_driver": "multi_pool", "pod_vif_driver": "memory" });
            pool_error(&json!({ "kubernetes": kubernetes, "vif_pool": { "vif_pool_mapping": mapping } }))
        };
        assert_eq!(mapped(json!({ "memory": "memory" })), "");
        assert_eq!(mapped(json!({ "memory": "noop" })), "");
        assert!(mapped(json!({})).contains("no pool for `memory`"));
        assert!(
            mapped(json!({ "memory": "nested" }))
                .contains("`nested` does not support the VIF driver `memory`")
        );
        assert!(mapped(json!({ "memory": "noop", "x": "noop" })).contains("`x`"));
    }
}
