//! The pools of VIFs, and the section `[vif_pool]`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::{MultiPool, NoopPool, PodVifDriver, PoolPolicy, PooledVifs, VifPoolDriver, VifStock};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_network::vif::networks::{FurtherNetworks, MultiVif, NetworkAttachmentDefinition, OneNetwork};

use crate::config::Span;
use crate::leadership::Term;
use crate::metrics::Pools;

/// How many VIFs the pools keep ready. The figures are for each node, project, network and set of subnets by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "the options have the names that kuryr.conf gives them")]
struct VifPool {
    /// How many VIFs are ready at most. What pods give back beyond that is destroyed. 0: there is no most, and what was
    /// made once is kept. Else not less than `ports_pool_min`.
    ports_pool_max: usize,
    /// How many VIFs are ready at least, once a pod has asked for one. When many pods have asked lately, more are.
    ports_pool_min: usize,
    /// How many VIFs are made at a time at least, as far as `ports_pool_max` lets.
    ports_pool_batch: NonZeroUsize,
    /// How long a VIF that a pod gave back rests before another pod gets it.
    ports_pool_update_frequency: Span,
    /// For the pool `multi_pool`: the pool in front of each VIF driver that nodes name by their label `pod_vif`. A node
    /// without the label has that of `kubernetes.pod_vif_driver`, which has to be among these. The pool `noop` goes with each
    /// VIF driver, `memory` with `memory`, `neutron` with `neutron-vif`, `nested` with `nested-vlan`.
    vif_pool_mapping: BTreeMap<String, String>,
}

impl Default for VifPool {
    fn default() -> Self {
        Self {
            ports_pool_max: 0,
            ports_pool_min: 5,
            ports_pool_batch: NonZeroUsize::new(10).expect("it is not zero"),
            ports_pool_update_frequency: Span::from_secs(20),
            vif_pool_mapping: BTreeMap::new(),
        }
    }
}

impl VifPool {
    fn policy(&self) -> Result<PoolPolicy, SetupError> {
        let (min, max) = (self.ports_pool_min, self.ports_pool_max);
        if max > 0 && min > max {
            let wrong =
                format!("`vif_pool.ports_pool_min` ({min}) is more than `vif_pool.ports_pool_max` ({max})");
            return Err(SetupError::Invalid(wrong));
        }
        let batch = self.ports_pool_batch.get();
        Ok(PoolPolicy { min, max, batch, cool_down: self.ports_pool_update_frequency.into() })
    }
}

/// The pools that keep something, each with the VIF driver of which it keeps VIFs.
const STANDS_ON: [(&str, &str); 3] =
    [("memory", "memory"), ("neutron", "neutron-vif"), ("nested", "nested-vlan")];

/// Adds the pools that stand in front of any VIF driver, and the section.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<VifPool>("vif_pool");
    registry.driver::<dyn VifPoolDriver>("noop", "Keeps none: each pod asks the VIF driver.", |setup| {
        Ok(Arc::new(NoopPool::new(setup.driver::<dyn PodVifDriver>()?)))
    });
    registry.driver::<dyn VifPoolDriver>(
        "multi_pool",
        "A pool for each kind of node, by its label `pod_vif`.",
        multi_pool,
    );
}

/// Adds the choice whether pods have further networks.
pub(super) fn further_networks(registry: &mut Registry) {
    const ABOUT: &str = "Whether pods may have further networks.";
    const NPWG: &str = "As NetworkAttachmentDefinitions (k8s.cni.cncf.io/v1) say for which a pod asks.";
    registry.interface::<dyn MultiVif>("multi_vif", "noop", ABOUT).reads_only();
    registry.driver::<dyn MultiVif>("noop", "A pod has one network.", |_| Ok(Arc::new(OneNetwork)));
    registry.driver::<dyn MultiVif>("npwg_multiple_interfaces", NPWG, |setup| {
        if !setup.serves::<NetworkAttachmentDefinition>() {
            return Err(SetupError::Invalid(
                "`kubernetes.multi_vif_driver = \"npwg_multiple_interfaces\"`: the API server does not serve \
                 NetworkAttachmentDefinitions (k8s.cni.cncf.io/v1)"
                    .to_owned(),
            ));
        }
        let driver = chosen(setup, "pod_vif_driver", "memory")?;
        Ok(Arc::new(FurtherNetworks { networks: Arc::default(), driver }))
    });
}

/// The pool `name`, which keeps VIFs of `stock` ready in front of the VIF driver with which it goes.
pub(super) fn pooled(
    setup: &Setup,
    name: &'static str,
    stock: Arc<dyn VifStock>,
) -> Result<Arc<dyn VifPoolDriver>, SetupError> {
    let Some((_, driver)) = STANDS_ON.iter().find(|(pool, _)| *pool == name) else {
        return Err(SetupError::Invalid(format!(
            "nobody knows on which VIF driver the pool `{name}` stands"
        )));
    };
    let alone = chosen(setup, "vif_pool_driver", "noop")? == name;
    if alone && chosen(setup, "pod_vif_driver", "memory")? != *driver {
        let wrong = format!(
            "the pool `{name}` (`kubernetes.vif_pool_driver`) needs `kubernetes.pod_vif_driver = \"{driver}\"`"
        );
        return Err(SetupError::Invalid(wrong));
    }
    let policy = setup.section::<VifPool>("vif_pool")?.policy()?;
    let term = setup.shared(|| Ok(Term::for_ever()))?;
    let may_act = Arc::new(move || term.holds());
    let pool = PooledVifs::new(stock, setup.driver_named::<dyn PodVifDriver>(driver)?, policy, may_act);
    setup.shared(|| Ok(Pools::default()))?.add(name, pool.figures());
    Ok(Arc::new(pool))
}

fn multi_pool(setup: &Setup) -> Result<Arc<dyn VifPoolDriver>, SetupError> {
    let mapping = setup.section::<VifPool>("vif_pool")?.vif_pool_mapping;
    let mut pools = BTreeMap::new();
    for (driver, pool) in &mapping {
        pools.insert(driver.clone(), in_front_of(setup, driver, pool)?);
    }
    let default = chosen(setup, "pod_vif_driver", "memory")?;
    let pool = MultiPool::new(pools, &default).ok_or_else(|| {
        let wrong = format!(
            "`vif_pool.vif_pool_mapping` names no pool for `{default}`, the VIF driver of nodes without a label \
             (`kubernetes.pod_vif_driver`)"
        );
        SetupError::Invalid(wrong)
    })?;
    Ok(Arc::new(pool))
}

/// The pool of that name in front of that VIF driver.
fn in_front_of(setup: &Setup, driver: &str, pool: &str) -> Result<Arc<dyn VifPoolDriver>, SetupError> {
    if pool == "noop" {
        return Ok(Arc::new(NoopPool::new(setup.driver_named::<dyn PodVifDriver>(driver)?)));
    }
    if !STANDS_ON.contains(&(pool, driver)) {
        let wrong = format!(
            "`vif_pool.vif_pool_mapping`: the pool `{pool}` does not go with the VIF driver `{driver}`"
        );
        return Err(SetupError::Invalid(wrong));
    }
    setup.driver_named::<dyn VifPoolDriver>(pool)
}

/// Which driver the section `[kubernetes]` names by `option`.
pub(super) fn chosen(setup: &Setup, option: &str, default: &str) -> Result<String, SetupError> {
    let section: serde_json::Value = setup.section("kubernetes")?;
    Ok(section.get(option).and_then(|name| name.as_str()).unwrap_or(default).to_owned())
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
    fn each_figure_of_the_section_is_one_of_the_pools() {
        let policy = |section| serde_json::from_value::<VifPool>(section).unwrap().policy().unwrap();
        let kuryr = PoolPolicy { min: 5, max: 0, batch: 10, cool_down: Duration::from_secs(20) };
        assert_eq!(policy(json!({})), kuryr);
        assert_eq!(policy(json!({ "ports_pool_min": 7 })), PoolPolicy { min: 7, ..kuryr });
        assert_eq!(policy(json!({ "ports_pool_max": 7 })), PoolPolicy { max: 7, ..kuryr });
        assert_eq!(policy(json!({ "ports_pool_batch": 7 })), PoolPolicy { batch: 7, ..kuryr });
        let rests = PoolPolicy { cool_down: Duration::from_secs(7), ..kuryr };
        assert_eq!(policy(json!({ "ports_pool_update_frequency": "7s" })), rests);
    }

    /// Why there is no pool; empty when there is one.
    fn wrong(configuration: &serde_json::Value) -> String {
        let (service, _) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let registry = Arc::new(crate::assembly::registry());
        let client = Client::new(service, "default");
        let setup = registry.setup(client, configuration.clone(), HashSet::new());
        let made = setup.driver::<dyn VifPoolDriver>();
        made.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[tokio::test]
    async fn a_pool_is_refused_in_words_when_its_options_do_not_fit_together() {
        let kubernetes = json!({ "cluster_id": "east", "vif_pool_driver": "memory" });
        let figures = |min, max| json!({ "kubernetes": kubernetes, "vif_pool": { "ports_pool_min": min, "ports_pool_max": max } });
        assert_eq!(wrong(&figures(5, 0)), "");
        assert!(wrong(&figures(5, 4)).contains("`vif_pool.ports_pool_min` (5) is more than"));
        let other = json!({ "kubernetes": { "cluster_id": "east", "vif_pool_driver": "memory", "pod_vif_driver": "x" } });
        assert!(wrong(&other).contains("needs `kubernetes.pod_vif_driver = \"memory\"`"));
    }

    #[tokio::test]
    async fn a_mapping_has_a_pool_for_nodes_without_a_label_and_only_pairs_that_go_together() {
        let mapped = |mapping: serde_json::Value| {
            let kubernetes = json!({ "cluster_id": "east", "vif_pool_driver": "multi_pool" });
            wrong(&json!({ "kubernetes": kubernetes, "vif_pool": { "vif_pool_mapping": mapping } }))
        };
        assert_eq!(mapped(json!({ "memory": "memory" })), "");
        assert_eq!(mapped(json!({ "memory": "noop" })), "");
        assert!(mapped(json!({})).contains("no pool for `memory`"));
        assert!(
            mapped(json!({ "memory": "nested" }))
                .contains("`nested` does not go with the VIF driver `memory`")
        );
        assert!(mapped(json!({ "memory": "noop", "x": "noop" })).contains("`x`"));
    }
}
