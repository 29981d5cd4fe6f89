//! The time that requests may take, watched with one timer for all of a worker's.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A sender's request in flight, as its worker watches it. Times are nanoseconds from the run's start.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// When it is over; none while nothing is in flight.
    ends_ns: Cell<Option<u64>>,
    is_over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Patience {
    /// What the future yields, or `None` if the time is over before; somebody has to call
    /// [`Self::check`].
    pub(super) async fn bear<T>(&self, ends_ns: u64, future: impl Future<Output = T>) -> Option<T> {
        self.ends_ns.set(Some(ends_ns));
        self.is_over.set(false);
        let mut future = pin!(future);
        let outcome = std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if self.is_over.get() => Poll::Ready(None),
            Poll::Pending => {
                let waker = &mut *self.waker.borrow_mut();
                if !waker
                    .as_ref()
                    .is_some_and(|waker| waker.will_wake(context.waker()))
                {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
        });
        let outcome = outcome.await;
        self.ends_ns.set(None);
        outcome
    }

    /// Ends the wait if it is time to, and tells when it will be.
    pub(super) fn check(&self, now: u64) -> Option<u64> {
        let ends_ns = self.ends_ns.get()?;
        if now < ends_ns {
            return Some(ends_ns);
        }
        self.is_over.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
        None
    }
}

/// All of a worker's requests in flight.
pub(super) type Patiences = RefCell<Vec<Rc<Patience>>>;

/// Ends all waits whose time is over, and tells when the next one's will be.
pub(super) fn check(all: &Patiences, now: u64) -> Option<u64> {
    let all = all.borrow();
    all.iter().filter_map(|patience| patience.check(now)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut std::task::Context::from_waker(Waker::noop()))
    }

    #[test]
    fn patience_ends_at_its_time_unless_the_answer_is_there() {
        let all = RefCell::new(vec![Rc::default()]);
        let patience: Rc<Patience> = Rc::clone(&all.borrow()[0]);
        assert_eq!(check(&all, 99), None, "nothing is in flight");
        let mut waits = pin!(patience.bear(10, std::future::pending::<()>()));
        assert_eq!(poll(waits.as_mut()), Poll::Pending);
        assert_eq!(check(&all, 9), Some(10));
        assert_eq!(poll(waits.as_mut()), Poll::Pending);
        assert_eq!(check(&all, 10), None);
        assert_eq!(poll(waits.as_mut()), Poll::Ready(None));
        assert_eq!(check(&all, 10), None);
        let there = pin!(patience.bear(20, std::future::ready(7)));
        assert_eq!(poll(there), Poll::Ready(Some(7)));
    }
}
