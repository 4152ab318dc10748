//! Images: made, looked up, listed, renamed, resized, removed; and the values kept with them: metadata, and
//! limits, which are metadata that clients obey.

use std::collections::BTreeMap;

use super::answer::{NOT_OPENED, absent, is, lacks_pool};
use super::options;
use super::output::{InfoOutput, Row, StatusOutput, entries, read};
use super::stream::empty_image;
use super::{PoolCommands, destination};
use crate::backend::ceph::objects::Rados;
use crate::backend::rbd::tool::{
    Changed, ImageInfo, ImageRef, ImageTool, Layout, Limits, ListedImage, MadeImage, NewImage, PoolOptions,
    Removed, Renamed, Watcher,
};
use crate::error::{Error, Result};
use crate::exec::{Class, Tool};

/// A removed image does not go to the trash, neither as a rule nor because it has clones.
const FOR_GOOD: [&str; 2] =
    ["--rbd-move-to-trash-on-remove=false", "--rbd-move-parent-to-trash-on-remove=false"];

/// A layout as options.
pub(super) fn layout(layout: &Layout) -> impl Iterator<Item = String> {
    let data_pool = layout.data_pool.as_ref().map(|pool| format!("--data-pool={pool}"));
    let features = layout.features.as_ref().map(|features| {
        let names: Vec<&str> = features.iter().map(String::as_str).collect();
        format!("--image-feature={}", names.join(","))
    });
    let object_size = layout.object_size.map(|bytes| format!("--object-size={bytes}B"));
    let unit = layout.striping.map(|(unit, _)| format!("--stripe-unit={unit}B"));
    let count = layout.striping.map(|(_, count)| format!("--stripe-count={count}"));
    [data_pool, features, object_size, unit, count].into_iter().flatten()
}

impl PoolCommands<'_> {
    /// `rbd rm`, which overrides the cluster's options for the trash. It also clears up half-made images. One
    /// that may last writes how far it is.
    fn rm(&self, image: &str, class: Class) -> Result<Removed> {
        let words = ["rm", "--no-progress"];
        let words = if class == Class::Lasting { &words[..1] } else { &words };
        let cmd = self.rbd_image(class, words, ImageRef::Name(image))?.args(FOR_GOOD);
        match self.run(cmd) {
            Ok(_) => Ok(Removed::Gone),
            Err(failure) if absent(&failure, &["delete error: "]) => Ok(Removed::Absent),
            // Another command removed it at the same time.
            Err(failure) if is(&failure, libc::ESTALE) => Ok(Removed::Absent),
            Err(failure) if is(&failure, libc::EBUSY) => Ok(Removed::Watched),
            Err(failure) if is(&failure, libc::ENOTEMPTY) => Ok(Removed::HasSnapshots),
            Err(failure) => Err(self.error(failure, &format!("remove image {}", self.path(image)))),
        }
    }
}

impl ImageTool for PoolCommands<'_> {
    /// `rbd import`: it makes image and metadata in one process; `rbd create` would need another one for each
    /// value. The image first gets the size of the file that is read, so the file pretends to have that size.
    /// An image whose creation is killed then has the right size or does not exist. From a pipe it would
    /// first have the size of an object. The tool prints nothing; the session shows the new image, as `rbd
    /// info` would.
    fn create(&self, image: &NewImage<'_>) -> Result<MadeImage> {
        let words = ["import", "--no-progress", "--export-format=2", "--path=/proc/self/fd/0"];
        let cmd = self.at.access.osd_command(Tool::Rbd, Class::Change).args(words);
        let cmd = cmd.args(destination(self.at, image.name)?).args(layout(image.layout));
        let cmd = cmd.stdin(empty_image(image.size, image.metadata)).stdin_length(image.size);
        match self.run(cmd) {
            Ok(output) => {
                let shown = serde_json::from_slice::<InfoOutput>(&output.stdout).ok();
                Ok(MadeImage::New(shown.map(|shown| Box::new(shown.into()))))
            }
            Err(failure) if is(&failure, libc::EEXIST) => Ok(MadeImage::Taken),
            Err(failure) => {
                Err(self.not_made(failure, image.layout, &format!("make image {}", self.path(image.name))))
            }
        }
    }

    /// `rbd info`
    fn info(&self, image: ImageRef<'_>) -> Result<Option<ImageInfo>> {
        let found = self.question::<InfoOutput>(&["info"], image, "look up")?;
        Ok(found.map(ImageInfo::from))
    }

    /// `rbd image-meta get`, which prints the value and a line end.
    fn metadata(&self, image: &str, key: &str) -> Result<Option<String>> {
        let cmd =
            self.rbd_image(Class::Question, &["image-meta", "get"], ImageRef::Name(image))?.args(["--", key]);
        let doing = || format!("read {key} of image {}", self.path(image));
        match self.run(cmd) {
            Ok(mut output) => {
                output.stdout.pop_if(|last| *last == b'\n');
                let value = String::from_utf8(output.stdout);
                value.map(Some).map_err(|_| Error::internal(format!("{}: its value is not UTF-8", doing())))
            }
            Err(failure) if absent(&failure, &[NOT_OPENED, "getting metadata failed: "]) => Ok(None),
            Err(failure) => Err(self.error(failure, &doing())),
        }
    }

    /// `rbd image-meta ls`, which prints nothing where there is none.
    fn all_metadata(&self, image: &str) -> Result<Option<BTreeMap<String, String>>> {
        let (words, image) = (["image-meta", "ls"], ImageRef::Name(image));
        match self.printed(&words, image, "read the metadata of")? {
            Some(printed) if printed.trim_ascii().is_empty() => Ok(Some(BTreeMap::new())),
            printed => printed.map(|printed| read("rbd image-meta ls", &printed)).transpose(),
        }
    }

    /// `rbd image-meta set`
    fn set_metadata(&self, image: &str, key: &str, value: &str) -> Result<Changed> {
        let values = ["--", key, value];
        self.change(Class::Change, &["image-meta", "set"], image, &values, &format!("set {key}"))
    }

    /// `rbd config image set` or `remove`, one process for each limit: the tool takes no more at once.
    fn set_limits(&self, image: &str, limits: Limits<'_>) -> Result<Changed> {
        for (key, value) in limits {
            let text = value.to_string();
            let (word, values): (_, &[&str]) =
                if *value == 0 { ("remove", &[key]) } else { ("set", &[key, &text]) };
            let words = ["config", "image", word];
            let changed = self.change(Class::Change, &words, image, values, &format!("set {key}"))?;
            if changed == Changed::Absent {
                return Ok(Changed::Absent);
            }
        }
        Ok(Changed::Done)
    }

    /// `rbd ls -l`. It leaves out the images that are half made, half removed or being removed, and ends
    /// with 0 or 2. Its status 2 with a list on stdout is a list.
    fn list(&self) -> Result<Vec<ListedImage>> {
        match self.run(self.rbd(Class::Listing, &["ls", "--long", "--format=json"])) {
            Ok(output) => read::<Vec<Row>>("rbd ls", &output.stdout).map(entries),
            Err(failure)
                if absent(&failure, &["listing images failed: "]) && !failure.stdout().is_empty() =>
            {
                read::<Vec<Row>>("rbd ls", failure.stdout()).map(entries)
            }
            Err(failure) => Err(self.error(failure, &format!("list the images of {}", self.path("")))),
        }
    }

    /// `rbd ls`
    fn names(&self) -> Result<Vec<String>> {
        match self.run(self.rbd(Class::Listing, &["ls", "--format=json"])) {
            Ok(output) => read("rbd ls", &output.stdout),
            Err(failure) => Err(self.error(failure, &format!("list the names of {}", self.path("")))),
        }
    }

    /// `rbd config pool ls`. A namespace has the options of its pool.
    fn pool_options(&self) -> Result<Option<PoolOptions>> {
        let pool = &self.at.pool;
        let words = ["config", "pool", "ls", "--format=json", pool];
        match self.run(self.at.access.osd_command(Tool::Rbd, Class::Question).args(words)) {
            Ok(output) => options::parse(&output.stdout).map(Some),
            Err(failure) if lacks_pool(&failure) => Ok(None),
            Err(failure) => Err(self.error(failure, &format!("read the options of pool {pool}"))),
        }
    }

    fn remove(&self, image: &str) -> Result<Removed> {
        self.rm(image, Class::Change)
    }

    fn remove_large(&self, image: &str) -> Result<Removed> {
        self.rm(image, Class::Lasting)
    }

    /// `rbd rename`
    fn rename(&self, from: &str, to: &str) -> Result<Renamed> {
        let cmd =
            self.rbd_image(Class::Change, &["rename"], ImageRef::Name(from))?.args(destination(self.at, to)?);
        match self.run(cmd) {
            Ok(_) => Ok(Renamed::Done),
            Err(failure) if absent(&failure, &["rename error: "]) => Ok(Renamed::Absent),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Renamed::Taken),
            Err(failure) => Err(self.error(failure, &format!("rename image {} to {to}", self.path(from)))),
        }
    }

    /// Removes the object by which an image is found under a name; `rbd rm` would remove the image.
    fn remove_name(&self, name: &str) -> Result<()> {
        self.remove_object(&format!("rbd_id.{name}"))
    }

    /// `rbd resize`, which never shrinks unless it is asked to.
    fn resize(&self, image: &str, size: u64) -> Result<Changed> {
        let cmd = self.rbd_image(Class::Change, &["resize", "--no-progress"], ImageRef::Name(image))?;
        match self.run(cmd.arg(format!("--size={size}B"))) {
            Ok(_) => Ok(Changed::Done),
            Err(failure) if failure.says("new size is equal to original size") => Ok(Changed::Done),
            Err(failure) if absent(&failure, &[NOT_OPENED]) => Ok(Changed::Absent),
            Err(failure) if failure.says("--allow-shrink") => {
                let image = self.path(image);
                Err(Error::out_of_range(format!(
                    "resize image {image}: it is larger than {size} bytes, and images never shrink"
                )))
            }
            Err(failure) => {
                Err(self.error(failure, &format!("resize image {} to {size} bytes", self.path(image))))
            }
        }
    }

    /// `rbd status`, which does not count itself as a watcher.
    fn watchers(&self, image: &str) -> Result<Option<Vec<Watcher>>> {
        let image = ImageRef::Name(image);
        let found = self.question::<StatusOutput>(&["status"], image, "look for clients of")?;
        Ok(found.map(StatusOutput::watchers))
    }
}
