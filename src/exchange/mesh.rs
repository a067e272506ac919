//! Links: a lane of batches to a shard, and the lane on which the spent batches come back.
//!
//! The batches of a link that are out (in the lane, at the shard, or on their way back) are its
//! credits: when all are out, the producer has to wait. Spent batches go back to the core that
//! allocated them and are filled again, so a warm link allocates nothing.

#[cfg(all(test, not(loom)))]
mod tests;

use crate::event::{BatchKind, EventBatch, Side};
use crate::exchange::Doorbell;
use crate::exchange::lane::{Receiver, Refused, Sender, lane};
use crate::limits::BATCH_KEPT_ROW_BYTES_MAX;

/// The producer's end of a link.
#[derive(Debug)]
pub struct LinkSender {
    data: Sender<Box<EventBatch>>,
    spent: Receiver<Box<EventBatch>>,
    /// Batches that are out.
    out_count: usize,
    credits: usize,
    #[expect(clippy::vec_box, reason = "the boxes themselves travel; unboxing would allocate")]
    pool: Vec<Box<EventBatch>>,
    /// Batches that are kept for another use at the most: all that are in use at once.
    kept_max: usize,
    shard: Doorbell,
}

/// The shard's end of a link.
#[derive(Debug)]
pub struct LinkReceiver {
    data: Receiver<Box<EventBatch>>,
    spent: Sender<Box<EventBatch>>,
    producer: Doorbell,
}

/// All links between some producers and some shards.
#[derive(Debug)]
pub struct Mesh {
    /// For each producer its links, by shard.
    pub senders: Vec<Vec<LinkSender>>,
    /// For each shard its links, by producer.
    pub receivers: Vec<Vec<LinkReceiver>>,
}

/// One link with `credits` batches (at least 1). `shard` is rung when a batch is sent, `producer`
/// when one comes back.
pub fn link(credits: usize, shard: Doorbell, producer: Doorbell) -> (LinkSender, LinkReceiver) {
    let credits = credits.max(1);
    let (data, data_out) = lane(credits);
    // The way back has room for all that can be out, so giving back never fails.
    let (spent_in, spent) = lane(credits);
    let pool = Vec::with_capacity(credits);
    (
        LinkSender { data, spent, out_count: 0, credits, pool, kept_max: credits, shard },
        LinkReceiver { data: data_out, spent: spent_in, producer },
    )
}

/// Links from each of the `producers` to each of the `shards`, given by their doorbells.
pub fn mesh(credits: usize, producers: &[Doorbell], shards: &[Doorbell]) -> Mesh {
    let mut receivers: Vec<Vec<LinkReceiver>> = shards.iter().map(|_| Vec::new()).collect();
    let senders = producers
        .iter()
        .map(|producer| {
            let links = shards.iter().zip(&mut receivers).map(|(shard, receivers)| {
                let (sender, receiver) = link(credits, shard.clone(), producer.clone());
                receivers.push(receiver);
                sender
            });
            links.collect()
        })
        .collect();
    Mesh { senders, receivers }
}

impl LinkSender {
    /// Says that up to `count` more batches will be open or waiting to be sent at once, so that as
    /// many more are kept for another use.
    pub fn reserve(&mut self, count: usize) {
        self.kept_max += count;
        self.pool.reserve(self.kept_max.saturating_sub(self.pool.len()));
    }

    /// An empty batch to fill: a spent one if there is any, else a new one.
    pub fn fresh(&mut self, side: Side, source: u32, kind: BatchKind) -> Box<EventBatch> {
        self.reclaim();
        let mut batch = self.pool.pop().unwrap_or_default();
        batch.reset(side, source, kind);
        batch.prefetch_room();
        batch
    }

    /// Takes back a batch that was not sent.
    pub fn keep(&mut self, mut batch: Box<EventBatch>) {
        if self.pool.len() < self.kept_max {
            // A batch that once carried huge rows must not hold their memory for ever.
            batch.reset(batch.side(), 0, BatchKind::Keyed);
            batch.trim(BATCH_KEPT_ROW_BYTES_MAX);
            self.pool.push(batch);
        }
    }

    /// Sends a batch and rings the shard.
    ///
    /// # Errors
    /// [`Refused`] hands it back when all credits are out or the shard is gone.
    #[inline]
    pub fn try_send(&mut self, batch: Box<EventBatch>) -> Result<(), Refused<Box<EventBatch>>> {
        if self.out_count == self.credits {
            self.reclaim();
            if self.out_count == self.credits {
                return Err(match self.data.is_abandoned() {
                    true => Refused::Abandoned(batch),
                    false => Refused::Full(batch),
                });
            }
        }
        self.data.try_push(batch)?;
        self.out_count += 1;
        self.shard.ring();
        Ok(())
    }

    /// Wakes the shard, for example because a watermark was stored.
    pub fn ring(&self) {
        self.shard.ring();
    }

    /// Whether the shard is gone.
    pub fn is_abandoned(&self) -> bool {
        self.data.is_abandoned()
    }

    /// Batches that are out: sent and not yet back.
    pub fn out_count(&self) -> usize {
        self.out_count
    }

    fn reclaim(&mut self) {
        while let Some(batch) = self.spent.try_pop() {
            self.out_count -= 1;
            self.keep(batch);
        }
    }
}

impl LinkReceiver {
    /// Takes the oldest batch, if there is one. Hand it back with [`give_back`](Self::give_back).
    #[inline]
    pub fn try_recv(&mut self) -> Option<Box<EventBatch>> {
        self.data.try_pop()
    }

    /// Asks for what the oldest batch holds, if the lane is known to have one, so that it need not
    /// be waited for when it is taken.
    #[inline]
    pub fn prefetch(&mut self) {
        self.data.peek(|batch| batch.prefetch());
    }

    /// Hands a spent batch back to its producer and rings it.
    #[inline]
    pub fn give_back(&mut self, batch: Box<EventBatch>) {
        // Never full: there are no more batches than credits. If the producer is gone the batch
        // is simply freed.
        let _ = self.spent.try_push(batch);
        self.producer.ring();
    }

    /// How many batches the lane holds now: at least those sent before this call.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.data.len()
    }

    /// Whether the lane holds nothing now.
    pub fn is_empty(&mut self) -> bool {
        self.data.is_empty()
    }

    /// Whether the producer is gone and everything it sent has been taken.
    pub fn is_closed(&mut self) -> bool {
        self.data.is_closed()
    }
}
