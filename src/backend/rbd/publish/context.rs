//! What a node needs to know of a volume that is published to it, so that it need not ask the cluster: the
//! publish context, which the orchestrator carries from the controller to the node as text.

use std::collections::BTreeSet;

use crate::backend::ceph::publication::NodePublication;
use crate::backend::parameters::{READ_ONLY, about_root, is_read_only};
use crate::backend::rbd::image::find::ImageWithRecord;
use crate::backend::rbd::node::Mounter;
use crate::backend::rbd::tool::ImageInfo;
use crate::csi::{CONTEXT_KEY, Map};
use crate::error::Result;

const IMAGE_ID: &str = "imageId";
const IMAGE_FEATURES: &str = "imageFeatures";
const MOUNTER: &str = "mounter";
const MAP_OPTIONS: &str = "mapOptions";
const PUBLICATION: &str = "publication";

/// What a node needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishContext {
    /// The id of the image. The image that the node maps must have it.
    pub image_id: String,
    /// Its features. The node's kernel may lack some of them.
    pub features: BTreeSet<String>,
    /// The mounter: the kernel's driver or rbd-nbd.
    pub mounter: Mounter,
    /// Options of the mapping.
    pub map_options: Vec<String>,
    /// The file system it was made for, if that is known.
    pub fs_type: Option<String>,
    /// The parameters about the root of its file system.
    pub root: Map,
    /// Whether the node must not write.
    pub read_only: bool,
    /// Which publication it is: [`NodePublication::nonce`].
    pub publication: String,
}

impl PublishContext {
    /// What a node needs to know of this image.
    pub fn new(found: ImageWithRecord, publication: &NodePublication) -> Result<Self> {
        let ImageWithRecord { info: ImageInfo { id: image_id, features, .. }, record } = found;
        let settings = record.as_ref().map(|record| record.settings()).transpose()?.unwrap_or_default();
        let asked = record.map(|record| record.asked);
        let root = asked.as_ref().map(|asked| about_root(&asked.parameters)).unwrap_or_default();
        let fs_type = asked.and_then(|asked| asked.fs_type);
        Ok(Self {
            image_id,
            features,
            mounter: settings.mounter,
            map_options: settings.map_options,
            fs_type,
            root,
            read_only: publication.read_only,
            publication: publication.nonce.clone(),
        })
    }

    /// As text. Empty values are left out.
    pub fn to_map(&self) -> Map {
        let features: Vec<&str> = self.features.iter().map(String::as_str).collect();
        let options = match self.map_options.as_slice() {
            [] => String::new(),
            options => format!("{}:{}", self.mounter.prefix(), options.join(",")),
        };
        let pairs = [
            (IMAGE_ID, self.image_id.clone()),
            (IMAGE_FEATURES, features.join(",")),
            (MOUNTER, self.mounter.name().to_string()),
            (MAP_OPTIONS, options),
            (CONTEXT_KEY, self.fs_type.clone().unwrap_or_default()),
            (READ_ONLY, if self.read_only { "true".to_string() } else { String::new() }),
            (PUBLICATION, self.publication.clone()),
        ];
        let said = pairs.into_iter().filter(|(_, value)| !value.is_empty());
        said.map(|(key, value)| (key.to_string(), value)).chain(self.root.clone()).collect()
    }

    /// Reads the controller's publish context; None if the orchestrator did not ask the controller.
    pub fn from_map(map: &Map) -> Result<Option<Self>> {
        let Some(image_id) = map.get(IMAGE_ID) else { return Ok(None) };
        let said = |key: &str| map.get(key).map_or("", String::as_str);
        let mounter = Mounter::parse(said(MOUNTER)).map_err(|error| error.context("the publish context"))?;
        let map_options =
            mounter.parse_options(said(MAP_OPTIONS)).map_err(|error| error.context("the publish context"))?;
        Ok(Some(Self {
            image_id: image_id.clone(),
            features: said(IMAGE_FEATURES)
                .split(',')
                .filter(|it| !it.is_empty())
                .map(str::to_string)
                .collect(),
            mounter,
            map_options,
            fs_type: map.get(CONTEXT_KEY).cloned().filter(|it| !it.is_empty()),
            root: about_root(map),
            read_only: is_read_only(map)?,
            publication: said(PUBLICATION).to_string(),
        }))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn survives_the_round_trip() {
        let plain = PublishContext {
            image_id: "10ab".into(),
            features: ["layering", "exclusive-lock"].map(String::from).into(),
            mounter: Mounter::Kernel,
            map_options: Vec::new(),
            fs_type: None,
            root: Map::new(),
            read_only: false,
            publication: String::new(),
        };
        let all = PublishContext {
            mounter: Mounter::Nbd,
            map_options: vec!["io-timeout=30".into(), "exclusive".into()],
            fs_type: Some("xfs".into()),
            root: [("uid".to_string(), "65534".to_string())].into(),
            read_only: true,
            publication: "0123456789abcdef".into(),
            ..plain.clone()
        };
        for context in [plain, all] {
            assert_eq!(PublishContext::from_map(&context.to_map()).unwrap(), Some(context));
        }
    }

    #[test]
    fn an_empty_one_means_that_the_controller_was_not_asked() {
        assert_eq!(PublishContext::from_map(&Map::new()).unwrap(), None);
    }

    #[test]
    fn what_it_cannot_say_is_refused() {
        for (key, value) in [(MOUNTER, "fuse"), (READ_ONLY, "yes"), (MAP_OPTIONS, "secret=x")] {
            let map = [(IMAGE_ID, "10ab"), (key, value)]
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .into();
            let error = PublishContext::from_map(&map).unwrap_err();
            assert!(
                error.kind() == Kind::InvalidArgument && error.message().contains("publish context"),
                "{error}"
            );
        }
    }
}
