//! What an rbd-nbd device is known by: `cephlet/CLUSTER/POOL/NAMESPACE/NAME/ID`, which the kernel and the
//! process's command line keep.

use super::Image;

/// None of the fields has a slash: not the cluster's name, and librbd parts its own names by it.
pub(super) fn of(image: &Image<'_>, id: &str) -> String {
    ["cephlet", &image.cluster.name, image.pool, image.namespace, image.name, id].join("/")
}

/// Cluster, pool, namespace, name and id; None if it is not one of ours.
pub(super) fn fields(cookie: &str) -> Option<[&str; 5]> {
    let fields: Vec<&str> = cookie.split('/').collect();
    let &["cephlet", cluster, pool, namespace, name, id] = fields.as_slice() else { return None };
    Some([cluster, pool, namespace, name, id])
}

/// Whether the device of this cookie is the image.
pub(super) fn means(cookie: &str, image: &Image<'_>) -> bool {
    let Some([cluster, pool, namespace, name, id]) = fields(cookie) else { return false };
    let place = (cluster, pool, namespace) == (image.cluster.name.as_str(), image.pool, image.namespace);
    place && image.id.map_or(name == image.name, |wanted| wanted == id)
}

/// The image's id.
pub(super) fn image_id(cookie: &str) -> &str {
    fields(cookie).map_or("", |[.., id]| id)
}
