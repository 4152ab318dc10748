# cephlet as the node's part of volumes on Ceph (RBD), on every client, in a container that has nothing of Ceph: the kernel maps the
# images (modprobe rbd). plugin-docker.nomad.hcl says what the clients need. For CephFS (modprobe ceph), put cephfs for rbd everywhere:
#
#   nomad job run -var image=cephlet-node:VERSION rbd-node-docker.nomad.hcl
#   sed s/rbd/cephfs/g rbd-node-docker.nomad.hcl | nomad job run -var image=cephlet-node:VERSION -
#
# There is no mounter rbd-nbd and no mounter fuse: their processes would end with the container.

variable "image" {
  type        = string
  description = "The image, with its version."
}

variable "state_dir" {
  type        = string
  description = "Where cephlet keeps its journals, on every client. It must outlive the job."
  default     = "/var/lib/cephlet"
}

variable "ceph_user" {
  type        = string
  description = "The user of the cluster, without 'client.'; its keyring is /etc/ceph/ceph.client.NAME.keyring on every client."
  default     = "cephlet-node"
}

job "cephlet-rbd-node" {
  type     = "system"
  priority = 90

  group "node" {
    restart {
      interval = "5m"
      attempts = 10
      delay    = "5s"
      mode     = "delay"
    }

    task "cephlet" {
      driver = "docker"

      config {
        image      = var.image
        privileged = true
        # The kernel reaches the cluster through the network of the container that has mapped an image: it must be one that stays.
        network_mode = "host"
        volumes = [
          "${var.state_dir}/rbd-node:/var/lib/cephlet:rshared",
          "/run/cephlet/rbd-node:/run/cephlet:rshared",
          "/etc/ceph:/etc/ceph:ro",
        ]
      }

      env {
        CEPHLET_SERVICES = "node"
        CEPHLET_BACKENDS = "rbd"
        # Volumes are given to it by this name: it must never change.
        CEPHLET_NODE_ID   = "${node.unique.name}"
        CEPHLET_CEPH_USER = var.ceph_user
      }

      csi_plugin {
        id   = "cephlet-rbd"
        type = "node"
      }

      kill_timeout = "30s"

      # Unlike raw_exec, docker enforces it: checking a large file system takes more than the daemon.
      resources {
        cpu    = 50
        memory = 256
      }
    }
  }
}
