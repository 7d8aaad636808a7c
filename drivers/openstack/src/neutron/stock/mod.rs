//! Ports in stock: made in bulk for whoever comes, and marked with the cluster alone.

mod batches;
mod lots;
mod nested;
mod neutron;

use std::collections::HashMap;

use futures_util::future::join_all;
use staffetta_driver::{
    DriverError, ProjectId, Reason, SecurityGroupId, StockKey, StockOrder, SubnetId, Vif, VifId,
};

use self::batches::{Batch, Batches, Moment};
use self::lots::{Lot, in_lots};
use super::mark::{Mark, Nesting, Purpose};
use super::ports::Ports;
use super::wire::{NewPort, Port, PortChange, VIF_FIELDS};
use crate::error::OpenStackError;

pub use self::nested::NestedStock;
pub use self::neutron::NeutronStock;

/// How a port in stock is called, where ports have names.
const NAME: &str = "staffetta-pool-port";
const GROUPS: &str = "change the security groups of a port";

/// Makes ports by one call, all of them or none. Those of a call whose answer got lost are found by their mark: what is
/// found exists, but there may come more.
async fn make(ports: &Ports, port: &NewPort, count: usize) -> Result<Vec<Port>, (Vec<Port>, DriverError)> {
    let error = match ports.make_all(port, count).await {
        Ok(made) => return Ok(made),
        Err(error) if !error.ambiguous() => return Err((Vec::new(), error.into())),
        Err(error) => error,
    };
    let filter = [("description", port.description.clone())];
    match ports.neutron.ports("look for ports that may have been made", &filter, &VIF_FIELDS).await {
        Ok(mut found) => {
            // Not every Neutron can be relied on to filter by descriptions: some take what they do not know for no filter.
            found.retain(|found| found.description == port.description);
            if found.len() == count { Ok(found) } else { Err((found, error.into())) }
        }
        Err(_) => Err((Vec::new(), error.into())),
    }
}

/// The port that an order asks for.
fn ordered(
    ports: &Ports,
    order: &StockOrder,
    batch: &Batch,
    nesting: Option<Nesting>,
    host: Option<&str>,
) -> NewPort {
    let mark = ports.mark(Purpose::Stock(batch.name()), nesting);
    NewPort {
        project_id: order.key.project.clone(),
        security_groups: order.security_groups.clone(),
        name: ports.options.port_debug.then(|| NAME.to_owned()),
        ..NewPort::marked(&mark, &order.subnets, host)
    }
}

/// What a port in stock has in common with others.
fn key(port: &Port, host: String) -> StockKey {
    let mut subnets: Vec<SubnetId> = port.fixed_ips.iter().map(|fixed| fixed.subnet_id.clone()).collect();
    subnets.sort_unstable();
    subnets.dedup();
    StockKey { host, project: port.project_id.clone(), network: port.network_id.clone(), subnets }
}

/// Whether the port was left behind half made by a call that had ended.
fn abandoned(batches: &Batches, mark: &Mark, before: Moment) -> bool {
    matches!(&mark.purpose, Purpose::Stock(batch) if batches.ended(batch, before))
}

/// Gives a port other security groups.
async fn adapt(ports: &Ports, vif: &Vif, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
    let mut groups = groups.to_vec();
    if groups.is_empty() {
        // A port that names none has those of its project, not none.
        let project = ports.project(GROUPS, &vif.id).await?.ok_or_else(|| missing(vif))?;
        groups = ports.default_groups(GROUPS, &project).await?;
        if groups.is_empty() {
            return Err(hidden_default(&project));
        }
    }
    let change = PortChange { security_groups: Some(groups), ..PortChange::default() };
    match ports.neutron.change_port(GROUPS, &vif.id, &change, None).await {
        Ok(_) => Ok(()),
        Err(error) if error.is("SecurityGroupNotFound") => {
            Err(DriverError::new(Reason::Refused, GROUPS).detail(error.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

/// The groups of a port, as its order named them: none when it is known to have those that Neutron chose.
fn ordered_groups(
    port: &Port,
    default_groups: &HashMap<ProjectId, Vec<SecurityGroupId>>,
) -> Vec<SecurityGroupId> {
    let chosen = default_groups.get(&port.project_id).is_some_and(|chosen| {
        chosen.len() == port.security_groups.len()
            && chosen.iter().all(|group| port.security_groups.contains(group))
    });
    if chosen { Vec::new() } else { port.security_groups.clone() }
}

/// Which groups the port is to have is not known; without any, nobody would reach the pod, nor it anybody.
fn hidden_default(project: &ProjectId) -> DriverError {
    let detail = format!(
        "Neutron does not show the default security group of the project {project}: name groups in \
         `neutron_defaults.pod_security_groups`, or give the user a role that sees it"
    );
    DriverError::new(Reason::Refused, GROUPS).detail(detail)
}

fn missing(vif: &Vif) -> DriverError {
    DriverError::new(Reason::NotFound, GROUPS).detail(format!("port {}", vif.id))
}

/// Removes ports, as many at a time as the client allows. Answers those that are still there.
async fn remove_all(ports: &Ports, ids: impl IntoIterator<Item = VifId>) -> Vec<(VifId, OpenStackError)> {
    let removals = ids.into_iter().map(|id| async {
        let removed = ports.remove(&id).await;
        removed.err().map(|error| (id, error))
    });
    join_all(removals).await.into_iter().flatten().collect()
}

/// A step of everything failed: all are still there.
fn all_left(vifs: &[Vif], error: &DriverError) -> Vec<(VifId, DriverError)> {
    vifs.iter().map(|vif| (vif.id.clone(), error.clone())).collect()
}
