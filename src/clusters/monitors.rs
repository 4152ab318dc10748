//! Addresses of monitors, in every form in which cephadm and people write them.
//!
//! Ceph speaks two protocols: messenger version 2, usually at port 3300, and version 1, usually at 6789. An
//! address without protocol and port means both (`MonMap::init_with_ips`); one with a port alone means
//! version 2 at 3300 and version 1 elsewhere.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};

use crate::config;
use crate::error::{Error, Result};

const V2_PORT: u16 = 3300;
const V1_PORT: u16 = 6789;

/// One monitor, by its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Monitor {
    /// `10.0.0.1:3300`, of messenger version 2.
    pub v2: Option<String>,
    /// `10.0.0.1:6789`, of messenger version 1.
    pub v1: Option<String>,
}

/// One address as it was written.
struct Address<'a> {
    version: Option<u8>,
    host: &'a str,
    port: Option<u16>,
}

/// Reads a list: `[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] 10.0.0.2, mon3:6789; [::1]`.
///
/// # Errors
/// What is wrong with it, naming the part.
pub fn parse(text: &str) -> Result<Vec<Monitor>, String> {
    let mut monitors: Vec<Monitor> = Vec::new();
    for part in split(text) {
        match part
            .strip_prefix('[')
            .and_then(|part| part.strip_suffix(']'))
            .filter(|inner| parse_version(inner).0.is_some())
        {
            Some(group) => {
                let addresses = split(group).map(parse_address).collect::<Result<Vec<_>, _>>()?;
                monitors.push(addresses.iter().fold(Monitor::default(), Monitor::with));
            }
            None => join(&mut monitors, &parse_address(part)?),
        }
    }
    if monitors.is_empty() { Err(String::from("no monitor is named")) } else { Ok(monitors) }
}

/// The parts between commas, semicolons and white space, outside of brackets.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    let is_separator = move |letter: char| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        depth <= 0 && (letter.is_whitespace() || matches!(letter, ',' | ';'))
    };
    text.split(is_separator).filter(|part| !part.is_empty())
}

/// `v2:A,v1:A` without brackets is one monitor too.
fn join(monitors: &mut Vec<Monitor>, address: &Address<'_>) {
    let other = |last: &&mut Monitor| match (address.version, &last.v2, &last.v1) {
        (Some(1), Some(there), None) | (Some(2), None, Some(there)) => {
            there.rsplit_once(':').map(|it| it.0) == Some(&address.host())
        }
        _ => false,
    };
    match monitors.last_mut().filter(other) {
        Some(last) => *last = std::mem::take(last).with(address),
        None => monitors.push(Monitor::default().with(address)),
    }
}

fn parse_version(text: &str) -> (Option<u8>, &str) {
    match (text.strip_prefix("v2:"), text.strip_prefix("v1:"), text.strip_prefix("any:")) {
        (Some(rest), ..) => (Some(2), rest),
        (_, Some(rest), _) => (Some(1), rest),
        (.., Some(rest)) => (None, rest),
        _ => (None, text),
    }
}

/// `v2:10.0.0.1:3300/0`; the number behind the slash tells instances of a daemon apart and is 0 for monitors.
fn parse_address(text: &str) -> Result<Address<'_>, String> {
    let wrong = |what: &str| format!("{text:?} is not the address of a monitor: {what}");
    let (version, rest) = parse_version(text);
    let rest = rest.split_once('/').map_or(rest, |(address, _)| address);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(|| wrong("']' is missing"))?,
        None if rest.parse::<Ipv6Addr>().is_ok() => (rest, ""),
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    let plausible = if rest.starts_with('[') {
        host.parse::<Ipv6Addr>().is_ok()
    } else {
        config::is_name(host) || host.contains(':')
    };
    if !plausible {
        return Err(wrong(
            "allowed are an IPv4 address, an IPv6 address (in brackets if a port follows) and a host name",
        ));
    }
    let port = match port.strip_prefix(':') {
        Some(digits) => Some(
            digits
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| wrong("its port is no number from 1 to 65535"))?,
        ),
        None if port.is_empty() => None,
        None => return Err(wrong("only a port may follow ']'")),
    };
    Ok(Address { version, host, port })
}

impl Address<'_> {
    /// The host in the form that a port can follow.
    fn host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_string() }
    }
}

impl Monitor {
    fn with(mut self, address: &Address<'_>) -> Self {
        let at = |port: u16| Some(format!("{}:{port}", address.host()));
        match (address.version, address.port) {
            (None, None) => (self.v2, self.v1) = (at(V2_PORT), at(V1_PORT)),
            (Some(2), port) => self.v2 = at(port.unwrap_or(V2_PORT)),
            (None, Some(V2_PORT)) => self.v2 = at(V2_PORT),
            (_, port) => self.v1 = at(port.unwrap_or(V1_PORT)),
        }
        self
    }

    /// For `-m` of the tools. The tools accept a protocol only before a numeric address.
    fn for_tools(&self) -> String {
        let numeric = |address: &str| address.parse::<SocketAddr>().is_ok();
        let addresses = [("v2", &self.v2), ("v1", &self.v1)]
            .into_iter()
            .filter_map(|(version, it)| Some((version, it.as_deref()?)));
        let written: Vec<String> = addresses
            .map(
                |(version, address)| {
                    if numeric(address) { format!("{version}:{address}") } else { address.to_string() }
                },
            )
            .collect();
        match written.as_slice() {
            [v2, _] if v2.starts_with("v2:") => format!("[{}]", written.join(",")),
            [v2, v1] => named(v2, v1),
            _ => written.concat(),
        }
    }
}

/// A host with both protocols, by name: at the usual ports the name alone is enough.
fn named(v2: &str, v1: &str) -> String {
    match (v2.strip_suffix(&format!(":{V2_PORT}")), v1.strip_suffix(&format!(":{V1_PORT}"))) {
        (Some(host), Some(_)) => host.to_string(),
        _ => format!("{v2},{v1}"),
    }
}

/// For `-m` of the tools.
pub fn for_tools(monitors: &[Monitor]) -> String {
    monitors.iter().map(Monitor::for_tools).collect::<Vec<_>>().join(",")
}

/// For the kernel's `mon_addrs`, names resolved, and whether they speak version 2 only, for which the kernel
/// needs `ms_mode`.
///
/// # Errors
/// Unavailable, naming the host, if no name can be resolved.
pub fn for_kernel(monitors: &[Monitor]) -> Result<(String, bool)> {
    let only_v2 = monitors.iter().all(|monitor| monitor.v1.is_none());
    let addresses = monitors
        .iter()
        .filter_map(|monitor| if only_v2 { monitor.v2.as_deref() } else { monitor.v1.as_deref() });
    let (mut seen, mut resolved, mut failed) = (BTreeSet::new(), Vec::new(), None);
    for address in addresses {
        match address.to_socket_addrs() {
            Ok(found) => resolved.extend(found.filter(|it| seen.insert(*it)).map(|it| it.to_string())),
            Err(error) => {
                failed =
                    Some(Error::unavailable(format!("the monitor {address} cannot be resolved: {error}")))
            }
        }
    }
    match (resolved.is_empty(), failed) {
        (true, Some(error)) => Err(error),
        (true, None) => Err(Error::precondition("no monitor of the cluster is known")),
        _ => Ok((resolved.join(","), only_v2)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn both(v2: &str, v1: &str) -> Monitor {
        Monitor { v2: Some(v2.into()), v1: Some(v1.into()) }
    }

    fn v1(address: &str) -> Monitor {
        Monitor { v2: None, v1: Some(address.into()) }
    }

    fn v2(address: &str) -> Monitor {
        Monitor { v2: Some(address.into()), v1: None }
    }

    #[test]
    fn every_form_is_read() {
        let a = || both("10.0.0.1:3300", "10.0.0.1:6789");
        let b = || both("10.0.0.2:3300", "10.0.0.2:6789");
        let ip6 = || both("[fd00::1]:3300", "[fd00::1]:6789");
        let cases: [(&str, Vec<Monitor>); 18] = [
            (
                "[v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0] [v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0]",
                vec![a(), b()],
            ),
            ("[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:10.0.0.2:3300,v1:10.0.0.2:6789]", vec![a(), b()]),
            ("v2:10.0.0.1:3300,v1:10.0.0.1:6789", vec![a()]),
            ("v1:10.0.0.1:6789/0,v2:10.0.0.1:3300/0", vec![a()]),
            ("v2:10.0.0.1:3300/0,v1:10.0.0.1:6789/0,v2:10.0.0.2:3300/0,v1:10.0.0.2:6789/0", vec![a(), b()]),
            ("10.0.0.1", vec![a()]),
            ("10.0.0.1; 10.0.0.2,", vec![a(), b()]),
            ("10.0.0.1:6789", vec![v1("10.0.0.1:6789")]),
            ("10.0.0.1:3300", vec![v2("10.0.0.1:3300")]),
            ("10.0.0.1:7000/0", vec![v1("10.0.0.1:7000")]),
            ("[v2:10.0.0.1:3300/0]", vec![v2("10.0.0.1:3300")]),
            ("[::1]:6789", vec![v1("[::1]:6789")]),
            ("[fd00::1]", vec![ip6()]),
            ("fd00::1", vec![ip6()]),
            ("[v2:[fd00::1]:3300/0,v1:[fd00::1]:6789/0]", vec![ip6()]),
            ("v2:[fd00::1]:3300,v1:[fd00::1]:6789", vec![ip6()]),
            (
                "mon-a.example.org\tmon-b:6789",
                vec![both("mon-a.example.org:3300", "mon-a.example.org:6789"), v1("mon-b:6789")],
            ),
            ("v2:10.0.0.1:3300,v1:10.0.0.2:6789", vec![v2("10.0.0.1:3300"), v1("10.0.0.2:6789")]),
        ];
        for (text, monitors) in cases {
            assert_eq!(parse(text).as_ref(), Ok(&monitors), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in [
            "10.0.0.1:0",
            "10.0.0.1:x",
            "[fd00::1",
            "[mon]:6789",
            "[fd00::1]6789",
            "a b!c",
            "v2:",
            "tcp://x",
            "a:1:2",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("is not the address of a monitor"), "{text}: {error}");
        }
        assert_eq!(parse(" ,; "), Err("no monitor is named".into()));
    }

    #[test]
    fn tools_get_what_they_can_read() {
        let text = |list: &str| for_tools(&parse(list).unwrap());
        assert_eq!(
            text("10.0.0.1 [fd00::1]"),
            "[v2:10.0.0.1:3300,v1:10.0.0.1:6789],[v2:[fd00::1]:3300,v1:[fd00::1]:6789]"
        );
        assert_eq!(text("10.0.0.1:7000 v2:10.0.0.2:3301"), "v1:10.0.0.1:7000,v2:10.0.0.2:3301");
        assert_eq!(text("mon-a mon-b:6789"), "mon-a,mon-b:6789");
    }

    #[test]
    fn the_kernel_gets_numbers_of_one_protocol() {
        let kernel = |list: &str| for_kernel(&parse(list).unwrap());
        assert_eq!(kernel("10.0.0.1,[fd00::1]").unwrap(), ("10.0.0.1:6789,[fd00::1]:6789".into(), false));
        assert_eq!(
            kernel("v2:10.0.0.1:3300,v2:10.0.0.2").unwrap(),
            ("10.0.0.1:3300,10.0.0.2:3300".into(), true)
        );
        assert_eq!(
            kernel("v2:10.0.0.1,10.0.0.2:6789,10.0.0.2:6789").unwrap(),
            ("10.0.0.2:6789".into(), false)
        );
        assert!(kernel("localhost").unwrap().0.contains("127.0.0.1:6789"));
        let error = kernel("nobody.invalid").unwrap_err();
        assert!(
            error.kind() == Kind::Unavailable && error.message().contains("nobody.invalid:6789"),
            "{error}"
        );
        assert_eq!(kernel("nobody.invalid 10.0.0.1").unwrap().0, "10.0.0.1:6789");
        assert_eq!(for_kernel(&[]).unwrap_err().kind(), Kind::Precondition);
    }
}
