//! `stubline serve executorch`: ExecuTorch's LLM server, a model worker behind it.

mod call;
mod cli;
mod connection;
mod counters;
mod log;
mod outbox;
mod process;
mod reply;
mod worker;

use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;

use plan::control_plane::ControlPlane;
use wire::dialect::Dialect;
use wire::dialect::uvicorn::Parser;

use crate::cpu::Thread;
use crate::metrics::Counters;
use crate::socket::Socket;
use crate::worker::{Date, Shared};

pub use cli::{Args, start};

use connection::Connection;
use counters::TurnCounters;
use log::Log;
use worker::Worker;

/// What all threads of a server share.
pub(crate) struct Desk {
    counters: TurnCounters,
    has_metrics: bool,
    log: Log,
    parser: Parser,
    plane: ControlPlane,
    worker: Worker,
}

/// One thread's state.
struct Clerk {
    counters: Arc<Counters>,
    date: Date,
    desk: Arc<Desk>,
    shared: Shared,
}

/// Serves a listener until the phase says stop.
pub(crate) fn run(listener: TcpListener, shared: Shared, desk: Arc<Desk>) -> io::Result<()> {
    let clerk = Rc::new(Clerk {
        // Of these counters requests alone are shown, whatever the dialect.
        counters: shared.metrics.add_worker(Thread::current(), Dialect::VLLM),
        date: Date::default(),
        desk,
        shared,
    });
    let serving = Rc::clone(&clerk);
    clerk
        .shared
        .serve(listener, async move |stream, local, number| {
            let mut connection = Connection {
                clerk: &serving,
                number,
                socket: Socket::new(stream, local)?,
            };
            while connection.exchange().await? {}
            Ok(())
        })
}
