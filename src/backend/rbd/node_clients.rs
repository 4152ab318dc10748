//! The clients by which nodes write to an image. A node that has mapped the image records its client on the
//! header, as a holder of a second lock, `cephlet.clients`, and removes the record when it unmaps the image.
//! The cookie is the client's address. Nothing else shows whose a client is: operators, mirrors and the
//! cluster's manager open images, too.
//!
//! A description reads `{"client":{"boot":"B","machine":"M","node":"n1","publication":"0123456789abcdef",
//! "state":"mapped"},"version":1}`. A second holder of the same cookie, in state `shut_out`, says that a
//! controller has shut the client out. Mirrors do not copy locks, and the lock disturbs no command.

use serde::{Deserialize, Serialize};

use crate::backend::ceph::locks::describe;
use crate::backend::ceph::publication::NodePublication;
use crate::backend::creation_record::Unknown;
use crate::backend::rbd::context::{Identity, Pool};
use crate::backend::rbd::tool::{LockHolder, LockRequest, LockTarget, Locked};
use crate::error::{Error, Result};

/// The tag of all holders.
const TAG: &str = "clients";
/// The kind of their descriptions.
const KIND: &str = "client";

/// A client of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Client {
    /// As `10.0.0.7:0/1234567`: the cookie of the lock.
    #[serde(skip)]
    pub address: String,
    pub node: String,
    /// [`NodePublication::nonce`]
    pub publication: String,
    pub machine: String,
    pub boot: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Mapped,
    ShutOut,
}

/// What a lock holder says of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Said {
    #[serde(flatten)]
    client: Client,
    state: State,
    /// Fields that this release does not know.
    #[serde(flatten)]
    unknown: Unknown,
}

/// A client, with the lock holders that describe it.
#[derive(Clone, Debug)]
pub(crate) struct KnownClient {
    pub client: Client,
    /// A controller has had the cluster shut it out.
    pub is_shut_out: bool,
    unknown: Unknown,
    holders: Vec<LockHolder>,
}

/// The clients of an image.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub all: Vec<KnownClient>,
    /// Whether a node has ever recorded a client.
    pub were_ever: bool,
}

impl Client {
    /// The client by which this node has mapped the image of a publication.
    pub fn of(identity: &Identity, publication: &str, address: &str) -> Self {
        Self {
            address: address.to_string(),
            node: identity.node.clone(),
            publication: publication.to_string(),
            machine: identity.machine.id.clone(),
            boot: identity.machine.boot.clone(),
        }
    }

    /// Whether it has the image by this publication.
    pub fn is_of(&self, publication: &NodePublication) -> bool {
        (&self.node, &self.publication) == (&publication.node, &publication.nonce)
    }

    /// Whether it is a client of this node, from the present boot.
    pub fn is_of_boot(&self, identity: &Identity) -> bool {
        (&self.node, &self.boot) == (&identity.node, &identity.machine.boot)
    }

    /// Whether it is a client of this node, from the present boot or an earlier boot of the same machine.
    pub fn is_from(&self, identity: &Identity) -> bool {
        let Identity { node, machine, .. } = identity;
        let same_machine = !machine.id.is_empty() && self.machine == machine.id;
        self.is_of_boot(identity) || (self.node == *node && same_machine)
    }
}

impl Said {
    fn request(&self) -> LockRequest {
        LockRequest {
            cookie: self.client.address.clone(),
            description: describe(KIND, self),
            shared: Some(TAG.to_string()),
            seconds: None,
        }
    }

    fn read(holder: &LockHolder) -> Result<Option<Self>> {
        let said = holder.says::<Self>(KIND)?;
        Ok(said.map(|Self { client, state, unknown }| {
            let address = holder.cookie.clone();
            Self { client: Client { address, ..client }, state, unknown }
        }))
    }
}

impl Clients {
    /// The clients that are recorded on the header of the image with this id.
    pub fn read(pool: &Pool<'_>, image: &str) -> Result<Self> {
        let state = pool.lock_state(LockTarget::Clients(image))?;
        let mut clients = Self { all: Vec::new(), were_ever: state.is_known };
        for holder in state.holders {
            let said = Said::read(&holder).map_err(|error| error.context(format_args!("image {image}")))?;
            let Some(Said { client, state, unknown }) = said else {
                return Err(Error::precondition(format!(
                    "image {image} is mapped by a client at {} of which only this is known: {:?}",
                    holder.cookie, holder.description
                )));
            };
            let is_shut_out = state == State::ShutOut;
            match clients.all.iter_mut().find(|known| known.client == client) {
                Some(known) => {
                    known.is_shut_out |= is_shut_out;
                    known.unknown = unknown;
                    known.holders.push(holder);
                }
                None => {
                    clients.all.push(KnownClient { client, is_shut_out, unknown, holders: vec![holder] });
                }
            }
        }
        Ok(clients)
    }

    /// The clients that are not shut out.
    pub fn at_large(&self) -> impl Iterator<Item = &KnownClient> {
        self.all.iter().filter(|known| !known.is_shut_out)
    }
}

/// Records a client by which the image is mapped.
pub(crate) fn write_down(pool: &Pool<'_>, image: &str, client: &Client) -> Result<()> {
    let said = Said { client: client.clone(), state: State::Mapped, unknown: Unknown::new() };
    add(pool, image, &said)
}

/// Records that a client is shut out. The rest of its description stays.
pub(crate) fn note_shut_out(pool: &Pool<'_>, image: &str, known: &KnownClient) -> Result<()> {
    let KnownClient { client, unknown, .. } = known.clone();
    add(pool, image, &Said { client, state: State::ShutOut, unknown })
}

fn add(pool: &Pool<'_>, image: &str, said: &Said) -> Result<()> {
    match pool.lock(LockTarget::Clients(image), &said.request())? {
        Locked::Now => Ok(()),
        Locked::Held => Err(Error::precondition(format!(
            "somebody else holds the lock \"cephlet.clients\" on the header of image {image}: `rados -p POOL \
             lock info rbd_header.{image} cephlet.clients` tells who"
        ))),
    }
}

/// Removes the records of a client.
pub(crate) fn strike_out(pool: &Pool<'_>, image: &str, known: &KnownClient) -> Result<()> {
    known.holders.iter().try_for_each(|holder| pool.unlock(LockTarget::Clients(image), holder))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::random::Machine;

    fn identity(machine: &str, boot: &str) -> Identity {
        let machine = Machine { id: machine.into(), boot: boot.into() };
        Identity { plugin: String::new(), node: "node 1".into(), machine, tag: String::new() }
    }

    fn holder(request: LockRequest) -> LockHolder {
        let LockRequest { cookie, description, shared, .. } = request;
        LockHolder { cookie, description, shared, client: "client.7".into(), address: "10.0.0.1:0/7".into() }
    }

    fn said(client: &Client, state: State) -> Said {
        Said { client: client.clone(), state, unknown: Unknown::new() }
    }

    #[test]
    fn what_a_later_release_said_beside_it_stays() {
        let client = Client::of(&identity("5f", "b-1"), "01", "10.0.0.7:0/42");
        let mapped = said(&client, State::Mapped).request();
        let description = mapped.description.replace("\"node\"", "\"later\":1,\"node\"");
        let read = Said::read(&LockHolder { description, ..holder(mapped) }).unwrap().unwrap();
        assert!(read.client == client && read.request().description.contains("\"later\":1"));
    }

    #[test]
    fn the_words_never_change() {
        let client = Client::of(&identity("5f", "b-1"), "0123456789abcdef", "10.0.0.7:0/42");
        for (state, word) in [(State::Mapped, "mapped"), (State::ShutOut, "shut_out")] {
            let said = said(&client, state);
            let request = said.request();
            let rest = r#""machine":"5f","node":"node 1","publication":"0123456789abcdef""#;
            let text = format!(r#"{{"client":{{"boot":"b-1",{rest},"state":"{word}"}},"version":1}}"#);
            assert_eq!(request.description, text);
            assert_eq!(
                (request.cookie.as_str(), request.shared.as_deref()),
                ("10.0.0.7:0/42", Some("clients"))
            );
            assert_eq!(Said::read(&holder(request)).unwrap(), Some(said));
        }
        let unknown = said(&Client::of(&identity("", "b-1"), "", "10.0.0.7:0/42"), State::Mapped);
        assert_eq!(Said::read(&holder(unknown.request())).unwrap(), Some(unknown));
    }

    #[test]
    fn what_another_release_says_is_not_guessed() {
        let client = Client::of(&identity("5f", "b-1"), "01", "10.0.0.7:0/42");
        let request = said(&client, State::Mapped).request();
        let other = |description: String| LockHolder { description, ..holder(request.clone()) };
        let mapped = &request.description;
        let error = Said::read(&other(mapped.replace("\"version\":1", "\"version\":2"))).unwrap_err();
        assert!(error.message().contains("later cephlet"), "{error}");
        for description in [mapped.replace("mapped", "lent"), mapped.replace("boot", "start")] {
            assert_eq!(Said::read(&other(description.clone())).unwrap(), None, "{description}");
        }
    }

    /// Another machine may have the same node ID, and one without an ID cannot be recognised after a boot.
    #[test]
    fn only_the_same_machine_knows_that_it_has_booted() {
        let client = Client::of(&identity("5f", "b-1"), "01", "10.0.0.7:0/42");
        assert!(client.is_from(&identity("5f", "b-1")) && client.is_from(&identity("5f", "b-2")));
        assert!(!client.is_from(&identity("60", "b-2")), "UNSAFE: it may be mapped there");
        let nameless = Client::of(&identity("", "b-1"), "01", "10.0.0.7:0/42");
        assert!(!nameless.is_from(&identity("", "b-2")), "UNSAFE: it may be mapped there");
    }
}
