//! Moves batches of events and watermarks from the cores that read them to the shards that own
//! their keys. Knows nothing of join kinds.
//!
//! One promise holds the room together: **a watermark never overtakes data in a lane**. A
//! [`Producer`] pushes its batches, the partial ones included, and only then stores its watermark;
//! a shard loads all watermarks ([`WatermarkReader::load`]), then drains what its lanes held at
//! that moment, and only then applies what it loaded. The loom tests of [`watermarks`] prove it
//! and prove that each part of it is needed.
//!
//! Reading order: [`lane`] (the ring), [`mod@mesh`] (links: a lane and its way back),
//! [`partition`], [`watermarks`], [`pace`] (who may push now), [`hot`] (keys that are too much for
//! one core), [`producer`] (everything one core needs to send), [`feed`] (what a core asks for
//! events), [`doorbell`] (how a sleeping core is woken).

mod deal;
pub mod doorbell;
pub mod feed;
pub mod hot;
pub mod lane;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod mesh;
pub mod pace;
pub mod partition;
pub mod producer;
mod sync;
pub mod watermarks;

pub use doorbell::Doorbell;
pub use feed::{Feed, FeedProgress};
pub use hot::{HotKeys, SplitPlan, SplitReport, Splitter};
pub use mesh::{LinkReceiver, LinkSender, Mesh, link, mesh};
pub(crate) use pace::{Ask, KeptTooMuch};
pub use pace::{Pace, Pacer, Room, RowsAhead, WhenFull};
pub use partition::shard_of;
pub use producer::{Flow, PortId, Producer, ProducerCounters, ProducerOptions, Promise};
pub use watermarks::{Loaded, Slowest, TooManySources, WatermarkReader, WatermarkSlot, Watermarks};
