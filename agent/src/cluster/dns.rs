//! One question to a name server over UDP (RFC 1035), enough to know that CoreDNS really answers.
//!
//! It is written by hand because one question of type A is these lines, and the crate `hickory-proto` brings 65 crates.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Type A, class IN (RFC 1035, 3.2.2 and 3.2.4).
const TYPE_A: [u8; 2] = [0, 1];
const CLASS_IN: [u8; 2] = [0, 1];
/// Header flags: recursion desired.
const RECURSION_DESIRED: [u8; 2] = [0x01, 0x00];
/// Bytes of a message header (RFC 1035, 4.1.1).
const HEADER: usize = 12;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// Nothing came, or nothing could be sent.
    #[error("asking {0}")]
    Io(SocketAddr, #[source] io::Error),
    /// The kernel refuses it: kube-proxy's answer for a Service without endpoints.
    #[error("no pod stands behind {0} yet; kube-controller-manager writes its EndpointSlice, kube-proxy follows that")]
    NoEndpoints(SocketAddr),
    /// Nothing came in time.
    #[error("{0} did not answer within {1:?}")]
    Silent(SocketAddr, Duration),
    /// It answered, with an error code or without an address.
    #[error("{0} answered with code {1} and no address")]
    Negative(SocketAddr, u8),
    /// It answered with bytes that are not a DNS message.
    #[error("{0} answered with bytes that are no DNS message")]
    Shape(SocketAddr),
}

/// The first IPv4 address of `name`, asked of `server`.
pub async fn lookup(server: IpAddr, name: &str, patience: Duration) -> Result<Ipv4Addr, DnsError> {
    let server = SocketAddr::new(server, 53);
    let io = |error: io::Error| match error.kind() {
        // `reject` in the output chain is EPERM for who sends, and an ICMP message for who then receives.
        io::ErrorKind::PermissionDenied | io::ErrorKind::ConnectionRefused => DnsError::NoEndpoints(server),
        _ => DnsError::Io(server, error),
    };
    let local: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let id: u16 = rand::random();
    let mut buffer = [0; 512];
    let exchange = async {
        let socket = tokio::net::UdpSocket::bind(local).await.map_err(io)?;
        socket.connect(server).await.map_err(io)?;
        socket.send(&question(id, name)).await.map_err(io)?;
        socket.recv(&mut buffer).await.map_err(io)
    };
    let asked = tokio::time::timeout(patience, exchange).await;
    let length = asked.map_err(|_| DnsError::Silent(server, patience))??;
    match answer(id, &buffer[..length]) {
        Some(Ok(address)) => Ok(address),
        Some(Err(code)) => Err(DnsError::Negative(server, code)),
        None => Err(DnsError::Shape(server)),
    }
}

/// A question for the address of `name`.
fn question(id: u16, name: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + name.len() + 6);
    message.extend(id.to_be_bytes());
    message.extend(RECURSION_DESIRED);
    // One question, no other records.
    message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.trim_end_matches('.').split('.') {
        let label = &label.as_bytes()[..label.len().min(63)];
        message.push(u8::try_from(label.len()).unwrap_or(63));
        message.extend(label);
    }
    message.push(0);
    message.extend(TYPE_A);
    message.extend(CLASS_IN);
    message
}

/// The first address of an answer, or its error code; `None` if it does not answer `id`.
fn answer(id: u16, message: &[u8]) -> Option<Result<Ipv4Addr, u8>> {
    let head = message.get(..HEADER)?;
    let is_answer = head[..2] == id.to_be_bytes() && head[2] & 0x80 != 0;
    if !is_answer {
        return None;
    }
    let code = head[3] & 0x0f;
    let (questions, answers) = (u16::from_be_bytes([head[4], head[5]]), u16::from_be_bytes([head[6], head[7]]));
    let mut rest = &message[HEADER..];
    for _ in 0..questions {
        rest = skip_name(rest)?.get(4..)?;
    }
    for _ in 0..answers {
        let record = skip_name(rest)?;
        // TYPE, CLASS, TTL, RDLENGTH, RDATA (RFC 1035, 4.1.3).
        let length = usize::from(u16::from_be_bytes([*record.get(8)?, *record.get(9)?]));
        let data = record.get(10..10 + length)?;
        if record[..2] == TYPE_A
            && let Ok(octets) = <[u8; 4]>::try_from(data)
        {
            return Some(Ok(octets.into()));
        }
        rest = &record[10 + length..];
    }
    Some(Err(code))
}

/// What follows a name (RFC 1035, 4.1.4: labels, or a pointer as the end).
fn skip_name(mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        match *rest.first()? {
            0 => return rest.get(1..),
            length if length & 0xc0 == 0xc0 => return rest.get(2..),
            length => rest = rest.get(1 + usize::from(length)..)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DnsError, answer, lookup, question};

    /// CoreDNS's answer to `kubernetes.default.svc.cluster.local. A`.
    fn reply(code: u8, with_address: bool) -> Vec<u8> {
        let mut message = question(7, "kubernetes.default.svc.cluster.local");
        message[2] = 0x85;
        message[3] = code;
        if with_address {
            message[7] = 1;
            message.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 10, 96, 0, 1]);
        }
        message
    }

    #[tokio::test]
    async fn a_service_that_is_refused_is_told_as_one_without_pods() {
        // Nobody has this address of the loopback network.
        let error = lookup([127, 83, 2, 9].into(), "a", Duration::from_secs(5)).await.expect_err("refused");
        assert!(matches!(error, DnsError::NoEndpoints(_)), "{error}");
    }

    #[test]
    fn the_question_is_that_of_the_specification() {
        assert_eq!(question(0x1234, "a.bc."), b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x01a\x02bc\x00\x00\x01\x00\x01");
    }

    #[test]
    fn answers_are_read_and_everything_else_is_told_apart() {
        let table = [
            (7, reply(0, true), Some(Ok("10.96.0.1".parse().expect("an address")))),
            (7, reply(3, false), Some(Err(3))),
            (7, reply(0, false), Some(Err(0))),
            (8, reply(0, true), None),
            (7, question(7, "a"), None),
            (7, vec![0; 5], None),
            (7, reply(0, true)[..40].to_vec(), None),
        ];
        for (id, message, expected) in table {
            assert_eq!(answer(id, &message), expected, "{message:?}");
        }
    }
}
