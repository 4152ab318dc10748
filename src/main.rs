//! The binary: the daemon, its helpers, and the operator's command line.

use std::process::ExitCode;

use cephlet::config::{Config, Role};

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(cephlet::exec::HELPER_ARGUMENT) {
        return cephlet::exec::serve(cephlet::exec::kernel::handle);
    }
    env_logger::Builder::new().filter_level(log::LevelFilter::Debug).init();
    match Config::load(Role::Daemon) {
        Ok(config) => cephlet::daemon::run(&config),
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| eprintln!("{mistake}"));
            ExitCode::from(2)
        }
    }
}
