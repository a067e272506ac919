//! The lane against a queue, alone and under two threads.

use std::collections::VecDeque;
use std::thread;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Push,
    Pop,
    Len,
    Peek,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop::sample::select(vec![Op::Push, Op::Pop, Op::Len, Op::Peek])
}

fn peeked<T: Copy + Send>(receiver: &mut Receiver<T>) -> Option<T> {
    let mut peeked = None;
    receiver.peek(|&value| peeked = Some(value));
    peeked
}

proptest! {
    #[test]
    fn behaves_like_a_bounded_queue(
        capacity in 1usize..9,
        ops in prop::collection::vec(any_op(), 0..200),
    ) {
        let (mut sender, mut receiver) = lane(capacity);
        prop_assert_eq!(sender.capacity(), capacity.next_power_of_two());
        let mut model = VecDeque::new();
        for (value, op) in ops.into_iter().enumerate() {
            match op {
                Op::Push if model.len() < sender.capacity() => {
                    prop_assert_eq!(sender.try_push(value), Ok(()));
                    model.push_back(value);
                }
                Op::Push => prop_assert_eq!(sender.try_push(value), Err(Refused::Full(value))),
                Op::Pop => prop_assert_eq!(receiver.try_pop(), model.pop_front()),
                Op::Len => {
                    prop_assert_eq!(receiver.len(), model.len());
                    // All values are known of now.
                    prop_assert_eq!(peeked(&mut receiver), model.front().copied());
                }
                Op::Peek => {
                    let peeked = peeked(&mut receiver);
                    prop_assert!(peeked.is_none() || peeked == model.front().copied());
                }
            }
        }
        drop(sender);
        prop_assert_eq!(receiver.is_closed(), model.is_empty());
        prop_assert_eq!(std::iter::from_fn(|| receiver.try_pop()).collect::<VecDeque<_>>(), model);
        prop_assert!(receiver.is_closed());
    }
}

#[test]
fn values_left_in_a_lane_are_dropped_once() {
    let token = std::sync::Arc::new(());
    let alive = || std::sync::Arc::strong_count(&token) - 1;
    let (mut sender, mut receiver) = lane(4);
    // Go round once, so that the values left wrap around the end of the ring.
    for _ in 0..6 {
        assert!(sender.try_push(token.clone()).is_ok());
        assert!(receiver.try_pop().is_some());
    }
    (0..3).for_each(|_| assert!(sender.try_push(token.clone()).is_ok()));
    drop(receiver.try_pop());
    assert_eq!(alive(), 2);
    drop(receiver);
    assert!(matches!(sender.try_push(token.clone()), Err(Refused::Abandoned(_))));
    assert_eq!(alive(), 2, "the refused value came back");
    drop(sender);
    assert_eq!(alive(), 0);
}

#[test]
fn counts_may_wrap() {
    let (mut sender, mut receiver) = lane(2);
    let near_end = usize::MAX - 2;
    (sender.tail, sender.head_seen) = (near_end, near_end);
    (receiver.head, receiver.tail_seen) = (near_end, near_end);
    // Relaxed: nobody else is there.
    sender.ring.tail.store(near_end, Ordering::Relaxed);
    sender.ring.head.store(near_end, Ordering::Relaxed);
    for value in 0..8 {
        assert_eq!(sender.try_push(value), Ok(()));
        assert_eq!(sender.try_push(value + 100), Ok(()));
        assert_eq!(sender.try_push(0), Err(Refused::Full(0)));
        assert_eq!(receiver.len(), 2);
        assert_eq!(receiver.try_pop(), Some(value));
        assert_eq!(receiver.try_pop(), Some(value + 100));
        assert_eq!(receiver.try_pop(), None);
    }
}

#[test]
fn two_threads_lose_and_reorder_nothing() {
    for capacity in [1, 2, 64] {
        let (mut sender, mut receiver) = lane(capacity);
        let count = 50_000u64;
        let producer = thread::spawn(move || {
            for value in 0..count {
                // Boxed, so that a value read before it was written would not go unseen.
                let mut value = Box::new(value);
                while let Err(refused) = sender.try_push(value) {
                    let Refused::Full(back) = refused else { panic!("the receiver is alive") };
                    value = back;
                    thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while !receiver.is_closed() {
            match receiver.try_pop() {
                Some(value) => {
                    assert_eq!(*value, expected);
                    expected += 1;
                }
                None => thread::yield_now(),
            }
        }
        assert_eq!(expected, count);
        assert!(producer.join().is_ok());
    }
}
