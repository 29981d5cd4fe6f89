//! The tasks of a thread, one for each connection, polled in their place when their socket has news.
//!
//! tokio's queue of tasks and its registrations cost a request several times what the look into this table
//! does, and let no tasks go step by step together, which spares more than that.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Interest, Registry, Token};
use tokio::sync::Notify;

use crate::stream::Stream;

/// Sockets whose tasks are polled before those who wait for the others of their batch.
pub(crate) const BATCH: usize = 16;
/// Sockets that are attended to before others have their turn.
const MOST: usize = 64;

/// The token of who wakes the thread for others.
const WAKE: Token = Token(usize::MAX);

/// A thread's tasks.
pub(crate) struct Tasks {
    /// Told when the last connection's task has ended.
    ended: Notify,
    /// Nothing more is to be done.
    is_over: Cell<bool>,
    /// The task that is polled waits for the others of its batch.
    is_ahead: Cell<bool>,
    /// Those who do; kept here for their room alone.
    ahead: RefCell<Vec<Task>>,
    next: RefCell<Vec<Task>>,
    registry: Registry,
    slots: RefCell<Slots>,
    woken: Arc<Woken>,
}

/// Tasks by number.
#[derive(Default)]
struct Slots {
    /// Tasks of connections.
    connections: usize,
    free: Vec<usize>,
    /// A task that is being polled is not in its place.
    tasks: Vec<Option<Task>>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    is_connection: bool,
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
#[derive(Debug)]
struct Woken {
    /// The thread waits for sockets, and has to be woken by another.
    is_asleep: AtomicBool,
    numbers: Mutex<Vec<usize>>,
    waker: mio::Waker,
}

impl Tasks {
    /// No tasks yet, and what [`Tasks::run`] waits with.
    pub(crate) fn new() -> io::Result<(Self, mio::Poll)> {
        let poll = mio::Poll::new()?;
        let tasks = Self {
            ended: Notify::default(),
            is_over: Cell::default(),
            is_ahead: Cell::default(),
            ahead: RefCell::default(),
            next: RefCell::default(),
            registry: poll.registry().try_clone()?,
            slots: RefCell::default(),
            woken: Arc::new(Woken {
                is_asleep: AtomicBool::new(false),
                numbers: Mutex::default(),
                waker: mio::Waker::new(poll.registry(), WAKE)?,
            }),
        };
        Ok((tasks, poll))
    }

    /// Adds a connection's task.
    pub(crate) fn spawn_connection<F>(
        &self,
        mut socket: mio::net::TcpStream,
        serve: impl FnOnce(Stream) -> F,
    ) -> io::Result<()>
    where
        F: Future<Output = ()> + 'static,
    {
        let both = Interest::READABLE | Interest::WRITABLE;
        let news = self.news(|registry, token| registry.register(&mut socket, token, both))?;
        self.slots.borrow_mut().connections += 1;
        self.spawn(serve(Stream::new(socket, Arc::clone(&news))), news, true);
        Ok(())
    }

    /// Adds a task that is none of a connection's.
    pub(crate) fn spawn_service(
        &self,
        news: Arc<News>,
        future: impl Future<Output = ()> + 'static,
    ) {
        self.spawn(future, news, false);
    }

    /// What a task to come will be told of what is registered.
    pub(crate) fn news(
        &self,
        register: impl FnOnce(&Registry, Token) -> io::Result<()>,
    ) -> io::Result<Arc<News>> {
        let number = self.slots.borrow_mut().reserve();
        if let Err(error) = register(&self.registry, Token(number)) {
            self.slots.borrow_mut().free.push(number);
            return Err(error);
        }
        Ok(Arc::new(News {
            is_closed: AtomicBool::new(false),
            is_readable: AtomicBool::new(false),
            is_woken: AtomicBool::new(false),
            is_writable: AtomicBool::new(true),
            number,
            woken: Arc::clone(&self.woken),
        }))
    }

    fn spawn(
        &self,
        future: impl Future<Output = ()> + 'static,
        news: Arc<News>,
        is_connection: bool,
    ) {
        let waker = Waker::from(Arc::clone(&news));
        waker.wake_by_ref();
        let number = news.number;
        self.slots.borrow_mut().tasks[number] = Some(Task {
            future: Box::pin(future),
            is_connection,
            news,
            waker,
        });
    }

    /// Polls tasks as there is reason to, until [`Tasks::finish`]; waits no longer than `patience` says.
    pub(crate) fn run(
        &self,
        mut poll: mio::Poll,
        patience: impl Fn() -> Option<Duration>,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(MOST);
        while !self.is_over.get() {
            let patience = if self.woken.falls_asleep() {
                patience()
            } else {
                Some(Duration::ZERO)
            };
            let polled = poll.poll(&mut events, patience);
            self.woken.is_asleep.store(false, Ordering::Relaxed);
            match polled {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                polled => polled?,
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
            self.poll_woken();
        }
        // Those that are left have what holds these.
        let left = std::mem::take(&mut self.slots.borrow_mut().tasks);
        drop(left);
        Ok(())
    }

    /// Lets [`Tasks::run`] return.
    pub(crate) fn finish(&self) {
        self.is_over.set(true);
    }

    /// Wakes all tasks.
    pub(crate) fn wake(&self) {
        for task in self.slots.borrow().tasks.iter().flatten() {
            task.waker.wake_by_ref();
        }
    }

    /// Whether no connection has a task.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.borrow().connections == 0
    }

    /// Waits until the last connection's task ends.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }

    /// Polls those who were woken by now.
    fn poll_woken(&self) {
        let mut numbers = self.woken.take().into_iter().peekable();
        while numbers.peek().is_some() {
            self.play(numbers.by_ref().take(BATCH).filter_map(|number| {
                let task = self.slots.borrow_mut().take(number)?;
                task.news.is_woken.store(false, Ordering::Release);
                Some(task)
            }));
        }
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
            let is_connection = task.is_connection;
            drop(task);
            let mut slots = self.slots.borrow_mut();
            slots.free.push(number);
            slots.connections -= usize::from(is_connection);
            if slots.connections == 0 {
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
        let connections = self.slots.borrow().connections;
        f.debug_struct("Tasks")
            .field("connections", &connections)
            .finish_non_exhaustive()
    }
}

impl Slots {
    /// A number for one that is about to come.
    fn reserve(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        })
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
        self.woken.add(self.number);
    }
}

impl Woken {
    fn numbers(&self) -> MutexGuard<'_, Vec<usize>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: usize) {
        self.numbers().push(number);
        // Whoever falls asleep says so before it looks whether there is a number.
        if self.is_asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            tracing::error!("failed to wake a thread: {error}");
        }
    }

    fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.numbers())
    }

    /// Whether there is nobody to be polled; if so, the next that is added wakes the thread.
    fn falls_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        let is_empty = self.numbers().is_empty();
        if !is_empty {
            self.is_asleep.store(false, Ordering::Relaxed);
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::rc::Rc;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    /// Both ends of a connection.
    fn connection() -> (TcpStream, mio::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, mio::net::TcpStream::from_std(server))
    }

    /// Adds the task that ends the thread's when no connection is left.
    fn end_with_connections(tasks: &Rc<Tasks>) {
        let news = tasks.news(|_, _| Ok(())).unwrap();
        let held = Rc::clone(tasks);
        tasks.spawn_service(news, async move {
            held.ended().await;
            held.finish();
        });
    }

    #[test]
    fn those_with_news_go_step_by_step_together() {
        let (tasks, poll) = Tasks::new().unwrap();
        let tasks = Rc::new(tasks);
        let said = Rc::new(RefCell::new(Vec::new()));
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (mut client, server) = connection();
            client.write_all(b"news").unwrap();
            clients.push(client);
            let (held, said) = (Rc::clone(&tasks), Rc::clone(&said));
            let serve = |mut stream: Stream| async move {
                let read = stream.read(&mut [0; 16]).await.unwrap();
                said.borrow_mut().push((1, read));
                held.others().await;
                said.borrow_mut().push((2, read));
                held.others().await;
                said.borrow_mut().push((3, read));
            };
            tasks.spawn_connection(server, serve).unwrap();
        }
        end_with_connections(&tasks);
        tasks.run(poll, || None).unwrap();
        let steps = [1, 1, 1, 2, 2, 2, 3, 3, 3].map(|step| (step, 4));
        assert_eq!(*said.borrow(), steps);
        assert!(tasks.is_empty());
    }

    #[test]
    fn another_thread_wakes_a_task_whose_thread_waits() {
        let (tasks, poll) = Tasks::new().unwrap();
        let tasks = Rc::new(tasks);
        let (_client, server) = connection();
        let serve = |_stream| async move {
            let (tell, told) = tokio::sync::oneshot::channel();
            let other = std::thread::spawn(move || tell.send(7));
            assert_eq!(told.await, Ok(7));
            other.join().unwrap().unwrap();
        };
        tasks.spawn_connection(server, serve).unwrap();
        end_with_connections(&tasks);
        tasks.run(poll, || None).unwrap();
        assert!(tasks.is_empty());
    }

    #[test]
    fn a_client_that_leaves_behind_its_bytes_is_read_to_its_end() {
        let (tasks, poll) = Tasks::new().unwrap();
        let tasks = Rc::new(tasks);
        let (mut client, server) = connection();
        client.write_all(b"last words").unwrap();
        drop(client);
        let serve = |mut stream: Stream| async move {
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"last words");
        };
        tasks.spawn_connection(server, serve).unwrap();
        end_with_connections(&tasks);
        tasks.run(poll, || None).unwrap();
    }

    #[test]
    fn more_than_a_socket_takes_is_written_as_it_is_read() {
        use std::io::Read as _;
        use tokio::io::AsyncWriteExt as _;

        let (tasks, poll) = Tasks::new().unwrap();
        let tasks = Rc::new(tasks);
        let (mut client, server) = connection();
        let much = vec![b'x'; 32 << 20];
        let reader = std::thread::spawn(move || {
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).map(|_| heard.len())
        });
        let length = much.len();
        let serve = |mut stream: Stream| async move { stream.write_all(&much).await.unwrap() };
        tasks.spawn_connection(server, serve).unwrap();
        end_with_connections(&tasks);
        tasks.run(poll, || None).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), length);
    }
}
