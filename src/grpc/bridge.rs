//! From gRPC's thread to a thread of the call's own, and back.
//!
//! gRPC calls a handler on its completion-queue thread and catches no panic there, so a handler only hands
//! the request's bytes to a thread of the call's own. There the request is decoded, waits for its locks, and
//! is run. The answer goes through a one-shot to a small future on gRPC's own executor, which awaits the
//! sending (a reply dropped unawaited cancels the call).

use std::cell::RefCell;
use std::io::Read;
use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use futures_channel::oneshot;
use grpcio::{
    GrpcSlice, Marshaller, MessageReader, Method, MethodType, RpcContext, ServiceBuilder, UnarySink,
};
use protobuf::Message;

use crate::dispatch::{Bulkhead, Call, Guard, Identical, KeySet, LockTable, Locked, Progress, Workers};
use crate::error::{Error, Result};
use crate::grpc::active_calls::{ActiveCalls, is_quick};
use crate::grpc::proto::Rpc;
use crate::grpc::status;
use crate::volume::lock_keys::LockSet;

/// A reply, encoded; shared by all callers of the same request.
type Bytes = Arc<[u8]>;

/// The answer to a call.
pub type Answer = Result<Bytes>;

/// Decodes a request and lets its service answer it. Only this closure knows the messages of an rpc: generic
/// code is compiled again for each of them, which makes the program some kilobytes larger per rpc.
type Handler = Arc<dyn Fn(&Serving<'_>, &[u8]) -> Answer + Send + Sync>;

/// What a handler gets: the caller, and the request.
pub type Asked<'a, Q> = (Caller<'a, <Q as Rpc>::Reply>, Q);

/// The caller of an rpc, who gets a reply of this type.
pub struct Caller<'a, R> {
    serving: &'a Serving<'a>,
    reply: PhantomData<R>,
}

impl<R: Message> Caller<'_, R> {
    /// The calls and the background jobs in progress, the oldest first.
    pub fn under_way(&self) -> Vec<Progress> {
        self.serving.bridge.running.under_way()
    }

    /// Answers at once.
    ///
    /// # Errors
    /// The reply cannot be encoded.
    pub fn reply(&self, reply: R) -> Answer {
        let failed = |error| Error::internal(format!("the answer could not be encoded: {error}"));
        Ok(reply.write_to_bytes().map_err(failed)?.into())
    }

    /// Takes the locks and hands the request to `work`. If the same request of the same rpc is in progress,
    /// returns the answer to that one.
    ///
    /// # Errors
    /// Those of `work` and of the lock table; `Unavailable` if there are too many calls.
    pub fn run<Q: Identical + PartialEq + Sync>(
        &self,
        locks: LockSet,
        request: Q,
        work: impl FnOnce(&Call, &Q) -> Result<R>,
    ) -> Answer {
        let request = Arc::new(request);
        match self.serving.begin(locks, Box::new(Arc::clone(&request)))? {
            Some(joined) => Ok(joined),
            None => self.reply(work(&self.serving.call, &request)?),
        }
    }
}

/// A call on its thread.
struct Serving<'a> {
    bridge: &'a Bridge,
    call: Call,
    guard: RefCell<Option<Guard<Answer>>>,
}

impl Serving<'_> {
    /// The caller of an rpc with this reply.
    fn caller<R>(&self) -> Caller<'_, R> {
        Caller { serving: self, reply: PhantomData }
    }

    /// The answer of the same request; None if the call must do the work itself.
    fn begin(&self, locks: LockSet, request: Box<dyn Identical>) -> Result<Option<Bytes>> {
        let LockSet { subject, cluster, keys } = locks;
        let (call, bulkhead) = (&self.call, cluster.map(Bulkhead::from));
        call.set_subject(subject);
        self.bridge.enter_bulkhead(call, bulkhead.as_ref())?;
        if let Some(keys) = KeySet::new(keys) {
            call.enter_step("waiting for the volume's lock");
            match self.bridge.locks.enter(call, &keys, Some(request))? {
                Locked::Held(guard) => drop(self.guard.replace(Some(guard))),
                Locked::Joined(answer) => return answer.map(Some),
            }
        }
        self.bridge.workers.begin(call, bulkhead)?;
        Ok(None)
    }
}

/// Connects services to the workers and the lock table.
#[derive(Clone)]
pub struct Bridge {
    workers: Arc<Workers>,
    locks: Arc<LockTable<Answer>>,
    running: Arc<ActiveCalls>,
}

impl Bridge {
    /// A bridge to these workers and this lock table.
    pub fn new(workers: Arc<Workers>, locks: Arc<LockTable<Answer>>, running: Arc<ActiveCalls>) -> Self {
        Self { workers, locks, running }
    }

    /// Whether the calls that joined try again after this answer.
    pub fn is_retryable(answer: &Answer) -> bool {
        answer.as_ref().is_err_and(|error| status::is_retryable(error.kind()))
    }

    /// Registers an rpc with one request and one reply. `handler` runs on the thread of its call.
    pub fn unary<S: Send + Sync + 'static, Q: Rpc>(
        &self,
        builder: ServiceBuilder,
        service: &Arc<S>,
        handler: fn(&S, Asked<'_, Q>) -> Answer,
    ) -> ServiceBuilder {
        let service = Arc::clone(service);
        let handler =
            move |call: &Serving<'_>, request: &[u8]| handler(&service, (call.caller(), decode(request)?));
        self.register(builder, Q::PATH, Arc::new(handler))
    }

    fn register(&self, builder: ServiceBuilder, path: &'static str, handler: Handler) -> ServiceBuilder {
        let bridge = self.clone();
        let method = raw_method(path);
        builder.add_unary_handler(&method, move |context, request: Vec<u8>, sink| {
            let answer = bridge.accept(path, &context, request, &handler);
            context.spawn(deliver(answer, sink));
        })
    }

    /// Gives a call a thread, or refuses it if there are too many. Returns the receiver of the answer.
    fn accept(
        &self,
        path: &'static str,
        context: &RpcContext<'_>,
        request: Vec<u8>,
        handler: &Handler,
    ) -> Result<oneshot::Receiver<Answer>> {
        let deadline = context.deadline();
        let call = Call::new(path, move || deadline.exceeded());
        self.running.began(&call);
        let (sender, answer) = oneshot::channel();
        let (this, own, handler) = (self.clone(), call.clone(), Arc::clone(handler));
        let serve = move || this.serve(own, &handler, &request, sender);
        let accepted = self.workers.run(is_quick(path), serve);
        accepted.inspect_err(|refused| self.running.ended(&call, Err(refused)))?;
        Ok(answer)
    }

    /// A call from its start to its end, on its own thread.
    fn serve(&self, call: Call, handler: &Handler, request: &[u8], sender: oneshot::Sender<Answer>) {
        let serving = Serving { bridge: self, call, guard: RefCell::default() };
        let answer = guarded(&serving.call, || handler(&serving, request));
        let Serving { call, guard, .. } = serving;
        let guard = guard.into_inner();
        if let Some(guard) = &guard {
            guard.answer(&answer);
        }
        call.stop_working();
        // From here only the call holds the lock: a clone in this thread, or in the reaper of a command that
        // could not be killed. The next call gets the lock after the answer.
        call.hold(guard);
        self.running.ended(&call, answer.as_ref().map(|_| ()));
        // The receiver is gone only when the server is.
        let _ = sender.send(answer);
    }

    /// Counts a call for its bulkhead from now on, unless the bulkhead has too many already.
    fn enter_bulkhead(&self, call: &Call, bulkhead: Option<&Bulkhead>) -> Result<()> {
        let Some(bulkhead) = bulkhead else { return Ok(()) };
        let (own, all) = self.running.count(bulkhead);
        self.workers.ensure_room(bulkhead, own, all)?;
        call.set_bulkhead(Arc::clone(bulkhead));
        Ok(())
    }
}

/// A method whose messages stay bytes: a worker, or a caller, decodes and encodes them.
pub fn raw_method(path: &'static str) -> Method<Vec<u8>, Arc<[u8]>> {
    let request = Marshaller { ser: |bytes: &Vec<u8>, slice| fill(slice, bytes), de: read_all };
    let reply = Marshaller {
        ser: |bytes: &Arc<[u8]>, slice| fill(slice, bytes),
        de: |reader| read_all(reader).map(Into::into),
    };
    Method { ty: MethodType::Unary, name: path, req_mar: request, resp_mar: reply }
}

fn fill(slice: &mut GrpcSlice, bytes: &[u8]) -> grpcio::Result<()> {
    *slice = GrpcSlice::from(bytes);
    Ok(())
}

fn read_all(mut reader: MessageReader) -> grpcio::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(reader.len());
    reader.read_to_end(&mut bytes).map_err(|error| grpcio::Error::Codec(Box::new(error)))?;
    Ok(bytes)
}

/// Decodes a request; bytes that do not decode are an invalid argument.
pub fn decode<Q: Message>(bytes: &[u8]) -> Result<Q> {
    let name = std::any::type_name::<Q>().rsplit("::").next().unwrap_or_default();
    Q::parse_from_bytes(bytes)
        .map_err(|error| Error::invalid(format!("the request is not a {name}: {error}")))
}

/// Waits for a call's answer and sends it; or the refusal of the call.
async fn deliver(answer: Result<oneshot::Receiver<Answer>>, sink: UnarySink<Arc<[u8]>>) {
    let answer = match answer {
        // A call is dropped without an answer only when the whole daemon ends.
        Ok(answer) => answer.await.unwrap_or_else(|_| Err(Error::unavailable("the daemon is going down"))),
        Err(refused) => Err(refused),
    };
    let sent = match answer {
        Ok(bytes) => sink.success(bytes).await,
        Err(error) => sink.fail(status::status(&error)).await,
    };
    if let Err(error) = sent {
        log::debug!("an answer could not be sent, the client is gone: {error}");
    }
}

/// Runs `body`, turning a panic into an error that the log can find again.
pub fn guarded<T>(call: &Call, body: impl FnOnce() -> Result<T>) -> Result<T> {
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| panic.downcast_ref::<String>().cloned());
        let what = what.unwrap_or_else(|| "unknown cause".to_string());
        Err(Error::internal(format!(
            "a defect of cephlet stopped call {} ({what}); the log has the place",
            call.id()
        )))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "bridge_tests.rs"]
mod tests;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "reload_tests.rs"]
mod reload_tests;
