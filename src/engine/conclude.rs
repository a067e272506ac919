//! What workers leave, sorted by stage.

use crate::engine::worker::Closed;
use crate::shard::ShardReport;

/// What all cores leave of one stage.
#[derive(Default)]
pub(super) struct StageEnd {
    pub(super) shards: Vec<ShardReport>,
    /// Events that feeds and earlier stages pushed.
    pub(super) events_pushed: u64,
    /// Of those from an earlier stage, the ones that came out behind their time there.
    pub(super) behind: u64,
    /// Rows that it handed to the next stage; `None` of the last.
    pub(super) handed_over: Option<u64>,
}

/// The ends of all stages, and the sinks of the last.
pub(super) fn by_stage<S>(closed: Vec<Closed<S>>, stage_count: usize) -> (Vec<StageEnd>, Vec<S>) {
    let mut stages: Vec<StageEnd> = Vec::new();
    stages.resize_with(stage_count, StageEnd::default);
    let mut sinks = Vec::new();
    for Closed { sink, report, events_pushed, earlier } in closed {
        sinks.push(sink);
        for (number, stage) in earlier.into_iter().enumerate() {
            stages[number].shards.push(stage.report);
            stages[number].events_pushed += stage.events_pushed;
            *stages[number].handed_over.get_or_insert(0) += stage.handed_over;
            stages[number + 1].events_pushed += stage.handed_over;
            stages[number + 1].behind += stage.behind;
        }
        if let Some(last) = stages.last_mut() {
            last.shards.push(report);
            last.events_pushed += events_pushed;
        }
    }
    (stages, sinks)
}
