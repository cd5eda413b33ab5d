//! Rust: generics, a closure behind a trait object, a sort callback and a thread.

use std::hint::black_box;
use std::time::{Duration, Instant};

#[inline(always)]
fn burn(seed: u64) -> u64 {
    let mut x = black_box(seed | 1);
    for _ in 0..400_000 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        x ^= x >> 29;
    }
    black_box(x)
}

#[inline(never)]
fn leaf_of_closure(seed: u64) -> u64 {
    burn(seed).wrapping_add(1)
}

#[inline(never)]
fn call_boxed(work: &dyn Fn(u64) -> u64, seed: u64) -> u64 {
    black_box(work(seed)).wrapping_add(seed)
}

#[inline(never)]
fn leaf_of_sort(seed: u64) -> u64 {
    burn(seed).wrapping_add(3)
}

#[inline(never)]
fn sort_numbers(seed: u64) -> u64 {
    let mut numbers: Vec<u64> = (0..4).map(|i| (seed * 31 + i * 17) % 101).collect();
    numbers.sort_by(|left, right| {
        black_box(leaf_of_sort(*left));
        left.cmp(right)
    });
    numbers[0]
}

#[inline(never)]
fn leaf_of_thread(seed: u64) -> u64 {
    burn(seed).wrapping_add(2)
}

fn main() {
    println!("{}", std::process::id());
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let worker = std::thread::spawn(move || {
        let mut seed = 0;
        while Instant::now() < end {
            seed = black_box(leaf_of_thread(seed));
        }
    });
    let offset = black_box(5);
    let work: Box<dyn Fn(u64) -> u64> = Box::new(move |seed| black_box(leaf_of_closure(seed)) ^ offset);
    let mut seed = 0;
    while Instant::now() < end {
        seed = black_box(call_boxed(&*work, seed));
        seed = seed.wrapping_add(sort_numbers(seed % 1000));
    }
    let _ = worker.join();
}
