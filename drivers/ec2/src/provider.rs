//! The driver `ec2`: assigns blocks to the primary interfaces of instances. A block is a prefix of 28 bits, or a single address as a prefix
//! of 32 bits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use staffetta_driver::prefix::{Assigned, BlockKind, PrefixProvider, PrimaryInterface};
use staffetta_driver::{DriverError, Fence, InstanceId, InterfaceId, Reason, RequestObserver, SubnetId};
use tracing::warn;

use crate::client::{Ec2Action, Ec2Client};
use crate::combined::{CombinedReads, InterfacesById};
use crate::failure::Ec2Failure;
use crate::options::Ec2Access;
use crate::responses::{
    AssignPrivateIpAddresses, DescribeInstanceTypes, DescribeInstances, DescribeNetworkInterfaces,
    DescribeSubnets, InstanceItem, InstanceTypeItem, InterfaceItem, NoResult,
};

/// The name of the failed operation in errors about reading the interfaces of instances, as an imperative.
const READ: &str = "read the network interfaces of instances";
const DESCRIBE_INSTANCES: Ec2Action = Ec2Action { name: "DescribeInstances", step: READ, changes: false };
const DESCRIBE_TYPES: Ec2Action =
    Ec2Action { name: "DescribeInstanceTypes", step: "read the limits of instance types", changes: false };
const DESCRIBE_SUBNETS: Ec2Action =
    Ec2Action { name: "DescribeSubnets", step: "read subnets", changes: false };
const DESCRIBE_INTERFACES: Ec2Action =
    Ec2Action { name: "DescribeNetworkInterfaces", step: "read a network interface", changes: false };
const ASSIGN: Ec2Action = Ec2Action {
    name: "AssignPrivateIpAddresses",
    step: "assign addresses to a network interface",
    changes: true,
};
const UNASSIGN: Ec2Action = Ec2Action {
    name: "UnassignPrivateIpAddresses",
    step: "remove addresses from a network interface",
    changes: true,
};

/// The maximum number of values of a filter in one request (EC2 API Reference, `DescribeInstances`).
const MAX_FILTER_VALUES: usize = 200;
/// The maximum number of pages of one list. EC2 has no limit; an endpoint that repeats a page would otherwise be read for ever.
const MAX_PAGES: usize = 100;

/// The error of an HTTP client for EC2 that cannot be built.
#[derive(Debug, thiserror::Error)]
#[error("cannot build the HTTP client of EC2; does the system have CA certificates?")]
pub struct Ec2ClientError(#[from] reqwest::Error);

/// Assigns prefixes and addresses to the primary interfaces of EC2 instances.
///
/// The limits of instance types and the sizes of subnets do not change, so each is read once.
pub struct Ec2Prefixes {
    client: Ec2Client,
    /// The cached instance types, by name.
    types: Mutex<HashMap<String, InstanceTypeItem>>,
    /// The IPv4 ranges of the cached subnets, by id.
    subnets: Mutex<HashMap<String, Ipv4Net>>,
    /// The combiner that lets concurrent reads of instances share requests.
    reads: CombinedReads,
}

impl Ec2Prefixes {
    /// Creates the driver. Sends nothing. `observer` is called for each request, with `ec2` as the service and the name of the action as
    /// the method. `fence` lets requests pass only while this process is the leader.
    pub fn new(
        access: Ec2Access,
        observer: Arc<dyn RequestObserver>,
        fence: Fence,
    ) -> Result<Self, Ec2ClientError> {
        let client = Ec2Client::new(access, observer, fence)?;
        Ok(Self {
            client,
            types: Mutex::default(),
            subnets: Mutex::default(),
            reads: CombinedReads::default(),
        })
    }

    /// Checks that EC2 answers and accepts the credentials.
    pub async fn check(&self) -> Result<(), DriverError> {
        let parameters = [("MaxResults".to_owned(), "5".to_owned())];
        self.client.call::<DescribeSubnets>(DESCRIBE_SUBNETS, &parameters).await?;
        Ok(())
    }

    /// Checks the permissions to read: calls each EC2 action that only reads, and returns its name with the result. Permissions to change
    /// something cannot be checked without a change.
    pub async fn read_rights(&self) -> Vec<(&'static str, Result<(), DriverError>)> {
        let parameters = [("MaxResults".to_owned(), "5".to_owned())];
        let mut results = Vec::new();
        for action in [DESCRIBE_INSTANCES, DESCRIBE_TYPES, DESCRIBE_SUBNETS, DESCRIBE_INTERFACES] {
            let result = self.client.call::<NoResult>(action, &parameters).await;
            results.push((action.name, result.map(drop).map_err(DriverError::from)));
        }
        results
    }

    /// Reads all pages of a list, with requests for at most [`MAX_FILTER_VALUES`] of the `values` of the filter `name`. `page` returns the
    /// items of a response and the token of the next page, which is empty on the last one.
    async fn list<T: DeserializeOwned, I>(
        &self,
        action: Ec2Action,
        name: &str,
        values: Vec<&str>,
        page: impl Fn(T) -> (Vec<I>, String),
    ) -> Result<Vec<I>, DriverError> {
        let mut items = Vec::new();
        for values in values.chunks(MAX_FILTER_VALUES) {
            let mut filter = vec![("Filter.1.Name".to_owned(), name.to_owned())];
            filter.extend(
                (1..).zip(values).map(|(n, value)| (format!("Filter.1.Value.{n}"), (*value).to_owned())),
            );
            let mut parameters = filter.clone();
            for requested in 1.. {
                let (found, token) = page(self.client.call(action, &parameters).await?);
                items.extend(found);
                if token.is_empty() {
                    break;
                }
                if requested == MAX_PAGES {
                    let error = DriverError::new(Reason::Unavailable, action.step);
                    return Err(error.detail(format!("EC2 answers in more than {MAX_PAGES} pages")));
                }
                parameters.clone_from(&filter);
                parameters.push(("NextToken".to_owned(), token));
            }
        }
        Ok(items)
    }

    /// Reads the instance types of `instances` and the subnets of their network interfaces from EC2, unless they are cached, and adds them
    /// to the caches `types` and `subnets`.
    async fn learn(&self, instances: &[InstanceItem]) -> Result<(), DriverError> {
        let wanted: BTreeSet<_> = instances.iter().map(|instance| instance.instance_type.as_str()).collect();
        let unknown = wanted.into_iter().filter(|name| !self.types.lock().contains_key(*name)).collect();
        let page = |response: DescribeInstanceTypes| (response.instance_type_set.items, response.next_token);
        let types = self.list(DESCRIBE_TYPES, "instance-type", unknown, page).await?;
        self.types.lock().extend(types.into_iter().map(|found| (found.name.clone(), found)));
        let interfaces = instances.iter().flat_map(|instance| &instance.network_interface_set.items);
        let wanted: BTreeSet<_> = interfaces.map(|interface| interface.subnet_id.as_str()).collect();
        let unknown = wanted.into_iter().filter(|id| !self.subnets.lock().contains_key(*id)).collect();
        let page = |response: DescribeSubnets| (response.subnet_set.items, response.next_token);
        let subnets = self.list(DESCRIBE_SUBNETS, "subnet-id", unknown, page).await?;
        self.subnets.lock().extend(subnets.into_iter().map(|found| (found.subnet_id, found.cidr_block)));
        Ok(())
    }

    /// Reads the primary interfaces of the instances with these ids. Instances that are terminated or shutting down are left out.
    async fn read(&self, ids: Vec<InstanceId>) -> Result<InterfacesById, DriverError> {
        let page = |response: DescribeInstances| {
            let reservations = response.reservation_set.items.into_iter();
            let instances = reservations.flat_map(|reservation| reservation.instances_set.items);
            (instances.collect(), response.next_token)
        };
        let ids = ids.iter().map(InstanceId::as_str).collect();
        let mut found = self.list(DESCRIBE_INSTANCES, "instance-id", ids, page).await?;
        // A terminated instance is listed for about an hour.
        found.retain(|instance| !["terminated", "shutting-down"].contains(&instance.state.name.as_str()));
        self.learn(&found).await?;
        let primary = |instance: &InstanceItem| {
            Some((InstanceId::from(instance.id.as_str()), self.primary(instance).transpose()?))
        };
        Ok(found.iter().filter_map(primary).collect())
    }

    /// Returns the primary interface of an instance whose type and subnet were read; `None` if the instance has none yet, as
    /// while it starts, and an error if EC2 did not describe its type or subnet.
    fn primary(&self, instance: &InstanceItem) -> Result<Option<PrimaryInterface>, DriverError> {
        let mut interfaces = instance.network_interface_set.items.iter();
        let Some(interface) = interfaces.find(|interface| interface.is_primary()) else { return Ok(None) };
        let missing = |what: &str, id: &str| {
            DriverError::new(Reason::Unsupported, READ)
                .detail(format!("EC2 does not describe the {what} {id}"))
        };
        let (types, subnets) = (self.types.lock(), self.subnets.lock());
        let name = &instance.instance_type;
        let limits = types.get(name).ok_or_else(|| missing("instance type", name))?;
        let subnet = &interface.subnet_id;
        let range = subnets.get(subnet).ok_or_else(|| missing("subnet", subnet))?;
        Ok(Some(PrimaryInterface {
            id: interface.id.as_str().into(),
            subnet: SubnetId::from(subnet.as_str()),
            subnet_length: range.prefix_len(),
            addresses_per_interface: limits.network_info.ipv4_addresses_per_interface,
            delegates_prefixes: limits.hypervisor == "nitro" || limits.bare_metal,
            blocks: interface.blocks(),
        }))
    }

    /// Reads the blocks that are assigned to an interface, and returns those of `blocks` that are among them.
    async fn present(
        &self,
        interface: &InterfaceId,
        blocks: &[Ipv4Net],
    ) -> Result<Vec<Ipv4Net>, DriverError> {
        let parameters = [("NetworkInterfaceId.1".to_owned(), interface.to_string())];
        let response: DescribeNetworkInterfaces = self.client.call(DESCRIBE_INTERFACES, &parameters).await?;
        let all: BTreeSet<_> =
            response.network_interface_set.items.iter().flat_map(InterfaceItem::blocks).collect();
        Ok(blocks.iter().copied().filter(|block| all.contains(block)).collect())
    }

    /// Removes prefixes and single addresses (`blocks`) from an interface by one request.
    async fn remove(&self, interface: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), Ec2Failure> {
        let mut parameters = vec![("NetworkInterfaceId".to_owned(), interface.to_string())];
        let (mut prefixes, mut addresses) = (0, 0);
        for block in blocks {
            parameters.push(if block.prefix_len() == 32 {
                addresses += 1;
                (format!("PrivateIpAddress.{addresses}"), block.addr().to_string())
            } else {
                prefixes += 1;
                (format!("Ipv4Prefix.{prefixes}"), block.to_string())
            });
        }
        self.client.call::<NoResult>(UNASSIGN, &parameters).await.map(drop)
    }
}

#[async_trait]
impl PrefixProvider for Ec2Prefixes {
    async fn interfaces(
        &self,
        instances: &[InstanceId],
    ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError> {
        self.reads.read(instances, |ids| self.read(ids)).await
    }

    async fn assign(&self, interface: &InterfaceId, kind: BlockKind, count: usize) -> Assigned {
        let name = match kind {
            BlockKind::Prefix => "Ipv4PrefixCount",
            BlockKind::Address => "SecondaryPrivateIpAddressCount",
        };
        let parameters = [("NetworkInterfaceId", interface.to_string()), (name, count.to_string())];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value));
        match self.client.call::<AssignPrivateIpAddresses>(ASSIGN, &parameters).await {
            Ok(response) => {
                let prefixes = response.assigned_ipv4_prefix_set.items.into_iter();
                let addresses = response.assigned_private_ip_addresses_set.items.into_iter();
                let addresses = addresses.map(|address| Ipv4Net::from(address.private_ip_address));
                let blocks = prefixes.map(|prefix| prefix.ipv4_prefix).chain(addresses).collect();
                Assigned { blocks, error: None }
            }
            Err(failure) => Assigned { blocks: Vec::new(), error: Some(failure.error) },
        }
    }

    /// Removes blocks from an interface. EC2 rejects the whole request if one of the blocks is not assigned any more; a second request then
    /// removes the blocks that are still assigned. Succeeds if the interface does not exist. An error after which some of the blocks may be
    /// gone is ambiguous.
    async fn unassign(&self, interface: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), DriverError> {
        let Err(failure) = self.remove(interface, blocks).await else { return Ok(()) };
        match failure.code.as_str() {
            "InvalidNetworkInterfaceID.NotFound" => Ok(()),
            "InvalidParameterValue" | "InvalidNetworkInterface.InUse" => {
                let is_some_removed = failure.code == "InvalidParameterValue";
                let present = self.present(interface, blocks).await.map_err(DriverError::maybe_applied)?;
                if present.is_empty() {
                    return Ok(());
                }
                if present.len() == blocks.len() {
                    // A read may be older than the removal.
                    let error = failure.error;
                    return Err(if is_some_removed { error.maybe_applied() } else { error });
                }
                warn!(%interface, "some blocks of an interface were removed by somebody else");
                let removed = self.remove(interface, &present).await;
                removed.map_err(|failure| failure.error.maybe_applied())
            }
            _ => Err(failure.error),
        }
    }
}

#[cfg(test)]
mod tests;
