//! A blocking client of rtnetlink, the protocol by which the kernel configures network interfaces.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{LinkAttribute, LinkExtentMask, LinkMessage};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// The maximum length of the name of an interface, in bytes. The kernel rejects requests with a longer one.
const MAX_NAME: usize = 15;

/// An rtnetlink socket that configures the network namespace in which it was opened, also when its thread has left that namespace.
pub(crate) struct RouteSocket(Socket);

impl RouteSocket {
    /// Opens a socket in the network namespace of this thread.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Sends a request that changes the network configuration, with additional flags (`NLM_F_*`), and waits for the acknowledgement.
    pub(crate) fn change(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        #[cfg(test)]
        crate::changes::count()?;
        self.exchange(request, flags | NLM_F_ACK, |_| ())
    }

    /// Returns the interface called `name`; `None` if there is none.
    pub(crate) fn link(&self, name: &str) -> io::Result<Option<LinkMessage>> {
        if name.len() > MAX_NAME {
            return Ok(None);
        }
        let mut request = LinkMessage::default();
        request.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        self.get_link(request)
    }

    /// Returns the interface with that index; `None` if there is none.
    pub(crate) fn link_at(&self, index: u32) -> io::Result<Option<LinkMessage>> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        self.get_link(request)
    }

    fn get_link(&self, mut request: LinkMessage) -> io::Result<Option<LinkMessage>> {
        request.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let mut found = None;
        let result = self.exchange(RouteNetlinkMessage::GetLink(request), NLM_F_ACK, |answer| {
            if let RouteNetlinkMessage::NewLink(link) = answer {
                found = Some(link);
            }
        });
        match result {
            Ok(()) => Ok(found),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns `true` if `address` is an address of the network namespace itself (a route of type `local`). Returns `false` on errors.
    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        let mut request = RouteMessage::default();
        (request.header.address_family, request.header.destination_prefix_length) =
            if address.is_ipv4() { (AddressFamily::Inet, 32) } else { (AddressFamily::Inet6, 128) };
        request.attributes = vec![RouteAttribute::Destination(RouteAddress::from(address))];
        let mut is_local = false;
        let found = self.exchange(RouteNetlinkMessage::GetRoute(request), NLM_F_ACK, |answer| {
            if let RouteNetlinkMessage::NewRoute(route) = answer {
                is_local = route.header.kind == RouteType::Local;
            }
        });
        found.is_ok() && is_local
    }

    /// Returns all answers of the kernel to `request`, such as one for each address.
    pub(crate) fn dump(&self, request: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut found = Vec::new();
        self.exchange(request, NLM_F_DUMP, |answer| found.push(answer))?;
        Ok(found)
    }

    /// Sends a request and passes each message of the response to `take`, until the kernel acknowledges the request or ends the list. An
    /// error code of the kernel becomes the error. Messages in one datagram are aligned to 4 bytes (`NLMSG_ALIGN`, netlink(7)).
    fn exchange(
        &self,
        request: RouteNetlinkMessage,
        flags: u16,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.0.send(&encode(request, flags), 0)?;
        loop {
            let (received, _) = self.0.recv_from_full()?;
            let mut rest = &received[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                let length = message.header.length as usize;
                match message.payload {
                    NetlinkPayload::InnerMessage(answer) => take(answer),
                    NetlinkPayload::Error(error) => return error.code.map_or(Ok(()), |_| Err(error.to_io())),
                    NetlinkPayload::Done(_) => return Ok(()),
                    _ => {}
                }
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }
}

/// Encodes a request as a netlink message, with `flags` and `NLM_F_REQUEST` in its header.
pub(crate) fn encode(request: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(request));
    message.finalize();
    let mut buffer = vec![0; message.buffer_len()];
    message.serialize(&mut buffer);
    buffer
}

/// Returns `true` if the error says that an interface does not exist.
pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error())
}

/// Returns `true` if the error says that the interface, address or route to be added exists already.
pub(crate) fn exists(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::EXIST.raw_os_error())
}
