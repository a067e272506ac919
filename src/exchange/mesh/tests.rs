//! Links: credits, the way back, memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::event::{Key, KeyHasher, KeyKind};
use crate::time::Timestamp;

fn pair(credits: usize) -> (LinkSender, LinkReceiver) {
    link(credits, Doorbell::silent(), Doorbell::silent())
}

fn fresh(sender: &mut LinkSender) -> Box<EventBatch> {
    sender.fresh(Side::Left, 3, BatchKind::Late)
}

#[test]
fn batches_that_are_out_are_the_credits() {
    for credits in [1, 3, 4] {
        let (mut sender, mut receiver) = pair(credits);
        for _ in 0..credits {
            let batch = fresh(&mut sender);
            assert!(sender.try_send(batch).is_ok());
        }
        let batch = fresh(&mut sender);
        let Err(Refused::Full(batch)) = sender.try_send(batch) else { panic!("no credit is left") };
        assert_eq!(receiver.len(), credits);
        let taken = receiver.try_recv().unwrap();
        let Err(Refused::Full(batch)) = sender.try_send(batch) else { panic!("it is not back") };
        receiver.give_back(taken);
        assert!(sender.try_send(batch).is_ok());
        assert_eq!(sender.out_count(), credits);
    }
}

#[test]
fn spent_batches_are_used_again_and_huge_rows_are_not_kept() {
    let hasher = KeyHasher::new(KeyKind::Int, 1);
    let (mut sender, mut receiver) = pair(2);
    let mut addresses = Vec::new();
    for round in 0..10 {
        let mut batch = fresh(&mut sender);
        assert!(batch.is_empty() && batch.lags().is_empty());
        assert_eq!((batch.side(), batch.source, batch.kind), (Side::Left, 3, BatchKind::Late));
        let row = vec![0; if round == 4 { BATCH_KEPT_ROW_BYTES_MAX + 1 } else { 100 }];
        batch.push(&hasher, Key::Int(1), Timestamp::new(1).unwrap(), &row).unwrap();
        batch.push_lag(1);
        addresses.push(&raw const *batch as usize);
        assert!(sender.try_send(batch).is_ok());
        let batch = receiver.try_recv().unwrap();
        receiver.give_back(batch);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1, "one batch goes round");
    assert!(fresh(&mut sender).row_bytes_capacity() <= BATCH_KEPT_ROW_BYTES_MAX);
}

#[test]
fn either_end_notices_that_the_other_is_gone() {
    let (mut sender, mut receiver) = pair(2);
    let batch = fresh(&mut sender);
    assert!(sender.try_send(batch).is_ok());
    drop(sender);
    assert!(!receiver.is_closed(), "a batch is left");
    let batch = receiver.try_recv().unwrap();
    receiver.give_back(batch);
    assert!(receiver.is_closed());

    let (mut sender, receiver) = pair(1);
    drop(receiver);
    assert!(sender.is_abandoned());
    let batch = fresh(&mut sender);
    assert!(matches!(sender.try_send(batch), Err(Refused::Abandoned(_))));
}

#[test]
fn a_mesh_connects_each_with_each_and_rings_the_right_bells() {
    let rings: Vec<_> = (0..3).map(|_| Arc::new(AtomicUsize::new(0))).collect();
    let bells: Vec<_> = rings
        .iter()
        .map(|rings| {
            let rings = rings.clone();
            // Relaxed: a count on one thread.
            Doorbell::new(move || _ = rings.fetch_add(1, Ordering::Relaxed))
        })
        .collect();
    let mut mesh = mesh(1, &bells[..1], &bells[1..]);
    assert_eq!((mesh.senders.len(), mesh.senders[0].len(), mesh.receivers.len()), (1, 2, 2));
    // Relaxed: as above.
    let counts = || rings.iter().map(|rings| rings.load(Ordering::Relaxed)).collect::<Vec<_>>();

    let batch = fresh(&mut mesh.senders[0][1]);
    assert!(mesh.senders[0][1].try_send(batch).is_ok());
    assert_eq!(counts(), [0, 0, 0], "nobody sleeps");
    assert_eq!(mesh.receivers[0][0].len() + mesh.receivers[1][0].len(), 1);

    bells.iter().for_each(Doorbell::prepare);
    let batch = mesh.receivers[1][0].try_recv().unwrap();
    mesh.receivers[1][0].give_back(batch);
    assert_eq!(counts(), [1, 0, 0], "the producer was woken");
    let batch = fresh(&mut mesh.senders[0][1]);
    assert!(mesh.senders[0][1].try_send(batch).is_ok());
    mesh.senders[0][1].ring();
    assert_eq!(counts(), [1, 0, 1], "the shard was woken, once");
    bells[1].awake();
    mesh.senders[0][0].ring();
    assert_eq!(counts(), [1, 0, 1], "it was awake");
}
