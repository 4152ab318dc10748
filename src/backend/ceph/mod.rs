//! What every backend on Ceph shares: who asks which cluster, and how a Ceph tool is run and its failure understood.

use std::sync::Arc;

use crate::call::Call;
use crate::clusters::{Cluster, Credentials};
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, CommandError, Output, Runner, Tool};
use crate::secrets::Secrets;

/// A cluster and the credentials to reach it with.
#[derive(Clone, Debug)]
pub struct Access {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// Who asks.
    pub credentials: Credentials,
}

impl Access {
    /// Access to `cluster` with a request's secrets, else with the cluster's own credentials.
    pub fn new(cluster: Arc<Cluster>, secrets: &Secrets) -> Result<Self> {
        let credentials = cluster.credentials(secrets)?;
        Ok(Self { cluster, credentials })
    }
}

impl Access {
    /// `tool` with the connection and the credentials.
    pub fn command(&self, tool: Tool, class: Class) -> Cmd {
        let conf = self.cluster.conf.as_ref().map(|conf| format!("--conf={}", conf.display()));
        Cmd::new(tool, class).args(conf).arg(format!("--id={}", self.credentials.user))
    }

    /// Runs a command of this cluster.
    pub fn run(&self, runner: &dyn Runner, call: &Call, cmd: Cmd) -> std::result::Result<Output, Failure> {
        runner.run(call, &cmd).map_err(Failure)
    }
}

/// A Ceph tool that failed.
#[derive(Debug)]
pub struct Failure(CommandError);

impl Failure {
    /// Its exit status.
    pub fn status(&self) -> Option<i32> {
        self.0.status()
    }

    /// Whether it wrote `text`.
    pub fn says(&self, text: &str) -> bool {
        self.last_words().contains(text)
    }

    /// What it wrote.
    pub fn last_words(&self) -> &str {
        match &self.0 {
            CommandError::Failed { stderr_tail, .. } => stderr_tail,
            _ => "",
        }
    }

    /// The error.
    pub fn into_error(self, context: impl std::fmt::Display) -> Error {
        Error::from(self.0).context(context)
    }
}
