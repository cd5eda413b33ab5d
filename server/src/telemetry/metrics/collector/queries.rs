//! Metrics of queries and of their memory budgets.

use athanor_chassis::memory_budget::MemoryBudgetStats;
use athanor_chassis::requests::query_queue::QueryQueueStats;
use athanor_querier::{QuerierStats, ResultCacheStats};

use super::{MetricsPage, MetricsSnapshot, labels, unlabeled};

impl MetricsSnapshot {
    /// Writes the query queue, quarantine, caches and the memory budgets for results of local and remote
    /// queries.
    pub(super) fn queries(&self, page: &mut MetricsPage) {
        let rooms = [("query", self.querier.map(|of| of.room)), ("blocks", Some(self.cache.room))];
        let of_rooms = |value: fn(&MemoryBudgetStats) -> u64| {
            let known = rooms.iter().filter_map(|(of, room)| Some((*of, room.as_ref()?)));
            let all = known.map(|(of, room)| (labels(&[("of", of)]), value(room) as f64));
            all.collect::<Vec<_>>()
        };
        let help = "Memory of answers that are under way, to queries or to other nodes that ask about blocks";
        page.gauge("athanor_room_taken_bytes", help, of_rooms(|room| room.taken));
        page.gauge("athanor_room_limit_bytes", "How much they may take", of_rooms(|room| room.limit));
        let help = "Answers that were refused since others took that memory";
        page.counter("athanor_room_refused_total", help, of_rooms(|room| room.refused));
        self.others_questions(page);
        let Some(QuerierStats { turns, quarantine, left_out, background, again, twice, room: _ }) =
            self.querier
        else {
            return;
        };
        let mut gauge = |name, help, value: usize| page.gauge(name, help, unlabeled(value as f64));
        gauge("athanor_queries_running", "Queries that are answered", turns.running);
        gauge("athanor_queries_running_limit", "How many may be answered at once", turns.most);
        gauge("athanor_queries_waiting", "Queries that wait for their turn", turns.waiting);
        let help = "Queries that crashed too often, and are refused";
        gauge("athanor_queries_quarantined", help, quarantine.quarantined);
        let help = "Queries that were under way when the process died: each is answered alone";
        gauge("athanor_queries_suspected", help, quarantine.suspected);
        gauge("athanor_background_queries_running", "Queries that run in the background", background.running);
        gauge(
            "athanor_background_queries_kept",
            "Those that have ended and can be asked for",
            background.kept,
        );
        gauge("athanor_background_bytes", "Bytes of their answers", background.bytes);
        gauge("athanor_background_limit_bytes", "How many of them are kept", background.limit);
        again_asked(page, &again);
        let mut counter = |name, help, value: u64| page.counter(name, help, unlabeled(value as f64));
        counter(
            "athanor_queries_crashes_total",
            "Computations for queries that panicked",
            quarantine.crashes,
        );
        let help = "Questions that were asked again since profiles were found to lie in two places";
        counter("athanor_queries_twice_total", help, twice);
        let unread = [("damaged", left_out.damaged), ("unavailable", left_out.unavailable)];
        page.counter(
            "athanor_queries_blocks_left_out_total",
            "Blocks that answers went on without, and said so, since they are damaged or could not be had",
            unread.map(|(reason, count)| (labels(&[("reason", reason)]), count as f64)),
        );
        let refused = [("crowded", turns.refused), ("crashed", quarantine.refused)];
        page.counter(
            "athanor_queries_refused_total",
            "Queries that were refused since too many waited, or since they had crashed too often",
            refused.map(|(reason, count)| (labels(&[("reason", reason)]), count as f64)),
        );
    }

    /// Writes the queue of block queries from other nodes.
    fn others_questions(&self, page: &mut MetricsPage) {
        let QueryQueueStats { running, most, waiting, refused } = self.cache.turns;
        let mut gauge = |name, help, value: usize| page.gauge(name, help, unlabeled(value as f64));
        let help = "Questions of other nodes about blocks that are answered";
        gauge("athanor_gateway_questions_running", help, running);
        gauge("athanor_gateway_questions_running_limit", "How many may be answered at once", most);
        gauge("athanor_gateway_questions_waiting", "Those that wait for their turn", waiting);
        let help = "Questions of other nodes that were refused since too many waited";
        page.counter("athanor_gateway_questions_refused_total", help, unlabeled(refused as f64));
    }
}

/// Writes the metrics of the result cache.
fn again_asked(page: &mut MetricsPage, again: &ResultCacheStats) {
    page.gauge(
        "athanor_queries_kept_bytes",
        "Memory of answers that are kept",
        unlabeled(again.bytes as f64),
    );
    page.gauge("athanor_queries_kept_limit_bytes", "How much they may take", unlabeled(again.limit as f64));
    let mut counter = |name, help, value: u64| page.counter(name, help, unlabeled(value as f64));
    let help = "Requests that were answered as before, since nothing has come that belongs into the answer";
    counter("athanor_queries_again_total", help, again.hits);
    let help =
        "Requests that were answered before, and anew since nobody could say that the answer still holds";
    counter("athanor_queries_anew_total", help, again.misses);
    let help = "Requests that were told what an equal one was answered, which was under way";
    counter("athanor_queries_joined_total", help, again.joined);
    let help = "Kept answers that were not what had been kept: they were found anew";
    counter("athanor_queries_damaged_total", help, again.damaged);
}
