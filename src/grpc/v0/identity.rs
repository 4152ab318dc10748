//! csi.Identity.

use crate::error::Result;
use crate::grpc::bridge::{Caller, Encoded};
use crate::grpc::proto::csi as wire;
use crate::grpc::v0::decode;

/// Says who the plugin is and which versions it speaks.
#[derive(Debug)]
pub struct Identity {
    /// The plugin's name.
    pub name: String,
}

impl wire::Identity for Identity {
    fn get_supported_versions(
        &self,
        _: &Caller<'_>,
        _: wire::GetSupportedVersionsRequest,
    ) -> Result<Encoded<wire::GetSupportedVersionsResponse>> {
        let version = |(major, minor, patch)| wire::Version { major, minor, patch, ..Default::default() };
        let supported_versions = decode::VERSIONS.map(version).into();
        Encoded::of(wire::GetSupportedVersionsResponse { supported_versions, ..Default::default() })
    }

    fn get_plugin_info(
        &self,
        _: &Caller<'_>,
        request: wire::GetPluginInfoRequest,
    ) -> Result<Encoded<wire::GetPluginInfoResponse>> {
        decode::version(&request.version)?;
        Encoded::of(wire::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_string(),
            ..Default::default()
        })
    }
}
