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
    /// When a wait ends that may last.
    pub(super) const ENDLESS: u64 = u64::MAX;

    /// What the future yields, or `None` if the time is over before; somebody has to call
    /// [`check`].
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

    /// Ends the wait if it is time to, and tells when it will be; `last` if all waits end by then, and
    /// those without an end at once.
    fn check(&self, now: u64, last: Option<u64>) -> Option<u64> {
        let ends_ns = match (self.ends_ns.get()?, last) {
            (ends_ns, None) => ends_ns,
            (Self::ENDLESS, Some(_)) => now,
            (ends_ns, Some(last)) => ends_ns.min(last),
        };
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

/// Ends all waits whose time is over, and tells when the next one's will be: at `last`, if there is
/// such a time, those that remain.
pub(super) fn check(all: &Patiences, now: u64, last: Option<u64>) -> Option<u64> {
    let all = all.borrow();
    let ends = all.iter();
    ends.filter_map(|patience| patience.check(now, last)).min()
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
        assert_eq!(check(&all, 99, None), None, "nothing is in flight");
        let mut waits = pin!(patience.bear(10, std::future::pending::<()>()));
        assert_eq!(poll(waits.as_mut()), Poll::Pending);
        assert_eq!(check(&all, 9, None), Some(10));
        assert_eq!(poll(waits.as_mut()), Poll::Pending);
        assert_eq!(check(&all, 10, None), None);
        assert_eq!(poll(waits.as_mut()), Poll::Ready(None));
        assert_eq!(check(&all, 10, None), None);
        let mut waits = pin!(patience.bear(90, std::future::pending::<()>()));
        assert_eq!(poll(waits.as_mut()), Poll::Pending);
        assert_eq!(check(&all, 10, Some(11)), Some(11));
        assert_eq!(check(&all, 11, Some(11)), None);
        assert_eq!(poll(waits.as_mut()), Poll::Ready(None));
        let endless = patience.bear(Patience::ENDLESS, std::future::pending::<()>());
        let mut waits = pin!(endless);
        assert_eq!(poll(waits.as_mut()), Poll::Pending);
        assert_eq!(check(&all, 12, Some(99)), None);
        assert_eq!(poll(waits.as_mut()), Poll::Ready(None));
        let there = pin!(patience.bear(20, std::future::ready(7)));
        assert_eq!(poll(there), Poll::Ready(Some(7)));
    }
}
