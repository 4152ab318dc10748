//! Being the daemon: the log first, then the daemon itself.

use std::io::Write;
use std::process::ExitCode;
use std::time::SystemTime;

use log::Record;

use crate::clock;
use crate::config::{Config, Role};
use crate::daemon;

use super::failure::Outcome;
use super::settings;

/// Runs the daemon with the settings in the environment.
pub fn serve() -> Outcome<ExitCode> {
    let config = settings::load(Role::Daemon)?;
    start_log(&config);
    Ok(daemon::run(&config))
}

/// The log goes to stderr, which whoever started the daemon keeps.
fn start_log(config: &Config) {
    let mut builder = env_logger::Builder::new();
    builder.parse_filters(&config.log).format(|out, record| writeln!(out, "{}", line(SystemTime::now(), record)));
    // A second logger is refused; the first then serves as well.
    let _ = builder.try_init();
}

/// `2026-11-21T06:01:19Z INFO call 7 …`: one line, whatever the message contains, so that nobody can forge another.
fn line(time: SystemTime, record: &Record<'_>) -> String {
    let message = record.args().to_string();
    let message = if message.contains('\n') { message.trim_end().replace('\n', "\\n") } else { message };
    format!("{} {} {message}", clock::rfc3339(time), record.level())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_message_is_one_line_with_time_and_level() {
        let time = UNIX_EPOCH + Duration::from_secs(1_795_240_879);
        let logged = |text: &str| line(time, &Record::builder().level(log::Level::Warn).args(format_args!("{text}")).build());
        assert_eq!(logged("disk full"), "2026-11-21T06:01:19Z WARN disk full");
        assert_eq!(logged("mkfs said:\n2026 INFO all is well\n"), "2026-11-21T06:01:19Z WARN mkfs said:\\n2026 INFO all is well");
    }
}
