//! Stand-in, replaced at the merge: decodes and works on gRPC's own thread.

use std::io::Read;
use std::sync::Arc;

use futures_util::SinkExt;
use grpcio::{GrpcSlice, Marshaller, MessageReader, Method, MethodType, RpcStatus, RpcStatusCode, ServiceBuilder, WriteFlags};
use protobuf::Message;

use crate::error::Result;
use crate::grpc::stream::Chunks;

/// The answer of a plan.
#[derive(Debug)]
pub struct Plan<R>(pub R);

/// Connects services to gRPC.
#[derive(Debug)]
pub struct Bridge;

impl Bridge {
    /// Registers an rpc with one reply.
    pub fn unary<S, Q, R>(
        &self,
        builder: ServiceBuilder,
        path: &'static str,
        service: &Arc<S>,
        plan: fn(&S, Q) -> Result<Plan<R>>,
    ) -> ServiceBuilder
    where
        S: Send + Sync + 'static,
        Q: Message,
        R: Message,
    {
        let service = Arc::clone(service);
        builder.add_unary_handler(&raw(path, MethodType::Unary), move |context, request: Vec<u8>, sink| {
            let reply = Q::parse_from_bytes(&request).map_err(|error| crate::error::Error::invalid(error.to_string()));
            let reply = reply.and_then(|request| plan(&service, request)).map(|plan| plan.0.write_to_bytes().unwrap_or_default());
            context.spawn(async move {
                let _ = match reply {
                    Ok(bytes) => sink.success(bytes).await,
                    Err(error) => sink.fail(RpcStatus::with_message(RpcStatusCode::INTERNAL, error.message().into())).await,
                };
            });
        })
    }

    /// Registers an rpc with a stream of replies.
    pub fn streaming<S, Q, R>(
        &self,
        builder: ServiceBuilder,
        path: &'static str,
        service: &Arc<S>,
        plan: fn(&S, Q) -> Result<Chunks<R>>,
    ) -> ServiceBuilder
    where
        S: Send + Sync + 'static,
        Q: Message,
        R: Message,
    {
        let service = Arc::clone(service);
        builder.add_server_streaming_handler(
            &raw(path, MethodType::ServerStreaming),
            move |context, request: Vec<u8>, mut sink| {
                let replies = Q::parse_from_bytes(&request).ok().and_then(|request| plan(&service, request).ok());
                context.spawn(async move {
                    for reply in replies.into_iter().flatten().flatten() {
                        let _ = sink.send((reply.write_to_bytes().unwrap_or_default(), WriteFlags::default())).await;
                    }
                    let _ = sink.close().await;
                });
            },
        )
    }
}

fn raw(path: &'static str, kind: MethodType) -> Method<Vec<u8>, Vec<u8>> {
    let marshaller = || Marshaller {
        ser: |bytes: &Vec<u8>, slice: &mut GrpcSlice| {
            *slice = GrpcSlice::from(bytes.clone());
            Ok(())
        },
        de: read,
    };
    Method { ty: kind, name: path, req_mar: marshaller(), resp_mar: marshaller() }
}

fn read(mut reader: MessageReader) -> grpcio::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|error| grpcio::Error::Codec(Box::new(error)))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use grpcio::{CallOption, ChannelBuilder, Environment, ServerBuilder, ServerCredentials};

    use super::*;
    use crate::error::Error;
    use crate::grpc::proto::csi_v1 as wire;

    struct Fake;

    impl wire::Identity for Fake {
        fn get_plugin_info(&self, _: wire::GetPluginInfoRequest) -> Result<Plan<wire::GetPluginInfoResponse>> {
            Ok(Plan(wire::GetPluginInfoResponse { name: "fake".into(), ..Default::default() }))
        }

        fn get_plugin_capabilities(
            &self,
            _: wire::GetPluginCapabilitiesRequest,
        ) -> Result<Plan<wire::GetPluginCapabilitiesResponse>> {
            Err(Error::unimplemented("no"))
        }

        fn probe(&self, _: wire::ProbeRequest) -> Result<Plan<wire::ProbeResponse>> {
            Ok(Plan(wire::ProbeResponse::default()))
        }
    }

    impl wire::SnapshotMetadata for Fake {
        fn get_metadata_allocated(
            &self,
            request: wire::GetMetadataAllocatedRequest,
        ) -> Result<Chunks<wire::GetMetadataAllocatedResponse>> {
            let sized = |size| wire::GetMetadataAllocatedResponse { volume_capacity_bytes: size, ..Default::default() };
            Ok(Box::new((0..i64::from(request.max_results)).map(move |size| Ok(sized(size)))))
        }

        fn get_metadata_delta(&self, _: wire::GetMetadataDeltaRequest) -> Result<Chunks<wire::GetMetadataDeltaResponse>> {
            Err(Error::unimplemented("no"))
        }
    }

    #[test]
    fn registered_services_answer_their_clients() {
        let directory = tempfile::tempdir().expect("a directory");
        let address = format!("unix:{}/s.sock", directory.path().display());
        let environment = Arc::new(Environment::new(1));
        let builder = wire::register_identity(ServiceBuilder::new(), &Bridge, &Arc::new(Fake));
        let service = wire::register_snapshot_metadata(builder, &Bridge, &Arc::new(Fake)).build();
        let mut server = ServerBuilder::new(environment.clone()).register_service(service).build().expect("a server");
        server.add_listening_port(&address, ServerCredentials::insecure()).expect("a socket");
        server.start();

        let channel = ChannelBuilder::new(environment).connect(&address);
        let identity = wire::IdentityClient::new(channel.clone());
        let info = identity.get_plugin_info(&wire::GetPluginInfoRequest::default(), CallOption::default()).expect("an answer");
        assert_eq!(info.name, "fake");
        let refused = identity.get_plugin_capabilities(&wire::GetPluginCapabilitiesRequest::default(), CallOption::default());
        assert!(refused.is_err());
        let request = wire::GetMetadataAllocatedRequest { max_results: 3, ..Default::default() };
        let replies =
            wire::SnapshotMetadataClient::new(channel).get_metadata_allocated(&request, CallOption::default()).expect("a call");
        let replies: Vec<_> = block_on(replies.collect());
        assert_eq!(replies.into_iter().map(|reply| reply.expect("a reply").volume_capacity_bytes).collect::<Vec<_>>(), [0, 1, 2]);
    }

    /// Waits on this thread; futures-executor is no dependency here.
    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let thread = std::thread::current();
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = std::task::Waker::from(Arc::new(Unpark(thread)));
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
                std::task::Poll::Ready(value) => return value,
                std::task::Poll::Pending => std::thread::park(),
            }
        }
    }
}
