//! What a stub says and when, without IO or clock: from a request to timed bytes.
//!
//! [`source`] decides the [`script`], the engine's rules cut it, the dialect spells it, [`pace`] times
//! it; [`stub`] puts them together into a [`reply`]. Ids, times and seeds are arguments.

mod answer;
mod cache;
mod check;
pub mod control_plane;
#[cfg(test)]
mod corpus;
mod front;
mod generate;
mod invocations;
mod layout;
mod lesser;
mod logprobs;
mod messages;
pub mod model_worker;
pub mod pace;
mod played;
mod prompt;
mod reasoning;
pub mod replay;
pub mod reply;
mod responses;
mod route;
mod scale_out;
pub mod script;
pub mod source;
pub mod stub;
mod timeline;
mod tools;
pub mod under_way;
mod voice;
mod work;

pub use cache::PrefixCache;
pub use front::Front;
pub use reasoning::{ReasoningParser, UnknownParser};
pub use timeline::{Kind, Remain, Remains, Step, Timeline};
pub use tools::{ToolParser, UnknownToolParser};
pub use wire::route::Route;
pub use work::Work;
