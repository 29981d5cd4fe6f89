//! The bytes of LLM inference servers, both ways, without IO, clock or entropy.
//!
//! [`request`] is what a client asks, [`chunk`] what an event says, [`dialect`] how each server spells
//! it, [`sse`] and [`http1`] how it is framed. Ids and times are arguments; whatever is written here can
//! be held against a recording byte for byte.

pub mod chunk;
pub mod dialect;
pub mod executorch;
pub mod failure;
pub mod finish;
pub mod http1;
pub mod json;
pub mod metrics;
pub mod python;
pub mod recording;
pub mod request;
pub mod route;
pub mod schema;
pub mod sse;
pub mod usage;
pub mod worker_lines;
