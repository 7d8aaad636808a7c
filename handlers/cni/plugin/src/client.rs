//! A minimal HTTP/1.1 client that sends one request to the daemon.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::message::MAX_MESSAGE;

/// The HTTP response of the daemon.
pub(crate) struct DaemonAnswer {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The body of the response.
    pub(crate) body: Vec<u8>,
}

/// Sends a request to the daemon at `address`: the path of a Unix socket, or the address and port of a TCP socket. `limit` is the time
/// limit of each read and write.
pub(crate) fn post(address: &str, path: &str, body: &[u8], limit: Duration) -> io::Result<DaemonAnswer> {
    if address.starts_with('/') {
        let stream = UnixStream::connect(address)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        exchange(stream, path, body)
    } else {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        exchange(stream, path, body)
    }
}

/// Sends one request in HTTP/1.1 and reads the answer until the daemon closes the connection, at most [`MAX_MESSAGE`] bytes.
fn exchange(mut stream: impl Read + Write, path: &str, body: &[u8]) -> io::Result<DaemonAnswer> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: staffetta\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body].concat())?;
    let mut answer = Vec::new();
    stream.take(MAX_MESSAGE as u64).read_to_end(&mut answer)?;
    read(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is incomplete"))
}

/// Parses an HTTP response; `None` if it is malformed, or if it states a `Content-Length` and the body has another length.
fn read(answer: &[u8]) -> Option<DaemonAnswer> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = answer[end + 4..].to_vec();
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let is_complete = length.is_none_or(|(_, length)| length.trim().parse() == Ok(body.len()));
    is_complete.then_some(DaemonAnswer { status, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_off_is_an_error() {
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}";
        let answer = read(whole).unwrap();
        assert_eq!((answer.status, &*answer.body), (202, &b"{}"[..]));
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_none(), "{end}");
        }
    }
}
