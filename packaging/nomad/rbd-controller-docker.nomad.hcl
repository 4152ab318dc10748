# cephlet as the controller of volumes on Ceph (RBD) in a container: two copies, on two clients that have /etc/ceph and no package of
# Ceph. It mounts nothing, so it needs no privileges. The user needs the rights of `client.cephlet` in cephlet-rbd(7). For CephFS, put
# cephfs for rbd everywhere:
#
#   docker load --input cephlet-controller-VERSION.oci.tar     # on these clients; packaging/oci makes it
#   nomad job run -var image=cephlet-controller:VERSION rbd-controller-docker.nomad.hcl
#   sed s/rbd/cephfs/g rbd-controller-docker.nomad.hcl | nomad job run -var image=cephlet-controller:VERSION -

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
  default     = "cephlet"
}

job "cephlet-rbd-controller" {
  type     = "service"
  priority = 90

  group "controller" {
    count = 2

    # Two copies on one client would want the same state directory.
    constraint {
      operator = "distinct_hosts"
      value    = "true"
    }

    restart {
      interval = "5m"
      attempts = 10
      delay    = "5s"
      mode     = "delay"
    }

    task "cephlet" {
      driver = "docker"

      config {
        image        = var.image
        network_mode = "host"
        volumes = [
          "${var.state_dir}/rbd-controller:/var/lib/cephlet",
          "/etc/ceph:/etc/ceph:ro",
        ]
      }

      env {
        CEPHLET_BACKENDS  = "rbd"
        CEPHLET_NODE_ID   = "${node.unique.name}"
        CEPHLET_CEPH_USER = var.ceph_user
      }

      csi_plugin {
        id   = "cephlet-rbd"
        type = "controller"
      }

      kill_timeout = "30s"

      # The daemon takes 13 MB, each of the CEPHLET_TOOLS (4) commands that run at once for a cluster 35 MB.
      resources {
        cpu    = 200
        memory = 256
      }
    }
  }
}
