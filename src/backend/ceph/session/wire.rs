//! The protocol between the daemon and the session: frames of two 32-bit lengths (big endian), a JSON object
//! and a body of bytes.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The protocol that this daemon speaks.
pub(super) const PROTOCOL: u32 = 1;

/// The largest part of a frame, in bytes: room for the names of a million images.
const LARGEST: u32 = 256 << 20;

/// The first message of the session.
#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub protocol: u32,
    pub python: String,
    /// The version of librbd.
    pub rbd: String,
}

/// How to reach a cluster; the body is the key.
#[derive(Serialize)]
pub(super) struct Reach<'a> {
    pub cluster: u64,
    pub conf: Option<&'a str>,
    pub options: Map<String, Value>,
}

/// A cluster that will not be asked any more.
#[derive(Serialize)]
pub(super) struct Forget {
    pub forget: u64,
}

/// A question to a cluster.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Question<'a> {
    /// A command line; the body is its stdin.
    Tool { argv: Vec<&'a str> },
    /// Commands of Ceph's own table.
    Commands { commands: Vec<Map<String, Value>>, manager: bool },
}

#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub id: u64,
    pub cluster: u64,
    #[serde(flatten)]
    pub question: &'a Question<'a>,
}

/// The head of an answer; the body is what the tool would print.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub id: u64,
    /// The exit status of the tool; None if the session does not serve the command.
    pub status: Option<i32>,
    /// What the tool would write to stderr.
    pub said: String,
}

pub(super) fn write(to: &mut impl Write, head: &impl Serialize, body: &[u8]) -> io::Result<()> {
    let head = serde_json::to_vec(head)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput);
    let lengths = [length(&head)?.to_be_bytes(), length(body)?.to_be_bytes()].concat();
    to.write_all(&[lengths.as_slice(), &head, body].concat())
}

/// # Errors
/// `UnexpectedEof`: the session has ended. `InvalidData`: it does not speak the protocol.
pub(super) fn read<T: for<'de> Deserialize<'de>>(from: &mut impl Read) -> io::Result<(T, Vec<u8>)> {
    let head = length(from)?;
    let body = length(from)?;
    let (mut head, mut body) = (vec![0; head], vec![0; body]);
    from.read_exact(&mut head)?;
    from.read_exact(&mut body)?;
    Ok((serde_json::from_slice(&head)?, body))
}

fn length(from: &mut impl Read) -> io::Result<usize> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    match u32::from_be_bytes(bytes) {
        length @ ..=LARGEST => Ok(length as usize),
        length => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes"))),
    }
}
