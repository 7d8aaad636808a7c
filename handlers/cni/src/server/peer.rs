//! A listener on the loopback interface for root alone, as a Unix socket with the mode 0600 is.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tracing::warn;

/// A TCP listener that closes the connections of processes of other users than root and that of the daemon.
pub(super) struct RootListener(pub(super) TcpListener);

impl Listener for RootListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            let (stream, peer) = Listener::accept(&mut self.0).await;
            let user = stream.local_addr().and_then(|address| {
                let table = if peer.is_ipv4() { "/proc/self/net/tcp" } else { "/proc/self/net/tcp6" };
                Ok((user(&fs::read_to_string(table)?, peer, address), fs::metadata("/proc/self")?.uid()))
            });
            match user {
                Ok((user, own)) if is_permitted(user, own) => return (stream, peer),
                Ok((user, _)) => warn!(%peer, user, "a connection of a process that is not root's is closed"),
                Err(error) => warn!(%peer, %error, "the user of a connection cannot be read; it is closed"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Returns `true` if the process of `user`, or `None` if that is not known, may connect to the daemon, whose user is `own`.
fn is_permitted(user: Option<u32>, own: u32) -> bool {
    user.is_some_and(|user| user == 0 || user == own)
}

/// Returns the user of the process with the connection from `peer` to `address`, from the content of `/proc/net/tcp`; `None` if no process
/// has it open. The kernel shows the user 0 for a connection that its process has closed.
fn user(table: &str, peer: SocketAddr, address: SocketAddr) -> Option<u32> {
    const ESTABLISHED: &str = "01";
    let (peer, address) = (hexadecimal(peer), hexadecimal(address));
    table.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, local, remote, state, _, _, _, user, _, inode, ..] = fields[..] else { return None };
        let is_open = local == peer && remote == address && state == ESTABLISHED && inode != "0";
        is_open.then(|| user.parse().ok()).flatten()
    })
}

/// Returns an address as `/proc/net/tcp` shows it: words of 32 bits in the byte order of the machine, and the port.
fn hexadecimal(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (words, _) = bytes.as_chunks::<4>();
    let ip =
        words.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect::<Vec<_>>().concat();
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:13AC 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11
   1: 0100007F:9C40 0100007F:13AC 01 00000000:00000000 00:00000000 00000000  1000        0 12
   2: 0100007F:9C41 0100007F:13AC 01 00000000:00000000 00:00000000 00000000     0        0 13
   3: 0100007F:9C42 0100007F:13AC 05 00000000:00000000 00:00000000 00000000     0        0 0
   4: 0100007F:9C43 0100007F:13AD 01 00000000:00000000 00:00000000 00000000     0        0 14
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_user_of_a_connection_is_that_of_the_process_that_has_it_open() {
        let found = [40000, 40001, 40002, 40003].map(|port| {
            user(TABLE, SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from(([127, 0, 0, 1], 5036)))
        });
        assert_eq!(found, [Some(1000), Some(0), None, None]);
        let six = hexadecimal("[::1]:5036".parse().unwrap());
        assert_eq!(six, "00000000000000000000000001000000:13AC");
    }

    #[test]
    fn root_and_the_user_of_the_daemon_may_connect_and_no_other() {
        let permitted = |user| is_permitted(user, 1000);
        assert!(permitted(Some(0)) && permitted(Some(1000)));
        assert!(!permitted(Some(1001)) && !permitted(None));
    }

    #[tokio::test]
    async fn a_connection_that_its_process_has_closed_is_not_accepted_and_an_open_one_is() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let mut listener = RootListener(TcpListener::bind(address).await.unwrap());
            let address = listener.local_addr().unwrap();
            drop(TcpStream::connect(address).await.unwrap());
            let mut open = TcpStream::connect(address).await.unwrap();
            let (accepted, peer) = listener.accept().await;
            assert_eq!(peer, open.local_addr().unwrap());
            drop(accepted);
            assert_eq!(open.read(&mut [0]).await.unwrap(), 0);
        }
    }
}
