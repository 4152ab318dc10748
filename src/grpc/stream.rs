//! Streams of replies, made one by one: a worker is asked for a reply when the one before is on its way, so that a client that
//! stops reading holds no worker and no memory but one reply.

use std::sync::Arc;

use futures_channel::oneshot;
use futures_util::SinkExt;
use grpcio::{ServerStreamingSink, WriteFlags};
use protobuf::Message;

use crate::call::Call;
use crate::error::{Error, Result};
use crate::grpc::bridge::guarded;
use crate::grpc::status;
use crate::pool::{Job, Pool};

/// The replies of a stream.
pub type Chunks<R> = Box<dyn Iterator<Item = Result<R>> + Send>;

/// A stream in progress: still to be planned, or under way.
pub enum Stream<R> {
    /// What gives the replies, once a worker runs it.
    Planned(Option<Box<dyn FnOnce() -> Result<Chunks<R>> + Send>>),
    /// The replies left.
    Open(Chunks<R>),
}

impl<R> std::fmt::Debug for Stream<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stream")
    }
}

impl<R: Message> Stream<R> {
    /// A stream whose replies `plan` will give.
    pub fn new(plan: impl FnOnce() -> Result<Chunks<R>> + Send + 'static) -> Self {
        Self::Planned(Some(Box::new(plan)))
    }

    /// The next reply, encoded; None at the end.
    fn next(&mut self) -> Result<Option<Arc<[u8]>>> {
        if let Self::Planned(plan) = self {
            let plan = plan.take().ok_or_else(|| Error::internal("a stream that failed was asked to go on"))?;
            *self = Self::Open(plan()?);
        }
        let Self::Open(chunks) = self else { return Ok(None) };
        let Some(chunk) = chunks.next().transpose()? else { return Ok(None) };
        let bytes = chunk.write_to_bytes().map_err(|error| Error::internal(format!("a reply could not be encoded: {error}")))?;
        Ok(Some(bytes.into()))
    }

    /// Sends all replies, then closes the stream with its outcome.
    pub async fn run(mut self, call: Call, pool: Arc<Pool>, mut sink: ServerStreamingSink<Arc<[u8]>>) {
        let sent = loop {
            let (next, rest) = match self.ask(call.clone(), &pool).await {
                Ok(asked) => asked,
                Err(error) => break sink.fail(status::status(&error)).await,
            };
            self = rest;
            let sent = match next {
                Ok(Some(bytes)) => sink.send((bytes, WriteFlags::default())).await,
                Ok(None) => break sink.close().await,
                Err(error) => break sink.fail(status::status(&error)).await,
            };
            if sent.is_err() {
                break sent;
            }
        };
        if let Err(error) = sent {
            log::debug!("a stream could not be sent, the client is gone: {error}");
        }
    }

    /// Has a worker make the next reply.
    async fn ask(mut self, call: Call, pool: &Pool) -> Result<(Result<Option<Arc<[u8]>>>, Self)> {
        let (sender, receiver) = oneshot::channel();
        let make = move || {
            let next = guarded(&call, || self.next());
            // The receiver is gone only when the server is.
            let _ = sender.send((next, self));
        };
        pool.submit(Job::new(None, make))?;
        receiver.await.map_err(|oneshot::Canceled| Error::unavailable("the daemon is going down"))
    }
}
