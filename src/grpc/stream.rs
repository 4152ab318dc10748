//! Streams of replies, made one by one: a worker is asked for a reply when the one before is on its way, so
//! that a client that stops reading holds no worker and no memory but one reply.

use std::sync::Arc;

use futures_channel::oneshot;
use futures_util::SinkExt;
use grpcio::{ServerStreamingSink, WriteFlags};
use protobuf::Message;

use crate::call::Call;
use crate::error::{Error, Result};
use crate::grpc::active_calls::Running;
use crate::grpc::bridge::guarded;
use crate::grpc::status;
use crate::workers::{Job, Pool};

/// The replies of a stream.
pub type Chunks<R> = Box<dyn Iterator<Item = Result<R>> + Send>;

/// How far a stream got.
enum Sent {
    /// To its end.
    All,
    /// As far as the client wanted it.
    UntilHungUp,
}

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
            let plan =
                plan.take().ok_or_else(|| Error::internal("a stream that failed was asked to go on"))?;
            *self = Self::Open(plan()?);
        }
        let Self::Open(chunks) = self else { return Ok(None) };
        let Some(chunk) = chunks.next().transpose()? else { return Ok(None) };
        let bytes = chunk
            .write_to_bytes()
            .map_err(|error| Error::internal(format!("a reply could not be encoded: {error}")))?;
        Ok(Some(bytes.into()))
    }

    /// Sends all replies, then closes the stream with its outcome.
    pub async fn run(
        self,
        call: Call,
        pool: Arc<Pool>,
        running: Arc<Running>,
        mut sink: ServerStreamingSink<Arc<[u8]>>,
    ) {
        let outcome = self.send(&call, &pool, &mut sink).await;
        running.ended(&call, outcome.as_ref().map(|_| ()));
        let closed = match outcome {
            Ok(Sent::All) => sink.close().await,
            Ok(Sent::UntilHungUp) => return,
            Err(error) => sink.fail(status::status(&error)).await,
        };
        if let Err(error) = closed {
            log::debug!("the end of a stream could not be sent, the client is gone: {error}");
        }
    }

    /// Sends the replies one by one.
    async fn send(
        mut self,
        call: &Call,
        pool: &Pool,
        sink: &mut ServerStreamingSink<Arc<[u8]>>,
    ) -> Result<Sent> {
        loop {
            let (next, rest) = self.ask(call.clone(), pool).await?;
            self = rest;
            let Some(bytes) = next? else { return Ok(Sent::All) };
            call.step("waiting for the client to take a reply");
            if let Err(error) = sink.send((bytes, WriteFlags::default())).await {
                log::debug!("a stream could not be sent, the client is gone: {error}");
                return Ok(Sent::UntilHungUp);
            }
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
