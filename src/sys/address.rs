//! Addresses of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The local address from which this machine reaches `other`. The kernel chooses it when a datagram socket is
/// connected; no packet is sent (udp(7), ip(7)).
///
/// # Errors
/// Those of connect(2): ENETUNREACH without a route.
pub fn towards(other: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match other {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // The port does not matter, but 0 is refused by some systems.
    socket.connect((other, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Whether a client of a Ceph cluster at this address, as `10.0.0.7:0/1234567`, is on this machine, more
/// precisely in this network namespace: a socket can be bound to its address. No packet is sent.
pub fn is_here(client: &str) -> bool {
    let address = client.split('/').next().and_then(|text| text.parse::<SocketAddr>().ok());
    address.is_some_and(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_address_towards_oneself_is_ones_own() {
        assert_eq!(towards(Ipv4Addr::LOCALHOST.into()).unwrap(), Ipv4Addr::LOCALHOST);
        // All of 127.0.0.0/8 is this machine, and it answers from the address that was asked.
        let other: IpAddr = "127.0.0.9".parse().unwrap();
        assert!(towards(other).unwrap().is_loopback());
    }

    #[test]
    fn an_address_of_this_machine_is_told_from_others() {
        assert!(is_here("127.0.0.1:0/42"));
        // Addresses for documentation, which no machine has (RFC 5737, RFC 3849).
        assert!(!is_here("192.0.2.1:0/42") && !is_here("[2001:db8::1]:0/42"));
        assert!(!is_here("client.7") && !is_here(""));
    }
}
