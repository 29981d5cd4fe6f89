//! The tasks of a thread, one for each connection, polled in their place when their socket has news.
//!
//! They live inside one task of the runtime. A task and a registration of the runtime's own for each
//! connection cost a request several times what the look into this table does.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Interest, Registry, Token};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use crate::stream::Stream;

/// Sockets whose tasks are polled before those who wait for the others of their batch.
pub(crate) const BATCH: usize = 16;
/// Sockets that are attended to before others have their turn.
const MOST: usize = 64;

/// Connections and what waits for them.
pub(crate) struct Tasks {
    /// Told when the last task has ended.
    ended: Notify,
    /// The task that is polled waits for the others of its batch.
    is_ahead: Cell<bool>,
    /// Those who do; kept here for their room alone.
    ahead: RefCell<Vec<Task>>,
    next: RefCell<Vec<Task>>,
    registry: Registry,
    slots: RefCell<Slots>,
    woken: Arc<Woken>,
}

/// The sockets of a thread's tasks, as one thing that a runtime waits for.
pub(crate) struct Sockets(AsyncFd<mio::Poll>);

/// Tasks by number.
#[derive(Default)]
struct Slots {
    count: usize,
    free: Vec<usize>,
    /// A task that is being polled is not in its place.
    tasks: Vec<Option<Task>>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    news: Arc<News>,
    waker: Waker,
}

/// What a task is told of its socket, and how it is woken by others.
#[derive(Debug)]
pub(crate) struct News {
    /// The client sends no more; reading comes to an end.
    is_closed: AtomicBool,
    is_readable: AtomicBool,
    is_woken: AtomicBool,
    is_writable: AtomicBool,
    number: usize,
    woken: Arc<Woken>,
}

/// Tasks that were woken by others than their sockets.
#[derive(Debug, Default)]
struct Woken(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    numbers: Vec<usize>,
    /// Of the task that polls them, while it waits.
    waker: Option<Waker>,
}

impl Tasks {
    /// No tasks yet, and their sockets for [`Tasks::run`], in the runtime that is entered.
    pub(crate) fn new() -> io::Result<(Self, Sockets)> {
        let poll = mio::Poll::new()?;
        let tasks = Self {
            ended: Notify::default(),
            is_ahead: Cell::default(),
            ahead: RefCell::default(),
            next: RefCell::default(),
            registry: poll.registry().try_clone()?,
            slots: RefCell::default(),
            woken: Arc::default(),
        };
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types other than OwnedFd"
        )]
        let sockets = AsyncFd::with_interest(poll, tokio::io::Interest::READABLE)?;
        Ok((tasks, Sockets(sockets)))
    }

    /// Adds a task for a connection.
    pub(crate) fn spawn<F>(
        &self,
        stream: std::net::TcpStream,
        serve: impl FnOnce(Stream) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + 'static,
    {
        let mut socket = mio::net::TcpStream::from_std(stream);
        let number = self.slots.borrow_mut().reserve();
        let news = Arc::new(News {
            is_closed: AtomicBool::new(false),
            is_readable: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
            is_writable: AtomicBool::new(true),
            number,
            woken: Arc::clone(&self.woken),
        });
        let both = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.registry.register(&mut socket, Token(number), both) {
            self.slots.borrow_mut().release(number);
            return Err(error);
        }
        let waker = Waker::from(Arc::clone(&news));
        waker.wake_by_ref();
        let future = Box::pin(serve(Stream::new(socket, Arc::clone(&news))));
        self.slots.borrow_mut().tasks[number] = Some(Task {
            future,
            news,
            waker,
        });
        Ok(())
    }

    /// Polls tasks as there is reason to, for ever.
    pub(crate) async fn run(&self, mut sockets: Sockets) -> io::Result<()> {
        let mut events = Events::with_capacity(MOST);
        loop {
            std::future::poll_fn(|cx| self.turn(&mut sockets, &mut events, cx)).await?;
            tokio::task::yield_now().await;
        }
    }

    /// Wakes all tasks.
    pub(crate) fn wake(&self) {
        for task in self.slots.borrow().tasks.iter().flatten() {
            task.waker.wake_by_ref();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.borrow().count == 0
    }

    /// Waits until the last task ends.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Polls those who have news; ready when others shall have their turn.
    fn turn(
        &self,
        sockets: &mut Sockets,
        events: &mut Events,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let were_woken = self.poll_woken(cx);
            let Poll::Ready(ready) = sockets.0.poll_read_ready_mut(cx) else {
                return if were_woken {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                };
            };
            let mut ready = ready?;
            match ready.get_inner_mut().poll(events, Some(Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            let is_full = events.iter().count() == MOST;
            if !is_full {
                // These were all; what comes from now on is told anew.
                ready.clear_ready();
            }
            let mut told = events.iter().peekable();
            while told.peek().is_some() {
                self.play(told.by_ref().take(BATCH).filter_map(|event| {
                    // One that ended since it was told of is told no more.
                    let task = self.slots.borrow_mut().take(event.token().0)?;
                    task.news.tell(event);
                    Some(task)
                }));
            }
            if is_full || were_woken {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Polls those who were woken; if there are none, the next will wake the caller.
    fn poll_woken(&self, cx: &Context<'_>) -> bool {
        let numbers = {
            let mut queue = self.woken.lock();
            if queue.numbers.is_empty() {
                queue.waker = Some(cx.waker().clone());
                return false;
            }
            std::mem::take(&mut queue.numbers)
        };
        let mut numbers = numbers.into_iter().peekable();
        while numbers.peek().is_some() {
            self.play(numbers.by_ref().take(BATCH).filter_map(|number| {
                let task = self.slots.borrow_mut().take(number)?;
                task.news.is_woken.store(false, Ordering::Release);
                Some(task)
            }));
        }
        true
    }

    /// Polls tasks that are not in their places, those who wait for each other again in their turn.
    fn play(&self, told: impl Iterator<Item = Task>) {
        let mut ahead = self.ahead.take();
        for task in told {
            self.poll(task, &mut ahead);
        }
        let mut next = self.next.take();
        while !ahead.is_empty() {
            for task in ahead.drain(..) {
                self.poll(task, &mut next);
            }
            std::mem::swap(&mut ahead, &mut next);
        }
        self.ahead.replace(ahead);
        self.next.replace(next);
    }

    /// Polls a task, and puts it into its place unless it is over or waits for others.
    fn poll(&self, mut task: Task, ahead: &mut Vec<Task>) {
        let mut cx = Context::from_waker(&task.waker);
        let is_pending = task.future.as_mut().poll(&mut cx).is_pending();
        let number = task.news.number;
        if self.is_ahead.take() {
            ahead.push(task);
        } else if is_pending {
            self.slots.borrow_mut().tasks[number] = Some(task);
        } else {
            drop(task);
            self.slots.borrow_mut().release(number);
            if self.is_empty() {
                self.ended.notify_one();
            }
        }
    }

    /// Lets the others who had news at the same time come as far as the caller, a task of these.
    pub(crate) async fn others(&self) {
        let mut has_waited = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            self.is_ahead.set(true);
            Poll::Pending
        })
        .await;
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.slots.borrow().count;
        f.debug_struct("Tasks")
            .field("count", &count)
            .finish_non_exhaustive()
    }
}

impl Slots {
    /// A number for one that is about to come.
    fn reserve(&mut self) -> usize {
        self.count += 1;
        self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        })
    }

    fn release(&mut self, number: usize) {
        self.count -= 1;
        self.free.push(number);
    }

    fn take(&mut self, number: usize) -> Option<Task> {
        self.tasks.get_mut(number)?.take()
    }
}

impl News {
    fn tell(&self, event: &Event) {
        let is_broken = event.is_error();
        let tell = |flag: &AtomicBool, is_so: bool| {
            if is_so || is_broken {
                flag.store(true, Ordering::Relaxed);
            }
        };
        tell(&self.is_closed, event.is_read_closed());
        tell(
            &self.is_readable,
            event.is_readable() || event.is_read_closed(),
        );
        tell(
            &self.is_writable,
            event.is_writable() || event.is_write_closed(),
        );
    }

    /// Whether reading may give something.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_readable.load(Ordering::Relaxed)
    }

    /// Whether writing may get something away.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable.load(Ordering::Relaxed)
    }

    /// All that had come was read.
    pub(crate) fn was_drained(&self) {
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        self.is_readable.store(is_closed, Ordering::Relaxed);
    }

    /// The socket takes no more for now.
    pub(crate) fn was_filled(&self) {
        self.is_writable.store(false, Ordering::Relaxed);
    }
}

impl Wake for News {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let waker = {
            let mut queue = self.woken.lock();
            queue.numbers.push(self.number);
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Woken {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
