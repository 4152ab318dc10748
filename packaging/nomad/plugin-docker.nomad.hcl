# cephlet as a CSI plugin of Nomad in a container, for clients that offer no raw_exec: otherwise plugin.nomad.hcl. One copy on every
# client, controller and node service in one, for local volumes.
#
#   docker load --input cephlet-node-VERSION.oci.tar     # on every client; packaging/oci makes it
#   nomad job run -var image=cephlet-node:VERSION plugin-docker.nomad.hcl
#
# The clients need
#
#   plugin "docker" { config { allow_privileged = true, volumes { enabled = true } } }
#
# in the agent's configuration, and mounts that are shared, as systemd makes them at boot: `findmnt -o PROPAGATION /` says shared.
# Volumes stay mounted when the container ends; stop the jobs that use them first all the same, as Nomad gives volumes back through it.
#
#   nomad alloc exec -task cephlet ALLOCATION cephlet volume list

variable "image" {
  type        = string
  description = "The image, with its version."
}

variable "state_dir" {
  type        = string
  description = "Where cephlet keeps its journal and the files of local volumes, on every client. It must outlive the job."
  default     = "/var/lib/cephlet"
}

job "cephlet" {
  type     = "system"
  priority = 90

  group "plugin" {
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
        privileged   = true
        network_mode = "host"
        # Nomad mounts /dev and the directory of the volumes by itself. The next container finds the real mounts of the volumes
        # below /run/cephlet; loop devices are attached to the files in the state directory.
        volumes = [
          "${var.state_dir}:/var/lib/cephlet:rshared",
          "/run/cephlet:/run/cephlet:rshared",
        ]
      }

      env {
        # The node's ID stands in the IDs of its local volumes: it must never change.
        CEPHLET_NODE_ID  = "${node.unique.name}"
        CEPHLET_BACKENDS = "local"
      }

      csi_plugin {
        id   = "cephlet"
        type = "monolith"
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
