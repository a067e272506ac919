//! The control plane of a shard: commands from other threads, taken once a round.

use crossbeam::channel::{Receiver, Sender, bounded, never, unbounded};

use crate::exchange::{Doorbell, LinkReceiver};
use crate::shard::ShardReport;

/// Asks things of a shard from other threads. Clones ask the same shard.
#[derive(Clone, Debug)]
pub struct ShardHandle {
    sender: Sender<Request>,
    bell: Doorbell,
}

impl ShardHandle {
    /// Gives the shard one more link. Call it before the producer at the other end pushes or
    /// stores a watermark; then nothing is overtaken.
    ///
    /// # Errors
    /// The link comes back when the shard has ended.
    pub fn add_link(&self, link: LinkReceiver) -> Result<(), Box<LinkReceiver>> {
        self.send(Request::Link(Box::new(link))).map_err(|request| match request {
            Request::Link(link) => link,
            Request::Barrier(_) | Request::Report(_) => unreachable!("what was sent comes back"),
        })
    }

    /// Asks for a sign when everything that was pushed and promised before this call has been
    /// processed, applied and flushed. The receiver gets one `()`; it is cut off when the shard
    /// ends with an error. `None` when the shard has ended.
    pub fn barrier(&self) -> Option<Receiver<()>> {
        let (sender, receiver) = bounded(1);
        self.send(Request::Barrier(sender)).ok().map(|()| receiver)
    }

    /// Asks for a report. The receiver gets one, soon; it is cut off when the shard ends with an
    /// error. `None` when the shard has ended.
    pub fn report(&self) -> Option<Receiver<ShardReport>> {
        let (sender, receiver) = bounded(1);
        self.send(Request::Report(sender)).ok().map(|()| receiver)
    }

    fn send(&self, request: Request) -> Result<(), Request> {
        self.sender.send(request).map_err(|error| error.0)?;
        self.bell.ring();
        Ok(())
    }
}

enum Request {
    Link(Box<LinkReceiver>),
    Barrier(Sender<()>),
    Report(Sender<ShardReport>),
}

/// What the shard itself has to carry out.
pub(super) enum Command {
    Link(LinkReceiver),
    Report(Sender<ShardReport>),
}

/// The shard's end. Barriers wait for a whole round that began after they came, then for the work
/// that it made.
pub(super) struct Inbox {
    receiver: Receiver<Request>,
    came: Vec<Sender<()>>,
    in_round: Vec<Sender<()>>,
    in_work: Vec<Sender<()>>,
}

pub(super) fn pair(bell: Doorbell) -> (Inbox, ShardHandle) {
    let (sender, receiver) = unbounded();
    let inbox = Inbox { receiver, came: Vec::new(), in_round: Vec::new(), in_work: Vec::new() };
    (inbox, ShardHandle { sender, bell })
}

impl Inbox {
    /// A round begins, its watermarks are loaded: the barriers that came before may end with it.
    pub(super) fn begin_round(&mut self) {
        self.in_round.append(&mut self.came);
    }

    /// The next command; barriers are kept here.
    pub(super) fn next(&mut self) -> Option<Command> {
        loop {
            match self.receiver.try_recv().ok()? {
                Request::Link(link) => return Some(Command::Link(*link)),
                Request::Report(reply) => return Some(Command::Report(reply)),
                Request::Barrier(reply) => self.came.push(reply),
            }
        }
    }

    /// The round's watermarks were applied.
    pub(super) fn end_round(&mut self) {
        self.in_work.append(&mut self.in_round);
    }

    pub(super) fn has_barriers(&self) -> bool {
        !(self.came.is_empty() && self.in_round.is_empty() && self.in_work.is_empty())
    }

    pub(super) fn has_barriers_to_answer(&self) -> bool {
        !self.in_work.is_empty()
    }

    pub(super) fn answer_barriers(&mut self) {
        // An asker that has gone does not want the answer.
        for reply in self.in_work.drain(..) {
            let _ = reply.send(());
        }
    }

    /// The shard has finished: everything asked so far is answered, nothing more is taken.
    pub(super) fn close(&mut self, report: &ShardReport) {
        let receiver = std::mem::replace(&mut self.receiver, never());
        while let Ok(request) = receiver.try_recv() {
            match request {
                Request::Link(_) => {}
                Request::Barrier(reply) => self.came.push(reply),
                Request::Report(reply) => drop(reply.send(report.clone())),
            }
        }
        self.begin_round();
        self.end_round();
        self.answer_barriers();
    }

    /// The shard has failed: whoever waits is cut off.
    pub(super) fn abandon(&mut self) {
        self.receiver = never();
        self.came.clear();
        self.in_round.clear();
        self.in_work.clear();
    }
}
