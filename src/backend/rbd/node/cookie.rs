//! The cookie that identifies an rbd-nbd device: `cephlet/CLUSTER/POOL/NAMESPACE/NAME/ID`. The kernel and the
//! process's command line keep it.

use super::Image;

/// No field has a slash: a cluster's name has none, and librbd separates its own names by it.
pub(super) fn of(image: &Image<'_>, id: &str) -> String {
    ["cephlet", &image.cluster.name, image.pool, image.namespace, image.name, id].join("/")
}

/// Cluster, pool, namespace, name and id; None for a cookie that cephlet did not make.
pub(super) fn fields(cookie: &str) -> Option<[&str; 5]> {
    let fields: Vec<&str> = cookie.split('/').collect();
    let &["cephlet", cluster, pool, namespace, name, id] = fields.as_slice() else { return None };
    Some([cluster, pool, namespace, name, id])
}

/// Whether the device with this cookie is the image's.
pub(super) fn means(cookie: &str, image: &Image<'_>) -> bool {
    let Some([cluster, pool, namespace, name, id]) = fields(cookie) else { return false };
    let place = (cluster, pool, namespace) == (image.cluster.name.as_str(), image.pool, image.namespace);
    place && image.id.map_or(name == image.name, |wanted| wanted == id)
}

/// The image's id.
pub(super) fn image_id(cookie: &str) -> &str {
    fields(cookie).map_or("", |[.., id]| id)
}
