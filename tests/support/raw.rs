//! Calls below the generated clients: any bytes to any method.

use std::io::Read;
use std::time::Duration;

use grpcio::{
    CallOption, Channel, Client, ClientUnaryReceiver, GrpcSlice, Marshaller, MessageReader, Method,
    MethodType,
};

use super::PATIENCE;
use super::client::{Answer, Failure};

/// Every unary rpc of CSI v1 that is offered, and every one of CSI 0.1, by service.
pub const METHODS: [&str; 46] = [
    "/csi.v1.Identity/GetPluginInfo",
    "/csi.v1.Identity/GetPluginCapabilities",
    "/csi.v1.Identity/Probe",
    "/csi.v1.Controller/CreateVolume",
    "/csi.v1.Controller/DeleteVolume",
    "/csi.v1.Controller/ControllerPublishVolume",
    "/csi.v1.Controller/ControllerUnpublishVolume",
    "/csi.v1.Controller/ValidateVolumeCapabilities",
    "/csi.v1.Controller/ListVolumes",
    "/csi.v1.Controller/ControllerListVolumeHealth",
    "/csi.v1.Controller/ControllerGetVolumeHealth",
    "/csi.v1.Controller/GetCapacity",
    "/csi.v1.Controller/ControllerGetCapabilities",
    "/csi.v1.Controller/CreateSnapshot",
    "/csi.v1.Controller/DeleteSnapshot",
    "/csi.v1.Controller/ListSnapshots",
    "/csi.v1.Controller/GetSnapshot",
    "/csi.v1.Controller/ControllerExpandVolume",
    "/csi.v1.Controller/ControllerGetVolume",
    "/csi.v1.Controller/ControllerModifyVolume",
    "/csi.v1.Node/NodeStageVolume",
    "/csi.v1.Node/NodeUnstageVolume",
    "/csi.v1.Node/NodePublishVolume",
    "/csi.v1.Node/NodeUnpublishVolume",
    "/csi.v1.Node/NodeGetVolumeStats",
    "/csi.v1.Node/NodeGetVolumeHealth",
    "/csi.v1.Node/NodeGetStorageHealth",
    "/csi.v1.Node/NodeExpandVolume",
    "/csi.v1.Node/NodeGetCapabilities",
    "/csi.v1.Node/NodeGetInfo",
    "/csi.Identity/GetSupportedVersions",
    "/csi.Identity/GetPluginInfo",
    "/csi.Controller/CreateVolume",
    "/csi.Controller/DeleteVolume",
    "/csi.Controller/ControllerPublishVolume",
    "/csi.Controller/ControllerUnpublishVolume",
    "/csi.Controller/ValidateVolumeCapabilities",
    "/csi.Controller/ListVolumes",
    "/csi.Controller/GetCapacity",
    "/csi.Controller/ControllerProbe",
    "/csi.Controller/ControllerGetCapabilities",
    "/csi.Node/NodePublishVolume",
    "/csi.Node/NodeUnpublishVolume",
    "/csi.Node/GetNodeID",
    "/csi.Node/NodeProbe",
    "/csi.Node/NodeGetCapabilities",
];

/// Calls a method with these bytes as its message.
pub fn call(channel: &Channel, method: &'static str, message: Vec<u8>) -> Answer<Vec<u8>> {
    call_within(channel, method, message, PATIENCE)
}

/// The same with a deadline of the client's own.
pub fn call_within(
    channel: &Channel,
    method: &'static str,
    message: Vec<u8>,
    patience: Duration,
) -> Answer<Vec<u8>> {
    let answer = Client::new(channel.clone()).unary_call(
        &raw_method(method),
        &message,
        CallOption::default().timeout(patience),
    );
    answer.map_err(Failure::from)
}

/// Begins a call and does not wait for its answer; the client hangs up when the value is dropped.
pub fn begin(channel: &Channel, method: &'static str, message: Vec<u8>) -> ClientUnaryReceiver<Vec<u8>> {
    let options = CallOption::default().timeout(PATIENCE);
    Client::new(channel.clone())
        .unary_call_async(&raw_method(method), &message, options)
        .expect("begin a call")
}

fn raw_method(name: &'static str) -> Method<Vec<u8>, Vec<u8>> {
    let marshaller = || Marshaller { ser: fill, de: read_all };
    Method { ty: MethodType::Unary, name, req_mar: marshaller(), resp_mar: marshaller() }
}

fn fill(bytes: &Vec<u8>, slice: &mut GrpcSlice) -> grpcio::Result<()> {
    *slice = GrpcSlice::from(bytes.as_slice());
    Ok(())
}

fn read_all(mut reader: MessageReader) -> grpcio::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|error| grpcio::Error::Codec(Box::new(error)))?;
    Ok(bytes)
}
