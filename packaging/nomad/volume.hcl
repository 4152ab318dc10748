# A local volume of cephlet:  nomad volume create volume.hcl
# A local volume lives on the client that made it, and jobs that claim it are placed there. Repeat the command with a larger
# capacity_min to make it larger.

id        = "web-data"
name      = "web-data"
type      = "csi"
plugin_id = "cephlet"

capacity_min = "1GiB"
# Left out, the volume may be larger than asked, as far as the storage rounds up.
# capacity_max = "2GiB"

# A volume can be claimed in the ways that stand here, one block each.
capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

capability {
  access_mode     = "single-node-reader-only"
  attachment_mode = "file-system"
}

mount_options {
  # ext4 (the default), xfs or btrfs
  fs_type     = "ext4"
  mount_flags = ["noatime"]
}

parameters {
  # The kind of storage; may be left out where only one is set up.
  backend = "local"

  # All blocks are taken when the volume is made, so that writing to it never fails for want of space on the client.
  # preallocate = "true"
}
