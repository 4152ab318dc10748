//! The binary: the daemon, its helpers, and the operator's command line.

use std::process::ExitCode;

use cephlet::config::{Config, Role};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(cephlet::exec::HELPER_ARGUMENT) {
        return cephlet::exec::serve(cephlet::exec::kernel::handle);
    }
    match Config::load(Role::Daemon) {
        Ok(config) => {
            cephlet::logging::start(&config.log, config.logs_to_journal);
            cephlet::daemon::run(&config)
        }
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("{mistake}"));
            ExitCode::from(2)
        }
    }
}
