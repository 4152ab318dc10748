//! The clients of nodes that write to an image: written down on its header, as a second lock, by the node
//! that has mapped it, and struck out by it when the image is unmapped. Nothing else tells whose a client is:
//! operators, mirrors and the cluster's manager open images, too.
//!
//! | | of the lock `cephlet.clients` |
//! |---|---|
//! | address of the client | cookie |
//! | what became of it, node, publication, machine, boot | description |
//!
//! A description reads `version 1 mapped node n1 publication 0123456789abcdef machine M boot B`, with `-` for
//! what is not known. Its words lie in clusters, so none may ever change. What becomes of a client later is
//! said by a second holder of the same cookie. Mirrors do not copy locks, and the lock disturbs no command.

use crate::backend::rbd::context::{Identity, Pool};
use crate::backend::rbd::publish::lock::NodePublication;
use crate::backend::rbd::tool::{LockHolder, LockRequest, LockTarget, Locked};
use crate::error::{Error, Result};
use crate::ids;

/// What all holders say.
const TAG: &str = "clients";

/// What became of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// A node has mapped the image with it.
    Mapped,
    /// The cluster has shut it out, for a controller.
    ShutOut,
    /// The image is unmapped. It is shut out still, as its node may not change that.
    Gone,
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::ShutOut => "shut-out",
            Self::Gone => "gone",
        }
    }
}

/// A client of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// As `10.0.0.7:0/1234567`.
    pub address: String,
    pub node: String,
    /// [`NodePublication::nonce`]
    pub publication: String,
    pub machine: String,
    pub boot: String,
}

/// A client and what became of it, with the holders that say so.
#[derive(Clone, Debug)]
pub(crate) struct KnownClient {
    pub client: Client,
    pub fate: Fate,
    holders: Vec<LockHolder>,
}

/// The clients of an image.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    pub all: Vec<KnownClient>,
    /// A node has ever written one down.
    pub were_ever: bool,
}

impl Client {
    /// The client of this node by which it has mapped what was published to it.
    pub fn of(identity: &Identity, publication: &str, address: &str) -> Self {
        Self {
            address: address.to_string(),
            node: identity.node.clone(),
            publication: publication.to_string(),
            machine: identity.machine.id.clone(),
            boot: identity.machine.boot.clone(),
        }
    }

    /// Whether it was given the image by this publication.
    pub fn is_of(&self, publication: &NodePublication) -> bool {
        (&self.node, &self.publication) == (&publication.node, &publication.nonce)
    }

    /// Whether it is one of this node, in this boot.
    pub fn is_of_boot(&self, identity: &Identity) -> bool {
        (&self.node, &self.boot) == (&identity.node, &identity.machine.boot)
    }

    /// Whether it is one of this node, in this boot or, on the same machine, before it.
    pub fn is_from(&self, identity: &Identity) -> bool {
        let Identity { node, machine, .. } = identity;
        let same_machine = !machine.id.is_empty() && self.machine == machine.id;
        self.is_of_boot(identity) || (self.node == *node && same_machine)
    }

    fn request(&self, fate: Fate) -> LockRequest {
        let word = |text: &str| if text.is_empty() { "-".to_string() } else { ids::encode(text) };
        let [node, publication] = [&self.node, &self.publication].map(|text| word(text));
        let [machine, boot] = [&self.machine, &self.boot].map(|text| word(text));
        let fate = fate.word();
        let description =
            format!("version 1 {fate} node {node} publication {publication} machine {machine} boot {boot}");
        let (cookie, shared) = (self.address.clone(), Some(TAG.to_string()));
        LockRequest { cookie, description, shared, seconds: None }
    }

    fn read(holder: &LockHolder) -> Option<(Self, Fate)> {
        let words: Vec<&str> = holder.description.split(' ').collect();
        let &[
            "version",
            "1",
            fate,
            "node",
            node,
            "publication",
            publication,
            "machine",
            machine,
            "boot",
            boot,
        ] = words.as_slice()
        else {
            return None;
        };
        let fate = [Fate::Mapped, Fate::ShutOut, Fate::Gone].into_iter().find(|it| it.word() == fate)?;
        let text = |word: &str| if word == "-" { Some(String::new()) } else { ids::decode(word) };
        let client = Self {
            address: holder.cookie.clone(),
            node: text(node)?,
            publication: text(publication)?,
            machine: text(machine)?,
            boot: text(boot)?,
        };
        Some((client, fate))
    }
}

impl Clients {
    /// Those that are written down on the header of the image of this id.
    pub fn read(pool: &Pool<'_>, image: &str) -> Result<Self> {
        let state = pool.lock_state(LockTarget::Clients(image))?;
        let mut clients = Self { all: Vec::new(), were_ever: state.is_known };
        for holder in state.holders {
            let Some((client, fate)) = Client::read(&holder) else {
                return Err(Error::precondition(format!(
                    "image {image} is mapped by a client at {} that a newer cephlet has written down ({:?}): \
                     use that one",
                    holder.cookie, holder.description
                )));
            };
            match clients.all.iter_mut().find(|known| known.client == client) {
                Some(known) => {
                    known.fate = known.fate.max(fate);
                    known.holders.push(holder);
                }
                None => clients.all.push(KnownClient { client, fate, holders: vec![holder] }),
            }
        }
        Ok(clients)
    }
}

/// Writes down a client, or what became of it.
pub(crate) fn write_down(pool: &Pool<'_>, image: &str, client: &Client, fate: Fate) -> Result<()> {
    match pool.lock(LockTarget::Clients(image), &client.request(fate))? {
        Locked::Now => Ok(()),
        Locked::Held => Err(Error::precondition(format!(
            "somebody else holds the lock \"cephlet.clients\" on the header of image {image}: `rados -p POOL \
             lock info rbd_header.{image} cephlet.clients` tells who"
        ))),
    }
}

/// Strikes out a client.
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

    #[test]
    fn the_words_never_change() {
        let client = Client::of(&identity("5f", "b-1"), "0123456789abcdef", "10.0.0.7:0/42");
        for (fate, word) in [(Fate::Mapped, "mapped"), (Fate::ShutOut, "shut-out"), (Fate::Gone, "gone")] {
            let request = client.request(fate);
            let rest = "node node%201 publication 0123456789abcdef machine 5f boot b-1";
            assert_eq!(request.description, format!("version 1 {word} {rest}"));
            assert_eq!(
                (request.cookie.as_str(), request.shared.as_deref()),
                ("10.0.0.7:0/42", Some("clients"))
            );
            assert_eq!(Client::read(&holder(request)), Some((client.clone(), fate)));
        }
        let unknown = Client::of(&identity("", "b-1"), "", "10.0.0.7:0/42");
        assert_eq!(Client::read(&holder(unknown.request(Fate::Mapped))), Some((unknown, Fate::Mapped)));
    }

    #[test]
    fn what_another_release_says_is_not_guessed() {
        let client = Client::of(&identity("5f", "b-1"), "01", "10.0.0.7:0/42");
        let other = |description: String| LockHolder { description, ..holder(client.request(Fate::Mapped)) };
        let mapped = client.request(Fate::Mapped).description;
        for description in
            [mapped.replace("version 1", "version 2"), mapped.replace("mapped", "lent"), mapped + " x"]
        {
            assert_eq!(Client::read(&other(description.clone())), None, "{description}");
        }
    }

    /// The same node ID may be another machine, and a machine that has no ID says nothing of its boots.
    #[test]
    fn only_the_same_machine_knows_that_it_has_booted() {
        let client = Client::of(&identity("5f", "b-1"), "01", "10.0.0.7:0/42");
        assert!(client.is_from(&identity("5f", "b-1")) && client.is_from(&identity("5f", "b-2")));
        assert!(!client.is_from(&identity("60", "b-2")), "UNSAFE: it may be mapped there");
        let nameless = Client::of(&identity("", "b-1"), "01", "10.0.0.7:0/42");
        assert!(!nameless.is_from(&identity("", "b-2")), "UNSAFE: it may be mapped there");
    }
}
