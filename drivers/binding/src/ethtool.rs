//! Features of an interface, by the generic netlink family `ethtool` (`Documentation/networking/ethtool-netlink.rst` of Linux).

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;
use netlink_sys::{Socket, SocketAddr};
use staffetta_driver::DriverError;

use crate::error::failed;

/// The id of the generic netlink family `nlctrl`, and its command `CTRL_CMD_GETFAMILY`, which returns the id of another family.
const CONTROLLER: (u16, u8) = (16, 3);
/// The attribute with the number of a family (`CTRL_ATTR_FAMILY_ID` in linux/genetlink.h).
const CONTROLLER_FAMILY_ID: u16 = 1;
/// The attribute with the name of a family (`CTRL_ATTR_FAMILY_NAME`).
const CONTROLLER_FAMILY_NAME: u16 = 2;
/// The command that changes features of an interface (`ETHTOOL_MSG_FEATURES_SET` in `linux/ethtool_netlink.h`).
const FEATURES_SET: u8 = 12;
/// The attribute of [`FEATURES_SET`] that contains the interface (`ETHTOOL_A_FEATURES_HEADER`).
const HEADER: u16 = 1;
/// The attribute with the name of the interface (`ETHTOOL_A_HEADER_DEV_NAME`).
const HEADER_NAME: u16 = 2;
/// The attribute of [`FEATURES_SET`] with the features to change, as a set of bits (`ETHTOOL_A_FEATURES_WANTED`).
const WANTED: u16 = 3;
/// The attribute with the list of bits in a set of bits (`ETHTOOL_A_BITSET_BITS`).
const BITS: u16 = 3;
/// The attribute with one bit in a list of bits (`ETHTOOL_A_BITSET_BITS_BIT`). A bit without a value is cleared.
const BIT: u16 = 1;
/// The attribute with the name of a bit (`ETHTOOL_A_BITSET_BIT_NAME`).
const BIT_NAME: u16 = 2;
/// The flags of a request that the kernel must acknowledge (`NLM_F_REQUEST`, `NLM_F_ACK`).
const REQUEST_ACK: u16 = 1 | 4;
/// The flag in the type of an attribute that contains attributes (`NLA_F_NESTED`).
const NESTED: u16 = 1 << 15;
/// The length of the netlink header and the generic netlink header of a message together, in bytes.
const HEADERS: usize = 20;

/// Prepares `interface`, in the namespace of this thread, for a bridge of Open vSwitch with this type of datapath. It disables checksum
/// offload for `netdev`, the datapath in userspace, which passes frames on without the checksums that the kernel left to the device.
pub(crate) fn prepare_for(datapath: &str, interface: &str) -> Result<(), DriverError> {
    if datapath != "netdev" {
        return Ok(());
    }
    disable_checksums(interface).map_err(failed("disable checksum offload"))
}

/// Disables checksum offload of `interface`, in the namespace of this thread: the kernel computes the checksums of outgoing frames.
fn disable_checksums(interface: &str) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let answer =
        exchange(&socket, &message(CONTROLLER.0, CONTROLLER.1, &string(CONTROLLER_FAMILY_NAME, "ethtool")))?;
    let unsupported = || io::Error::from(io::ErrorKind::Unsupported);
    let family =
        find(answer.get(HEADERS..).ok_or_else(unsupported)?, CONTROLLER_FAMILY_ID).ok_or_else(unsupported)?;
    exchange(&socket, &message(family, FEATURES_SET, &features(interface))).map(drop)
}

/// Returns the attributes of a request that disables checksum offload of an interface: the features `tx-checksum-ip-generic` for TCP
/// and UDP, and `tx-checksum-sctp`.
fn features(interface: &str) -> Vec<u8> {
    let bits = ["tx-checksum-ip-generic", "tx-checksum-sctp"]
        .map(|name| attribute(BIT | NESTED, &string(BIT_NAME, name)));
    let wanted = attribute(WANTED | NESTED, &attribute(BITS | NESTED, &bits.concat()));
    [attribute(HEADER | NESTED, &string(HEADER_NAME, interface)), wanted].concat()
}

/// Encodes an attribute whose value is a text.
fn string(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, &[text.as_bytes(), &[0]].concat())
}

/// Encodes an attribute of netlink, padded to 4 bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut attribute = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Encodes a request to a generic netlink family.
fn message(family: u16, command: u8, attributes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADERS + attributes.len()).unwrap_or(u32::MAX);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend(family.to_ne_bytes());
    message.extend(REQUEST_ACK.to_ne_bytes());
    // The number of the message and of the sender, then the command and its version.
    message.extend([0; 8]);
    message.extend([command, 1, 0, 0]);
    message.extend(attributes);
    message
}

/// Sends a request, and returns the answer that precedes the acknowledgement; empty if there is none.
fn exchange(socket: &Socket, request: &[u8]) -> io::Result<Vec<u8>> {
    #[cfg(test)]
    crate::changes::count()?;
    socket.send(request, 0)?;
    let mut answer = Vec::new();
    loop {
        let (received, _) = socket.recv_from_full()?;
        let field = |at: usize| received.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        let kind = received.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
        // NLMSG_ERROR, with the code 0 for an acknowledgement.
        if kind != Some(2) {
            answer = received;
            continue;
        }
        return match field(16).map(i32::from_ne_bytes) {
            Some(0) => Ok(answer),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
            None => Err(io::ErrorKind::InvalidData.into()),
        };
    }
}

/// Returns the 16-bit value of the first attribute with the type `kind` in `attributes`; `None` if there is none.
fn find(mut attributes: &[u8], kind: u16) -> Option<u16> {
    while let [l0, l1, k0, k1, value @ ..] = attributes {
        let length = usize::from(u16::from_ne_bytes([*l0, *l1]));
        if u16::from_ne_bytes([*k0, *k1]) == kind {
            return Some(u16::from_ne_bytes([*value.first()?, *value.get(1)?]));
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_names_the_interface_and_the_bit_to_clear() {
        let request = message(0x15, FEATURES_SET, &features("eth0"));
        assert_eq!(request.len(), u32::from_ne_bytes(request[..4].try_into().unwrap()) as usize);
        assert_eq!(request[HEADERS..HEADERS + 16], *b"\x10\0\x01\x80\x09\0\x02\0eth0\0\0\0\0");
        assert!(request.windows(22).any(|bytes| bytes == b"tx-checksum-ip-generic"));
        assert!(request.windows(16).any(|bytes| bytes == b"tx-checksum-sctp"));
    }

    #[test]
    fn the_id_of_a_family_is_found_among_other_attributes() {
        let attributes =
            [string(CONTROLLER_FAMILY_NAME, "ethtool"), attribute(CONTROLLER_FAMILY_ID, &[0x15, 0])];
        assert_eq!(find(&attributes.concat(), CONTROLLER_FAMILY_ID), Some(0x15));
        assert_eq!(find(&[0, 0, 2, 0], CONTROLLER_FAMILY_ID), None);
    }
}
