# cephlet as a CSI plugin of Nomad (1.3.3 or later), under raw_exec: no container, no privileges to grant, no network namespace
# whose end freezes mounts, and every mount where the host sees it. One copy on each client serves controller and node.
#
# Each client needs
#   - /usr/bin/cephlet and the tools of the file systems: mkfs.ext4, resize2fs, fsck.ext4; mkfs.xfs, xfs_growfs; …
#   - plugin "raw_exec" { config { enabled = true } }, and the agent running as root
#   - data_dir as below: with raw_exec nothing is mounted into the task, so the paths in Nomad's requests have to be the real ones

variable "data_dir" {
  type        = string
  default     = "/opt/nomad/data"
  description = "data_dir of the clients' agents"
}

job "cephlet" {
  # One on every client, and last to be drained.
  type = "system"

  group "cephlet" {
    restart {
      # Volumes stay mounted while the plugin is away: it is tried again for as long as it takes.
      attempts = 3
      interval = "1m"
      delay    = "5s"
      mode     = "delay"
    }

    task "plugin" {
      driver = "raw_exec"

      config {
        command = "/usr/bin/cephlet"
        args    = ["serve"]
      }

      csi_plugin {
        id   = "cephlet"
        type = "monolith"

        # Where Nomad expects staged and published volumes on the host: <data_dir>/client/csi/<type>/<id>. With raw_exec the task
        # sees the host's paths, so they are told as they are; the default, /local/csi, would be another directory.
        stage_publish_base_dir = "${var.data_dir}/client/csi/monolith/cephlet"
      }

      # CSI_ENDPOINT is set by Nomad, to the socket's path on the host.
      env {
        # Must never change for a client: it is part of the IDs of local volumes. Nomad tells the plugin nothing itself.
        CEPHLET_NODE_ID = "${node.unique.id}"

        # Names of volumes are derived with it: keep it apart from a cephlet of the host's own, which would have "default".
        CEPHLET_INSTANCE = "nomad"

        # On the host, not in the allocation's directory: volumes outlive the allocation. Not those of a cephlet.service beside
        # it: a state directory has one daemon.
        CEPHLET_STATE_DIR   = "/var/lib/cephlet-nomad"
        CEPHLET_RUNTIME_DIR = "/run/cephlet-nomad"

        # Nomad may publish a volume for a new allocation before the old one has gone.
        CEPHLET_SINGLE_NODE_TARGETS = "lenient"
      }

      # Calls under way get 20 s and their processes 5 s more; then the daemon ends, and the volumes stay mounted.
      kill_signal  = "SIGTERM"
      kill_timeout = "45s"

      # The daemon itself takes a few MB; mkfs and fsck of a large volume take more, and raw_exec limits nothing by itself.
      resources {
        cpu    = 100
        memory = 128
      }
    }
  }
}
