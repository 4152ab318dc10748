//! csi.Identity.

use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::proto::csi as wire;
use crate::grpc::v0::decode;

/// Says who the plugin is and which versions it speaks.
impl wire::Identity for Services {
    fn get_supported_versions(&self, (caller, _): Asked<wire::GetSupportedVersionsRequest>) -> Answer {
        let version = |(major, minor, patch)| wire::Version { major, minor, patch, ..Default::default() };
        let supported_versions = decode::VERSIONS.map(version).into();
        caller.reply(wire::GetSupportedVersionsResponse { supported_versions, ..Default::default() })
    }

    fn get_plugin_info(&self, (caller, request): Asked<wire::GetPluginInfoRequest>) -> Answer {
        decode::version(&request.version)?;
        caller.reply(wire::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_string(),
            ..Default::default()
        })
    }
}
