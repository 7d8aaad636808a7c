//! The quotas of a project, with what is in use.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use staffetta_driver::ProjectId;

use super::Service;
use crate::error::Result;
use crate::service_kind::ServiceKind;

const STEP: &str = "read the quotas of a project";

/// The quota of a project for one type of resource, with its present use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Quota {
    /// The maximum number of resources; negative for no limit.
    pub limit: i64,
    /// The number of existing resources.
    pub used: i64,
}

/// A load balancer, with the list of its listeners.
#[derive(Deserialize)]
struct CountedLoadBalancer {
    listeners: Vec<IgnoredAny>,
}

/// A pool, with the list of its members and the id of its health monitor.
#[derive(Deserialize)]
struct CountedPool {
    members: Vec<IgnoredAny>,
    healthmonitor_id: Option<IgnoredAny>,
}

impl Service {
    /// Returns the quotas of a project, by the name that the service gives the resource, such as `port`; `None` if the user may not see
    /// them, or Neutron does not count what is in use (extension `quota_details`). Octavia never tells what is in use, so the resources
    /// with a limit are counted, and those without one are left out.
    pub async fn quotas(&self, project: &ProjectId) -> Result<Option<BTreeMap<String, Quota>>> {
        let quotas = match self.kind {
            ServiceKind::Network => {
                self.get(STEP, format!("quotas/{project}/details.json")).json_member("quota").await
            }
            ServiceKind::LoadBalancer => self.counted_quotas(project).await,
        };
        match quotas {
            Ok(quotas) => Ok(Some(quotas)),
            Err(error) if matches!(error.status(), Some(403 | 404)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the quotas of Octavia that have a limit. Everything is counted by two lists: load balancers show their listeners, and
    /// pools their members and health monitors.
    async fn counted_quotas(&self, project: &ProjectId) -> Result<BTreeMap<String, Quota>> {
        let limits: BTreeMap<String, Value> =
            self.get(STEP, format!("quotas/{project}")).json_member("quota").await?;
        let limit = |name: &str| limits.get(name)?.as_i64().filter(|limit| *limit >= 0);
        let names = ["loadbalancer", "listener", "pool", "member", "healthmonitor"];
        if names.iter().all(|name| limit(name).is_none()) {
            return Ok(BTreeMap::new());
        }
        let list = |path: &'static str, fields| {
            self.get("count the load balancers of a project", path)
                .fields(fields)
                .query("project_id", project.as_str())
        };
        let balancers = list("loadbalancers", "listeners").list::<CountedLoadBalancer>("loadbalancers");
        let pools = list("pools", "members healthmonitor_id").list::<CountedPool>("pools");
        let (balancers, pools) = futures_util::try_join!(balancers, pools)?;
        let used = [
            balancers.len(),
            balancers.iter().map(|balancer| balancer.listeners.len()).sum(),
            pools.len(),
            pools.iter().map(|pool| pool.members.len()).sum(),
            pools.iter().filter(|pool| pool.healthmonitor_id.is_some()).count(),
        ];
        let quota = |(name, used): (&str, usize)| {
            let used = i64::try_from(used).unwrap_or(i64::MAX);
            Some((name.to_owned(), Quota { limit: limit(name)?, used }))
        };
        Ok(names.into_iter().zip(used).filter_map(quota).collect())
    }
}
