//! Fields that requests of several protocols have.

use protobuf::{Enum, EnumOrUnknown};

use crate::error::{Error, Result};
use crate::volume::request::{Access, Capability, Mode};

/// A path in its only spelling, without a slash twice or at the end, as paths are compared as text. A path
/// that is not absolute stays unchanged, and is refused later.
pub fn path(text: String) -> String {
    let plain = !text.starts_with('/') || !(text.ends_with('/') || text.contains("//"));
    let parts = text.split('/').filter(|part| !part.is_empty());
    if plain { text } else { format!("/{}", parts.collect::<Vec<_>>().join("/")) }
}

/// A capability of this access and this mode; both are required. Each protocol has modes of its own.
pub fn capability(field: &str, access: Option<Access>, mode: EnumOrUnknown<impl Enum>) -> Result<Capability> {
    let missing = || format!("{field} has neither block nor mount: one of them is required");
    let known = Mode::from_number(mode.value()).filter(|_| mode.enum_value().is_ok());
    let unknown = || format!("{field}.access_mode is missing or unknown ({})", mode.value());
    let access = access.ok_or_else(|| Error::invalid(missing()))?;
    Ok(Capability { access, mode: known.ok_or_else(|| Error::invalid(unknown()))? })
}
