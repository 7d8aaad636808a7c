//! The parts of the responses of EC2 and STS that the driver reads. Other elements are ignored.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::access_keys::AccessKeys;

/// The number of characters after which a message of EC2 is cut off in an error.
const MAX_MESSAGE: usize = 500;

/// A list in an XML response, whose elements are all called `item`.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub(crate) struct ItemList<T> {
    /// The elements of the list.
    #[serde(rename = "item", default = "Vec::new")]
    pub(crate) items: Vec<T>,
}

impl<T> Default for ItemList<T> {
    fn default() -> Self {
        Self { items: Vec::new() }
    }
}

/// The response of `DescribeInstances`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeInstances {
    /// The instances, in groups that were started together.
    #[serde(default)]
    pub(crate) reservation_set: ItemList<ReservationItem>,
    /// The token of the next page; empty on the last one.
    #[serde(default)]
    pub(crate) next_token: String,
}

/// Instances that were started together.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReservationItem {
    /// The instances of the reservation.
    #[serde(default)]
    pub(crate) instances_set: ItemList<InstanceItem>,
}

/// An instance, with the fields that the driver needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstanceItem {
    /// The id of the instance: `i-0123456789abcdef0`.
    #[serde(rename = "instanceId")]
    pub(crate) id: String,
    /// The type of the instance: `m5.large`.
    pub(crate) instance_type: String,
    /// The lifecycle state of the instance.
    #[serde(rename = "instanceState")]
    pub(crate) state: InstanceStateItem,
    /// The network interfaces that are attached to the instance.
    #[serde(default)]
    pub(crate) network_interface_set: ItemList<InterfaceItem>,
}

/// The lifecycle state of an instance.
#[derive(Debug, Deserialize)]
pub(crate) struct InstanceStateItem {
    /// The name of the state: `running`, `terminated` ...
    pub(crate) name: String,
}

/// A network interface, in the responses of `DescribeInstances` and `DescribeNetworkInterfaces`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InterfaceItem {
    /// The id of the interface: `eni-0123456789abcdef0`.
    #[serde(rename = "networkInterfaceId")]
    pub(crate) id: String,
    /// The id of the subnet of the interface.
    #[serde(default)]
    pub(crate) subnet_id: String,
    /// The attachment to an instance; absent on a detached interface.
    #[serde(default)]
    pub(crate) attachment: Option<AttachmentItem>,
    /// The single IPv4 addresses of the interface, the primary one included.
    #[serde(default)]
    pub(crate) private_ip_addresses_set: ItemList<AddressItem>,
    /// The IPv4 prefixes that are assigned to the interface.
    #[serde(default)]
    pub(crate) ipv4_prefix_set: ItemList<PrefixItem>,
}

/// The place of an interface on its instance.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttachmentItem {
    /// The number of the interface on its network card; 0 for the first.
    #[serde(default)]
    pub(crate) device_index: u32,
    /// The number of the network card; 0 for the first.
    #[serde(default)]
    pub(crate) network_card_index: u32,
}

/// A single address of an interface.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AddressItem {
    /// The private IPv4 address.
    pub(crate) private_ip_address: Ipv4Addr,
    /// `true` for the primary address, which cannot be removed.
    #[serde(default)]
    pub(crate) primary: bool,
}

/// A prefix of an interface.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PrefixItem {
    /// The prefix, a /28 block.
    pub(crate) ipv4_prefix: Ipv4Net,
}

impl InterfaceItem {
    /// Returns `true` for the primary interface of an instance: the first on its first network card.
    pub(crate) fn is_primary(&self) -> bool {
        self.attachment.as_ref().is_some_and(|at| (at.device_index, at.network_card_index) == (0, 0))
    }

    /// Returns the prefixes, and each secondary address as a /32 block, without the primary address.
    pub(crate) fn blocks(&self) -> BTreeSet<Ipv4Net> {
        let secondary = self.private_ip_addresses_set.items.iter().filter(|address| !address.primary);
        let addresses = secondary.map(|address| Ipv4Net::from(address.private_ip_address));
        self.ipv4_prefix_set.items.iter().map(|prefix| prefix.ipv4_prefix).chain(addresses).collect()
    }
}

/// The response of `DescribeNetworkInterfaces`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeNetworkInterfaces {
    /// The interfaces that were found.
    #[serde(default)]
    pub(crate) network_interface_set: ItemList<InterfaceItem>,
}

/// The response of `DescribeInstanceTypes`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeInstanceTypes {
    /// The instance types that were found.
    #[serde(default)]
    pub(crate) instance_type_set: ItemList<InstanceTypeItem>,
    /// The token of the next page; empty on the last one.
    #[serde(default)]
    pub(crate) next_token: String,
}

/// An instance type, with the fields that tell how many addresses it allows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstanceTypeItem {
    /// The name of the type: `m5.large`.
    #[serde(rename = "instanceType")]
    pub(crate) name: String,
    /// The hypervisor; only `nitro` supports prefixes.
    #[serde(default)]
    pub(crate) hypervisor: String,
    /// `true` for a type without a hypervisor, which supports prefixes too.
    #[serde(default)]
    pub(crate) bare_metal: bool,
    /// The limits of the network interfaces of an instance of this type.
    pub(crate) network_info: NetworkInfoItem,
}

/// The limits of the network interfaces of an instance type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkInfoItem {
    /// The number of IPv4 addresses of one interface, the primary one included.
    #[serde(rename = "ipv4AddressesPerInterface")]
    pub(crate) ipv4_addresses_per_interface: usize,
}

/// The response of `DescribeSubnets`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DescribeSubnets {
    /// The subnets that were found.
    #[serde(default)]
    pub(crate) subnet_set: ItemList<SubnetItem>,
    /// The token of the next page; empty on the last one.
    #[serde(default)]
    pub(crate) next_token: String,
}

/// A subnet, with the fields that the driver needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubnetItem {
    /// The id of the subnet: `subnet-0123456789abcdef0`.
    pub(crate) subnet_id: String,
    /// The range of IPv4 addresses (CIDR) of the subnet.
    pub(crate) cidr_block: Ipv4Net,
}

/// The response of `AssignPrivateIpAddresses`: the new prefixes and addresses only.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AssignPrivateIpAddresses {
    /// The single addresses that were assigned by this request.
    #[serde(default)]
    pub(crate) assigned_private_ip_addresses_set: ItemList<AddressItem>,
    /// The prefixes that were assigned by this request.
    #[serde(default)]
    pub(crate) assigned_ipv4_prefix_set: ItemList<PrefixItem>,
}

/// A response of EC2 whose content is not used.
#[derive(Debug, Deserialize)]
pub(crate) struct NoResult {}

/// The error in a response of EC2 or STS.
#[derive(Debug, Default)]
pub(crate) struct Ec2ErrorResponse {
    /// The error code, such as `RequestLimitExceeded`.
    pub(crate) code: String,
    /// The error message, for people.
    pub(crate) message: String,
    /// The id under which AWS logged the request.
    pub(crate) request_id: String,
}

impl Ec2ErrorResponse {
    /// Parses the body of an error response. All fields are empty if it is not an error of AWS, such as the page of a proxy.
    pub(crate) fn parse(body: &str) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "PascalCase")]
        struct Body {
            errors: Errors,
            /// The error in a response of STS, which has only one.
            error: Detail,
            #[serde(rename = "RequestID", alias = "RequestId")]
            request_id: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "PascalCase")]
        struct Errors {
            error: Vec<Detail>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "PascalCase")]
        struct Detail {
            code: String,
            message: String,
        }
        let Body { errors, error, request_id } = quick_xml::de::from_str(body).unwrap_or_default();
        let Detail { code, message } = errors.error.into_iter().next().unwrap_or(error);
        let message = message.chars().take(MAX_MESSAGE).collect();
        Self { code, message, request_id }
    }
}

/// The response of `AssumeRole` and `AssumeRoleWithWebIdentity` of STS.
#[derive(Deserialize)]
pub(crate) struct AssumeRole {
    /// The result element of the STS response.
    #[serde(rename = "AssumeRoleResult", alias = "AssumeRoleWithWebIdentityResult")]
    pub(crate) result: AssumeRoleResult,
}

/// The result element of an STS response.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct AssumeRoleResult {
    /// The temporary keys of the role.
    pub(crate) credentials: AccessKeys,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_sts_and_a_page_of_a_proxy_are_parsed_too() {
        let sts = "<Ec2ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>\
                   <Code>InvalidIdentityToken</Code><Message>no</Message></Error><RequestId>r</RequestId></Ec2ErrorResponse>";
        let error = Ec2ErrorResponse::parse(sts);
        assert_eq!((error.code.as_str(), error.request_id.as_str()), ("InvalidIdentityToken", "r"));
        assert_eq!(Ec2ErrorResponse::parse("<html><body>Bad gateway</body>").code, "");
        let long = format!(
            "<Response><Errors><Error><Code>A</Code><Message>{}</Message></Error></Errors></Response>",
            "x".repeat(9999)
        );
        assert_eq!(Ec2ErrorResponse::parse(&long).message.len(), MAX_MESSAGE);
    }

    #[test]
    fn the_blocks_of_an_interface_are_its_prefixes_and_secondary_addresses() {
        let xml = "<DescribeNetworkInterfacesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>\
            <networkInterfaceSet><item><networkInterfaceId>eni-1</networkInterfaceId><subnetId>subnet-1</subnetId>\
            <attachment><attachmentId>a</attachmentId><deviceIndex>0</deviceIndex><networkCardIndex>0</networkCardIndex></attachment>\
            <privateIpAddressesSet><item><privateIpAddress>10.0.0.4</privateIpAddress><primary>true</primary></item>\
            <item><privateIpAddress>10.0.0.5</privateIpAddress><primary>false</primary></item></privateIpAddressesSet>\
            <ipv4PrefixSet><item><ipv4Prefix>10.0.0.16/28</ipv4Prefix></item></ipv4PrefixSet></item></networkInterfaceSet>\
            </DescribeNetworkInterfacesResponse>";
        let response: DescribeNetworkInterfaces = quick_xml::de::from_str(xml).unwrap();
        let interface = &response.network_interface_set.items[0];
        assert!(interface.is_primary());
        let blocks: Vec<_> = interface.blocks().iter().map(ToString::to_string).collect();
        assert_eq!(blocks, ["10.0.0.5/32", "10.0.0.16/28"]);
        let empty: DescribeNetworkInterfaces = quick_xml::de::from_str(
            "<DescribeNetworkInterfacesResponse><networkInterfaceSet/></DescribeNetworkInterfacesResponse>",
        )
        .unwrap();
        assert!(empty.network_interface_set.items.is_empty());
    }
}
