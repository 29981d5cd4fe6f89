//! Recorded exchanges as files: `<case>.request.http` and `<case>.response.http` hold the bytes of a
//! socket, `<case>.times.json` when they came, `cases.json` what there is, in the order it was recorded.

mod difference; // where two of them part
mod frames; // how many tokens a frame holds
mod index; // `cases.json`
mod keys; // pages of which only the keys are compared
mod mask; // ids, moments and measured numbers
mod normalise; // whole responses
mod rules; // what may differ, server by server
mod times; // `.times.json`
mod turns; // the order of a request's samples

pub use difference::difference;
pub use index::{Case, Index};
pub use normalise::normalised;
pub use rules::Rules;
pub use times::{Arrival, Times};

/// What a case's request file is named behind the case's name.
pub const REQUEST: &str = ".request.http";
/// What a case's response file is named behind the case's name.
pub const RESPONSE: &str = ".response.http";
/// What a case's file of arrival times is named behind the case's name.
pub const TIMES: &str = ".times.json";
/// The file that lists a folder's cases.
pub const INDEX: &str = "cases.json";
