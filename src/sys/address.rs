//! Addresses of this machine.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// The address that this machine has for another one: the kernel says it as soon as a socket for datagrams is
/// connected, and nothing is sent (udp(7), ip(7)).
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
}
